"""Tests of ``exburn.datasets.adapters.torch_loader``."""

import numpy as np
import pytest

from exburn import layers
from exburn.data import as_dataset
from exburn.errors import ArgumentError, DTypeError


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_torch_loader_and_tensors():
    torch = pytest.importorskip("torch")
    data = torch.utils.data
    x, y = torch.arange(10.0).reshape(5, 2), torch.arange(5)
    loader = data.DataLoader(data.TensorDataset(x, y), batch_size=2)
    stream = as_dataset(loader)
    assert (stream.batches, stream.batch_size, stream.reiterable) == (3, 2, True)
    for _ in range(2):
        rows = np.concatenate([b[1] for b in stream.iterate()])
        assert rows.tolist() == [0, 1, 2, 3, 4] and rows.dtype == np.int32
    with pytest.raises(DTypeError, match="DataLoader"):
        as_dataset(data.TensorDataset(x, y))

    class Lines(data.IterableDataset):
        def __iter__(self):
            return iter([torch.ones(2), torch.zeros(2)])

    assert as_dataset(data.DataLoader(Lines(), batch_size=2)).batches is None

    held = as_dataset(x.requires_grad_(), y)
    assert held.tree[0].dtype == np.float32 and held.size == 5
    half = as_dataset(torch.ones(3, dtype=torch.bfloat16)).tree[0]
    assert half.tolist() == [1, 1, 1]
    eye = torch.eye(2)
    for layout in ("coo", "csr", "csc", "bsr", "bsc"):
        block = (1, 1) if layout[0] == "b" else None
        thin = eye.to_sparse(layout=getattr(torch, f"sparse_{layout}"), blocksize=block)
        assert as_dataset(thin).tree[0].tolist() == [[1, 0], [0, 1]]
    assert layers.Dense(3)(eye).shape == (2, 3)
    with pytest.raises(DTypeError, match="received Tensor"):
        layers.Dense(3)(eye.to_sparse())
    rows = [eye, torch.ones(3, 2)]
    for layout in (torch.strided, torch.jagged):
        nested, dense = torch.nested.nested_tensor(rows, layout=layout), layers.Dense(3)
        with pytest.raises(DTypeError, match="received .*Tensor"):
            dense(nested)
        dense.build((None, 2))
        for change in (dense.kernel.assign, lambda v, d=dense: d.set_weights([v] * 2)):
            with pytest.raises(DTypeError, match="received .*Tensor"):
                change(nested)
        dense.set_weights([torch.ones(2, 3), torch.zeros(3)])
        assert dense(eye).tolist() == [[1] * 3] * 2
    with pytest.raises(DTypeError, match="cannot become an array.*\n.*\n.*no data"):
        as_dataset(eye.to("meta"))
    with pytest.raises(ArgumentError, match="y must not be given"):
        as_dataset(loader, y)


def test_torch_samplers_are_told_the_epoch():
    """A fake with what the adapter uses; the test above runs the real library."""

    class Sampler:
        def set_epoch(self, epoch):
            self.epoch = epoch

    class DataLoader:
        batch_size, batch_sampler = 1, None

        def __init__(self):
            self.sampler = Sampler()

        def __len__(self):
            return 1

        def __iter__(self):
            return iter([np.full((1, 1), self.sampler.epoch)])

    DataLoader.__module__ = "torch.utils.data.dataloader"
    ((x, _, _),) = as_dataset(DataLoader()).iterate(6, None)
    assert x.item() == 6
