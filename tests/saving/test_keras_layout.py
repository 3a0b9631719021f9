"""Layers held in every way that Python knows: Keras' files of weights are read."""

import keras
import numpy as np
import pytest
from tests.saving import holders

import exburn
from exburn import layers as exburn_layers
from exburn.errors import FileFormatError
from exburn.saving.keras_layout import walk

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras


def filled(theirs, x, seed=0):
    """A built model of Keras, with weights that differ from each other."""
    theirs(x)
    rng = np.random.default_rng(seed)
    fresh = [0.5 * rng.random(w.shape, np.float32) for w in theirs.get_weights()]
    theirs.set_weights(fresh)
    return theirs


@pytest.mark.parametrize(
    "seed",
    range(36),
)
def test_weights_of_layers_held_at_random_are_found(seed, tmp_path):
    x = np.random.default_rng(seed).random((2, holders.SIZE), np.float32)
    steps = holders.plan(seed)
    theirs = filled(holders.make(keras, keras.layers, steps), x, seed)
    theirs.save_weights(path := tmp_path / "m.weights.h5")
    ours = holders.make(exburn, exburn_layers, steps)
    ours(x)
    assert ours.load_weights(path).complete
    # Also what set_weights(theirs.get_weights()) relies on: their order.
    for mine, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, other)
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


def grown(k, L):
    """Lists that grow in turn, whose layers have equal shapes."""

    class Net(k.Model):
        def __init__(self):
            super().__init__()
            self.queries, self.values = [], []
            for _ in range(2):
                self.queries.append(L.Dense(3))
                self.values.append(L.Dense(3))

        def call(self, x):
            for query, value in zip(self.queries, self.values, strict=True):
                x = x + query(x) * value(x)
            return x

    return Net()


def shifted(k, L):
    """An alias before the list takes its first layers away, and their numbers."""

    class Net(k.Model):
        def __init__(self):
            super().__init__()
            self.blocks = [[L.Dense(3), L.Dense(3)], [L.Dense(3), L.Dense(3)]]
            self.early = self.blocks[1]
            self.alias = self.blocks[0][1]

        def call(self, x):
            for block in self.blocks:
                for layer in block:
                    x = layer(x)
            return x

    return Net()


def measured(k, L):
    """Metrics and optimizers beside the layers are no weights."""

    class Net(k.Model):
        def __init__(self):
            super().__init__()
            self.all = [k.metrics.Mean(), L.Dense(3), [k.metrics.Mean(), L.Dense(3)]]
            self.critic = k.optimizers.Adam()
            self.critic.build([])

        def call(self, x):
            return self.all[2][1](self.all[1](x))

    return Net()


def extended(k, L):
    """A functional model with a layer more, beside its graph."""

    class Net(k.Model):
        def __init__(self):
            start = k.Input((3,))
            super().__init__(start, L.Dense(3)(L.Dense(3)(start)))
            self.extra = {"one": [L.Dense(3)]}
            self.extra["one"][0].build((None, 3))

    return Net()


@pytest.mark.parametrize("make", [grown, shifted, measured, extended])
def test_weights_are_found_where_keras_put_them(make, tmp_path):
    x = np.random.default_rng(1).random((2, 3), np.float32)
    theirs = filled(make(keras, keras.layers), x)
    theirs.save_weights(path := tmp_path / "m.weights.h5")
    ours = make(exburn, exburn_layers)
    ours(x)
    assert ours.load_weights(path).complete
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-5)


def test_layers_are_listed_once_whatever_holds_them():
    x = np.ones((1, 3), np.float32)
    theirs, ours = shifted(keras, keras.layers), shifted(exburn, exburn_layers)
    theirs(x), ours(x)
    assert len(ours.layers) == len(theirs.layers) == 4


def test_files_from_before_containers_of_containers(tmp_path):
    """Keras below 3.14 passed by containers in containers; ``layers`` had theirs."""
    import h5py

    x = np.ones((2, 3), np.float32)
    theirs = filled(shifted(keras, keras.layers), x)
    theirs.save_weights(path := tmp_path / "m.weights.h5")
    with h5py.File(path, "a") as file:
        for number in ("", "_1"):  # a plain list was read as today
            file.copy(file[f"blocks/container_1/dense{number}"], f"early/dense{number}")
        file.copy(file["blocks/container/dense"], "layers/dense")
        del file["blocks"]
    ours = shifted(exburn, exburn_layers)
    ours(x)
    assert ours.load_weights(path).complete
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-5)


def test_a_model_of_other_holders_is_told(tmp_path):
    x = np.ones((2, 3), np.float32)
    filled(grown(keras, keras.layers), x).save_weights(
        path := tmp_path / "m.weights.h5"
    )
    ours = measured(exburn, exburn_layers)
    ours(x)
    with pytest.raises(FileFormatError, match="another model"):
        ours.load_weights(path)


def test_models_in_models_have_the_groups_that_keras_gives_them():
    """A model of symbols is ``functional`` there, one of a class has its name."""

    class Tower(exburn.Model):
        pass

    def model(cls):
        x = exburn.Input((2,))
        return cls(x, exburn.layers.Dense(2)(x))

    x = exburn.Input((2,))
    outer = exburn.Model(x, model(Tower)(model(exburn.Model)(x)))
    groups = [group for group, _ in walk(outer, lambda group: True)]
    assert {"layers/functional/layers/dense", "layers/tower/layers/dense"} <= {*groups}
