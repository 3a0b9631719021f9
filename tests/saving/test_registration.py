"""Keras' names of the registry."""

import pytest

from exburn.errors import UnknownNameError
from exburn.initializers import Constant, Ones
from exburn.saving.registration import (
    custom_object_scope,
    deserialize_keras_object,
    get_custom_objects,
    get_registered_name,
    get_registered_object,
    register_keras_serializable,
    serialize_keras_object,
)


def test_names_of_the_process_of_a_block_and_of_a_call():
    get_custom_objects()["half"] = lambda x: x / 2
    try:
        assert get_registered_object("half")(3) == 1.5
        with custom_object_scope({"half": len}):
            assert get_registered_object("half") is len
            assert get_registered_object("half", {"half": abs}) is abs
    finally:
        del get_custom_objects()["half"]
    assert get_registered_object("half") is None
    assert get_registered_object("half", module_objects={"half": len}) is len


def test_objects_are_described_and_made_again():
    described = serialize_keras_object(Constant(3.0))
    assert deserialize_keras_object(described)(2).tolist() == [3, 3]
    assert deserialize_keras_object("one", module_objects={"one": Ones})(1) == 1
    assert deserialize_keras_object("len", custom_objects={"len": len}) is len
    with pytest.raises(UnknownNameError):
        deserialize_keras_object({"class_name": "Nothing", "config": {}})


def test_a_class_is_registered_by_its_package():
    @register_keras_serializable("registration", "Other")
    class Own:
        pass

    assert get_registered_name(Own) == "registration>Other"
    assert get_registered_object("registration>Other") is Own
    assert get_registered_name(len) == "len"
