"""What ``keras.legacy`` and ``utils.legacy`` have."""

import pytest
from tests.golden import keras

import exburn

BOTH = pytest.mark.parametrize(
    "api",
    [exburn, keras],
    ids=["exburn", "keras"],
)


@BOTH
def test_objects_come_from_tables_of_ones_own(api):
    legacy = api.legacy.saving
    assert api.utils.legacy.serialize_keras_object is legacy.serialize_keras_object
    make, describe = legacy.deserialize_keras_object, legacy.serialize_keras_object

    class Mine:
        def __init__(self, size=3):
            self.size = size

        def get_config(self):
            return {"size": self.size}

        @classmethod
        def from_config(cls, config):
            return cls(**config)

    def half(x):
        return x / 2

    assert describe(None) is None and make(None) is None
    assert describe(half) == "half" and make(half) is half
    described = describe(Mine(5))
    assert described["class_name"] == "Mine" and described["config"] == {"size": 5}
    assert make(described, custom_objects={"Mine": Mine}).size == 5
    assert make(described, module_objects={"Mine": Mine}).size == 5
    with pytest.raises(ValueError):
        make(3.5)
    with pytest.raises(ValueError):
        describe(3.5)
    if api is keras:  # 3.15 raises an AttributeError for any name
        return
    assert make("Mine", module_objects={"Mine": Mine}).size == 3
    assert make("half", module_objects={"half": half}) is half
    assert make("half", {"half": half}, {"half": abs}) is abs
    with api.saving.custom_object_scope({"half": half}):
        assert make("half", module_objects={}) is half
    with pytest.raises(ValueError, match="gadget"):
        make("nothing", module_objects={}, printable_module_name="gadget")


def test_optimizers_of_keras_2():
    with pytest.raises(ImportError):
        keras.optimizers.legacy.Adam()
    with pytest.raises(AttributeError, match=r"write exburn\.optimizers\.Adam"):
        _ = exburn.optimizers.legacy
