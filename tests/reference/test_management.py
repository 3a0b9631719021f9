"""Management functions, devices, and looking inside of a model."""

import json
import logging
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import compute, layers
from exburn.errors import (
    ArgumentError,
    DataError,
    DTypeError,
    ExBurnError,
    FileFormatError,
    NotBuiltError,
    NotCompiledError,
    ShapeError,
    TargetError,
    UnknownNameError,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(10, 4)).astype(np.float32)
Y = RNG.integers(0, 3, 10)


def make(**options):
    model = exburn.Sequential(
        [
            exburn.Input((4,)),
            layers.Dense(6, "relu", name="hidden"),
            layers.BatchNormalization(name="norm"),
            layers.Dropout(0.5, name="drop"),
            layers.Dense(3, "softmax", name="out"),
        ]
    )
    model.compile("adam", "cross_entropy", seed=0, **options)
    return model


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
    with pytest.raises(NotBuiltError):
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


# --- parameters in files ------------------------------------------------------------


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


# --- looking inside -----------------------------------------------------------------


def test_capture(model):
    found = model.capture(X)
    assert list(found) == ["hidden", "norm", "drop", "out"]
    w, b = (v.numpy() for v in model.get_layer("hidden").weights)
    np.testing.assert_allclose(found["hidden"], np.maximum(X @ w + b, 0), atol=1e-5)
    np.testing.assert_allclose(found["out"], model.predict(X, verbose=0), rtol=1e-5)
    again = model.capture(X, layers=["out", model.get_layer("hidden")])
    assert list(again) == ["out", "hidden"]
    assert (model.capture(X, "drop", training=True)["drop"] == 0).any()
    model.capture(X)
    assert [n for k, n in model.trace_counts.items() if k.startswith("capture")] == [
        1
    ] * 3


def test_capture_nested_shared_and_looped():
    inner = exburn.Sequential(
        [exburn.Input((4,)), layers.Dense(4, name="d")], name="in"
    )
    x = exburn.Input((4,))
    model = exburn.Model(x, inner(inner(x)))
    first, second = model.capture(X, layers=["in/d"])["in/d"]
    np.testing.assert_allclose(second, model.predict(X, verbose=0), rtol=1e-5)
    np.testing.assert_allclose(first, inner.predict(X, verbose=0), rtol=1e-5)
    with pytest.raises(UnknownNameError, match="in/d"):
        model.capture(X, layers=["in/e"])
    rnn = exburn.Sequential(
        [exburn.Input((5, 4)), layers.RNN(layers.SimpleRNNCell(3, name="cell"))]
    )
    with pytest.raises(ArgumentError, match="inside a loop"):
        rnn.capture(np.ones((2, 5, 4)), layers=["cell"])

    class Loop(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.inner = layers.Dense(4, name="inner")

        def build(self, input_shape):
            self.inner.build(input_shape)
            self.inner.built = True

        def call(self, x):
            return jax.lax.fori_loop(0, 2, lambda _, v: self.inner(v), x)

    looped = exburn.Sequential([exburn.Input((4,)), Loop()])
    with pytest.raises(ArgumentError, match="inside a loop"):
        looped.capture(X, layers=["inner"])


def test_on_output_streams_out_of_fit():
    model = make()
    seen = []
    with model.on_output("hidden", lambda out: seen.append(out.copy())):
        model.fit(X, Y, batch_size=4, verbose=0, shuffle=False)
        compute.synchronize()
        assert sorted(len(out) for out in seen) == [2, 4, 4]  # no padding
        seen.clear()
        model.evaluate(X, Y, batch_size=16, verbose=0)
        compute.synchronize()
        np.testing.assert_allclose(
            np.concatenate(seen), model.capture(X)["hidden"], rtol=1e-5
        )
        model.summary(print_fn=lambda text: None)
    seen.clear()
    model.fit(X, Y, verbose=0)
    compute.synchronize()
    assert seen == []


def test_an_error_in_on_output_costs_no_weights(caplog):
    model = make()
    calls = []

    def fail(out):
        calls.append(1)
        raise ValueError("mine")

    tap = model.on_output("hidden", fail)
    with caplog.at_level(logging.ERROR, "exburn"):
        model.fit(X, Y, batch_size=2, verbose=0)
        compute.synchronize()
    assert str(tap.error) == "mine" and calls == [1] and "mine" in caplog.text
    tap.remove()
    assert np.isfinite(model.predict(X, verbose=0)).all()
    with pytest.raises(ArgumentError):
        model.on_output("hidden", "no function")


def test_named_axes(tmp_path):
    x = exburn.Input((None, 8), axes=("time", "feature"), name="tokens")
    model = exburn.Model(x, layers.Dense(2)(x))
    text = []
    model.summary(print_fn=text.append)
    assert "Inputs:  (batch, time, feature=8)" in text[0]
    assert "Outputs: (batch, time, 2)" in text[0]
    model.output_axes = ("batch", "time", "class")
    model.summary(print_fn=text.append)
    assert "Outputs: (batch, time, class=2)" in text[1]
    with pytest.raises(ShapeError, match="axes: batch, time, feature"):
        model.predict(np.ones((3, 4, 9)), verbose=0)
    stack = exburn.Sequential([x, layers.Dense(1)])
    stack.output_axes = ("batch", "time", "score")
    for kept, last in ((model, "class"), (stack, "score")):
        kept.save(tmp_path / "named.exburn")
        for other in (kept.clone(), exburn.load_model(tmp_path / "named.exburn")):
            assert other.input_axes == [("batch", "time", "feature")]
            assert other.output_axes == [("batch", "time", last)]
    assert exburn.Sequential([layers.Dense(1)]).input_axes is None
    for bad in (("a",), ("a", "a"), ("a", 1), "ab"):
        with pytest.raises(ArgumentError):
            exburn.Input((None, 8), axes=bad)
    with pytest.raises(ArgumentError):
        model.output_axes = ("batch",)


# --- devices ------------------------------------------------------------------------

TWO_DEVICES = """
import jax, numpy as np, exburn
from exburn import layers
x, y = np.ones((16, 4), np.float32), np.zeros(16, int)
model = exburn.Sequential([exburn.Input((4,)), layers.Dense(3)])
model.compile("adam", "cross_entropy", device="cpu:1")
model.fit(x, y, verbose=0)
where = lambda: {d.id for w in model.weights for d in w.get_value().devices()}
assert where() == {1}, where()
leaves = jax.tree.leaves(model._trainer("").opt_state)
assert {d.id for v in leaves for d in v.devices()} == {1}
assert exburn.forward(model, x).devices() == {jax.devices()[1]}
exburn.to_device(model, "cpu:0")
model.fit(x, y, verbose=0)
assert where() == {0}, where()
assert exburn.configure("cpu:1") and exburn.compute.buffer([1]).device.id == 1
exburn.configure()
assert exburn.compute.buffer([1]).device.id == 0
model = exburn.Sequential([layers.Dense(3)])  # built by fit
model.compile("sgd", "cross_entropy", device=jax.devices()[1])
model.fit(x, y, verbose=0)
assert where() == {1}, where()
print("ok")
"""


def test_two_devices():
    flags = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-P", "-c", TWO_DEVICES],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "ok", done.stderr[-2000:]


def test_doctor_and_summary(monkeypatch, tmp_path):
    from exburn import health

    report = exburn.doctor()
    assert report.ok, str(report)
    assert (
        exburn.device_name() in str(report) and exburn.device_name() in exburn.summary()
    )
    assert exburn.version() == exburn.__version__
    monkeypatch.setattr(health, "_requirements", lambda: ["jax>=99.0"])
    bad = exburn.doctor()
    assert not bad.ok and 'pip install "jax>=99.0"' in str(bad)
    monkeypatch.setattr(
        health,
        "device_info",
        lambda: {"device": "none", "name": "none (x)", "notes": ["install a driver"]},
    )
    assert "✗ device" in str(exburn.doctor()) and "install a driver" in str(
        bad := exburn.doctor()
    )
    assert not bad.ok


def test_smoke_test_sees_wrong_numbers_and_failures(monkeypatch):
    from exburn import health

    monkeypatch.setattr(jnp, "tanh", lambda x: 1.001 * x)
    with pytest.raises(ExBurnError, match="wrong numbers"):
        exburn.smoke_test()

    def fail(x):
        raise RuntimeError("no driver")

    monkeypatch.setattr(jnp, "tanh", fail)
    with pytest.raises(ExBurnError, match="no driver"):
        exburn.smoke_test()
    assert any(c.state == "broken" for c in health.doctor().checks)


def test_configure_refuses_what_is_not_there():
    for bad in ("tpu", "cpu:77", "cpu:x"):
        with pytest.raises(ArgumentError, match="device"):
            exburn.configure(bad)
