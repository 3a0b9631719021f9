"""``model.quantize``: what it returns, refuses, reports, and leaves alone."""

import pickle

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import exburn
from exburn import errors, layers
from exburn.quantization import QuantizationReport
from exburn.saving import load_model
from exburn.traversal import iter_weights


def make(compiled=False):
    model = exburn.Sequential(
        [
            exburn.Input((64,)),
            layers.Dense(96, "relu", name="hidden"),
            layers.BatchNormalization(name="norm"),
            layers.Dense(3, name="head"),
        ]
    )
    if compiled:
        model.compile("adam", "cross_entropy", metrics=["accuracy"], seed=0)
    return model


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((96, 64)).astype(np.float32)
    return x, (x @ rng.standard_normal((64, 3))).argmax(-1).astype(np.int32)


@pytest.fixture(scope="module")
def trained(data):
    model = make(compiled=True)
    model.fit(*data, epochs=2, verbose=0)
    return model


def weights(model):
    return {path: np.array(w.get_raw_value()) for path, w, _ in iter_weights(model)}


def equal(a, b):
    return a.keys() == b.keys() and all((a[k] == b[k]).all() for k in a)


# ------------------------------------------------------------------------- the result
def test_the_model_itself_stays_and_goes_on_training(trained, data):
    before, outputs = weights(trained), trained.predict(data[0], verbose=0)
    small = trained.quantize("int4", calibration=data[0])
    half = trained.quantize("bfloat16")
    half.fit(*data, verbose=0)  # donates its own arrays, not the model's
    assert equal(weights(trained), before)
    assert (trained.predict(data[0], verbose=0) == outputs).all()
    assert trained.quantization_report is None and trained.changes == []
    assert small.compiled and small.optimizer is not trained.optimizer
    found = small.evaluate(*data, verbose=0, return_dict=True)
    exact = trained.evaluate(*data, verbose=0, return_dict=True)
    assert found["accuracy"] == pytest.approx(exact["accuracy"], abs=0.1)


def test_casts_train_and_normalization_stays_in_float32(trained, data):
    small = trained.quantize(jnp.bfloat16)
    dtypes = {path: str(w.dtype) for path, w, _ in iter_weights(small)}
    assert dtypes["hidden/kernel"] == dtypes["head/bias"] == "bfloat16"
    assert {v for path, v in dtypes.items() if "norm" in path} == {"float32"}
    before = small.evaluate(*data, verbose=0, return_dict=True)["loss"]
    small.fit(*data, epochs=3, verbose=0)
    assert small.evaluate(*data, verbose=0, return_dict=True)["loss"] < before


def test_few_bits_do_not_train_and_say_so(trained, data):
    small = trained.quantize("int8")
    kept = weights(small)
    for train in (small.fit, small.train_on_batch):
        with pytest.raises(errors.ArgumentError, match="add_lora"):
            train(*data)
    assert equal(weights(small), kept)
    assert small.trainable_weights == []


@pytest.mark.parametrize(
    "dtype",
    [
        "int8",
        "int4",
        *(
            pytest.param(dtype, marks=pytest.mark.slow)
            for dtype in ("float16", "int8_dynamic", "float8")
        ),
    ],
)
def test_files_hold_few_bits(trained, data, dtype, tmp_path):
    small = trained.quantize(dtype)
    report, outputs = small.quantization_report, small.predict(data[0], verbose=0)
    small.save(tmp_path / "m.exburn", include_optimizer=False)
    small.save_weights(tmp_path / "w.safetensors")
    again = load_model(tmp_path / "m.exburn")
    assert (again.predict(data[0], verbose=0) == outputs).all()
    assert equal(weights(again), weights(small))
    size = (tmp_path / "w.safetensors").stat().st_size
    assert report.bytes_after < size < report.bytes_after + 3000
    if dtype == "int8":  # weights fit into another quantized model, or into none
        other = make().quantize("int8")
        other.load_weights(tmp_path / "w.safetensors")
        assert (other.predict(data[0], verbose=0) == outputs).all()
        with pytest.raises(errors.FileFormatError):
            make().load_weights(tmp_path / "w.safetensors")


def test_a_clone_is_quantized_too(trained, data):
    small = trained.quantize("int4")
    for copy in (small.clone(), pickle.loads(pickle.dumps(small))):
        assert equal(weights(copy), weights(small)) and copy.changes == small.changes
    assert (copy.predict(data[0], verbose=0) == small.predict(data[0], verbose=0)).all()
    layer = small.get_layer("head")
    copy = layer.clone()
    assert equal(weights(copy), weights(layer)) and copy.kernel is not layer.kernel
    x = np.ones((2, 96), np.float32)
    assert (copy(x) == layer(x)).all()


def test_symbols_lead_to_the_quantized_layers(trained, data):
    small = trained.quantize("int8")
    part = exburn.Model(small.input, small.get_layer("hidden").output)
    assert part.get_layer("hidden") is small.get_layer("hidden")
    assert small.get_layer("hidden") is not trained.get_layer("hidden")
    assert part.predict(data[0], verbose=0).shape == (96, 96)


def test_summary_shows_dtypes_and_bytes(trained):
    lines = []
    trained.quantize("int8").summary(print_fn=lambda text, **_: lines.append(text))
    text = "\n".join(lines)
    assert "int8, float32" in text and "Trainable params: 0 (0 B)" in text
    assert f"Total params: {trained.count_params():,} (" in text
    small = trained.quantize("int4")
    assert small.count_params() == trained.count_params()


def test_nested_and_subclassed_models(data, tmp_path):
    @exburn.register
    class Twice(exburn.Model):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.inner = exburn.Sequential([layers.Dense(64, "relu")], name="inner")
            self.head = layers.Dense(3)

        def call(self, x):
            return self.head(self.inner(self.inner(x)))

    model = Twice()
    model.predict(data[0], verbose=0)
    small = model.quantize("int8", calibration=data[0])
    assert [row.path for row in small.quantization_report.layers] == [
        "inner/dense",
        "head",
    ]
    outputs = small.predict(data[0], verbose=0)
    small.save(tmp_path / "m.exburn")
    loaded = load_model(tmp_path / "m.exburn")
    assert (loaded.predict(data[0], verbose=0) == outputs).all()


def test_a_model_of_quantized_layers_tells_so(trained, data, tmp_path):
    small = trained.quantize("int4", block_size=32, filter="hidden")
    x = exburn.Input((64,))
    h = small.get_layer("hidden")(x)
    model = exburn.Model(x, layers.Dense(2, name="fresh")(h))
    model.get_layer("hidden").trainable = False
    outputs = model.predict(data[0], verbose=0)
    model.save(tmp_path / "m.exburn")
    loaded = load_model(tmp_path / "m.exburn")
    assert (loaded.predict(data[0], verbose=0) == outputs).all()
    assert [record["layers"] for record in loaded.changes] == [["hidden"]]
    with pytest.raises(errors.ArgumentError, match="already"):
        model.quantize("int8")


def test_a_subclass_with_a_call_of_its_own_keeps_it(data):
    class Doubled(layers.Dense):
        def call(self, x):
            return 2 * super().call(x)

    model = exburn.Sequential([exburn.Input((64,)), Doubled(4)])
    small = model.quantize("int8")
    exact, found = (m.predict(data[0], verbose=0) for m in (model, small))
    np.testing.assert_allclose(found, exact, atol=0.1 * exact.std())


def test_spectral_normalization_keeps_its_kernel(data):
    model = exburn.Sequential(
        [
            exburn.Input((64,)),
            layers.SpectralNormalization(layers.Dense(96)),
            layers.Dense(8),
        ]
    )
    report = model.quantize("int8", dry_run=True)
    assert [row.kind for row in report.layers] == ["Dense"]
    assert "SpectralNormalization" in report.skipped[0].reason


# ------------------------------------------------------------------------- filter
@pytest.mark.parametrize(
    "chosen",
    ["hidden", "hid*", ["hidden"], lambda layer: layer.name == "hidden", "layer"],
)
def test_filter_chooses_layers(trained, chosen):
    chosen = trained.get_layer("hidden") if chosen == "layer" else chosen
    report = trained.quantize("int8", filter=chosen, dry_run=True)
    assert [row.path for row in report.layers] == ["hidden"]
    reasons = {row.path: row.reason for row in report.skipped}
    assert reasons == {
        "norm": "not selected by filter",
        "head": "not selected by filter",
    }


def test_a_filter_survives_saving(trained, data, tmp_path):
    small = trained.quantize("bfloat16", filter="hidden")
    small.save(tmp_path / "m.exburn")
    again = load_model(tmp_path / "m.exburn")
    assert [str(w.dtype) for w in again.get_layer("head").weights] == ["float32"] * 2
    assert (
        again.predict(data[0], verbose=0) == small.predict(data[0], verbose=0)
    ).all()


# ------------------------------------------------------------------------- the report
def test_the_report_tells_bytes_and_errors(trained, data):
    before = weights(trained)
    plain = trained.quantize("int8", dry_run=True)
    report = trained.quantize("int8", calibration=data[0], dry_run=True)
    assert isinstance(report, QuantizationReport) and equal(weights(trained), before)
    assert [row.path for row in report.layers] == ["hidden", "head"]
    hidden = report.layers[0]
    assert (hidden.kind, hidden.scheme) == ("Dense", "int8")
    assert hidden.bytes_before == 4 * (64 * 96 + 96)
    assert hidden.bytes_after == 64 * 96 + 2 * 96 + 4 * 96
    assert report.bytes_before == sum(v.nbytes for v in before.values())
    assert report.skipped[0].reason == "normalization stays in float32"
    assert report.calibrated and not plain.calibrated
    assert plain.mean_error is None
    # the output's error is what predict shows
    small = trained.quantize("int8")
    exact, found = (m.predict(data[0], verbose=0) for m in (trained, small))
    size = np.sqrt((exact**2).mean())
    assert report.mean_error == pytest.approx(
        np.abs(found - exact).mean() / size, rel=1e-3
    )
    assert report.worst_error == pytest.approx(
        np.abs(found - exact).max() / size, rel=1e-3
    )
    # a layer's error is measured on the exact model's inputs
    kernel = small.get_layer("hidden").kernel.numpy()
    own = trained.get_layer("hidden")
    want = np.maximum(data[0] @ own.kernel.numpy() + own.bias.numpy(), 0)
    got = np.maximum(data[0] @ kernel + own.bias.numpy(), 0)
    assert hidden.mean_error == pytest.approx(
        np.abs(got - want).mean() / np.sqrt((want**2).mean()), rel=1e-3
    )
    text = str(report)
    assert "normalization stays in float32" in text and "Model's output" in text
    weight = plain.layers[0]
    assert 0 < weight.mean_error < weight.worst_error < 0.03


# ------------------------------------------------------------------------- errors
def quantized():
    return make().quantize("int8")


def adapted():
    model = make()
    model.add_lora(2)
    return model


BAD = {
    "no such dtype": (make, ("int3",), {}, errors.UnknownNameError),
    "no quantized dtype": (make, (jnp.float64,), {}, errors.UnknownNameError),
    "not a dtype": (make, (None,), {}, errors.UnknownNameError),
    "small block": (make, ("int4",), {"block_size": 16}, errors.ArgumentError),
    "no whole block": (make, ("int4",), {"block_size": 64.0}, errors.ArgumentError),
    "block without int4": (make, ("int8",), {"block_size": 64}, errors.ArgumentError),
    "compute dtype": (
        make,
        ("int8",),
        {"compute_dtype": "int8"},
        errors.UnknownNameError,
    ),
    "computed otherwise": (
        make,
        ("float16",),
        {"compute_dtype": "bfloat16"},
        errors.ArgumentError,
    ),
    "twice": (quantized, ("int8",), {}, errors.ArgumentError),
    "twice otherwise": (quantized, ("bfloat16",), {}, errors.ArgumentError),
    "with adapters": (adapted, ("int8",), {}, errors.ArgumentError),
    "no such layer": (make, ("int8",), {"filter": "heed"}, errors.UnknownNameError),
    "an empty filter": (
        make,
        ("int8",),
        {"filter": lambda layer: False},
        errors.ArgumentError,
    ),
    "only a norm": (make, ("int8",), {"filter": "norm"}, errors.ArgumentError),
    "nothing to quantize": (
        lambda: exburn.Sequential([exburn.Input((4,)), layers.ReLU()]),
        ("int8",),
        {},
        errors.ArgumentError,
    ),
    "not built": (
        lambda: exburn.Sequential([layers.Dense(3)]),
        ("int8",),
        {},
        errors.NotBuiltError,
    ),
    "wrong width": (
        make,
        ("int8",),
        {"calibration": np.ones((4, 63), np.float32)},
        errors.ShapeError,
    ),
    "wrong rank": (
        make,
        ("int8",),
        {"calibration": np.ones((4, 2, 64), np.float32)},
        errors.ShapeError,
    ),
    "empty calibration": (
        make,
        ("int8",),
        {"calibration": np.ones((0, 64), np.float32)},
        errors.DataError,
    ),
    "infinite calibration": (
        make,
        ("int8",),
        {"calibration": np.full((4, 64), np.inf, np.float32)},
        errors.DataError,
    ),
    "a loader": (
        make,
        ("int8",),
        {"calibration": iter([np.ones((4, 64), np.float32)])},
        errors.DataError,
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_come_before_anything_changes(case):
    build, args, options, error = BAD[case]
    model = build()
    before = weights(model) if model.built else {}
    with pytest.raises(error):
        model.quantize(*args, **options)
    assert equal(weights(model) if model.built else {}, before)


def test_a_record_of_another_model_is_refused():
    record = make().quantize("int8").changes
    other = exburn.Sequential([exburn.Input((4,)), layers.Dense(64, name="other")])
    for broken in (
        record,
        [record[0] | {"dtype": "int3"}],
        [record[0] | {"layers": ["nowhere"]}],
        [{"kind": "surprise"}],
        ["quantization"],
        [{"kind": "lora", "rank": 10**9, "alpha": 1.0, "layers": ["other"]}],
        [{"kind": "lora", "rank": 1, "alpha": "1", "layers": ["other"]}],
    ):
        with pytest.raises(errors.FileFormatError):
            other.repeat_changes(broken)
    assert other.changes == []


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_a_precision_that_no_layer_would_take_is_refused(dtype):
    small = make().quantize(dtype)
    before = weights(small)
    for policy in ("float32", "mixed_bfloat16"):
        with pytest.raises(errors.ArgumentError, match="exact model"):
            small.precision = policy
    assert small.precision.name == "float32" and equal(weights(small), before)
    small.get_layer("head").precision = "bfloat16"
    assert small.predict(np.ones((2, 64), np.float32), verbose=0).dtype == "bfloat16"


def test_computing_in_bfloat16(trained, data):
    small = trained.quantize("int8", compute_dtype="bfloat16")
    outputs = small.predict(data[0], verbose=0)
    assert outputs.dtype == "bfloat16"
    assert str(small.get_layer("norm").gamma.dtype) == "float32"
    exact = trained.predict(data[0], verbose=0)
    assert np.abs(outputs.astype(np.float32) - exact).max() < 0.1 * exact.std()


# ------------------------------------------------------------------------- one layer
def test_one_layer_is_quantized_in_place(data, tmp_path):
    x, y = data
    model = make(compiled=True)
    before = model.predict(x, verbose=0)
    layer = model.get_layer("hidden")
    layer.quantize("int8")
    assert layer.kernel.nbytes == 96 * 64 + 2 * 96
    found = model.predict(x, verbose=0)
    np.testing.assert_allclose(found, before, atol=0.05 * before.std())
    bits = layer.kernel.values.numpy()
    model.fit(x, y, epochs=2, verbose=0)  # its bias and the other layers learn
    np.testing.assert_array_equal(layer.kernel.values.numpy(), bits)
    paths = [w.path for w in model.trainable_weights]
    assert paths == [
        "hidden/bias",
        "norm/gamma",
        "norm/beta",
        "head/kernel",
        "head/bias",
    ]
    model.save(tmp_path / "m.exburn")
    loaded = load_model(tmp_path / "m.exburn")
    np.testing.assert_array_equal(
        loaded.predict(x, verbose=0), model.predict(x, verbose=0)
    )
    assert [w.path for w in loaded.trainable_weights] == paths
    for mode, error in (
        ("int8", errors.ArgumentError),  # already
        ("int3", errors.UnknownNameError),
    ):
        with pytest.raises(error):
            layer.quantize(mode)
    with pytest.raises(errors.NotBuiltError):
        layers.Dense(3).quantize("int8")


@pytest.mark.parametrize(
    "layer, inputs, packed",
    [
        (layers.LSTM(48), 1, 2),
        (layers.Bidirectional(layers.GRU(48)), 1, 4),
        (layers.MultiHeadAttention(2, 24), 2, 4),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_layer_of_layers_is_quantized_as_a_whole(layer, inputs, packed, rng):
    x = [rng.standard_normal((2, 3, 40)).astype(np.float32)] * inputs
    with pytest.raises(errors.NotBuiltError):
        layer.quantize("int8")
    exact = layer(*x)
    kept, last = layer.get_weights(), layer.weights[-2]
    last.assign(last.get_value() * np.nan)
    with pytest.raises(errors.ArgumentError, match="holds NaN"):
        layer.quantize("int8")
    layer.set_weights(kept)  # all of them are still exact
    layer.quantize("int8")
    paths = [path for path, _, _ in iter_weights(layer)]
    assert sum(path.endswith("/scale") for path in paths) == packed
    np.testing.assert_allclose(layer(*x), exact, atol=0.1 * exact.std())
    with pytest.raises(errors.ArgumentError, match="already"):
        layer.quantize("int8")


def test_a_layer_without_large_weights_is_not_quantized():
    cases = ((layers.LayerNormalization(), "float32"), (layers.Dropout(0.1), "no rule"))
    for layer, reason in cases:
        layer(np.ones((2, 8), np.float32))
        with pytest.raises(errors.ArgumentError, match=reason):
            layer.quantize("int8")


def normalized():
    inner = layers.SpectralNormalization(layers.Dense(96), name="spectral")
    return exburn.Sequential([exburn.Input((64,)), inner, layers.Dense(3)])


def test_layers_that_assign_to_their_weights_are_calibrated_and_kept(data, tmp_path):
    model = normalized()
    report = model.quantize("bfloat16", calibration=data[0], dry_run=True)
    assert "spectral" in {row.path for row in report.layers}
    assert 0 < report.mean_error < 0.02
    model.quantize("int8", compute_dtype="bfloat16", dry_run=True)  # no parameters
    small = model.quantize("float16")
    small.save(tmp_path / "m.exburn", include_optimizer=False)
    assert equal(weights(load_model(tmp_path / "m.exburn")), weights(small))


def test_a_wrapped_flax_module_is_reported_as_left_alone():
    inner = layers.ModuleLayer(nnx.Linear(64, 32, rngs=nnx.Rngs(0)), name="flax")
    model = exburn.Sequential([exburn.Input((64,)), inner, layers.Dense(64)])
    for dtype, reason in (("int8", "no rule"), ("float16", "dtypes of its own")):
        report = model.quantize(dtype, dry_run=True)
        (row,) = report.skipped
        assert row.path == "flax" and reason in row.reason
        assert row.bytes_after == row.bytes_before == 4 * (64 * 32 + 32)
        rows = (*report.layers, *report.skipped)
        assert sum(row.bytes_after for row in rows) == report.bytes_after


def test_layers_without_packed_weights_compute_as_before_in_a_loaded_model(tmp_path):
    both = layers.Bidirectional(layers.LSTM(8))
    model = exburn.Sequential([exburn.Input((4, 8)), both, layers.Dense(64)])
    small = model.quantize("int8", compute_dtype="bfloat16")
    small.save(tmp_path / "m.exburn")
    loaded = load_model(tmp_path / "m.exburn")
    assert loaded.changes == small.changes
    for part in (loaded.layers[0].forward_layer, loaded.layers[0].backward_layer):
        assert part.compute_dtype == part.cell.compute_dtype == "bfloat16"


def test_weights_in_few_bits_are_planned_as_predict(trained):
    small = trained.quantize("int8")
    assert small.plan(8, largest=False).program == "predict"
    small.add_lora(2)
    assert small.plan(8, largest=False).program == "train"


@pytest.mark.parametrize("dtype", ["int8", "int8_dynamic", "int4", "float8"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(bad, dtype):
    model = make()
    kernel = model.get_layer("head").kernel
    value = kernel.numpy().copy()
    value[1, 2] = bad
    kernel.assign(value)
    with pytest.raises(errors.ArgumentError, match="head/kernel holds NaN"):
        model.quantize(dtype)
