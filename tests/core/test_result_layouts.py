"""Rules for what layers return, as in Keras: ``<layer>/output``."""

import jax
import numpy as np
import pytest
from tests.distribution.devices import on_devices

import exburn
from exburn import layers
from exburn.errors import LayoutError

X = np.random.default_rng(0).standard_normal((42, 8)).astype("float32")
MESH = {"data": 2, "model": 4}


def network(**layout):
    model = exburn.Sequential(
        [
            exburn.Input((8,)),
            layers.Dense(16, "relu", name="up"),
            layers.Dense(8, name="down"),
        ]
    )
    settings = {"mesh": MESH, "layout": layout} if layout else {}
    model.compile("adam", "mse", seed=0, **settings)
    return model


@on_devices
def test_a_result_lies_where_a_rule_says():
    model, plain = network(**{"up/output": ("data", "model")}), network()
    histories = [m.fit(X, X, 16, 5, verbose=0).history["loss"] for m in (model, plain)]
    np.testing.assert_allclose(*histories, rtol=1e-5)
    trainer = model._training_session.trainer
    steps, placement = trainer.preparer.programs.steps, trainer.holder.placement
    chunk = placement.row_specs(
        (jax.ShapeDtypeStruct((1, 16, 8), "float32"), None, None)
    )
    with placement.scope():
        predict = jax.jit(steps.without_counting().predict)
        jaxpr = str(predict.trace(trainer.holder.arrays, chunk, None, 0).jaxpr)
    assert "PartitionSpec('data', 'model')" in jaxpr or "P('data', 'model')" in jaxpr
    rules = {row.path: row.rule for row in model.sharding_summary()}
    assert rules["up/kernel"] == "whole on every device"


@on_devices
def test_masks_go_with_it():
    def masked(**settings):
        model = exburn.Sequential(
            [
                exburn.Input((6,), dtype="int32"),
                layers.Embedding(12, 8, mask_zero=True, name="table"),
                layers.LSTM(8),
                layers.Dense(1),
            ]
        )
        model.compile("adam", "mse", seed=0, **settings)
        return model

    ids = np.random.default_rng(0).integers(0, 3, (32, 6))
    rule = {"table/output": ("data", None, "model")}
    pair = [
        m.fit(ids, ids[:, :1], 8, 2, verbose=0).history["loss"]
        for m in (masked(), masked(mesh=MESH, layout=rule))
    ]
    np.testing.assert_allclose(*pair, rtol=1e-5)


@on_devices
@pytest.mark.parametrize(
    "rule, axes, said",
    [
        ("upp/output", ("data",), "'upp/output' matches no weight"),
        ("up/output", ("data", None, "model"), "does not fit what 'up' returns"),
    ],
)
def test_rules_that_do_not_fit(rule, axes, said):
    model = network(**{rule: axes})
    with pytest.raises(LayoutError, match=said):
        model.fit(X, X, 16, verbose=0)
    assert model.trace_counts == {}


@on_devices
def test_rows_that_do_not_divide():
    def mean(y, p):
        return jax.numpy.mean((y - p) ** 2)  # of all rows: a tail runs at its own size

    pair = []
    for layout in ({}, {"up/output": ("data", "model")}):
        model = network(**layout)
        settings = {"mesh": MESH, "layout": layout} if layout else {}
        model.compile("adam", mean, seed=0, **settings)
        pair.append(model.fit(X[:41], X[:41], 16, 3, verbose=0).history["loss"])
    np.testing.assert_allclose(*pair, rtol=1e-5)
