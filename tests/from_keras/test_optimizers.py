"""The page's section "Optimizers"."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from tests.from_keras.page import says
from tests.from_keras.small import BOTH, AtEpoch, X, Y, compiled, evaluate, fit

import exburn
from exburn.errors import ArgumentError, BusyError, SignatureError

keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras'
KERNEL = [np.ones((4, 1), "float32")]


def decay(framework, steps=10):
    return framework.optimizers.schedules.ExponentialDecay(0.1, steps, 0.5)


def trained(framework, optimizer, rows=40, fits=1, size=8, **settings):
    """A model of one kernel, which began as ones, after batches of 8 rows."""
    model = compiled(
        framework,
        framework.layers.Dense(1, use_bias=False),
        optimizer=optimizer,
        **settings,
    )
    model.set_weights(KERNEL)
    for _ in range(fits):
        fit(model, X[:rows], 2 * Y[:rows], batch_size=size, shuffle=False)
    return model


# --------------------------------------------------------------------------- from optax
@says("Any optax transformation is an optimizer")
def test_transformations_of_optax():
    ours = trained(exburn, optax.adam(0.1))
    named = trained(exburn, exburn.optimizers.Adam(0.1, epsilon=1e-8))
    np.testing.assert_allclose(ours.get_weights()[0], named.get_weights()[0], 1e-4)
    with pytest.raises(ValueError, match="optimizer identifier"):
        compiled(keras, optimizer=optax.adam(0.1))


@says("`SAM`, `SOAP`, `Shampoo` and `Sophia` are further ones")
def test_further_optimizers():
    for name in ("SAM", "SOAP", "Shampoo", "Sophia"):
        assert not hasattr(keras.optimizers, name)
        model = trained(exburn, name.lower(), fits=3)
        assert type(model.optimizer).__name__ == name
        assert not np.allclose(model.get_weights()[0], KERNEL[0])
    kernels = [
        trained(exburn, optimizer).get_weights()[0]
        for optimizer in (
            exburn.optimizers.SGD(0.01),
            exburn.optimizers.SAM(0.01),
            exburn.optimizers.SAM(0.01, adaptive=True),
        )
    ]
    assert not np.allclose(kernels[0], kernels[1])
    assert not np.allclose(kernels[1], kernels[2])
    for name in ("SAM", "Sophia"):
        optimizer = getattr(exburn.optimizers, name)()
        with pytest.raises(ArgumentError, match="cannot be accumulated"):
            trained(exburn, optimizer, accumulate_gradients=2)
        with pytest.raises(ArgumentError, match="needs the plain loss"):
            exburn.optimizers.LossScaleOptimizer(optimizer)


@says("Complex weights go down")
def test_complex_weights():
    start, grad = np.array([0j], "complex64"), jax.grad(lambda w: abs(w[0] - 2j) ** 2)
    weight, theirs = nnx.Param(jnp.asarray(start)), keras.Variable(start)
    optimizer = exburn.optimizers.SGD(0.25)
    optimizer.apply([grad(weight.get_value())], [weight])
    np.testing.assert_allclose(weight.get_value(), [1j])
    keras.optimizers.SGD(0.25).apply([grad(theirs.value)], [theirs])
    np.testing.assert_allclose(theirs.value, [-1j])
    inner = exburn.optimizers.Lion().init({"w": jnp.asarray(start)})["inner"]
    assert sorted(inner[0].mu["w"]) == ["(imaginary)", "(real)"]


@says("An optax transformation made with a fixed rate hides it")
def test_rates_of_optax():
    with pytest.raises(ArgumentError, match="inject_hyperparams"):
        trained(exburn, optax.lion(1e-3)).optimizer.learning_rate = 0.5
    for settable in (
        exburn.optimizers.OptaxOptimizer(optax.lion, 1e-3),
        optax.inject_hyperparams(optax.lion)(1e-3),
    ):
        optimizer = trained(exburn, settable).optimizer
        assert optimizer.learning_rate == pytest.approx(1e-3)
        optimizer.learning_rate = 0.5
        assert optimizer.learning_rate == 0.5


# ----------------------------------------------------------------------- learning rates
@says("`optimizer.learning_rate` is a float that can be set at any time")
@pytest.mark.parametrize("framework", BOTH)
def test_the_rate_is_set_in_hooks(framework):
    rates, seen = [0.0, 0.5, 0.0], []
    model = compiled(framework)

    def put(epoch):
        seen.append(model.get_weights()[0])
        model.optimizer.learning_rate = rates[epoch]

    fit(model, epochs=3, callbacks=[AtEpoch(put)])
    seen.append(model.get_weights()[0])
    changed = [bool((a != b).any()) for a, b in zip(seen, seen[1:], strict=False)]
    assert changed == [False, True, False]


@says("`optimizer.learning_rate` is a float that can be set at any time")
def test_a_new_rate_compiles_nothing():
    model = compiled(exburn)
    put = AtEpoch(
        lambda epoch: setattr(model.optimizer, "learning_rate", 0.1 / (1 + epoch))
    )
    fit(model, epochs=3, callbacks=[put])
    assert model.trace_counts["train"] == 1
    rate = model.optimizer.learning_rate
    assert isinstance(rate, float) and rate == pytest.approx(0.1 / 3)


@says("`optimizer.learning_rate` is a float that can be set at any time")
def test_another_thread_is_told_that_fit_runs():
    model, errors = compiled(exburn), []
    fit(model)

    def put():
        try:
            model.optimizer.learning_rate = 0.5
        except BusyError as error:
            errors.append(error)

    def batches():
        yield X, Y
        thread = threading.Thread(target=put)
        thread.start()
        thread.join()
        yield X, Y

    model.fit(batches(), verbose=0)
    assert len(errors) == 1


@says("`.assign(value)`, `.value` and `.numpy()` work on it")
@pytest.mark.parametrize("framework", BOTH)
def test_what_rates_and_iterations_can(framework):
    optimizer = trained(framework, "sgd").optimizer
    optimizer.learning_rate.assign(0.25)
    assert optimizer.learning_rate.value == optimizer.learning_rate.numpy() == 0.25
    optimizer.iterations.assign(7)
    assert optimizer.iterations.value == optimizer.iterations.numpy() == 7
    assert isinstance(optimizer.learning_rate, float) == (framework is exburn)
    assert isinstance(optimizer.iterations, int) == (framework is exburn)


@says("What was read of either does not change afterwards")
@pytest.mark.parametrize("framework", BOTH)
def test_what_was_read_is_a_number(framework):
    model = compiled(framework)
    rate, iterations = model.optimizer.learning_rate, model.optimizer.iterations
    model.optimizer.learning_rate = 0.5
    fit(model)
    expected = (0.01, 0) if framework is exburn else (0.5, 3)
    assert (float(rate), int(iterations)) == pytest.approx(expected)
    assert (model.optimizer.learning_rate, model.optimizer.iterations) == (0.5, 3)


@says("`optimizer.variables` are handles on the state's arrays")
@pytest.mark.parametrize("framework", BOTH)
def test_variables_of_an_optimizer(framework):
    model = trained(framework, framework.optimizers.SGD(0.1, momentum=0.5))
    (momentum,) = (v for v in model.optimizer.variables if tuple(v.shape) == (4, 1))
    before = np.asarray(momentum)
    fit(model, X, 2 * Y)
    (after,) = (v for v in model.optimizer.variables if tuple(v.shape) == (4, 1))
    assert (np.asarray(after) != before).any()
    after.assign(np.zeros((4, 1)))
    assert (np.asarray(after) == 0).all()


@says("With a schedule, setting the rate is an error, as in Keras")
@pytest.mark.parametrize("framework", BOTH)
def test_a_schedule_cannot_be_set_but_scaled(framework):
    model = compiled(framework, optimizer=framework.optimizers.SGD(decay(framework)))
    error = ArgumentError if framework is exburn else TypeError
    with pytest.raises(error):
        model.optimizer.learning_rate = 0.5
    plateau = framework.callbacks.ReduceLROnPlateau(
        "loss", factor=0.1, patience=1, min_delta=1e9
    )
    if framework is keras:
        with pytest.raises(TypeError):
            fit(model, epochs=3, callbacks=[plateau])
    else:
        rates = fit(model, epochs=3, callbacks=[plateau])["learning_rate"]
        expected = [0.1 * 0.5**0.3, 0.1 * 0.5**0.6, 0.1 * 0.1 * 0.5**0.9]
        assert rates == pytest.approx(expected, rel=1e-5)


@says("A callable learning rate is called with the step")
def test_callable_rates():
    calls = []

    def constant():
        calls.append(0)
        return 0.25

    ours = trained(exburn, exburn.optimizers.SGD(constant))
    assert len(calls) == 1 and ours.optimizer.learning_rate == 0.25
    theirs = trained(keras, keras.optimizers.SGD(constant))
    assert len(calls) > 5
    np.testing.assert_allclose(ours.get_weights()[0], theirs.get_weights()[0], 1e-5)

    def falling(step):
        return 0.1 / (step + 1)

    optimizer = trained(exburn, exburn.optimizers.SGD(falling)).optimizer
    assert optimizer.learning_rate == pytest.approx(0.1 / 6)
    with pytest.raises(TypeError, match="step"):
        trained(keras, keras.optimizers.SGD(falling))


# ------------------------------------------------------------------ names and arguments
@says("An optimizer goes on where other weights are trained than before")
@pytest.mark.parametrize("framework", BOTH)
def test_weights_that_join(framework):
    first, last = framework.layers.Dense(4), framework.layers.Dense(1)
    model = compiled(framework, first, last, optimizer="adam")
    first.trainable = False
    fit(model)
    first.trainable = True
    if framework is keras:
        model.compile(model.optimizer, "mse", run_eagerly=True)
        with pytest.raises(ValueError, match="originally built with|built with 2"):
            fit(model)
        return
    before = np.array(first.kernel)
    fit(model)
    moved = np.abs(np.array(first.kernel) - before).max()
    assert 0 < moved < 3.01 * float(model.optimizer.learning_rate)  # three updates
    assert int(model.optimizer.iterations) == 6


@says("and other names that nothing would read")
@pytest.mark.parametrize("name", ["lr", "beta1", "clip_norm"])
def test_names_that_nothing_reads(name):
    with pytest.raises(ArgumentError, match=name):
        setattr(exburn.optimizers.Adam(), name, 0.5)
    setattr(keras.optimizers.Adam(), name, 0.5)


@says("Clip values ≤ 0 are errors")
@pytest.mark.parametrize("name", ["clipnorm", "clipvalue", "global_clipnorm"])
def test_clip_values(name):
    for value in (0.0, -1.0):
        with pytest.raises(ArgumentError, match=name):
            exburn.optimizers.SGD(**{name: value})
        keras.optimizers.SGD(**{name: value})


@says("`l2_weight_decay=` is ExBurn's decay")
def test_two_decays():
    """A gradient of 0: the decoupled decay is scaled by the rate alone."""
    gradient = {"w": np.zeros(2, "float32")}
    for options, expected in (
        ({"weight_decay": 0.5}, 1 - 0.1 * 0.5),
        ({"l2_weight_decay": 0.5}, 1 - 0.1 * 0.5 * 1.9),
    ):
        optimizer = exburn.optimizers.SGD(
            0.1, momentum=0.9, nesterov=True, clipnorm=1e-6, **options
        )
        params = {"w": np.ones(2, "float32")}
        params, _ = optimizer.update(gradient, optimizer.init(params), params)
        np.testing.assert_allclose(params["w"], expected, rtol=1e-6)
    theirs = keras.optimizers.SGD(0.1, 0.9, True, clipnorm=1e-6, weight_decay=0.5)
    weight = keras.Variable(np.ones(2, "float32"))
    theirs.apply([gradient["w"]], [weight])
    np.testing.assert_allclose(np.asarray(weight), 1 - 0.1 * 0.5, rtol=1e-6)
    with pytest.raises(ValueError, match="l2_weight_decay"):
        keras.optimizers.SGD(l2_weight_decay=0.5)


# ----------------------------------------------------------------------------- L-BFGS
@says("searches along the loss in the compiled step")
def test_lbfgs_minimizes_a_square_in_few_steps():
    assert not hasattr(keras.optimizers, "LBFGS")
    model = trained(exburn, "lbfgs", fits=8, size=40)
    assert evaluate(model, X[:40], 2 * Y[:40]) < 1e-8
    for option in (
        {"clipnorm": 1.0},
        {"weight_decay": 0.1},
        {"gradient_accumulation_steps": 2},
        {"use_ema": True},
    ):
        with pytest.raises(SignatureError, match=next(iter(option))):
            exburn.optimizers.LBFGS(**option)


class OwnStep(exburn.Sequential):
    def train_step(self, state, data):
        tv, ntv, ov, mv = state
        tv, ov = self.optimizer.stateless_apply(ov, tv, tv)
        return {"loss": 0.0}, (tv, ntv, ov, mv)


@says("searches along the loss in the compiled step")
@pytest.mark.parametrize("place", ["own step", "loss scale", "several"])
def test_where_lbfgs_does_not_work(place):
    optimizer = exburn.optimizers.LBFGS()
    model = (OwnStep if place == "own step" else exburn.Sequential)(
        [exburn.Input((4,)), exburn.layers.Dense(1)]
    )
    with pytest.raises(ArgumentError, match="the (plain )?loss"):
        if place == "loss scale":
            optimizer = exburn.optimizers.LossScaleOptimizer(optimizer)
        if place == "several":
            optimizer = exburn.optimizers.MultiOptimizer(
                exburn.optimizers.OptimizerMap(
                    exburn.optimizers.SGD(), {"kernel": optimizer}
                )
            )
        model.compile(optimizer, "mse")
        fit(model)


# -------------------------------------------------------------- rules of one's own
def own_rule(framework, base="Optimizer"):
    class Rule(getattr(framework.optimizers, base)):
        def build(self, variables):
            if not self.built:
                super().build(variables)
                self.paths = [v.path for v in variables]
                self.sums = self.add_optimizer_variables(variables, "sum")

        def update_step(self, gradient, variable, learning_rate):
            total = self.sums[self._get_variable_index(variable)]
            self.assign(total, 0.5 * total + gradient)
            self.assign_sub(variable, learning_rate * total)

    return Rule


@says("An optimizer of your own has `build` and `update_step`, as in Keras")
def test_an_update_step_of_ones_own():
    ours, theirs = (trained(f, own_rule(f)(0.1)) for f in BOTH)
    np.testing.assert_allclose(ours.get_weights()[0], theirs.get_weights()[0], 1e-5)


@says("An optimizer of your own has `build` and `update_step`, as in Keras")
def test_a_transformation_of_ones_own():
    class Rule(exburn.optimizers.Optimizer):
        def transformation(self, learning_rate, count):
            return optax.chain(
                optax.trace(0.5), optax.scale_by_learning_rate(learning_rate)
            )

    ours = trained(exburn, Rule(0.1))
    theirs = trained(exburn, own_rule(exburn)(0.1))
    np.testing.assert_allclose(ours.get_weights()[0], theirs.get_weights()[0], 1e-5)


@says("the parameters come in the order of their paths")
@pytest.mark.parametrize("framework", BOTH)
def test_the_order_of_parameters(framework):
    rule = own_rule(framework)(0.1)
    stack = framework.layers.Dense(2, name="z"), framework.layers.Dense(1, name="a")
    fit(compiled(framework, *stack, optimizer=rule))
    names = ["/".join(path.split("/")[-2:]) for path in rule.paths]
    expected = ["z/kernel", "z/bias", "a/kernel", "a/bias"]
    assert names == (sorted(expected) if framework is exburn else expected)


@says("An `update_step` in a class that derives from `SGD`")
def test_an_update_step_that_fit_would_not_call():
    with pytest.raises(ArgumentError, match="update_step would not be called"):
        trained(exburn, own_rule(exburn, "SGD")(0.1))
    trained(keras, own_rule(keras, "SGD")(0.1))


@says("An `update_step` in a class that derives from `SGD`")
@pytest.mark.parametrize("framework", BOTH)
def test_an_apply_of_ones_own(framework):
    class Rule(own_rule(framework)):
        def apply(self, grads, trainable_variables=None):
            called.append(len(grads))
            return super().apply(grads, trainable_variables)

    called = []
    if framework is keras:
        trained(keras, Rule(0.1))
        assert called == [1] * 5
    else:
        with pytest.raises(ArgumentError, match="fit would not call Rule.apply"):
            trained(exburn, Rule(0.1))
        OwnStep([exburn.Input((4,)), exburn.layers.Dense(1)]).compile(Rule(0.1), "mse")


# ---------------------------------------------------- accumulation, averages, precision
@says("The moving average of `use_ema` follows updates")
def test_a_moving_average_of_every_batch():
    kernels = [
        trained(f, f.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5)).get_weights()[
            0
        ]
        for f in BOTH
    ]
    np.testing.assert_allclose(*kernels, rtol=1e-5)


@says("The moving average of `use_ema` follows updates")
def test_moving_averages_follow_updates():
    """Three updates of two batches each: the average of the weights after them."""

    def kernel(framework, rows, **options):
        optimizer = framework.optimizers.SGD(
            0.1, gradient_accumulation_steps=2, **options
        )
        return trained(framework, optimizer, rows).get_weights()[0]

    first, second, third = (kernel(exburn, rows) for rows in (16, 32, 48))
    ours, theirs = (kernel(f, 48, use_ema=True, ema_momentum=0.5) for f in BOTH)
    np.testing.assert_allclose(ours, (first + second + 2 * third) / 4, rtol=1e-5)
    assert not np.allclose(ours, theirs, rtol=1e-3)


class PerBatch(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        pass


@says("Schedules count batches, as in Keras")
@says("`gradient_accumulation_steps=n` gives Keras' results")
@pytest.mark.parametrize(
    ("scheduled", "hooks"),
    [
        (False, False),
        (True, False),
        (False, True),
    ],
)
def test_accumulated_gradients(scheduled, hooks):
    """Five batches are two groups and a half; the second ``fit`` goes on with it."""
    kernels, iterations = [], []
    for framework in BOTH:
        optimizer = framework.optimizers.SGD(
            decay(framework, 1) if scheduled else 0.1, gradient_accumulation_steps=2
        )
        model = trained(framework, optimizer)
        options = {"callbacks": [PerBatch()]} if hooks else {}
        fit(model, X[:40], 2 * Y[:40], batch_size=8, shuffle=False, **options)
        kernels.append(model.get_weights()[0])
        iterations.append(int(model.optimizer.iterations))
    np.testing.assert_allclose(*kernels, rtol=1e-5)
    assert iterations == [5, 5]


@says("Whole groups run as one compiled loop")
@pytest.mark.parametrize(
    ("batches", "given", "hooks", "taken"),
    [(6, 3, [], "2"), (5, 5, [], "4"), (6, 4, [PerBatch()], "1")],
)
def test_chunks_of_whole_groups(batches, given, hooks, taken):
    optimizer = exburn.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    model = compiled(exburn, optimizer=optimizer, steps_per_execution=given)
    rows = 8 * batches
    fit(model, X[:rows], Y[:rows], batch_size=8, callbacks=hooks)
    steps = {d.choice: d for d in model.explain_plan()}["steps per call"]
    assert steps.taken == taken


@says("With `LossScaleOptimizer` a group is left out")
@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.filterwarnings("ignore::exburn.errors.NonFiniteLossWarning")
def test_a_group_that_is_not_finite():
    """One bad batch in three groups: here its group is left out, in Keras it alone."""
    x = X.copy()
    x[0] = 1e30
    kernels, scales = {}, {}
    for framework in BOTH:
        inner = framework.optimizers.SGD(0.1, gradient_accumulation_steps=2)
        optimizer = framework.optimizers.LossScaleOptimizer(inner, initial_scale=1024.0)
        model = compiled(
            framework, framework.layers.Dense(1, use_bias=False), optimizer=optimizer
        )
        model.set_weights(KERNEL)
        fit(model, x, 2 * Y, batch_size=8, shuffle=False)
        kernels[framework] = model.get_weights()[0]
        scales[framework] = float(
            optimizer.loss_scale if framework is exburn else optimizer.dynamic_scale
        )
    assert scales == {exburn: 512.0, keras: 512.0}
    later = compiled(
        exburn,
        exburn.layers.Dense(1, use_bias=False),
        optimizer=exburn.optimizers.SGD(0.1, gradient_accumulation_steps=2),
    )
    later.set_weights(KERNEL)
    fit(later, X[16:], 2 * Y[16:], batch_size=8, shuffle=False)
    np.testing.assert_allclose(kernels[exburn], later.get_weights()[0], rtol=1e-5)
    assert not np.allclose(kernels[keras], kernels[exburn], rtol=1e-3)


@says("16-bit parameters are updated in float32")
def test_half_precision_has_float32_state():
    found = {}
    for framework in BOTH:
        dense = framework.layers.Dense(1, use_bias=False, dtype="bfloat16")
        model = compiled(framework, dense, optimizer=framework.optimizers.Adam(0.1))
        fit(model, X, 2 * Y)
        assert str(dense.kernel.dtype) == "bfloat16"
        slots = [v for v in model.optimizer.variables if tuple(v.shape) == (4, 1)]
        found[framework] = [str(v.dtype) for v in slots]
    assert found[exburn] == ["float32", "float32", "bfloat16"]
    assert found[keras] == ["bfloat16", "bfloat16"]
