"""Seeds of random layers, which Keras lists among a layer's variables."""

import keras
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.module.seed_generator import iter_variables


def test_a_layer_that_draws_has_a_seed_and_others_have_none():
    model = exburn.Sequential(
        [exburn.Input((4,)), layers.Dense(2), layers.Dropout(0.5)]
    )
    paths = [path for path, _, _ in iter_variables(model)]
    assert [p.split("/")[-1] for p in paths].count("seed_generator_state") == 1
    assert [w.name for w in model.weights] == ["kernel", "bias"]
    assert model.layers[1].seed_generator is model.layers[1].seed_generator


@pytest.mark.parametrize("amount", [0, 0.5])
@pytest.mark.parametrize(
    "make",
    [
        lambda library, amount: library.Dropout(amount),
        lambda library, amount: library.SpatialDropout1D(amount),
        lambda library, amount: library.GaussianDropout(amount),
        lambda library, amount: library.GaussianNoise(amount),
        lambda library, amount: library.AlphaDropout(amount),
        lambda library, amount: library.Attention(dropout=amount),
    ],
    ids="dropout spatial gaussian noise alpha attention".split(),
)
def test_a_layer_that_drops_nothing_has_no_seed(make, amount):
    ours, theirs = (len(make(m, amount).variables) for m in (layers, keras.layers))
    assert ours == theirs == (amount > 0)


def test_a_given_seed_is_the_seed_and_the_process_gives_the_others():
    def state(**options):
        layer = layers.Dropout(0.5, **options)
        return layer.seed_generator.state.get_value().tolist()

    assert state(seed=7) == [7, 0]
    exburn.set_random_seed(3)
    first = [state(), state()]
    exburn.set_random_seed(3)
    assert first == [state(), state()] and first[0] != first[1]


def test_a_generator_in_an_attribute_is_listed_too():
    class Own(layers.Layer):
        def __init__(self):
            super().__init__()
            self.noise = exburn.random.SeedGenerator(5)

        def call(self, x):
            return x + exburn.random.normal(x.shape, seed=self.noise)

    own = Own()
    ((path, variable, learns),) = iter_variables(own)
    assert path == "noise/seed_generator_state" and not learns
    before = np.asarray(variable.get_value())
    own(np.ones(2, np.float32))
    np.testing.assert_array_equal(variable.get_value(), before + [0, 1])
