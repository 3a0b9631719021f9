"""Tests of ``exburn.datasets.adapters.grain_loader``."""

import itertools
import sys

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.data import as_dataset
from exburn.errors import ArgumentError


@pytest.fixture
def grain():
    return pytest.importorskip("grain")


def test_grain_map_dataset(grain):
    source = grain.MapDataset.source(np.arange(10)).map(lambda i: (np.ones(2) * i, i))
    stream = as_dataset(source.batch(4))
    assert stream.batches == 3
    for epoch in range(2):
        batches = list(stream.iterate(epoch))
        assert np.concatenate([y for _, y, _ in batches]).tolist() == list(range(10))
        assert batches[0][0].shape == (4, 2)
    assert as_dataset(source.batch(4).repeat()).batches == sys.maxsize


def test_grain_iter_dataset(grain):
    source = grain.MapDataset.source(np.arange(6)).map(lambda i: {"v": np.ones(2) * i})
    stream = as_dataset(source.to_iter_dataset().batch(3))
    assert stream.batches is None
    assert [x["v"].shape for x, _, _ in stream.iterate()] == [(3, 2), (3, 2)]


def test_grain_data_loader(grain):
    loader = grain.DataLoader(
        data_source=np.arange(6),
        sampler=grain.samplers.IndexSampler(6, num_epochs=1, shuffle=True, seed=1),
        operations=[grain.transforms.Batch(2)],
    )
    stream = as_dataset(loader)
    for epoch in range(2):
        rows = np.concatenate([x for x, _, _ in stream.iterate(epoch)])
        assert sorted(rows.tolist()) == list(range(6))


@pytest.mark.parametrize("epochs", [None, 2])
def test_endless_grain_loaders_are_told(grain, epochs):
    sampler = grain.samplers.IndexSampler(6, num_epochs=epochs)
    batch = [grain.transforms.Batch(2)]
    loader = grain.DataLoader(
        data_source=np.arange(6), sampler=sampler, operations=batch
    )
    rows = grain.MapDataset.source(np.arange(6)).repeat(epochs).to_iter_dataset()
    few = grain.experimental.LimitIterDataset(rows.batch(2), 5)
    batches = [as_dataset(v).batches for v in (loader, rows.batch(2), few)]
    assert batches == ([None] * 3 if epochs else [sys.maxsize, sys.maxsize, None])
    if epochs is None:
        model = exburn.Sequential([exburn.Input((1,)), layers.Dense(1)])
        model.compile("sgd", loss="mse")
        for data in (loader, rows.batch(2), itertools.cycle([np.ones((2, 1))])):
            with pytest.raises(ArgumentError, match="must be given: the .* never ends"):
                model.fit(data)
