"""In 16-bit models, what adds up many numbers does it in float32."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import layers, losses, metrics
from exburn.training.module import SplitModule

NARROW = (jnp.float16, jnp.bfloat16)
SUMS = {"reduce_sum", "cumsum", "reduce_prod", "exp", "log", "rsqrt", "erf_inv"}


def narrow_sums(jaxpr):
    """The sums, exponentials and logarithms of a program that are in 16 bits."""
    found = []
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        operands = [v.aval for v in equation.invars if hasattr(v.aval, "dtype")]
        if equation.primitive.name in SUMS:
            found += [
                f"{equation.primitive.name} of {aval}"
                for aval in operands
                if aval.dtype in NARROW
            ]
        for value in equation.params.values():
            for inner in value if isinstance(value, list | tuple) else [value]:
                if hasattr(getattr(inner, "jaxpr", inner), "eqns"):
                    found += narrow_sums(inner)
    return found


def training_pass(layer, x):
    """The program of a training pass, and the spec of its output."""
    split = SplitModule(layer)
    arrays, key = split.read(), jax.random.key(0)

    def run(x):
        return split.forward(arrays, x, training=True, key=key)[:2]

    program, (output, _) = jax.make_jaxpr(run, return_shape=True)(x)
    return program, output


def test_the_inspection_sees_narrow_sums():
    x = jnp.ones((4, 4), jnp.float16)
    add = jax.make_jaxpr(lambda x: jax.lax.reduce_sum_p.bind(x, axes=(0,)))
    assert narrow_sums(add(x)) == ["reduce_sum of float16[4,4]"]
    assert narrow_sums(jax.make_jaxpr(jax.jit(jnp.exp))(x)) == ["exp of float16[4,4]"]


LAYERS = {
    "batch": (layers.BatchNormalization, (4, 6, 8)),
    "renorm": (lambda **k: layers.BatchNormalization(renorm=True, **k), (4, 6, 8)),
    "layer": (layers.LayerNormalization, (4, 6, 8)),
    "rms": (layers.RMSNormalization, (4, 6, 8)),
    "group": (lambda **k: layers.GroupNormalization(2, **k), (4, 6, 8)),
    "unit": (layers.UnitNormalization, (4, 6, 8)),
    "spectral": (
        lambda **k: layers.SpectralNormalization(layers.Dense(3, **k), **k),
        (4, 8),
    ),
    "softmax": (layers.Softmax, (4, 6, 8)),
    "softmax activation": (lambda **k: layers.Activation("softmax", **k), (4, 6, 8)),
    "log softmax": (lambda **k: layers.Activation("log_softmax", **k), (4, 6, 8)),
    "sparsemax": (lambda **k: layers.Activation("sparsemax", **k), (4, 6, 8)),
    "dense softmax": (lambda **k: layers.Dense(5, activation="softmax", **k), (4, 8)),
}


@pytest.mark.parametrize("policy", ["float16", "mixed_bfloat16"])
@pytest.mark.parametrize("kind", LAYERS)
def test_norms_and_softmax(kind, policy):
    make, shape = LAYERS[kind]
    layer = make(dtype=policy)
    x = jnp.ones(shape, layer.compute_dtype)
    layer(x)
    program, output = training_pass(layer, x)
    assert narrow_sums(program) == []
    assert output.dtype == layer.compute_dtype


@pytest.mark.parametrize("policy", ["float16", "mixed_bfloat16"])
@pytest.mark.parametrize("name", ["MultiHeadAttention", "GroupQueryAttention"])
def test_attention(name, policy):
    options = {"num_heads": 2, "key_dim": 4}
    if name == "GroupQueryAttention":
        options = {"num_query_heads": 2, "num_key_value_heads": 1, "head_dim": 4}
    x = exburn.Input((5, 8))
    model = exburn.Model(x, getattr(layers, name)(**options)(x, x), dtype=policy)
    program, output = training_pass(model, jnp.ones((2, 5, 8)))
    assert narrow_sums(program) == []
    assert output.dtype in NARROW


def test_a_norm_of_large_numbers_is_right_in_float16():
    # The squares overflow float16, and so does the sum over 4096 numbers.
    x = np.random.default_rng(0).normal(300.0, 50.0, (2, 4096)).astype(np.float16)
    exact = layers.LayerNormalization()(x.astype(np.float32))
    ours = layers.LayerNormalization(dtype="float16")(x)
    np.testing.assert_allclose(ours.astype(np.float32), exact, atol=4e-3)


ROWS, CLASSES = 8, 4
LABELS = jnp.arange(ROWS, dtype=jnp.int32) % CLASSES
ONE_HOT = jax.nn.one_hot(LABELS, CLASSES)
TARGETS = (ONE_HOT, LABELS, jnp.ones((ROWS, 1)), jnp.ones((ROWS, 4, 4, CLASSES)))


def measured(module, base):
    """The public classes of a catalogue that can be made without arguments."""
    for name in module.__all__:
        cls = getattr(module, name)
        if not (inspect.isclass(cls) and issubclass(cls, base)) or cls is base:
            continue
        required = [
            p
            for p in list(inspect.signature(cls).parameters.values())
            if p.default is p.empty and p.kind is not p.VAR_KEYWORD
        ]
        if not required:
            yield name


def pairs():
    """Targets and predictions of several forms; each loss or metric fits some."""
    for target in TARGETS:
        shape = target.shape if target.ndim > 1 else (ROWS, CLASSES)
        yield target, jnp.full(shape, 1 / CLASSES, jnp.float16)


#: Losses of log-probabilities take no predictions.
OTHERS = {"CTC", "FunctionLoss", "DPO", "IPO", "KTO", "ORPO"}
LOSSES = sorted(set(measured(losses, losses.Loss)) - OTHERS)


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    loss, fitting = getattr(losses, name)(), 0
    for target, prediction in pairs():
        try:
            program = jax.make_jaxpr(loss)(target, prediction)
        except (ValueError, TypeError):
            continue
        fitting += 1
        assert narrow_sums(program) == []
        assert program.out_avals[0].dtype == jnp.float32
    assert fitting


METRICS = sorted(
    set(measured(metrics, metrics.Metric)) - {"Mean", "Sum", "MeanMetricWrapper"}
)


@pytest.mark.parametrize("name", METRICS)
def test_metrics(name):
    fitting = 0
    for target, prediction in pairs():
        metric = getattr(metrics, name)()
        try:
            metric.build(target, prediction)
            program = jax.make_jaxpr(metric.update)(metric.init(), target, prediction)
        except (ValueError, TypeError):
            continue
        fitting += 1
        assert narrow_sums(program) == []
        assert all(v.dtype not in NARROW for v in program.out_avals)
    assert fitting


def test_a_mean_over_many_rows_is_exact():
    # 4096 float16 additions of 0.9 would stop growing at 2048.
    x = np.ones((4096, 1), np.float32)
    model = exburn.Sequential(
        [exburn.Input((1,)), layers.Lambda(lambda v: v * 0.9)], dtype="float16"
    )
    model.compile(loss="mae", metrics=["mae", "mse"])
    found = model.evaluate(x, 0 * x, batch_size=4096, verbose=0, return_dict=True)
    exact = float(np.float16(0.9))
    assert found["loss"] == pytest.approx(exact, rel=1e-6)
    assert found["mse"] == pytest.approx(exact**2, rel=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_small_updates_of_16_bit_weights_add_up(dtype):
    optimizer = exburn.optimizers.SGD(1e-4, momentum=0.0)
    params = {"w": jnp.ones(3, dtype), "wide": jnp.ones(2)}
    state = optimizer.init(params)
    assert state["rounded_off"]["w"].nbytes == params["w"].nbytes
    grads = jax.tree.map(jnp.ones_like, params)

    @jax.jit
    def run(params, state):
        def step(carry, _):
            return optimizer.update(grads, carry[1], carry[0]), None

        return jax.lax.scan(step, (params, state), length=1000)[0]

    params, state = run(params, state)
    assert {k: v.dtype.name for k, v in params.items()} == {
        "w": dtype,
        "wide": "float32",
    }
    np.testing.assert_allclose(np.asarray(params["w"], np.float32), 0.9, atol=3e-3)
    np.testing.assert_allclose(params["wide"], 0.9, rtol=1e-4)
    assert "rounded_off" not in optimizer.init({"w": jnp.ones(3)})
