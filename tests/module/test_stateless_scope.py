"""`StatelessScope`: loops by hand over layers that keep their own values."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from flax import nnx

import exburn
from exburn import layers, ops, random
from exburn.errors import ArgumentError, ShapeError

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def normalized(library):
    """A model that Keras would train, of either library, with equal weights."""
    parts = library.layers
    model = library.Sequential(
        [
            library.Input((3,)),
            parts.Dense(2, kernel_initializer="ones", activity_regularizer="l2"),
            parts.BatchNormalization(momentum=0.5),
            parts.Dense(1, kernel_initializer="ones"),
        ]
    )
    return model


def by_hand(library):
    """What a compiled function returns of a call within a scope."""
    model = normalized(library)
    given = [np.asarray(v) for v in model.variables]
    given[0] = given[0] * 2

    @jax.jit
    def call(values, x):
        pairs = zip(model.variables, values, strict=True)
        with library.StatelessScope(pairs, collect_losses=True) as scope:
            outputs = model(x, training=True)
            inside = scope.get_current_value(model.variables[0])
        after = [scope.get_current_value(v) for v in model.variables]
        return outputs, inside, after, sum(jnp.sum(loss) for loss in scope.losses)

    found = call(given, X)
    return jax.tree.leaves(found), [np.asarray(v) for v in model.variables]


def test_a_scope_computes_as_in_keras_and_leaves_the_model_as_it_was():
    ours, theirs = by_hand(exburn), by_hand(keras)
    for a, b in zip(ours[0], theirs[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    for a, b in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.ptp(ours[0][0]) > 0.1  # it computed something


@pytest.mark.parametrize("library", [exburn, keras])
def test_what_is_assigned_lasts_as_long_as_the_block(library):
    variable, other = library.Variable([1.0, 2.0]), library.Variable(0.0)
    with library.StatelessScope([(variable, jnp.asarray([3.0, 4.0]))]) as scope:
        variable.assign_add([1.0, 1.0])
        other.assign(5.0)
        assert np.asarray(variable.value).tolist() == [4.0, 5.0]
        with library.StatelessScope() as inner:
            variable.assign([0.0, 0.0])
        assert np.asarray(variable.value).tolist() == [4.0, 5.0]
        assert np.asarray(inner.get_current_value(variable)).tolist() == [0.0, 0.0]
        assert inner.get_current_value(other) is None
    assert np.asarray(scope.get_current_value(variable)).tolist() == [4.0, 5.0]
    assert float(scope.get_current_value(other)) == 5.0
    assert np.asarray(variable.value).tolist() == [1.0, 2.0]
    assert float(other.value) == 0.0


def test_a_part_of_a_variable_is_assigned():
    variable = exburn.Variable([1.0, 2.0])

    @jax.jit
    def whole(x):
        with exburn.StatelessScope() as scope:
            variable[1] = x
        return scope.get_current_value(variable)

    assert whole(3.0).tolist() == [1.0, 3.0] and variable.numpy().tolist() == [1.0, 2.0]


def test_an_error_in_the_block_gives_the_values_back():
    layer = layers.Dense(1)
    layer(X)
    before = layer.kernel.numpy()

    @jax.jit
    def fails(kernel):
        with exburn.StatelessScope([(layer.kernel, kernel)]):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fails(before + 1)
    np.testing.assert_array_equal(layer.kernel.numpy(), before)
    assert layer(X).shape == (4, 1)


def test_random_layers_draw_from_the_seeds_that_are_given():
    model = exburn.Sequential([exburn.Input((3,)), layers.Dropout(0.5)])
    seeds = [v.value for v in model.non_trainable_variables]
    assert len(seeds) == 1

    @jax.jit
    def call(seeds):
        pairs = zip(model.non_trainable_variables, seeds, strict=True)
        with exburn.StatelessScope(pairs) as scope:
            outputs = model(jnp.ones((64, 3)), training=True)
        return outputs, [
            scope.get_current_value(v) for v in model.non_trainable_variables
        ]

    first, then = call(seeds)
    assert 0.3 < float((first == 0).mean()) < 0.7
    np.testing.assert_array_equal(first, call(seeds)[0])
    assert (np.asarray(first) != np.asarray(call(then)[0])).any()
    np.testing.assert_array_equal(model.non_trainable_variables[0].value, seeds[0])


def test_a_sampler_draws_in_a_compiled_loop():
    """As keras_hub generates text: a scope in each step of a loop, in another one."""
    generator, head = random.SeedGenerator(3), layers.Dense(5)
    head.build((None, 5))

    @jax.jit
    def generate(state, kernel):
        def body(state, step, tokens):
            with exburn.StatelessScope([(generator.state, state)]) as scope:
                scores = head(jax.nn.one_hot(tokens[:, step], 5))
                drawn = random.categorical(scores, 1, seed=generator)[:, 0]
                tokens = tokens.at[:, step + 1].set(drawn.astype(tokens.dtype))
            return scope.get_current_value(generator.state), step + 1, tokens

        pairs = [(generator.state, state), (head.kernel, kernel)]
        with exburn.StatelessScope(pairs) as scope:
            start = (jnp.asarray(generator.state.value), 0, jnp.zeros((8, 20), int))
            state, _, tokens = ops.while_loop(lambda s, i, t: i < 19, body, start)
            generator.state.assign(state)
        return tokens, scope.get_current_value(generator.state)

    tokens, state = generate(generator.state.value, np.zeros((5, 5)))
    again, later = generate(state, np.zeros((5, 5)))
    assert set(np.unique(tokens)) == {0, 1, 2, 3, 4}
    assert state[1] == 19 and later[1] == 38 and (tokens != again).any()
    certain = generate(state, 100 * np.roll(np.eye(5), 1, axis=1))[0]
    assert certain[0, :7].tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert generator.state.numpy().tolist() == [3, 0]


def test_metrics_and_gradients():
    """As bayesflow trains: every kind of variable in one function with a gradient."""
    model = normalized(exburn)
    metric = exburn.metrics.Mean()

    def loss(trained, rest, measured):
        pairs = [
            *zip(model.trainable_variables, trained, strict=True),
            *zip(model.non_trainable_variables, rest, strict=True),
            *zip(metric.variables, measured, strict=True),
        ]
        with exburn.StatelessScope(pairs) as scope:
            value = jnp.mean(model(X, training=True) ** 2)
            metric.update_state(value)
        groups = model.non_trainable_variables, metric.variables
        return value, [[scope.get_current_value(v) for v in g] for g in groups]

    groups = model.trainable_variables, model.non_trainable_variables, metric.variables
    given = [[v.value for v in group] for group in groups]
    step = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (value, (rest, measured)), grads = step(*given)
    assert float(measured[0]) == pytest.approx(float(value)) and measured[1] == 1
    assert [g.shape for g in grads] == [v.shape for v in given[0]]
    assert all(not np.array_equal(a, b) for a, b in zip(rest, given[1], strict=True))
    assert float(metric.result()) == 0
    model.compile("sgd", "mse")
    model.fit(X, np.zeros((4, 1)), verbose=0)  # nothing of the trace is left in it


@pytest.mark.parametrize("library", [exburn, keras])
def test_an_optimizer_takes_a_step(library):
    weight = library.Variable([1.0, 2.0])
    optimizer = library.optimizers.SGD(0.5, momentum=0.5)
    optimizer.build([weight])

    @jax.jit
    def step(value, slots, gradient):
        pairs = [(weight, value), *zip(optimizer.variables, slots, strict=True)]
        with library.StatelessScope(pairs) as scope:
            optimizer.apply([gradient], [weight])
        slots = [scope.get_current_value(v) for v in optimizer.variables]
        return scope.get_current_value(weight), slots

    value, slots = weight.value, [v.value for v in optimizer.variables]
    for _ in range(2):
        value, slots = step(value, slots, jnp.asarray([1.0, -1.0]))
    # 1 - 0.5 - (0.25 + 0.5), in whatever way the velocity is kept
    np.testing.assert_allclose(value, [-0.25, 3.25])
    assert np.asarray(weight.value).tolist() == [1.0, 2.0]
    assert int(optimizer.iterations.value) == 0


def test_a_scope_may_be_entered_again():
    variable = exburn.Variable(1.0)
    scope = exburn.StatelessScope([(variable, 5.0)])
    with scope:
        variable.assign_add(1.0)
    variable.assign(2.0)
    with scope:
        assert float(variable.value) == 5.0
    assert (
        float(variable.value) == 2.0 and float(scope.get_current_value(variable)) == 5
    )


def test_a_variable_of_another_trace_is_refused_and_the_others_get_theirs_back():
    outer = exburn.Variable(1.0)

    @jax.jit
    def call(x):
        inner = exburn.Variable(x)

        def step(y):
            with exburn.StatelessScope([(outer, y), (inner, y)]):
                return y * inner.value

        return jax.vmap(jax.jit(step))(jnp.ones(2))

    with pytest.raises(ArgumentError, match="cannot be set in another"):
        call(1.0)
    assert float(outer.value) == 1.0


def test_modules_of_flax_too():
    module = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    model = exburn.Sequential([exburn.Input((3,)), module])
    before = model(X)

    @jax.jit
    def call(values):
        pairs = zip(model.variables, values, strict=True)
        with exburn.StatelessScope(pairs):
            return model(X)

    assert (
        call([np.ones((3, 2)), np.ones((2,))]).tolist()
        == (1 + X.sum(1, keepdims=True).repeat(2, 1)).tolist()
    )
    np.testing.assert_array_equal(model(X), before)


@pytest.mark.parametrize(
    "mapping, error, text",
    [
        ([3], ArgumentError, "is not"),
        ([("kernel", np.ones(3))], ArgumentError, "received str"),
        ([(exburn.Variable([1.0], name="w"), [1.0, 2.0])], ShapeError, r"w has shape"),
    ],
)
def test_what_is_no_pair_of_a_variable_and_its_value(mapping, error, text):
    with pytest.raises(error, match=text):
        exburn.StatelessScope(mapping)
