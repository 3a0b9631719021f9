"""What `super().get_config()` gives a user's classes that derive from built-in ones."""

import copy
import pickle

import keras as peer
import numpy as np
import pytest

import exburn as keras
from exburn import layers
from exburn.tuning.remaking import remake


def classes(package):
    """The same classes over Keras' layers and ours."""
    given = package.layers

    class Doubled(given.Dense):
        def __init__(self, width, **options):
            super().__init__(2 * width, activation="relu", **options)

        def get_config(self):
            config = super().get_config()
            del config["activation"]
            config["width"] = config.pop("units") // 2
            return config

    class Same(given.Conv2D):
        def __init__(self, filters, **options):
            super().__init__(filters, 3, padding="same", **options)

        def get_config(self):
            config = super().get_config()
            return {k: config[k] for k in config if k not in ("kernel_size", "padding")}

    class Sequences(given.LSTM):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)

        def get_config(self):
            return super().get_config()

    class Own(given.Layer):
        def __init__(self, function, **options):
            super().__init__(**options)

        def get_config(self):
            return {**super().get_config(), "function": "name"}

    class OwnModel(package.Model):
        def __init__(self, units, **options):
            super().__init__(**options)

        def get_config(self):
            return {**super().get_config(), "units": 3}

    return [
        Doubled(3, kernel_regularizer="l2", name="a"),
        Same(4, strides=2),
        Sequences(3, "relu", return_sequences=True),
        Own(np.tanh, activity_regularizer="l2"),
        OwnModel(3),
    ]


#: Keras has no such argument, or ours has none.
ONLY_OURS = {"activity_regularizer", "use_cudnn"}


PAIRS = [*zip(classes(keras), classes(peer), strict=True)]


@pytest.mark.parametrize("ours, theirs", PAIRS)
def test_keys_and_values_are_those_of_keras(ours, theirs):
    ours, theirs = ours.get_config(), theirs.get_config()
    theirs.pop("quantization_config", None)
    assert theirs.keys() <= ours.keys() <= theirs.keys() | ONLY_OURS
    plain = (int, str, float, tuple, type(None))
    for key in theirs.keys() - {"dtype"}:
        if isinstance(theirs[key], plain):
            assert ours[key] == theirs[key], key


@pytest.mark.parametrize("layer", classes(keras)[:3], ids=lambda v: type(v).__name__)
def test_they_make_the_same_layer_again(layer):
    config = layer.get_config()
    for made in (type(layer).from_config(config), type(layer)(**config)):
        assert made.get_config() == config


def test_what_the_users_constructor_sets_is_left_to_it():
    class Fixed(layers.Dense):
        def __init__(self, units, scale):
            super().__init__(units, use_bias=False)
            self.scale = scale

        def get_config(self):
            return {**super().get_config(), "scale": self.scale}

    config = Fixed(3, 2.0).get_config()
    made = Fixed.from_config(config)
    assert config["use_bias"] is made.use_bias is False and made.scale == 2.0
    with pytest.raises(TypeError, match="scales"):
        Fixed.from_config({**config, "scales": 1})


def test_without_a_get_config_a_class_tells_its_own_arguments():
    class Twice(layers.Bidirectional):
        def __init__(self, units):
            super().__init__(layers.LSTM(units))

    assert Twice(3).get_config() == {"units": 3}
    assert Twice.from_config({"units": 3}).forward_layer.units == 3


def test_a_class_on_a_described_one_adds_its_arguments():
    class Described(layers.Dense):
        def __init__(self, units, scale=1.0, **options):
            super().__init__(units, **options)
            self.scale = scale

        def get_config(self):
            return {**super().get_config(), "scale": self.scale}

    class Shifted(Described):
        def __init__(self, units, shift=0.0, **options):
            super().__init__(units, **options)

    config = Shifted(3, shift=1.0, scale=2.0).get_config()
    assert (config["shift"], config["scale"], config["units"]) == (1.0, 2.0, 3)


def rules(package):
    given = package.optimizers

    class Extended(given.Adam):
        def __init__(self, extra=1, **options):
            super().__init__(**options)
            self.extra = extra

        def get_config(self):
            return {**super().get_config(), "extra": self.extra}

    class Cosine(given.schedules.CosineDecay):
        def __init__(self, extra=1, **options):
            super().__init__(**options)
            self.extra = extra

        def get_config(self):
            return {**super().get_config(), "extra": self.extra}

    return [
        Extended(2, learning_rate=0.5, beta_1=0.25, amsgrad=True),
        Cosine(2, initial_learning_rate=0.5, decay_steps=10),
    ]


RULES = [*zip(rules(keras), rules(peer), strict=True)]


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras
@pytest.mark.parametrize("ours, theirs", RULES)
def test_rules_have_the_arguments_of_the_built_in_class(ours, theirs):
    """What was lost was the default again in a copy: Adam trained with other betas."""
    config, wanted = ours.get_config(), theirs.get_config()
    assert config.keys() >= wanted.keys()
    for key in wanted.keys() - {"epsilon", "name"}:
        assert config[key] == wanted[key]
    assert type(ours).from_config(config).get_config() == config


class Passing(keras.optimizers.Adam):
    def __init__(self, extra=1, **options):
        super().__init__(**options)
        self.extra = extra


class Fixing(keras.optimizers.Adam):
    def __init__(self, learning_rate=0.1, **options):
        super().__init__(learning_rate, beta_1=0.25, **options)


class Narrow(keras.optimizers.Adam):
    def __init__(self, learning_rate):
        super().__init__(learning_rate, beta_1=0.25)

    def get_config(self):
        return super().get_config()


def test_rules_without_a_get_config_tell_what_they_were_given():
    passing = Passing(3, beta_1=0.25, clipnorm=1.0)
    made = Passing.from_config(passing.get_config())
    assert (made.extra, made.beta_1, made.clipnorm) == (3, 0.25, 1.0)
    fixing = Fixing.from_config(Fixing(0.5).get_config())
    assert (fixing.beta_1, fixing.learning_rate) == (0.25, 0.5)
    narrow = Narrow.from_config(Narrow(0.5).get_config())
    assert (narrow.beta_1, narrow.learning_rate) == (0.25, 0.5)
    assert copy.deepcopy(passing).get_config() == passing.get_config()
    assert pickle.loads(pickle.dumps(passing)).get_config() == passing.get_config()


@pytest.mark.parametrize(
    ("make", "changes", "attribute", "value"),
    [
        (lambda **o: layers.MaxPooling2D(**o), {"pool_size": 3}, "strides", (3, 3)),
        (lambda **o: layers.AveragePooling1D(**o), {"pool_size": 3}, "strides", (3,)),
        (
            lambda **o: layers.MultiHeadAttention(2, **({"key_dim": 3} | o)),
            {"key_dim": 5},
            "value_dim",
            5,
        ),
    ],
)
def test_copies_leave_open_what_follows_from_other_arguments(
    make, changes, attribute, value
):
    """Files hold what it came to, as Keras' do."""
    layer = make()
    assert layer.get_config()[attribute] == getattr(layer, attribute)
    model = keras.Sequential([layer])
    copied = copy.deepcopy(model).layers[0]
    for one in (layer, copied):
        made = remake(one, changes)
        assert getattr(made, attribute) == getattr(make(**changes), attribute) == value
    given = make(**{attribute: getattr(layer, attribute)})
    assert getattr(remake(given, changes), attribute) == getattr(layer, attribute)
