"""Tests of ``exburn.layers.recurrent.gru``."""

import pytest
from tests.layers.check_layer import check_layer
from tests.layers.peer import data
from tests.layers.recurrent.sequences import check_cells, check_layers

from exburn import layers

KINDS = {
    "GRU": ("backwards", "states", "unroll", "plain-scan"),
    "GRU-reset-before": ("all", "states"),
}

CELLS = {
    "GRUCell-reset-before": ({"reset_after": False}, 1),
}

X = data(4, 5, 3)

CONTRACT = {
    "GRU": (
        lambda **k: layers.GRU(
            5, go_backwards=True, return_sequences=True, dropout=0.2, **k
        ),
        X,
        {"random": True, "free": (1,)},
    ),
}

CONFIGS = [
    layers.Bidirectional(
        layers.GRU(3), backward_layer=layers.GRU(3, go_backwards=True)
    ),
]


@pytest.mark.parametrize(
    ("kind", "how"), [(kind, how) for kind, hows in KINDS.items() for how in hows]
)
def test_layers(kind, how):
    check_layers(kind, how)


@pytest.mark.parametrize("kind", CELLS)
def test_cells(kind):
    check_cells(kind, CELLS[kind])


@pytest.mark.parametrize("name", CONTRACT)
def test_contract(name):
    make, x, options = CONTRACT[name]
    check_layer(make, x, **options)


@pytest.mark.parametrize("layer", CONFIGS, ids=lambda v: type(v).__name__)
def test_config(layer):
    config = layer.get_config()
    assert type(layer).from_config(config).get_config() == config
