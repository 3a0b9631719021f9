"""Rules for the weights of PyTorch's layers."""

import pytest

from exburn.applications import torch_rules
from exburn.weights import split_heads, transpose


@pytest.mark.parametrize(
    ("make", "transforms"),
    [
        (torch_rules.dense, [transpose, None]),
        (torch_rules.heads, [transpose >> split_heads, split_heads]),
        (torch_rules.attention_output, [transpose >> split_heads(axis=0), None]),
    ],
)
def test_linear_layers(make, transforms):
    weight, bias = make(r"h.(\d+).fc", "block_{1}/top")
    assert weight[:2] == (r"h.(\d+).fc.weight", "block_{1}/top/kernel")
    assert bias[:2] == (r"h.(\d+).fc.bias", "block_{1}/top/bias")
    found = [entry[2] if len(entry) > 2 else None for entry in (weight, bias)]
    assert list(map(repr, found)) == list(map(repr, transforms))


def test_normalizations():
    assert torch_rules.norm("ln", "n") == [
        ("ln.weight", "n/gamma"),
        ("ln.bias", "n/beta"),
    ]
    names = dict(torch_rules.batch_norm("bn", "n"))
    assert names["bn.running_var"] == "n/moving_variance"
    assert names["bn.num_batches_tracked"] is None and len(names) == 5
