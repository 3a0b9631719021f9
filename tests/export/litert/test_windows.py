"""Pooling and upsampling as LiteRT has them: along any axes, padded, in integers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import exburn
from exburn import layers
from exburn.export.litert.rewriting import RULES
from exburn.export.litert.windows import WindowMean, join_means
from exburn.export.operations import inline, outputs_of, run
from exburn.runtime.portable import portable

RNG = np.random.default_rng(0)
SIZES = {1: (14,), 2: (9, 10), 3: (5, 6, 7)}
FORMATS = ("channels_last", "channels_first")
WINDOWS = [(2, None), (3, 1), (2, 3), (3, 2)]  # size and step


def shape_of(rank, data_format):
    """A row of three channels."""
    sizes = SIZES[rank]
    return (*sizes, 3) if data_format == FORMATS[0] else (3, *sizes)


def poolings(rank, data_format):
    """Poolings of one rank, by name."""
    options = {"data_format": data_format}
    made = {}
    for kind in ("Max", "Average"):
        for padding in ("valid", "same"):
            for size, step in WINDOWS:
                cls = getattr(layers, f"{kind}Pooling{rank}D")
                name = f"{kind}_{padding}_{size}_{step}".lower()
                made[name] = cls(size, step, padding, name=name, **options)
        cls = getattr(layers, f"Global{kind}Pooling{rank}D")
        made[f"global_{kind}"] = cls(name=f"global_{kind}", keepdims=True, **options)
        cls = getattr(layers, f"Adaptive{kind}Pooling{rank}D")
        made[f"adaptive_{kind}"] = cls(2, name=f"adaptive_{kind}", **options)
    return made


def enlargements(rank, data_format):
    """Upsamplings of one rank, by name."""
    cls = getattr(layers, f"UpSampling{rank}D")
    if rank == 1:
        return {"nearest": cls(2, name="nearest")} if data_format == FORMATS[0] else {}
    if rank == 3:
        return {"nearest": cls(2, data_format=data_format, name="nearest")}
    kinds = ("nearest", "bilinear", "bicubic")
    return {kind: cls((2, 3), data_format, kind, name=kind) for kind in kinds}


# ------------------------------------------------------------------ the forms
def rewritten(functions, x):
    """By name, what functions give, also by the rules, and both programs' operations.

    All of them are compiled as one program.
    """
    ways, programs = {}, {}
    for name, function in functions.items():
        with portable("litert"):
            operations = join_means(inline(jax.make_jaxpr(function)(x)))

        def compute(x, operations=operations):
            known = {id(operations.inputs[0]): x}
            return outputs_of(operations, run(operations.steps, known, RULES))[0]

        ways[name] = compute
        made = inline(jax.make_jaxpr(compute)(x))
        programs[name] = operations.steps, list(made.walk())

    @jax.jit
    def together(x):
        return {name: (functions[name](x), ways[name](x)) for name in functions}

    return {name: (*pair, *programs[name]) for name, pair in together(x).items()}


def check_forms(steps):
    """Each window is one that the converter has pooling for."""
    found = [s for s in steps if s.name.startswith("reduce_window")]
    assert found
    for step in found:
        sizes, strides = step.params["window_dimensions"], step.params["window_strides"]
        (x,) = step.inputs
        assert len(sizes) == 4 and sizes[::3] == strides[::3] == (1, 1)
        same = lax.padtype_to_pads(x.aval.shape, sizes, strides, "SAME")
        assert tuple(step.params["padding"]) in {((0, 0),) * 4, tuple(same)}


@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_windows_lie_where_the_converter_has_pooling(rank, data_format):
    x = RNG.standard_normal((2, *shape_of(rank, data_format))).astype(np.float32)
    sliding = {
        name: layer
        for name, layer in poolings(rank, data_format).items()
        if hasattr(layer, "strides")
    }
    for name, (want, got, steps, made) in rewritten(sliding, x).items():
        np.testing.assert_allclose(got, want, atol=1e-6, err_msg=name)
        check_forms(made)
        means = [step for step in steps if step.name == WindowMean.name]
        assert bool(means) == ("average" in name)


def windows(reduce, sizes, steps, padding, **dilation):
    start = np.float32(0) if reduce is lax.add else np.float32(-np.inf)
    start = -start if reduce is lax.min else start
    return lambda x: lax.reduce_window(
        x, start, reduce, sizes, steps, padding, **dilation
    )


def divided(by):
    total = windows(lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    return lambda x: total(x) / by(total(jnp.ones_like(x)))


OTHERS = {
    "sum": windows(lax.add, (1, 3, 2, 1), (1, 1, 1, 1), "SAME"),
    "sum of rows": windows(lax.add, (1, 3, 1, 1), (1, 1, 1, 1), ((0, 0), (2, 0)) * 2),
    "smallest": windows(lax.min, (1, 3, 2, 1), (1, 3, 2, 1), "VALID"),
    "channels": windows(lax.max, (1, 1, 1, 2), (1, 1, 1, 2), "VALID"),
    "rows and channels": windows(lax.max, (1, 2, 1, 2), (1, 2, 1, 2), "VALID"),
    "batch": windows(lax.max, (2, 2, 1, 1), (1, 2, 1, 1), "VALID"),
    "steps alone": windows(lax.max, (1, 1, 1, 1), (1, 2, 3, 1), "VALID"),
    "two paddings": windows(
        lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (0, 0), (0, 0))
    ),
    "mean": divided(lambda counts: counts),
    "sum divided by more": divided(lambda counts: counts + 1),
    "op": lambda x: exburn.ops.average_pool(x, (3, 2), (2, 1), "same"),
}


def test_windows_of_other_functions():
    x = RNG.standard_normal((2, 9, 9, 4)).astype(np.float32)
    for name, (want, got, steps, made) in rewritten(OTHERS, x).items():
        np.testing.assert_allclose(got, want, atol=2e-6, err_msg=name)
        check_forms(made)
        joined = any(step.name == WindowMean.name for step in steps)
        assert joined == (name in ("mean", "op")), name


SINGLE = (1, 2, 2, 1), (1, 1, 1, 1)
KEPT = {
    "apart": windows(lax.max, *SINGLE, "VALID", window_dilation=(1, 2, 2, 1)),
    "padded": windows(lax.max, *SINGLE, ((0, 0), (2, 2), (0, 1), (0, 0))),
    "integers": lambda x: exburn.ops.max_pool(x.astype("int32"), 2),
}


def test_other_windows_stay_as_they_are():
    x = RNG.standard_normal((2, 9, 9, 4)).astype(np.float32)
    for name, (want, got, _, _) in rewritten(KEPT, x).items():
        np.testing.assert_array_equal(got, want, err_msg=name)


# ------------------------------------------------------------------ the files
@pytest.mark.parametrize("how", ["float", "int8", "int8_weights", "trained"])
@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_files_pool_and_enlarge_within_a_step(tmp_path, litert, rank, data_format, how):
    """Each output beside its layer, of what the file's own convolution gives."""
    row = shape_of(rank, data_format)
    x = RNG.standard_normal((16, *row)).astype(np.float32)
    parts = poolings(rank, data_format) | enlargements(rank, data_format)
    symbol = exburn.Input(row)
    conv = getattr(layers, f"Conv{rank}D")
    options = {"padding": "same", "activation": "relu", "data_format": data_format}
    inner = conv(4, 3, name="inner", **options)(symbol)
    outputs = {"inner": inner} | {name: part(inner) for name, part in parts.items()}
    model, path = exburn.Model(symbol, outputs), tmp_path / "m.tflite"
    model.compile("sgd", "mse")
    if how == "trained":
        model = exburn.quantize_aware(model, "int8", calibration=x)
    quantize = how if how.startswith("int8") else None
    report = model.export(path, samples=x, quantize=quantize)
    assert not [name for name in report.operators if name.startswith("STABLEHLO")]
    found = exburn.predict(path, x)
    base = found.pop("inner")
    step = np.ptp(base) / 255
    for name, got in found.items():
        # Products with what resizes have weights in 8 bits, too.
        steps = 3 if name.startswith(("adaptive_A", "bi")) else 1.01
        exact = how in ("float", "int8_weights") and steps < 2
        limit = 1e-5 * np.abs(base).max() if exact else steps * step
        want = np.asarray(parts[name](base))
        assert np.abs(got - want).max() <= limit, name


def test_what_has_no_integers_is_named(tmp_path, litert):
    model = exburn.Sequential([exburn.Input((5, 3)), layers.GlobalMaxPooling1D()])
    x = RNG.standard_normal((8, 5, 3)).astype(np.float32)
    with pytest.raises(exburn.errors.ExportError, match="REDUCE_MAX"):
        model.export(tmp_path / "m.tflite", quantize="int8", samples=x)
    assert not list(tmp_path.iterdir())


def test_windows_without_a_form_in_integers_are_refused_by_name(tmp_path, litert):
    dilated = layers.Lambda(KEPT["apart"], name="apart")
    model = exburn.Sequential([exburn.Input((9, 9, 4)), layers.Dense(4), dilated])
    x, path = (
        RNG.standard_normal((8, 9, 9, 4)).astype(np.float32),
        tmp_path / "m.tflite",
    )
    assert model.export(path, samples=x).error < 1e-5
    with pytest.raises(exburn.errors.ExportError, match="REDUCE_WINDOW"):
        model.export(path, quantize="int8", samples=x)
