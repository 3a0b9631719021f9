"""train_step, compute_gradients, check_gradients, profile_step, and what fit tells."""

import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.elixir import gradients
from exburn.elixir.gradients import differences, programs
from exburn.errors import (
    ArgumentError,
    DataError,
    DTypeError,
    NotCompiledError,
    ShapeError,
    UnknownNameError,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 4)).astype(np.float32)
Y = RNG.integers(0, 3, 12)


def model(*inner, dtype=None, optimizer="sgd", **options):
    stack = [exburn.Input((4,)), *inner, layers.Dense(3, dtype=dtype)]
    made = exburn.Sequential(stack)
    made.compile(optimizer, "cross_entropy", seed=0, **options)
    return made


@pytest.fixture(scope="module")
def smooth():
    return model(layers.Dense(5, "tanh"), layers.Dropout(0.3))


def exact(made, x, y):
    """The gradients by plain JAX, without dropout in the way."""
    weights = [w.get_value() for w in made.trainable_weights]

    def loss(values):
        h = jnp.tanh(x @ values[0] + values[1])
        return -jnp.take_along_axis(
            jax.nn.log_softmax(h @ values[2] + values[3]), y[:, None], 1
        ).mean()

    return jax.grad(loss)(weights)


def test_autodiff_is_jax_grad():
    made = model(layers.Dense(5, "tanh"))
    found = exburn.compute_gradients(made, (X, Y))
    assert list(found) == [
        "dense/kernel",
        "dense/bias",
        "dense_1/kernel",
        "dense_1/bias",
    ]
    for a, b in zip(found.values(), exact(made, X, Y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("method", "atol"), [("numerical", 1e-4), ("numerical_batch", 3e-3)]
)
def test_differences(smooth, method, atol):
    """With dropout: the same mask in every one of the losses."""
    wanted = exburn.compute_gradients(smooth, (X, Y))
    found = exburn.compute_gradients(smooth, (X, Y), method=method)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, atol=atol)
        assert found[name].shape == value.shape


def temporary_bytes(made, budget):
    trainer, tree = programs.prepared(made, (X, Y), "", "numerical")
    state = trainer.preparer.initial_state()
    flat = {path: value.ravel() for path, value in state.params.items()}
    rows = {path: np.arange(v.size, dtype=np.int32) for path, v in flat.items()}
    run = differences._differences(
        trainer.preparer.programs, "numerical", budget, False
    )
    compiled = jax.jit(run).lower(state, tree, flat, flat, rows).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def test_chunks_fit_the_memory(smooth, monkeypatch):
    sizes = [temporary_bytes(smooth, 2**bits) for bits in (14, 22)]
    assert 3 * sizes[0] < sizes[1] < 2**22
    whole = exburn.compute_gradients(smooth, (X, Y), method="numerical")
    monkeypatch.setattr(differences, "free_bytes", lambda: 2**17)
    parts = exburn.compute_gradients(smooth, (X, Y), method="numerical")
    assert "numerical 2**14 bytes" in smooth.trace_counts
    for name, value in whole.items():
        np.testing.assert_allclose(parts[name], value, atol=1e-4)


class Own(exburn.Layer):
    """Weights that are used in all the ways that a product can be cut, or cannot."""

    def build(self, shape):
        self.left = self.add_weight((3, 4), name="left")
        self.deep = self.add_weight((2, 2, 3), name="deep")
        self.twice = self.add_weight((4, 4), name="twice")
        self.scale = self.add_weight((4,), "ones", name="scale")

    def call(self, x):
        y = (self.left.get_value() @ x.T).T
        pairs = x.reshape(-1, 2, 2)
        y = y + jnp.einsum("bij,ijk->bk", pairs, self.deep.get_value())
        twice = self.twice.get_value()
        return y + jnp.tanh(x @ twice @ twice * self.scale.get_value())[:, :3]


@pytest.mark.parametrize("method", ["numerical", "numerical_batch"])
def test_products_are_cut_where_that_is_the_same(method):
    made = exburn.Sequential([exburn.Input((4,)), Own()])
    made.compile("sgd", "cross_entropy", seed=1)
    trainer, tree = programs.prepared(made, (X, Y), "", method)
    state = trainer.preparer.initial_state()
    loss = programs.loss_of(trainer.preparer.programs)
    traced = differences._Traced.of(loss, state, tree)
    cut = {path for path in state.params if traced.product(path) is not None}
    assert cut == {"own/left", "own/deep"}
    code = str(jax.make_jaxpr(differences.precise(loss))(state, tree))
    assert (
        code.count("dot_general[") == len(re.findall(r"precision=.*HIGHEST", code)) > 0
    )
    wanted = exburn.compute_gradients(made, (X, Y))
    found = exburn.compute_gradients(made, (X, Y), method=method)
    for path, value in wanted.items():
        np.testing.assert_allclose(found[path], value, atol=3e-3, err_msg=path)
        assert float(jnp.abs(value).max()) > 0.01


def test_a_step_in_bfloat16_is_what_was_really_moved():
    made = model(layers.Dense(5, "tanh", dtype="bfloat16"), dtype="bfloat16")
    found = exburn.check_gradients(made, (X, Y))
    assert found.ok, str(found)


def test_epsilon_by_dtype():
    sizes = [gradients.default_epsilon(d) for d in ("float64", "float32", "bfloat16")]
    assert sizes == sorted(sizes)
    assert gradients.default_epsilon("float32", "numerical_batch") < sizes[1]


@jax.custom_vjp
def broken(x):
    return jnp.tanh(x)


broken.defvjp(
    lambda x: (jnp.tanh(x), x), lambda x, g: (1.5 * g * (1 - jnp.tanh(x) ** 2),)
)


def test_the_check_names_the_layer_with_a_wrong_gradient():
    made = model(
        layers.Dense(5, "tanh", name="good"), layers.Dense(4, broken, name="bad")
    )
    found = exburn.check_gradients(made, (X, Y))
    assert not found.ok
    wrong = {row.path for row in found.rows if row.relative > found.tolerance}
    # What lies behind the wrong derivative is right; before it, everything is wrong.
    assert wrong == {"good/kernel", "good/bias", "bad/kernel", "bad/bias"}
    assert found.worst.path in wrong and "← worst" in str(found)


def test_corners_are_left_out():
    made = model(layers.Dense(128, "relu"))
    found = exburn.check_gradients(made, (X, Y), elements=None)
    assert found.ok, str(found)
    assert sum(row.corners for row in found.rows) > 0


class Corner(exburn.Layer):
    """A ReLU of a weight that is zero."""

    def build(self, shape):
        start = lambda shape, dtype=None: jnp.array([0.0, 0.5, 1.0, 2.0])  # noqa: E731
        self.w = self.add_weight(name="w", shape=(4,), initializer=start)

    def call(self, x):
        return x * jax.nn.relu(self.w + 0)


@pytest.mark.parametrize("method", ["numerical", "numerical_batch"])
def test_a_corner_right_at_a_weight_is_no_error(method):
    found = exburn.check_gradients(model(Corner(name="c")), (X, Y), method=method)
    assert found.ok and [r.corners for r in found.rows if r.path == "c/w"] == [1]


class Odd(exburn.Layer):
    """A scalar and an empty weight."""

    def build(self, shape):
        self.factor = self.add_weight(name="factor", shape=(), initializer="ones")
        self.none = self.add_weight(name="none", shape=(0, 2))

    def call(self, x):
        return x * self.factor


def test_scalar_and_empty_parameters():
    made = model(Odd(name="odd"))
    found = exburn.compute_gradients(made, (X, Y), method="numerical")
    assert found["odd/none"].shape == (0, 2) and abs(found["odd/factor"]) > 0
    assert exburn.check_gradients(made, (X, Y)).ok


def test_a_step_that_a_weight_cannot_hold_is_one_to_the_next_number():
    made = model(dtype="bfloat16")
    found = exburn.compute_gradients(made, (X, Y), method="numerical", epsilon=1e-12)
    assert all(np.isfinite(np.asarray(v, np.float32)).all() for v in found.values())


@pytest.mark.slow
def test_float64():
    """Losses are summed in float32, so steps are those of float32."""
    code = (
        "import jax; jax.config.update('jax_enable_x64', True)\n"
        "import numpy as np, exburn\n"
        "exburn.set_precision('float64')\n"
        "m = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])\n"
        "m.compile('sgd', 'cross_entropy', seed=0)\n"
        "x, y = np.random.default_rng(0).normal(size=(8, 4)), np.arange(8) % 3\n"
        "a = exburn.compute_gradients(m, (x, y))\n"
        "for how in ('numerical', 'numerical_batch'):\n"
        "    b = exburn.compute_gradients(m, (x, y), method=how)\n"
        "    for k in a: np.testing.assert_allclose(a[k], b[k], atol=2e-3)\n"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True, timeout=120)


def test_train_step_is_train_on_batch():
    one, other = model(layers.Dense(5, "tanh")), model(layers.Dense(5, "tanh"))
    for _ in range(3):
        loss, same = exburn.train_step(one, (X, Y))
        assert same is one
        assert loss == pytest.approx(other.train_on_batch(X, Y), rel=1e-6)
    for a, b in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_train_step_by_differences_updates_everything():
    def make():
        return model(layers.Dense(5, "tanh"), layers.BatchNormalization())

    one, other = make(), make()
    losses = [
        (
            exburn.train_step(one, (X, Y))[0],
            exburn.train_step(other, (X, Y), method="numerical")[0],
        )
        for _ in range(3)
    ]
    np.testing.assert_allclose(*np.transpose(losses), atol=1e-3)
    for a, b in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3)
    moved = other.get_layer("batch_normalization").moving_mean.numpy()
    assert abs(moved).max() > 0
    assert one.optimizer.iterations == other.optimizer.iterations == 3


def test_train_step_takes_options_for_one_step():
    made = model(optimizer=exburn.optimizers.SGD(1.0, momentum=0.0))
    before = made.get_weights()
    exburn.train_step(made, (X, Y), clip_norm=1e-3)
    moved = [a - b for a, b in zip(made.get_weights(), before, strict=True)]
    assert np.sqrt(sum((m**2).sum() for m in moved)) == pytest.approx(1e-3, rel=1e-3)
    before = made.get_weights()
    exburn.train_step(made, (X, Y))
    moved = [a - b for a, b in zip(made.get_weights(), before, strict=True)]
    assert np.sqrt(sum((m**2).sum() for m in moved)) > 0.01


def test_profile_step_changes_nothing():
    made = model(layers.Dense(5, "tanh"))
    before = made.get_weights()
    found = exburn.profile_step(made, (X, Y), warmup=1, runs=2)
    assert found.keys() == {
        *("forward_ms", "backward_ms", "optimizer_ms", "total_ms", "loss")
    }
    assert found["loss"] == pytest.approx(made.evaluate(X, Y, verbose=0), rel=1e-5)
    assert found["forward_ms"] > 0 and found["total_ms"] > 0
    for a, b in zip(before, made.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert made.optimizer.iterations == 0


def test_fit_tells_where_its_time_went():
    import time

    def slow():
        for _ in range(2):
            time.sleep(0.03)
            yield X, Y

    made = model()
    history = made.fit(slow(), steps_per_epoch=2, verbose=0, profile=True)
    (epoch,) = history.profile
    parts = ("data_ms", "device_ms", "host_ms", "validation_ms")
    assert sum(epoch[p] for p in parts) == pytest.approx(epoch["total_ms"])
    assert epoch["data_ms"] > 25 and epoch["validation_ms"] == 0
    assert made.fit(X, Y, verbose=0).profile is None


def grads(x=X, y=Y, **options):
    return exburn.compute_gradients(model(), (x, y), **options)


def fit(optimizer="sgd", **options):
    model(optimizer=optimizer).fit(X, Y, verbose=0, **options)


def unready():
    exburn.train_step(exburn.Sequential([layers.Dense(1)]), (X, Y))


def frozen():
    made = model()
    made.freeze("*")
    return made


BAD = [
    (unready, NotCompiledError),
    (lambda: grads(method="magic"), UnknownNameError),
    (lambda: grads(method="numerical", epsilon=0), ArgumentError),
    (lambda: grads(method="numerical", epsilon=np.inf), ArgumentError),
    (lambda: grads(method="numerical", epsilon="small"), ArgumentError),
    (lambda: exburn.train_step(object(), (X, Y)), DTypeError),
    (lambda: exburn.compute_gradients(len, (X, Y)), DTypeError),
    (lambda: exburn.check_gradients(model(), (X, Y), elements=0), ArgumentError),
    (lambda: exburn.check_gradients(model(), (X, Y), tolerance=-1), ArgumentError),
    (lambda: exburn.check_gradients(frozen(), (X, Y)), ArgumentError),
    (lambda: grads(X[:, :2]), ShapeError),
    (lambda: grads(y=Y + 9), DataError),
    (lambda: exburn.compute_gradients(model(), (X, Y, Y, Y)), DataError),
    (lambda: exburn.compute_gradients(model(), iter([(X, Y)])), DataError),
    (lambda: exburn.check_gradients(model(), (X, Y), method="autodiff"), ArgumentError),
    (lambda: exburn.profile_step(model(), (X, Y), runs=0), ArgumentError),
    (lambda: exburn.profile_step(model(), (X, Y), warmup=1.5), ArgumentError),
    (lambda: fit(learning_rate=-1), ArgumentError),
    (lambda: fit(device="gpu:9"), ArgumentError),
    (lambda: exburn.train_step(model(), (X, Y), clip_norm=-1), ArgumentError),
    (lambda: fit("adam", nesterov=True), ArgumentError),
    (lambda: fit(lr_schedule=("step",)), ArgumentError),
    (lambda: fit(warmup=(1, 2)), ArgumentError),
    (lambda: model(device="gpu:9"), ArgumentError),
    (lambda: model(accumulate_gradients=0), ArgumentError),
    (lambda: model(metrics={"dense": ["mse"]}, accuracy=True), ArgumentError),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_calls(case):
    call, error = BAD[case]
    with pytest.raises(error):
        call()


# --- further options of fit and compile ---------------------------------------------


def test_accuracy_is_added_once():
    made = model()
    history = made.fit(X, Y, verbose=0, accuracy=True)
    assert list(history.history) == ["loss", "accuracy"]
    assert list(made.fit(X, Y, verbose=0, accuracy=True).history) == [
        *("loss", "accuracy")
    ]
    assert made.optimizer.iterations == 2  # the optimizer went on
    assert list(model(accuracy=True).fit(X, Y, verbose=0).history) == [
        *("loss", "accuracy")
    ]


def test_warmup():
    rates = []
    made = model(optimizer=exburn.optimizers.SGD(0.4), warmup=2)
    state = lambda: made.optimizer.rate(made._run.value.trainer.holder.opt_state)  # noqa: E731

    def watch(logs):
        rates.append(made.optimizer.get_hyperparameters()["warmup_steps"])

    made.fit(X, Y, batch_size=4, epochs=1, verbose=0, callbacks=[watch])
    assert rates == [6]  # two epochs of three steps
    assert float(state()) == pytest.approx(0.4 * 3 / 6)
    made = model(optimizer=exburn.optimizers.SGD(0.4))
    made.fit(X, Y, batch_size=4, epochs=1, verbose=0, warmup=(1, 0.1, 0.2))
    assert made.optimizer.get_hyperparameters()["warmup_to"] == pytest.approx(0.2)


def test_device_of_compile():
    made = model(device="cpu")
    made.fit(X, Y, verbose=0)
    found = {d.platform for w in made.weights for d in w.get_value().devices()}
    assert found == {"cpu"}
