"""Parts of frozen layers that are trained, as in Keras."""

import keras as original
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.module.traversal import iter_weights

RNG = np.random.default_rng(0)
X = RNG.standard_normal((16, 4)).astype(np.float32)
Y = X[:, :1]


def base(keras):
    inputs = keras.Input((4,))
    x = keras.layers.Dense(4, name="d1")(inputs)
    x = keras.layers.BatchNormalization(name="bn")(x)
    return keras.Model(inputs, keras.layers.Dense(4, name="d2")(x), name="base")


def part_thawed(inner):
    inner.trainable = False
    inner.get_layer("d2").trainable = True


def norm_thawed(inner):
    inner.trainable = False
    inner.get_layer("bn").trainable = True


def part_frozen(inner):
    inner.trainable = True
    inner.get_layer("d1").trainable = False


def thawed_after(inner):
    inner.get_layer("d1").trainable = False
    inner.trainable = True


def functional(keras, inner):
    inputs = keras.Input((4,))
    return keras.Model(inputs, keras.layers.Dense(1, name="head")(inner(inputs)))


def sequential(keras, inner):
    last = keras.layers.Dense(1, name="head")
    return keras.Sequential([keras.Input((4,)), inner, last])


def subclassed(keras, inner):
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner, self.head = inner, keras.layers.Dense(1, name="head")

        def call(self, x, training=False):
            return self.head(self.inner(x, training=training))

    model = Net()
    model(X)
    return model


def moved(model, inner):
    """Names of the inner weights that training changes, as Keras' paths end."""
    names = ["/".join(weight.path.split("/")[-2:]) for weight in inner.weights]
    before = [weight.numpy().copy() for weight in inner.weights]
    model.compile("sgd", "mse")
    model.fit(X, Y, epochs=2, verbose=0)
    pairs = zip(names, before, inner.weights, strict=True)
    return [name for name, old, new in pairs if (old != new.numpy()).any()]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("around", [functional, sequential, subclassed])
@pytest.mark.parametrize(
    "switch", [part_thawed, norm_thawed, part_frozen, thawed_after]
)
@pytest.mark.parametrize("first", [True, False])
def test_the_same_parts_train_as_in_keras(around, switch, first):
    results = []
    for keras in (exburn, original):
        inner = base(keras)
        if first:
            switch(inner)
        model = around(keras, inner)
        if not first:
            switch(inner)
        counts = len(model.trainable_weights), len(inner.trainable_weights)
        results.append((counts, moved(model, inner)))
    assert results[0] == results[1] and results[0][1]


def test_nothing_of_a_frozen_model_trains_whatever_its_layers_say():
    for keras in (exburn, original):
        model = sequential(keras, base(keras))
        model.trainable = False
        model.layers[-1].trainable = True
        assert model.trainable_weights == []


def trained(model):
    return [path for path, _, learns in iter_weights(model) if learns]


@pytest.mark.parametrize("kind", ["clone", "clone_model", "config", "file"])
def test_copies_train_the_same_parts(kind, tmp_path):
    model = sequential(exburn, base(exburn))
    part_thawed(model.get_layer("base"))
    if kind == "clone":
        made = model.clone()
    elif kind == "clone_model":
        made = exburn.models.clone_model(model)
    elif kind == "config":
        made = exburn.Sequential.from_config(model.get_config())
    else:
        model.save(tmp_path / "model.exburn")
        made = exburn.load_model(tmp_path / "model.exburn")
    paths = ["base/d2/kernel", "base/d2/bias", "head/kernel", "head/bias"]
    assert trained(made) == trained(model) == paths
    assert made.frozen_layers == model.frozen_layers == ["base/d1", "base/bn"]
    assert made.info().trainable == 25 == made.info().parameters - 20 - 16


@exburn.register
class MadeInParts(exburn.Layer):
    """One layer made in ``__init__``, one in ``build``."""

    def __init__(self, **options):
        super().__init__(**options)
        self.d1 = layers.Dense(4)

    def build(self, shape):
        self.d2 = layers.Dense(4)

    def call(self, x):
        return self.d2(self.d1(x))


def frozen_before_it_is_built():
    layer = MadeInParts()
    layer.trainable = False
    return layer


MADE_FROZEN = {
    "a layer": lambda: MadeInParts(trainable=False),
    "set before build": frozen_before_it_is_built,
    "Sequential": lambda: exburn.Sequential([layers.Dense(4)], trainable=False),
    "in another": lambda: exburn.Sequential([MadeInParts()], trainable=False),
}


@pytest.mark.parametrize("kind", MADE_FROZEN)
def test_what_is_in_a_layer_made_frozen_is_frozen(kind):
    inner = MADE_FROZEN[kind]()
    model = sequential(exburn, inner)
    copied = exburn.Sequential.from_config(model.get_config())
    for one in (model, model.clone(), copied):
        assert trained(one) == ["head/kernel", "head/bias"]
    inner.trainable = True
    assert len(trained(model)) == len(model.weights)
