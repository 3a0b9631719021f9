"""Seeds of random layers are variables, as in Keras, for loops over pure functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn as keras
from exburn import layers

X = np.ones((64, 4), np.float32)


def values(variables):
    return [v.value for v in variables]


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda: layers.Dropout(0.5), 1),
        (lambda: layers.GaussianNoise(0.5), 1),
        (lambda: layers.MultiHeadAttention(2, 2, dropout=0.1), 1),
        (lambda: layers.MultiHeadAttention(2, 2), 0),
        (lambda: layers.Attention(dropout=0.1), 1),
        (lambda: layers.LSTM(2, dropout=0.1), 1),
        (lambda: layers.GRU(2, recurrent_dropout=0.1), 1),
        (lambda: layers.LSTM(2), 0),
        (lambda: layers.RandomFlip(), 1),
        (lambda: layers.TimeDistributed(layers.Dropout(0.1)), 1),
        (lambda: layers.Dense(2), 0),
    ],
)
def test_random_layers_list_their_seeds(make, count):
    layer = make()
    seeds = [v for v in layer.variables if v.value.dtype == np.uint32]
    assert [v.shape for v in seeds] == [(2,)] * count
    kept = {id(v) for v in layer.weights}
    assert not kept & {id(v) for v in seeds}  # no weights, as in Keras
    assert [id(v) for v in layer.variables if v.value.dtype == np.uint32] == [
        id(v) for v in seeds
    ]


def test_seeds_stand_where_keras_has_them():
    model = keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(3),
            layers.Dropout(0.5),
            layers.BatchNormalization(),
        ]
    )
    shapes = [v.shape for v in model.variables]
    assert shapes == [(4, 3), (3,), (2,), (3,), (3,), (3,), (3,)]
    assert [v.shape for v in model.non_trainable_variables] == [(2,), (3,), (3,)]
    assert [v.shape for v in model.non_trainable_weights] == [(3,), (3,)]
    before = model.get_state_tree("numpy_array")
    model.set_state_tree(before)
    after = model.get_state_tree("numpy_array")
    jax.tree.map(np.testing.assert_array_equal, before, after)
    assert "seed_generator_state" in str(before["non_trainable_variables"])


class Sampling(layers.Layer):
    """As in Keras' guides: a generator of its own."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(7)

    def call(self, x):
        return x + keras.random.normal(x.shape, seed=self.seed_generator)


@pytest.mark.parametrize(
    "random",
    [
        lambda: layers.Dropout(0.5),
        lambda: Sampling(),
        lambda: keras.Sequential(
            [layers.Reshape((2, 2)), layers.LSTM(64, dropout=0.5)]
        ),
    ],
)
def test_a_compiled_stateless_call_draws_from_them(random):
    model = keras.Sequential([keras.Input((4,)), random()])
    call = jax.jit(lambda tv, ntv: model.stateless_call(tv, ntv, X, training=True))
    weights, seeds = (
        values(model.trainable_variables),
        values(model.non_trainable_variables),
    )
    first, after = call(weights, seeds)
    again, _ = call(weights, seeds)
    then, _ = call(weights, after)
    np.testing.assert_array_equal(first, again)
    assert (first != then).any()
    np.testing.assert_array_equal(seeds, values(model.non_trainable_variables))


def test_they_stay_where_nothing_is_drawn():
    model = keras.Sequential([keras.Input((4,)), layers.Dropout(0.5)])
    seeds = values(model.non_trainable_variables)
    y, after = model.stateless_call([], seeds, X, training=False)
    np.testing.assert_array_equal(y, X)
    np.testing.assert_array_equal(after, seeds)
    _, after = model.stateless_call([], seeds, X, training=True)
    assert (np.asarray(after) != np.asarray(seeds)).any()


def test_two_layers_draw_different_numbers():
    x = keras.Input((4,))
    model = keras.Model(x, [layers.Dropout(0.5)(x), layers.Dropout(0.5)(x)])
    seeds = values(model.non_trainable_variables)
    (a, b), _ = model.stateless_call([], seeds, X, training=True)
    assert (a != b).any()


def test_a_key_scope_goes_before_them():
    layer = layers.Dropout(0.5)
    seeds = values(layer.non_trainable_variables)

    @jax.jit
    def call(key):
        with keras.key_scope(key):
            return layer.stateless_call([], seeds, X, training=True)[0]

    assert (call(jax.random.key(0)) != call(jax.random.key(1))).any()


def test_without_a_key_the_error_says_which_line_to_write():
    point = keras.Input((4,))
    model = keras.Model(point, layers.Dropout(0.5)(point))
    with pytest.raises(keras.errors.ArgumentError) as raised:
        jax.jit(lambda x: model(x, training=True))(X)
    assert "in layer 'dropout'" in str(raised.value)
    lines = [line.strip() for line in str(raised.value).splitlines()]
    (scoped,) = (line for line in lines if line.startswith("with "))
    (stateless,) = (line for line in lines if line.startswith("y, rest ="))
    names = {"exburn": keras, "jax": jax, "model": model}
    source = f"def scoped(key, x):\n {scoped}\n return y\n"
    source += f"def stateless(trained, rest, x):\n {stateless}\n return y, rest\n"
    exec(source, names)
    compiled = jax.jit(names["scoped"])
    a, b = (compiled(jax.random.key(i), X) for i in range(2))
    assert (a != b).any()
    compiled, rest = jax.jit(names["stateless"]), values(model.non_trainable_variables)
    a, rest = compiled([], rest, X)
    assert (a != compiled([], rest, X)[0]).any()


@pytest.mark.parametrize(
    ("seeds", "error", "reason"),
    [
        ([], keras.errors.ShapeError, "must hold 1 arrays, received 0"),
        ([np.zeros(3, np.uint32)], keras.errors.ShapeError, r"received \(3,\)"),
        ([np.zeros(2, np.float32)], keras.errors.DTypeError, "must be uint32"),
        ([[0, 1]], keras.errors.DTypeError, "must be uint32"),
    ],
)
def test_seeds_are_checked(seeds, error, reason):
    layer = layers.Dropout(0.5)
    with pytest.raises(error, match=reason):
        layer.stateless_call([], seeds, X, training=True)


def test_the_seed_of_the_process_decides():
    def seeds():
        keras.set_random_seed(3)
        made = layers.Dropout(0.5), layers.Dropout(0.5), layers.Dropout(0.5, seed=5)
        return [np.asarray(v.value) for m in made for v in m.variables]

    first, second = seeds(), seeds()
    np.testing.assert_array_equal(first, second)
    assert (first[0] != first[1]).any() and first[2][0] == 5


def test_a_subclass_sets_its_own():
    class Mine(layers.Dropout):
        def __init__(self):
            super().__init__(0.5)
            self.seed_generator = keras.random.SeedGenerator(11)

    assert [np.asarray(v.value)[0] for v in Mine().variables] == [11]


def test_reading_them_compiles_nothing_again():
    model = keras.Sequential([keras.Input((4,)), layers.Dropout(0.5), layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(X, X[:, :1], verbose=0)
    assert len(model.variables) == 3
    model.fit(X, X[:, :1], verbose=0)
    assert len(list(model.compile_report())) == 1


class TwoPart(keras.Model):
    """Slices the state by the number of each part's variables, as Keras' GAN does."""

    def __init__(self):
        super().__init__()
        self.first = keras.Sequential([keras.Input((4,)), layers.Dropout(0.5)])
        self.second = keras.Sequential(
            [keras.Input((4,)), layers.Dropout(0.5), layers.BatchNormalization()]
        )
        self.built = True

    def call(self, x, training=False):
        return self.second(self.first(x, training=training), training=training)

    def train_step(self, state, data):
        trained, rest, slots, metrics = state
        split = len(self.first.non_trainable_variables)
        x, _ = data
        h, first = self.first.stateless_call([], rest[:split], x, training=True)

        def loss(trained):
            y, second = self.second.stateless_call(
                trained, rest[split:], x, training=True
            )
            return jnp.mean(y**2), second

        grads, second = jax.grad(loss, has_aux=True)(trained)
        trained, slots = self.optimizer.stateless_apply(slots, grads, trained)
        return {"kept": (h > 0).mean()}, (trained, first + second, slots, metrics)


def test_steps_of_a_model_slice_them():
    keras.set_random_seed(0)
    model = TwoPart()
    model.compile("sgd", "mse")
    before = np.asarray(model.second.layers[1].moving_mean.value)
    seen = []
    log = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda step, logs: seen.append(logs["kept"])
    )
    model.fit(X, X, batch_size=16, epochs=3, verbose=0, callbacks=[log])
    assert (np.asarray(model.second.layers[1].moving_mean.value) != before).any()
    assert len(set(seen)) > 4, seen  # each step drew other numbers
