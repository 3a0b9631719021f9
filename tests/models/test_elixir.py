"""Functions of models under the names of the reference system."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.models.networks import X, Y, make

import exburn
from exburn import layers
from exburn.errors import (
    ArgumentError,
    DataError,
    DTypeError,
    ExBurnError,
    FileFormatError,
    NotCompiledError,
    ShapeError,
    TargetError,
    UncalledLayerError,
    UnknownNameError,
)


@pytest.fixture(scope="module")
def model():
    return make()


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


def test_update_params_is_all_or_nothing(model):
    before = model.get_weights()
    for bad, error in (
        ({"hidden/bias": np.ones(6), "nowhere": np.ones(1)}, UnknownNameError),
        ({"hidden/bias": np.ones(6), "out/bias": np.ones(4)}, ShapeError),
        ({"hidden/bias": np.ones(6), "out/bias": ["a", "b", "c"]}, DTypeError),
        ({"hidden/bias": np.ones(6), "out/bias": [1, 2, 3j]}, DTypeError),
        ({"hidden/bias": np.ones(6), "out/bias": [[1], [1, 2], 3]}, DTypeError),
        ([np.ones(6)], DTypeError),
    ):
        with pytest.raises(error):
            exburn.update_params(model, bad)
        for a, b in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)
    made = make()
    exburn.update_params(made, {"hidden/bias": np.ones(6)})
    assert made.get_layer("hidden").bias.numpy().tolist() == [1.0] * 6


def test_clone_shares_nothing():
    one = make(clip_norm=1.0)
    one.fit(X, Y, verbose=0)
    twin = exburn.clone(one)
    assert twin.optimizer.iterations == one.optimizer.iterations == 1
    assert twin.optimizer.global_clipnorm == 1.0
    for m in (one, twin):
        m.fit(X, Y, verbose=0, shuffle=False)
    for a, b in zip(one.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)  # the same step, dropout included
    twin.fit(X, Y, verbose=0)
    assert one.optimizer.iterations == 2
    one.fit(X, Y, verbose=0)  # its arrays were not donated by the twin's


def test_info():
    made = make(learning_rate=0.02, weight_decay=0.1)
    found = exburn.info(made)
    assert found == {
        "total_params": 75,
        "layer_count": 4,
        "loss_function": "cross_entropy",
        "optimizer": "adam",
        "learning_rate": 0.02,
        "device": str(jax.devices()[0]),
        "weight_decay": 0.1,
        "frozen_layers_count": 0,
        "estimated_memory_mb": pytest.approx(75 * 4 / 2**20),
        "compiled": True,
    }
    made.get_layer("hidden").trainable = False
    assert exburn.info(made)["frozen_layers_count"] == 1


def test_params_there_and_back(tmp_path):
    one, other = make(), make()
    one.fit(X, Y, verbose=0)
    routes = {
        "bytes": lambda: exburn.deserialize_params(other, exburn.serialize_params(one)),
        "json": lambda: exburn.import_params(
            other, exburn.export_params(one, format="json"), format="json"
        ),
        "file": lambda: exburn.import_params(
            other, exburn.export_params(one, tmp_path / "p.json")
        ),
        "safetensors": lambda: exburn.import_params(
            other, exburn.export_params(one, tmp_path / "p.safetensors")
        ),
    }
    for name, route in routes.items():
        exburn.update_params(
            other, {k: np.zeros(v.shape) for k, v in exburn.parameters(other).items()}
        )
        assert route() is other
        for a, b in zip(one.get_weights(), other.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)


def test_json_is_json_and_keeps_every_bit():
    made = exburn.Sequential([exburn.Input((3,)), layers.Dense(1, dtype="bfloat16")])
    odd = np.array([[np.nan], [np.inf], [1 / 3]], np.float32)
    exburn.update_params(made, {"dense/kernel": odd})
    text = exburn.export_params(made, format="json")

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    entry = json.loads(text, parse_constant=refuse)["dense/kernel"]
    assert entry["type"] == "bfloat16" and entry["shape"] == [3, 1]
    before = exburn.parameters(made)["dense/kernel"]
    exburn.update_params(made, {"dense/kernel": np.zeros((3, 1))})
    exburn.import_params(made, text, format="json")
    after = exburn.parameters(made)["dense/kernel"]
    assert np.asarray(before).tobytes() == np.asarray(after).tobytes()
    # The names of types that Nx writes are understood as well.
    nx = text.replace('"bfloat16"', '"bf16"')
    assert exburn.import_params(made, nx, format="json") is made


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int8", "int4"])
def test_bytes_of_every_dtype(dtype, tmp_path):
    made = make()
    if dtype != "float32":
        made = made.quantize(dtype)
    bits = [np.asarray(v).tobytes() for v in exburn.parameters(made).values()]
    contents = exburn.serialize_params(made)
    for weight in made.weights:
        weight.set_value(jnp.zeros_like(weight.get_value()))
    exburn.deserialize_params(made, contents)
    assert bits == [np.asarray(v).tobytes() for v in exburn.parameters(made).values()]
    path = str(exburn.export_params(made, tmp_path / "p.json"))
    assert exburn.import_params(made, path, format="json") is made


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [-1]},
        {"shape": ["3"]},
        {"shape": [3.0]},
        {"shape": [4]},
        {"data": [1, 2]},
        {"data": [None, 1, 2]},
        {"data": ["one", 1, 2]},
        {"data": [[1, 2, 3]]},
        {"type": "s8", "data": [1.5, 1, 2]},
        {"type": "s8", "data": [300, 1, 2]},
        {"type": "object"},
        {"type": "complex64"},
        {"type": 5},
    ],
    ids=str,
)
def test_damaged_entries(model, changes):
    before = model.get_weights()
    entries = json.loads(exburn.export_params(model, format="json"))
    entries["out/bias"] |= changes
    with pytest.raises((FileFormatError, ShapeError)):
        exburn.import_params(model, json.dumps(entries))
    for a, b in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_damaged_params(model, tmp_path):
    data = exburn.serialize_params(model)
    before = model.get_weights()
    bad = [
        (lambda: exburn.deserialize_params(model, b"nonsense"), FileFormatError),
        (lambda: exburn.deserialize_params(model, data[:-5]), FileFormatError),
        (lambda: exburn.import_params(model, "[1]", format="json"), FileFormatError),
        (lambda: exburn.import_params(model, "{}", format="json"), FileFormatError),
        (
            lambda: exburn.import_params(
                model,
                '{"a": {"shape": [2], "type": "f32", "data": [1]}}',
                format="json",
            ),
            FileFormatError,
        ),
        (lambda: exburn.import_params(model, tmp_path / "no.json"), ArgumentError),
        (lambda: exburn.export_params(model, format="elixir_terms"), UnknownNameError),
        (lambda: exburn.export_params(model, tmp_path / "p.bin"), UnknownNameError),
    ]
    for call, error in bad:
        with pytest.raises(error):
            call()
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_accuracy_is_added_once():
    made = make()
    history = made.fit(X, Y, verbose=0, accuracy=True)
    assert list(history.history) == ["loss", "accuracy"]
    assert list(made.fit(X, Y, verbose=0, accuracy=True).history) == [
        *("loss", "accuracy")
    ]
    assert made.optimizer.iterations == 2  # the optimizer went on
    assert list(make(accuracy=True).fit(X, Y, verbose=0).history) == [
        *("loss", "accuracy")
    ]
