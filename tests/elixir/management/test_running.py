"""A model's outputs, their loss, and their shapes."""

import jax
import numpy as np
import pytest
from tests.elixir.networks import X, Y, make

import exburn
from exburn import layers
from exburn.errors import (
    ArgumentError,
    DataError,
    DTypeError,
    ExBurnError,
    NotCompiledError,
    ShapeError,
    TargetError,
    UncalledLayerError,
)


def test_forward(model):
    out = exburn.forward(model, X)
    assert isinstance(out, jax.Array)
    np.testing.assert_allclose(out, model.predict(X, verbose=0), rtol=1e-6)
    dropped = exburn.forward(model, X, training=True)
    assert not np.allclose(out, dropped)
    np.testing.assert_array_equal(exburn.forward(model, X, training=True), dropped)
    before = model.get_layer("norm").moving_mean.numpy()
    assert (before == 0).all()  # nothing is updated
    with pytest.raises(ShapeError):
        exburn.forward(model, X[:, :2])
    with pytest.raises(DataError):
        exburn.forward(model, iter([X]))


def test_compute_loss_knows_probabilities(model):
    """The model ends in a softmax, so its outputs are no logits."""
    p = model.predict(X, verbose=0)
    wanted = -np.log(p[np.arange(10), Y]).mean()
    assert exburn.compute_loss(model, p, Y) == pytest.approx(wanted, rel=1e-5)
    # … and training on such a batch afterwards is not spoilt by it.
    fresh = make()
    exburn.compute_loss(fresh, p, Y)
    assert fresh.evaluate(X, Y, verbose=0) == pytest.approx(wanted, rel=1e-5)
    with pytest.raises(NotCompiledError):
        exburn.compute_loss(exburn.Sequential([layers.Dense(1)]), p, Y)
    with pytest.raises(TargetError):
        exburn.compute_loss(model, p, Y + 3)
    for predictions, y in ((None, Y), (p, ["a"] * 10), (p[:3], Y)):
        with pytest.raises(ExBurnError):
            exburn.compute_loss(model, predictions, y)


def test_forward_pattern():
    a, b = exburn.Input((4,), name="a"), exburn.Input((2,), name="b")
    both = layers.Concatenate()([a, b])
    model = exburn.Model([a, b], {"x": both, "y": layers.Dense(1)(both)})
    assert exburn.forward_pattern(model, 7)["output_shape"] == {
        "x": (7, 6),
        "y": (7, 1),
    }
    with pytest.raises(UncalledLayerError):
        exburn.forward_pattern(exburn.Sequential([layers.Dense(1)]))
    with pytest.raises(ArgumentError):
        exburn.forward_pattern(model, 0)

    class Own(exburn.Model):
        def call(self, x):
            return {"sum": x.sum(-1)}

    own = Own()
    own(X)
    assert exburn.forward_pattern(own, 7)["output_shape"] == {"sum": (7,)}
    assert exburn.forward_pattern(own)["output_shape"] == {"sum": (None,)}


@pytest.mark.parametrize(
    "call",
    [
        lambda m: exburn.forward(m, X),
        lambda m: exburn.compute_loss(m, X, Y),
        exburn.parameters,
        lambda m: exburn.update_params(m, {}),
        exburn.clone,
        exburn.info,
        exburn.forward_pattern,
        lambda m: exburn.to_device(m, "cpu"),
        exburn.serialize_params,
        lambda m: exburn.import_params(m, None),
        lambda m: exburn.fit_with_progress(m, (X, Y)),
    ],
)
def test_what_is_no_model(call):
    with pytest.raises(DTypeError):
        call(object())
