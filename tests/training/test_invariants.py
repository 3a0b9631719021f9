"""What a loop over batches computes once: casts and joints of weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn.training import invariants

W = jnp.arange(12.0).reshape(4, 3)
X = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2, 4)), jnp.bfloat16)


@pytest.fixture(autouse=True)
def accelerator(monkeypatch):
    """Where nothing is moved on a CPU, the tests would see nothing."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


def turns(program, *args):
    """What the loop of a program does in each turn."""
    code = jax.make_jaxpr(program)(*args)
    (loop,) = (e for e in code.eqns if e.primitive.name == "scan")
    return code, [e.primitive.name for e in loop.params["jaxpr"].eqns]


def test_weights_are_cast_and_joined_before_the_loop():
    def program(w, x, scan):
        def body(total, x):
            parts = [w.astype(x.dtype), w.astype(x.dtype)]
            y = x @ jnp.concatenate(parts, 1).reshape(4, 6)
            return total + y.sum(), y

        return scan(body, jnp.bfloat16(0), x)

    def ours(w, x):
        return program(w, x, invariants.scan)

    def plain(w, x):
        return program(w, x, jax.lax.scan)

    casts = "convert_element_type"
    (before, inside), (_, all_inside) = turns(ours, W, X), turns(plain, W, X)
    assert {casts, "concatenate"} <= {e.primitive.name for e in before.eqns}
    assert "concatenate" in all_inside
    assert "concatenate" not in inside
    assert inside.count(casts) == all_inside.count(casts) - 2
    for found, wanted in zip(ours(W, X), plain(W, X), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_what_would_take_more_memory_stays_in_the_loop():
    narrow = W.astype("int8")
    _, inside = turns(
        lambda w, x: invariants.scan(lambda c, v: (c, v @ w.astype(v.dtype)), 0, x),
        narrow,
        X,
    )
    assert "convert_element_type" in inside


@pytest.mark.parametrize("call", ["evaluate", "predict"])
def test_models_give_the_same_numbers(call, monkeypatch):
    layers = exburn.layers

    def run():
        tokens = exburn.Input((6,), dtype="int32")
        h = layers.Embedding(11, 8, dtype="mixed_bfloat16")(tokens)
        h = layers.MultiHeadAttention(2, 4, dtype="mixed_bfloat16")(h, h)
        h = layers.Dropout(0.5)(layers.BatchNormalization()(h))
        model = exburn.Model(tokens, layers.Dense(11, dtype="mixed_bfloat16")(h))
        model.compile(
            "adam", "cross_entropy", metrics=["accuracy"], seed=3, join_batches=1
        )
        x = np.random.default_rng(1).integers(0, 11, (70, 6)).astype("int32")
        if call == "evaluate":
            return model.evaluate(x, x, batch_size=8, verbose=0)
        return model.predict(x, batch_size=8, verbose=0)

    moved = []
    lightened = invariants._lighten
    monkeypatch.setattr(
        invariants, "_lighten", lambda *a: moved.append(1) or lightened(*a)
    )
    found = run()
    assert moved
    monkeypatch.setattr(invariants, "scan", jax.lax.scan)
    np.testing.assert_array_equal(found, run())
