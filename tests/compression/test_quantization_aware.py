"""Training with rounding, and what is stored and exported of it."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import errors, layers
from exburn.compression.quantization.aware import all_ranges
from exburn.compression.quantization.ranges import round_within
from exburn.compression.quantization.scheme import Scheme
from exburn.module.variable import exact_weight

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((96, 6)).astype(np.float32)
Y = RANDOM.integers(0, 3, 96)


def make():
    model = exburn.Sequential(
        [
            exburn.Input((6,)),
            layers.Dense(16, "relu", name="hidden"),
            layers.Dropout(0.0),
            layers.Dense(3, "softmax", name="head"),
        ]
    )
    model.compile("adam", "cross_entropy", seed=0)
    return model


def ends(model):
    return {
        f"{path}/{place}": (float(found.low.numpy()), float(found.high.numpy()))
        for path, place, found in all_ranges(model)
    }


@pytest.fixture(scope="module")
def trained():
    model = exburn.quantize_aware(make(), "int8")
    model.fit(X, Y, batch_size=32, epochs=2, shuffle=False, verbose=0)
    return model


def in_steps(x, low, high):
    """Jacob et al., equations 1 and 12: the nearest of 256 steps, one of them 0."""
    scale = np.float32(high - low) / np.float32(255)
    zero = np.rint(-128 - np.float32(low) / scale)
    return (np.clip(np.rint(x / scale) + zero, -128, 127) - zero) * scale


def in_127ths(weight):
    scale = np.abs(weight).max(0) / np.float32(127)
    return np.rint(weight / scale) * scale


def test_it_computes_with_rounded_weights_and_activations(trained):
    kernel, bias, last, shift = (
        exact_weight(getattr(trained.get_layer(name), part)).numpy()
        for name in ("hidden", "head")
        for part in ("kernel", "bias")
    )
    found = ends(trained)
    assert list(found) == ["hidden/input", "hidden/output", "head/sum"]
    x = in_steps(X, *found["hidden/input"])
    h = np.maximum(x @ in_127ths(kernel) + bias, 0)
    h = in_steps(h, *found["hidden/output"])
    sums = in_steps(h @ in_127ths(last) + shift, *found["head/sum"])
    wanted = np.exp(sums) / np.exp(sums).sum(-1, keepdims=True)
    got = trained.predict(X, verbose=0)
    assert np.median(np.abs(got - wanted)) < 1e-6  # a tie may go either way
    assert np.abs(got - wanted).max() < 0.02


def test_ranges_follow_the_batches(trained):
    low = high = None
    for _ in range(2):
        for start in (0, 32, 64):
            batch = X[start : start + 32]
            if low is None:
                low, high = batch.min(), batch.max()
            low = 0.99 * low + 0.01 * batch.min()
            high = 0.99 * high + 0.01 * batch.max()
    np.testing.assert_allclose(ends(trained)["hidden/input"], (low, high), rtol=1e-5)


def test_what_is_stored_is_what_was_trained(trained, tmp_path):
    wanted = trained.predict(X, verbose=0)
    small = trained.quantize()
    again = pickle.loads(pickle.dumps(trained))
    for model, name in ((trained, "aware"), (small, "small")):
        model.save(tmp_path / f"{name}.exburn")
        read = exburn.load_model(tmp_path / f"{name}.exburn")
        got = model.predict(X, verbose=0)
        np.testing.assert_allclose(got, wanted, atol=1e-6)
        assert (read.predict(X, verbose=0) == got).all()
        assert ends(read) == ends(trained)
        assert read.changes == model.changes
    assert (again.predict(X, verbose=0) == wanted).all()
    assert small.quantization_report.ratio < 0.5
    assert small.get_layer("head").get_config()["activation"] == "softmax"
    with pytest.raises(errors.ArgumentError, match="no gradient"):
        small.fit(X, Y, verbose=0)
    with pytest.raises(errors.ArgumentError, match="quantized already"):
        small.quantize("int8")


def test_places_are_those_of_integer_operators():
    x = exburn.Input((8, 8, 3))
    h = layers.Conv2D(4, 3, padding="same", use_bias=False, name="conv")(x)
    h = layers.ReLU(name="relu")(layers.BatchNormalization(name="norm")(h))
    side = layers.DepthwiseConv2D(3, padding="same", name="depth")(h)
    h = layers.Activation("relu", name="last")(layers.Add(name="add")([h, side]))
    h = layers.Conv2D(4, 1, activation="gelu", name="gelu")(layers.MaxPooling2D()(h))
    h = layers.GlobalAveragePooling2D(name="mean")(h)
    h = layers.LayerNormalization(name="exact")(h)
    model = exburn.Model(x, layers.Dense(2, name="head")(h))
    aware = exburn.quantize_aware(model, "int8")
    assert [f"{path}/{place}" for path, place, _ in all_ranges(aware)] == [
        "conv/input",
        "relu/output",
        "depth/output",
        "last/output",
        "gelu/sum",
        "gelu/output",
        "mean/output",
        "head/input",
        "head/output",
    ]
    part = exburn.quantize_aware(model, "int8", filters="head")
    assert [f"{p}/{place}" for p, place, _ in all_ranges(part)] == [
        "head/input",
        "head/output",
    ]
    assert not list(all_ranges(exburn.quantize_aware(model, "int4")))


SCHEMES = {
    "int8": Scheme("int8", (5, 3), (0,)),
    "int8 static": Scheme("int8", (2, 3, 4), (0, 2), scales="float32", static=True),
    "int4 in blocks": Scheme("int4", (3, 4, 2), (0, 1), block_size=4),
    "int4 static": Scheme("int4", (5, 3), (0,), -1, scales="float32", static=True),
    "float8": Scheme("float8", (3, 5), (1,)),
}


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_a_weight_reads_as_it_will_be_stored(scheme):
    weight = RANDOM.standard_normal(scheme.shape).astype(np.float32)
    weight[(0, *[slice(None)] * (weight.ndim - 1))] = 0
    stored = scheme.decode(*map(jnp.asarray, scheme.encode(weight)))
    assert (np.asarray(scheme.round(weight)) == np.asarray(stored)).all()


def test_gradients_pass_what_is_within_a_range_and_move_its_ends():
    x, weight = np.float32([-3, -0.5, 0.303, 2, 2.5]), np.float32([1, 2, 4, 8, 16])

    def total(dtype, x, low, high):
        return (round_within(dtype, x, low, high) * weight).sum()

    def gradients(dtype, low, high):
        ends = map(np.float32, (low, high))
        d_x, *d_ends = jax.grad(total, (1, 2, 3))(dtype, x, *ends)
        y = round_within(dtype, x, np.float32(low), np.float32(high))
        return d_x.tolist(), d_ends, float(((y - x) * weight)[1:3].sum())

    d_x, d_ends, off = gradients("int8", -1, 1.55)  # steps of 0.01
    assert d_x == [0, 2, 4, 0, 0]
    assert off == pytest.approx(4 * -0.003, abs=1e-5)
    np.testing.assert_allclose(d_ends, (1 - off / 2.55, 24 + off / 2.55), rtol=1e-5)
    for low, high, place in ((-1, 2.2, 1), (-2.2, 1, 0)):
        d_x, d_ends, off = gradients("float8", low, high)
        assert d_x == [0, 2, 4, 8, 0]
        assert d_ends[1 - place] == 0
        near = float(round_within("float8", x, *np.float32([low, high]))[3]) - 2
        moved = (16 - 1) + (off + 8 * near) / 2.2
        assert float(d_ends[place]) == pytest.approx(moved * (2 * place - 1), rel=1e-4)


def test_ranges_of_a_trained_model_are_measured():
    model, x = make(), X.copy()
    x[0, 0] = 100.0
    found = {}
    for method in ("minmax", "percentile", "mse"):
        given = {"percentile": 99.0} if method == "percentile" else {}
        small = model.quantize("int8", calibration=x, method=method, **given)
        found[method] = ends(small)["hidden/input"]
        assert small.quantization_report.mode == "int8_static"
    assert found["minmax"] == (x.min(), 100.0)
    low, high = found["percentile"]
    assert 0.99 <= ((low <= x) & (x <= high)).mean() < 0.995
    assert high < 4

    def error(pair):
        return ((in_steps(x, *pair) - x) ** 2).sum()

    assert error(found["mse"]) <= error(found["minmax"])


BAD = {
    "no such mode": (lambda: exburn.quantize_aware(make(), "int3"), "UnknownName"),
    "no model": (lambda: exburn.quantize_aware(layers.Dense(2)), "DType"),
    "no such ranges": (lambda: exburn.quantize_aware(make(), ranges="none"), "Unknown"),
    "no such layer": (lambda: exburn.quantize_aware(make(), filters="x"), "Unknown"),
    "nothing to learn from": (
        lambda: exburn.quantize_aware(make(), ranges="learned"),
        "Argument",
    ),
    "nothing to calibrate": (
        lambda: exburn.quantize_aware(make(), "int4", calibration=X),
        "Argument",
    ),
    "momentum": (lambda: exburn.quantize_aware(make(), momentum=1.0), "Argument"),
    "blocks of int8": (lambda: exburn.quantize_aware(make(), block_size=4), "Argument"),
    "quantized": (lambda: exburn.quantize_aware(make().quantize("int8")), "Argument"),
    "twice": (
        lambda: exburn.quantize_aware(exburn.quantize_aware(make())),
        "Argument",
    ),
    "not built": (
        lambda: exburn.quantize_aware(exburn.Sequential([layers.Dense(2)])),
        "NotBuilt",
    ),
    "never trained": (lambda: exburn.quantize_aware(make()).quantize(), "Argument"),
    "another mode": (
        lambda: exburn.quantize_aware(make(), "int4").quantize("int8"),
        "Argument",
    ),
    "no such method": (
        lambda: make().quantize("int8", calibration=X, method="max"),
        "Unknown",
    ),
    "method without data": (lambda: make().quantize("int8", method="mse"), "Argument"),
    "method of a cast": (
        lambda: make().quantize("float16", calibration=X, method="mse"),
        "Argument",
    ),
    "percentile": (
        lambda: make().quantize(
            "int8", calibration=X, method="percentile", percentile=101
        ),
        "Argument",
    ),
    "percentile of another": (
        lambda: make().quantize("int8", calibration=X, method="mse", percentile=99),
        "Argument",
    ),
    "another kind of inputs": (
        lambda: exburn.quantize_aware(make(), calibration="rows"),
        "DType",
    ),
    "other inputs": (
        lambda: exburn.quantize_aware(make(), calibration=X[:, :4]),
        "Shape",
    ),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_bad_input(case):
    call, kind = case
    with pytest.raises(errors.ExBurnError) as caught:
        call()
    assert type(caught.value).__name__.startswith(kind)


def test_errors_name_what_was_called():
    model = make()
    for bad in ({"filters": "dropout"}, {"calibration": X[:0]}):
        with pytest.raises(errors.ExBurnError, match="^quantize_aware"):
            exburn.quantize_aware(model, **bad)


def test_strings_are_a_calibration_of_a_model_that_looks_them_up():
    word = exburn.Input((1,), dtype="string")
    found = layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")(word)
    model = exburn.Model(word, layers.Dense(2, name="hidden")(found))
    words = np.array([["a"], ["b"], ["c"]])
    small = model.quantize("int8", calibration=words, method="minmax")
    aware = exburn.quantize_aware(model, calibration=words)
    assert ends(small)["hidden/output"] == ends(aware)["hidden/output"]
    # Whole numbers come from a lookup: there is nothing to round, and no range.
    assert "hidden/input" not in ends(small)
    np.testing.assert_array_equal(
        small.predict(words, verbose=0), aware.predict(words, verbose=0)
    )


def test_an_onnx_file_has_the_scales_of_the_training(trained, tmp_path):
    onnx, runtime = map(pytest.importorskip, ("onnx", "onnxruntime"))
    path = tmp_path / "m.onnx"
    report = trained.export(path)
    assert report.operators["QuantizeLinear"] == 3
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {session.get_inputs()[0].name: X})
    wanted = trained.predict(X, verbose=0)
    assert np.median(np.abs(got - wanted)) < 1e-6
    assert np.abs(got - wanted).max() < 0.02
    graph = onnx.load(path).graph
    arrays = {i.name: onnx.numpy_helper.to_array(i) for i in graph.initializer}
    found = [
        float(arrays[node.input[1]])
        for node in graph.node
        if node.op_type == "QuantizeLinear"
    ]
    steps = [(high - low) / 255 for low, high in ends(trained).values()]
    np.testing.assert_allclose(found, steps, rtol=1e-6)
    kernel = exact_weight(trained.get_layer("head").kernel).numpy()
    scales = np.abs(kernel).max(0) / 127
    few = [a for a in arrays.values() if a.dtype == np.uint8 and a.ndim == 2]
    assert {a.shape for a in few} == {(6, 16), (16, 3)}
    assert any(a.shape == (3,) and np.allclose(a, scales) for a in arrays.values())


def test_products_of_large_integers_are_exact_in_an_onnx_file(tmp_path):
    # On AVX2 without VNNI, onnxruntime adds pairs of products in 16 bits, unless
    # neither inputs nor weights have a sign.
    onnx, runtime = map(pytest.importorskip, ("onnx", "onnxruntime"))
    model = exburn.Sequential(
        [
            exburn.Input((4, 4, 8), name="image"),
            layers.Conv2D(2, 3, kernel_initializer="ones"),
        ]
    )
    x = RANDOM.standard_normal((16, 4, 4, 8)).astype(np.float32)
    x[:4] = np.abs(x).max()
    small, path = model.quantize("int8", calibration=x, method="minmax"), tmp_path / "m"
    assert small.export(path, format="onnx", samples=x).error < 1e-6
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"image": x})
    assert np.abs(got - small.predict(x, verbose=0)).max() < 1e-4
    graph = onnx.load(path).graph
    assert not [
        i.name for i in graph.initializer if i.data_type == onnx.TensorProto.INT8
    ]


def test_channels_are_folded_into_the_convolution_of_an_onnx_file(tmp_path):
    onnx, runtime = map(pytest.importorskip, ("onnx", "onnxruntime"))
    model = exburn.Sequential(
        [
            exburn.Input((6, 6, 2), name="image"),
            layers.Conv2D(4, 3, bias_initializer="normal"),
            layers.BatchNormalization(name="norm"),
            layers.ReLU(),
        ]
    )
    norm = model.get_layer("norm")
    norm.gamma.assign([1.0, -2.0, 0.0, 0.5])
    norm.beta.assign([0.1, 3.0, 0.2, -0.1])
    x = RANDOM.standard_normal((32, 6, 6, 2)).astype(np.float32)
    small, path = model.quantize("int8", calibration=x, method="minmax"), tmp_path / "m"
    small.export(path, format="onnx")
    nodes = onnx.load(path).graph.node
    (conv,) = (node for node in nodes if node.op_type == "Conv")
    assert len(conv.input) == 3
    assert not {node.op_type for node in nodes} & {"Mul", "Add"}
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"image": x})
    low, high = ends(small)["re_lu/output"]
    step = (high - low) / 255
    assert np.abs(got - small.predict(x, verbose=0)).max() < 1.5 * step
    assert np.abs(got - model.predict(x, verbose=0)).max() < 4 * step


class Halves(layers.Layer):
    """One product in training, and another one in inference."""

    def build(self, shape):
        self.here, self.there = layers.Dense(8, "relu"), layers.Dense(8)
        self.here.build(shape)
        self.there.build(shape)

    def call(self, x, training=False):
        return self.here(x) if training else self.there(x)


def dead_unit(x):
    bias = exburn.initializers.Constant(-50.0)
    return layers.Dense(8, "relu", bias_initializer=bias, name="dead")(x)


def closed_gate(x):
    gate = layers.Dense(8, kernel_initializer="zeros", name="gate")(x)
    inner = layers.Multiply(name="closed")([gate, layers.Dense(8)(x)])
    return layers.Add()([layers.Dense(8)(x), inner])


UNSEEN = {
    "a dead relu": (dead_unit, ("dead/output",)),
    "a closed gate": (closed_gate, ("gate/output", "closed/output")),
    "a branch that fit does not run": (
        lambda x: Halves(name="halves")(x),
        ("halves/there/input",),
    ),
}


@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
@pytest.mark.parametrize("name", list(UNSEEN))
def test_activations_that_saw_nothing_are_not_rounded(name, mode, tmp_path):
    make, wanted = UNSEEN[name]
    x = exburn.Input((8,))
    h = layers.Dense(8, "tanh")(make(x))
    model = exburn.Model(x, layers.Dense(3, name="head")(h))
    model.compile(exburn.optimizers.SGD(0.0), "mse", seed=0)
    rows = RANDOM.standard_normal((32, 8)).astype(np.float32)
    learned = mode == "int8" and name == "a dead relu"
    aware = exburn.quantize_aware(
        model,
        mode,
        activations=True,
        ranges="learned" if learned else "observed",
        calibration=rows if learned else None,
    )
    aware.fit(rows, np.zeros((32, 3)), verbose=0)
    small = aware.quantize()
    assert set(wanted) <= set(small.quantization_report.unrounded)
    assert wanted[0] in str(small.quantization_report)
    for given in (rows, 300 * rows):  # which opens what was closed in training
        found = small.predict(given, verbose=0)
        np.testing.assert_allclose(found, aware.predict(given, verbose=0), atol=1e-5)
    small.save(tmp_path / "m.exburn")
    read = exburn.load_model(tmp_path / "m.exburn", {"Halves": Halves})
    assert (read.predict(rows, verbose=0) == small.predict(rows, verbose=0)).all()
    if mode != "float8":
        pytest.importorskip("onnxruntime")
        report = aware.export(path := tmp_path / "m.onnx", samples=rows)
        assert any(wanted[0] in note for note in report.notes)
        got, found = exburn.predict(path, rows), small.predict(rows, verbose=0)
        assert np.abs(got - found).max() < 0.02 * np.abs(found).max() + 1e-6


def test_ranges_that_are_measured_tell_what_was_zero():
    x = exburn.Input((8,))
    model = exburn.Model(x, layers.Dense(3)(dead_unit(x)))
    rows = RANDOM.standard_normal((32, 8)).astype(np.float32)
    small = model.quantize("int8", calibration=rows, method="minmax")
    assert small.quantization_report.unrounded[0] == "dead/output"
    told = model.quantize("int8", calibration=rows, method="minmax", dry_run=True)
    assert told.unrounded == small.quantization_report.unrounded
