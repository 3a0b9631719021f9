"""Tests of ``exburn.random``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import keras

import exburn
from exburn import errors, ops, random
from exburn.core import forward_context
from exburn.module.layer import Layer

DRAWS = {
    "normal": ((3, 4), 1.0, 2.0),
    "truncated_normal": ((3, 4), 1.0, 2.0),
    "uniform": ((3, 4), -1.0, 2.0),
    "randint": ((3, 4), 2, 9),
    "categorical": (np.log(np.array([[0.2, 0.8], [0.5, 0.5]], "float32")), 5),
    "gamma": ((3, 4), 2.0),
    "beta": ((3, 4), 2.0, 3.0),
    "binomial": ((3, 4), 6.0, 0.4),
    "dropout": (np.ones((4, 5), "float32"), 0.4),
}


class Sampling(Layer):
    """The sampling layer of many an autoencoder."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = random.SeedGenerator(1337)

    def call(self, inputs):
        mean, log_var = inputs
        batch, dim = ops.shape(mean)
        noise = random.normal((batch, dim), seed=self.seed_generator)
        return mean + ops.exp(0.5 * log_var) * noise


def public(module):
    return {n for n in dir(module) if not n.startswith("_")}


@pytest.mark.parametrize("name", DRAWS)
def test_an_integer_gives_keras_numbers(name, golden):
    got = getattr(random, name)(*DRAWS[name], seed=42)
    draw = lambda: getattr(keras.random, name)  # noqa: E731
    wanted = golden(lambda: draw()(*DRAWS[name], seed=42))
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_a_generator_gives_keras_numbers_one_after_the_other(golden):
    def draw(package):
        seed = package.random.SeedGenerator(7)
        return [package.random.normal((4,), seed=seed) for _ in range(3)]

    np.testing.assert_allclose(
        draw(exburn), golden(lambda: draw(keras)), rtol=1e-6, atol=1e-7
    )
    mine = random.SeedGenerator(7)
    for _ in range(3):
        mine.next()
    assert mine.state.numpy().tolist() == [7, 3]


def test_shuffle_and_noise_shape():
    x = np.arange(20).reshape(4, 5)
    rows = random.shuffle(x, seed=3)
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, x.tolist()))
    columns = random.shuffle(x, axis=1, seed=3)
    assert sorted(columns[0].tolist()) == x[0].tolist()
    kept = random.dropout(np.ones((6, 8)), 0.5, noise_shape=(None, 1), seed=1)
    assert {len(set(row)) for row in kept.tolist()} == {1}
    assert random.dropout(jnp.ones(3), 1.0).tolist() == [0, 0, 0]
    assert random.dropout(jnp.ones(3, "bfloat16"), 0.5, seed=1).dtype == "bfloat16"
    assert random.uniform((50,), 0, 3, dtype="int32", seed=1).max() == 2


def test_without_a_seed_set_random_seed_decides():
    exburn.set_random_seed(5)
    first = [random.normal((2,)), random.uniform((2,)), random.SeedGenerator().next()]
    assert not np.array_equal(first[0], random.normal((2,)))
    exburn.set_random_seed(5)
    again = [random.normal((2,)), random.uniform((2,)), random.SeedGenerator().next()]
    for a, b in zip(first, again, strict=True):
        assert (a == b).all()


def test_keys_of_jax_are_seeds():
    key = jax.random.key(3)
    wanted = jax.random.normal(key, (2,))
    np.testing.assert_array_equal(random.normal((2,), seed=key), wanted)
    raw = jax.random.key_data(key)
    np.testing.assert_array_equal(random.normal((2,), seed=raw), wanted)


@pytest.mark.parametrize("seed", [None, 11, random.SeedGenerator(11)])
def test_draws_of_a_program_differ_from_step_to_step_and_are_repeated(seed):
    def step(key):
        with forward_context.forward(forward_context.Context(key=key)):
            return random.normal((3,), seed=seed), random.normal((3,), seed=seed)

    run = jax.jit(step)
    first, second = run(jax.random.key(0)), run(jax.random.key(1))
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], second[0])
    np.testing.assert_array_equal(run(jax.random.key(0))[0], first[0])


def test_key_scope_gives_the_key_outside_of_programs():
    generator = random.SeedGenerator(1)

    def step(key):
        with exburn.key_scope(key):
            return [random.normal((3,), seed=s) for s in (None, 1, generator)]

    run = jax.jit(step)
    for a, b in zip(run(jax.random.key(0)), run(jax.random.key(1)), strict=True):
        assert not np.array_equal(a, b)


def test_the_next_seed_is_that_of_keras(golden):
    def three():
        generator = keras.random.SeedGenerator(7)
        return [generator.next() for _ in range(3)]

    mine = random.SeedGenerator(7)
    for expected in golden(three):
        seed = mine.next()
        assert seed.dtype == expected.dtype and seed.tolist() == expected.tolist()
        np.testing.assert_array_equal(
            random.normal((2,), seed=seed), jax.random.normal(seed, (2,))
        )


def test_compiled_by_someone_else():
    def draw(seed):
        return jax.jit(lambda: random.normal((2,), seed=seed))()

    np.testing.assert_array_equal(draw(3), random.normal((2,), seed=3))
    with pytest.raises(errors.ArgumentError, match="key_scope"):
        draw(None)
    with pytest.raises(errors.ArgumentError, match="key_scope"):
        draw(random.SeedGenerator(3))


def test_a_generator_in_a_layer():
    a, b = exburn.Input((3,)), exburn.Input((3,))
    model = exburn.Model([a, b], Sampling()([a, b]))
    assert model.output_shape == (None, 3)
    assert model.weights == []
    zeros = np.zeros((5, 3), "float32")
    first, second = model([zeros, zeros]), model([zeros, zeros])
    assert first.shape == (5, 3)
    assert not np.array_equal(first, second)


def test_a_generator_trains_with_noise_that_changes():
    seen = []

    class Noise(Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.seed = random.SeedGenerator(3)

        def call(self, x, training=False):
            noise = random.normal(x.shape, seed=self.seed)
            jax.debug.callback(lambda n: seen.append(float(n[0, 0])), noise)
            return x + noise

    model = exburn.Sequential([exburn.Input((2,)), Noise(), exburn.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.zeros((8, 2), "float32")
    model.fit(x, x[:, :1], batch_size=4, epochs=2, verbose=0)
    jax.effects_barrier()
    assert len(set(seen)) >= 4


BAD_ARGUMENTS = [
    lambda: random.normal((2,), seed="one"),
    lambda: random.normal((2,), dtype="int32"),
    lambda: random.randint((2,), 0, 3, dtype="float32"),
    lambda: random.dropout(jnp.ones(2), 1.5),
    lambda: random.categorical([0.0, 1.0], 2),
    lambda: random.SeedGenerator(1.5),
]


def test_config_of_a_generator():
    config = random.SeedGenerator(4, name="noise").get_config()
    assert config == {"seed": 4, "name": "noise"}
    again = random.SeedGenerator.from_config(config)
    assert again.state.numpy().tolist() == [4, 0]


def test_a_generator_in_a_configuration():
    made = exburn.saving.serialize_keras_object(random.SeedGenerator(7))
    again = exburn.saving.deserialize_keras_object(made)
    np.testing.assert_array_equal(again.next(), random.SeedGenerator(7).next())


def test_the_list_of_random_names():
    assert public(keras.random) - public(exburn.random) == set()


def test_a_generator_takes_the_backend_that_keras_layers_pass():
    expected = random.SeedGenerator(1).next()
    for backend in (None, "jax", exburn.backend):
        np.testing.assert_array_equal(
            random.SeedGenerator(1, backend=backend).next(), expected
        )
    with pytest.raises(errors.ArgumentError, match="backend is JAX"):
        random.SeedGenerator(1, backend="tensorflow")
