"""Weights made for the first data: which of their sizes bind others."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import OutOfMemoryError, ShapeError
from exburn.module import building

RNG = np.random.default_rng(0)
X = RNG.standard_normal((24, 4)).astype(np.float32)


def test_sizes_of_the_first_data_bind_no_others(tmp_path):
    model = exburn.Sequential([layers.Embedding(9, 8), layers.GRU(4), layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones((8, 5), int), np.ones((8, 1)), verbose=0)
    longer = np.arange(14).reshape(2, 7) % 9
    expected = model.predict(longer, verbose=0)
    assert (model.input_shape, model.output_shape) == ((None, 5), (None, 1))
    model.save(tmp_path / "m.keras")
    for same in (
        exburn.models.load_model(tmp_path / "m.keras"),
        pickle.loads(pickle.dumps(model)),
        model.clone(),
    ):
        np.testing.assert_allclose(same.predict(longer, verbose=0), expected, 1e-6)
    again = exburn.models.clone_model(
        model, clone_function=lambda layer: layer.from_config(layer.get_config())
    )
    assert again(longer).shape == (2, 1)
    declared = exburn.Sequential([exburn.Input((5,), dtype="int32"), *model.layers])
    with pytest.raises(ShapeError, match="must be int32"):
        declared(longer)
    with pytest.raises(ShapeError, match="as many axes as"):
        model.predict(longer[0], verbose=0)


def test_a_sequential_inside_is_called_at_two_scales():
    class Pyramid(layers.Layer):
        def __init__(self):
            super().__init__()
            self.part = exburn.Sequential([layers.Conv2D(3, 3), layers.LeakyReLU()])

        def call(self, x):
            big, small = self.part(x), self.part(x[:, ::2, ::2])
            return jnp.mean(big, (1, 2)) + jnp.mean(small, (1, 2))

    model = exburn.Sequential([Pyramid()])
    assert model(np.ones((1, 16, 16, 3))).shape == (1, 3)
    assert model.predict(np.ones((1, 12, 10, 3)), verbose=0).shape == (1, 3)


@pytest.mark.parametrize(
    ("stack", "shape", "other"),
    [
        ([layers.Conv1D, layers.Flatten, layers.Dense], (8, 2), (9, 2)),
        ([layers.Dense], (4,), (5,)),
        ([lambda _: layers.EinsumDense("abc,bd->acd", (None, 3))], (4, 2), (5, 2)),
        ([lambda n: layers.ConvLSTM1D(n, 2)], (3, 4, 1), (3, 5, 1)),
    ],
)
def test_sizes_that_weights_depend_on_bind(stack, shape, other):
    args = {layers.Conv1D: (3, 2), layers.Flatten: ()}
    model = exburn.Sequential([make(*args.get(make, (3,))) for make in stack])
    model.predict(np.ones((2, *shape)), verbose=0)
    for call in (model, lambda x: model.predict(x, verbose=0)):
        with pytest.raises(ShapeError, match="needs size"):
            call(np.ones((2, *other)))


def test_a_subclass_layer_gets_keras_shapes():
    seen = []

    class Scale(layers.Layer):
        def __init__(self, power, **kwargs):
            super().__init__(**kwargs)
            self.power = power

        def build(self, input_shape):
            seen.append(input_shape)
            self.scale = self.add_weight(
                shape=(input_shape[-1],), initializer="ones", trainable=True
            )

        def call(self, inputs):
            return inputs**self.power * self.scale

        def get_config(self):
            return {**super().get_config(), "power": self.power}

    model = exburn.Sequential([exburn.Input((4,)), Scale(2, name="sq")])
    assert seen[0] == (None, 4)
    np.testing.assert_allclose(model.predict(X, verbose=0), X**2, rtol=1e-6)
    config = model.layers[0].get_config()
    assert config["power"] == 2 and config["name"] == "sq"
    assert Scale.from_config(config).power == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: exburn.Sequential([exburn.Input((10**6,)), layers.Dense(10**9)]),
        lambda: layers.Dense(10**9)(np.ones((1, 10**6), "float32")),
        lambda: exburn.Sequential([layers.Dense(10**9)]).build((None, 10**6)),
    ],
    ids=["model", "call", "build"],
)
def test_weights_for_which_there_is_no_memory_are_named(make):
    with pytest.raises(OutOfMemoryError, match=r"dense/kernel(.|\n)*\(1000000, 10"):
        make()


def test_a_device_without_memory_names_the_weight(monkeypatch):
    def refuse(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

    monkeypatch.setattr(building, "place_value", refuse)
    with pytest.raises(OutOfMemoryError, match=r"dense/kernel(.|\n)*RESOURCE"):
        exburn.Sequential([exburn.Input((3,)), layers.Dense(2)])
