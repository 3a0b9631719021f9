"""What a layer remembers that is neither its state nor its graph."""

import copy
import pickle

import exburn
from exburn import layers


class Own(layers.Dense):
    def __init__(self, units, *, scale=2.0, **options):
        super().__init__(units, **options)
        self.scale = scale


def test_the_constructors_arguments_are_noted_and_what_is_set_later():
    layer = Own(3, scale=4.0, activation="relu", name="own")
    config = layer.get_config()
    assert (config["units"], config["scale"], config["name"]) == (3, 4.0, "own")
    layer.activation = exburn.activations.tanh
    assert Own.from_config(layer.get_config()).activation is exburn.activations.tanh


def test_copies_leave_behind_what_earlier_calls_left():
    layer = layers.Dense(2)
    symbol = exburn.Input((3,))
    layer(symbol)
    assert layer.output.shape == (None, 2)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        meta = twin._meta.value
        assert meta.calls == [] and meta.made
        assert twin.built and twin.units == 2
    assert meta.traced is None  # of the pickle
    assert layer._meta.value.calls


def test_moments_of_a_copy_from_elsewhere_lie_before_what_is_made_next():
    data = pickle.dumps(layers.Dense(2))
    old = pickle.loads(data)
    assert layers.Dense(2)._meta.value.made_at > old._meta.value.made_at


def test_a_layer_that_is_being_built_knows_it():
    seen = []

    class Building(layers.Layer):
        def build(self, shape):
            seen.append(self._meta.value.building)

        def call(self, x):
            seen.append(self._meta.value.building)
            return x

    Building()(exburn.ops.ones((1, 2)))
    assert seen[0] and not seen[-1]
