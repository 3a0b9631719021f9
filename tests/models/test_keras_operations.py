"""Operations as Keras' configurations name them."""

import inspect

import pytest
from keras.src.ops.operation import Operation

import exburn
from exburn.errors import FileFormatError
from exburn.models.keras_operations import keras_operation

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras


def operation_classes(cls=Operation):
    for inner in cls.__subclasses__():
        if inner.__module__.startswith("keras.src.ops"):
            yield inner
        yield from operation_classes(inner)


# What takes functions, or has no counterpart.
LEFT_OUT = (
    "AssociativeScan Cond ElasticTransform ForiLoop Function JVP Map Ndim Scan "
    "SegmentReduction Switch VectorizedMap WhileLoop".split()
)


def test_every_operation_of_keras_has_its_function():
    from exburn.models.keras_operations import _CALLED_ON

    missing = set()
    for cls in set(operation_classes()):
        entry = {"module": cls.__module__, "class_name": cls.__name__}
        options = {"subscripts": "i->i"} if cls.__name__ == "Einsum" else {}
        try:
            name, _ = keras_operation({**entry, "config": options})
        except FileFormatError:
            missing.add(cls.__name__)
            continue
        space = exburn.ops.image if "image" in cls.__module__ else exburn.ops
        takes = list(inspect.signature(getattr(space, name)).parameters)
        given = list(inspect.signature(cls.call).parameters)[1:]
        own = set(inspect.signature(cls.__init__).parameters) - {"self", "name"}
        assert own - {"kwargs", "subscripts"} <= set(takes), name
        if name != "einsum":
            assert _CALLED_ON.get(cls.__name__, takes[: len(given)]) in (
                given,
                tuple(given),
            ), name
    assert sorted(missing) == LEFT_OUT
