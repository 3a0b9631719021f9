"""Tests of ``exburn.optimizers.contract.stepwise``."""

import numpy as np
import pytest
from tests.golden import keras

import exburn
from exburn.errors import ArgumentError

# Of Keras' own get_weights().
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implem:DeprecationWarning")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3)).astype("float32")
Y = (X @ [[1.0], [2.0], [-1.0]] + 0.5).astype("float32")


def rule_of(lib, ops):
    class Rule(lib.optimizers.Optimizer):
        """Adam with its number of updates counted by itself, too."""

        def __init__(self, learning_rate=0.01, rho=0.9, **kwargs):
            super().__init__(learning_rate=learning_rate, **kwargs)
            self.rho = rho

        def build(self, variables):
            if self.built:
                return
            super().build(variables)
            self.means = [
                self.add_variable_from_reference(v, name="mean") for v in variables
            ]
            self.squares = self.add_optimizer_variables(variables, "square", "ones")
            self.updates = self.add_variable((), name="updates")

        def update_step(self, gradient, variable, learning_rate):
            rate = ops.cast(learning_rate, variable.dtype)
            gradient = ops.cast(gradient, variable.dtype)
            step = ops.cast(self.iterations + 1, variable.dtype)
            index = self._get_variable_index(variable)
            mean, square = self.means[index], self.squares[index]
            mean.assign(self.rho * mean + (1 - self.rho) * gradient)
            self.assign_add(square, (ops.square(gradient) - square) * 0.01)
            update = mean / (ops.sqrt(square) + 1e-7) / (1 - self.rho**step)
            self.assign_sub(variable, rate * update)
            self.assign_add(self.updates, 1.0)

        def get_config(self):
            return {**super().get_config(), "rho": self.rho}

    return Rule


Ours = rule_of(exburn, exburn.ops)


def model_of(lib):
    model = lib.Sequential(
        [
            lib.Input((3,)),
            lib.layers.Dense(4, activation="tanh"),
            lib.layers.Dense(1),
        ]
    )
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=w.shape) for w in model.get_weights()]
    model.set_weights([w.astype("float32") for w in weights])
    return model


def losses(lib, optimizer, epochs=3):
    model = model_of(lib)
    model.compile(optimizer, "mse")
    history = model.fit(X, Y, 8, epochs=epochs, shuffle=False, verbose=0).history
    return model, history["loss"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight_decay": 0.1, "clipnorm": 0.5},
        {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2},
        {"gradient_accumulation_steps": 3},
    ],
    ids=lambda options: next(iter(options), "plain"),
)
def test_it_trains_as_with_keras(options, golden):
    def train(lib):
        rule = rule_of(lib, lib.ops)(0.05, rho=0.8, **options)
        model, values = losses(lib, rule)
        return values, model.get_weights()

    (found, mine), (wanted, theirs) = train(exburn), golden(lambda: train(keras))
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_a_schedule_and_a_rate_that_changes(golden):
    def train(lib):
        schedule = lib.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
        return losses(lib, rule_of(lib, lib.ops)(schedule), 2)[1]

    theirs = golden(lambda: train(keras))
    np.testing.assert_allclose(train(exburn), theirs, rtol=1e-4)

    model, _ = losses(exburn, Ours(0.1), 1)
    before = model.get_weights()
    model.optimizer.learning_rate = 0.0
    model.fit(X, Y, 8, verbose=0)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_nothing_is_compiled_twice_and_the_variables_show_the_state():
    model, _ = losses(exburn, Ours(0.1), 1)
    optimizer = model.optimizer
    assert float(optimizer.updates) == 12  # three batches, four weights
    assert [m.shape for m in optimizer.means] == [(4,), (3, 4), (1,), (4, 1)]
    means = [np.array(mean) for mean in optimizer.means]
    model.fit(X, Y, 8, epochs=2, verbose=0)
    assert float(optimizer.updates) == 36
    assert not np.array_equal(means[0], optimizer.means[0])
    optimizer.updates.assign(1.0)
    model.fit(X, Y, 8, verbose=0)
    assert float(optimizer.updates) == 13
    assert model._training_session.preparer.program_cache.trace_counts["train"] == 1


def test_apply_in_a_loop():
    weights = [exburn.Variable(np.ones((2,), "float32")) for _ in range(2)]
    optimizer = Ours(0.1, rho=0.0)
    with pytest.raises(ArgumentError, match="for build"):
        optimizer.add_variable((2,))
    optimizer.build(weights)
    assert optimizer.built and float(optimizer.updates) == 0
    for _ in range(2):
        optimizer.apply([np.ones(2, "float32")] * 2, weights)
    np.testing.assert_allclose(weights[0].numpy(), 0.8, rtol=1e-5)
    assert float(optimizer.updates) == 4 and optimizer.iterations == 2


def test_variables_in_any_order():
    layer = exburn.layers.Dense(3, kernel_initializer="ones", bias_initializer="ones")
    layer.build((None, 2))
    weights = layer.weights  # the kernel first; by their paths the bias is
    optimizer = Ours(0.1)
    gradients = [np.full((2, 3), 2.0, "float32"), np.ones(3, "float32")]
    for _ in range(2):
        optimizer.apply(gradients, weights)
    for weight, gradient in zip(weights, gradients, strict=True):
        mean = optimizer.means[optimizer._get_variable_index(weight)]
        np.testing.assert_allclose(mean.numpy(), gradient * 0.19, rtol=1e-5)


def test_it_is_saved_with_the_model(tmp_path):
    model, _ = losses(exburn, Ours(0.1, rho=0.7), 1)
    model.save(tmp_path / "m.exburn")
    again = exburn.saving.load_model(
        tmp_path / "m.exburn", custom_objects={"Rule": Ours}
    )
    assert again.optimizer.rho == 0.7
    for m in (model, again):
        m.fit(X, Y, 8, shuffle=False, verbose=0)
    for a, b in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert float(again.optimizer.updates) == 24


def test_inside_of_other_optimizers():
    model, plain = losses(exburn, Ours(0.1), 2)
    scaled = exburn.optimizers.LossScaleOptimizer(Ours(0.1))
    _, found = losses(exburn, scaled, 2)
    np.testing.assert_allclose(found, plain, rtol=1e-4)
    several = exburn.optimizers.MultiOptimizer(
        exburn.optimizers.OptimizerMap(Ours(0.1), {".*bias": Ours(0.1)})
    )
    _, found = losses(exburn, several, 2)
    np.testing.assert_allclose(found, plain, rtol=1e-4)


def test_half_precision_is_updated_in_float32():
    model = exburn.Sequential(
        [exburn.Input((3,)), exburn.layers.Dense(1, dtype="bfloat16")]
    )
    model.compile(Ours(0.01), "mse")
    history = model.fit(X, Y, 8, epochs=3, verbose=0).history["loss"]
    assert history[-1] < history[0]
    assert model.optimizer.means[0].dtype == "float32"
    assert model.layers[0].kernel.dtype == "bfloat16"


def test_one_without_variables_of_its_own_and_one_that_would_not_be_called():
    class Signs(exburn.optimizers.Optimizer):
        def update_step(self, gradient, variable, learning_rate):
            variable.assign_sub(learning_rate * exburn.ops.sign(gradient))

    model, found = losses(exburn, Signs(0.01), 4)
    assert found[-1] < found[0]

    with pytest.raises(ArgumentError, match="another optimizer"):

        class Other(exburn.optimizers.SGD):
            def update_step(self, gradient, variable, learning_rate):
                variable.assign_sub(0.1 * gradient)


def test_a_config_that_cannot_be_written_says_so():
    class Hidden(exburn.optimizers.Optimizer):
        def __init__(self, learning_rate=0.1, power=2.0, **kwargs):
            super().__init__(learning_rate, **kwargs)
            self._power = power

        def update_step(self, gradient, variable, learning_rate):
            variable.assign_sub(learning_rate * gradient**self._power)

    with pytest.raises(ArgumentError, match="power"):
        Hidden().get_config()
