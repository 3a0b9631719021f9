"""Names of objects in configurations."""

import io

import numpy as np
from tests.golden import keras

from exburn import errors, utils
from exburn.layers import Dense
from exburn.module.layer import Layer


def PNG():
    file = io.BytesIO()
    utils.save_img(file, np.ones((4, 4, 3)), file_format="png")
    return file


REFUSALS = [
    (lambda: utils.unpack_x_y_sample_weight((1, 2, 3, 4)), errors.ExBurnError),
]


def test_registered_names():
    @utils.register_keras_serializable("tests", "Scaled")
    class Scale(Layer):
        pass

    assert utils.get_registered_name(Scale) == "tests>Scaled"
    assert utils.get_registered_object("tests>Scaled") is Scale
    config_ = utils.serialize_keras_object(Dense(3, activation="relu"))
    again = utils.deserialize_keras_object(config_)
    assert (again.units, again.get_config()["activation"]) == (3, "relu")


def test_a_name_in_a_table_of_ones_own_makes_an_object_as_in_keras():

    @utils.register_keras_serializable("tests")
    class Greedy:
        def __init__(self, width=2):
            self.width = width

        def get_config(self):
            return {"width": self.width}

        @classmethod
        def from_config(cls, config):
            return cls(**config)

    keras.utils.register_keras_serializable("tests")(Greedy)
    for library in (utils, keras.saving):
        make = library.deserialize_keras_object
        table = {"greedy": Greedy, "twice": lambda x: 2 * x}
        assert make("greedy", module_objects=table).width == 2
        described = {"class_name": "greedy", "config": {"width": 3}}
        assert make(described, module_objects=table).width == 3
        assert make("another", module_objects=table) == "another"
        assert make("greedy", {"greedy": 5}, module_objects=table) == 5
        assert make("tests>Greedy", module_objects=table) is Greedy
    twice = utils.deserialize_keras_object("twice", module_objects=table)
    assert twice(4) == 8


def test_custom_objects():
    def cube(x):
        return x**3

    with utils.custom_object_scope({"cube": cube}):
        assert utils.get_registered_object("cube") is cube
    assert utils.get_registered_object("cube") is None
    utils.get_custom_objects()["cube"] = cube
    try:
        assert utils.get_registered_object("cube") is cube
    finally:
        utils.get_custom_objects().clear()
