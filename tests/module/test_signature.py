"""What a layer's class takes: its call's and its maker's arguments."""

import numpy as np
import pytest

from exburn import layers
from exburn.errors import ArgumentError
from exburn.module.signature import CallInfo, build_names, init_names


def test_what_a_call_takes():
    plain = CallInfo(lambda self, x: x)
    assert not (plain.takes_training or plain.takes_mask or plain.takes_any)
    assert plain.training is None and plain.order == ["x"]
    full = CallInfo(lambda self, a, b, training=True, mask=None, **more: a)
    assert full.takes_training and full.takes_mask and full.takes_any
    assert full.training is True and not full.needs_training
    assert CallInfo(lambda self, x, training: x).needs_training
    assert [full.is_enough(n) for n in (0, 1, 2)] == [False, False, True]


def test_arguments_that_are_all_named_have_a_first():
    info = CallInfo(lambda self, x, y, mask=None: x)
    assert info.by_place({"y": 2, "x": 1}) == ((1,), {"y": 2})
    assert info.by_place({"y": 2}) == ((), {"y": 2})
    assert CallInfo(lambda self, mask: mask).by_place({"mask": 1}) == ((), {"mask": 1})


def test_the_shapes_of_build_are_those_of_the_arguments_it_names():
    class Two(layers.Layer):
        def build(self, query_shape, value_shape):
            self.shapes = query_shape, value_shape

        def call(self, query, value):
            return query

    two = Two()
    assert build_names(two) == ["query_shape", "value_shape"]
    two(np.ones((2, 3)), value=np.ones((2, 4)))
    assert two.shapes == ((2, 3), (2, 4))
    with pytest.raises(ArgumentError, match="must be called with 'value'"):
        Two()(np.ones((2, 3)))


def test_arguments_of_a_constructor_go_on_in_its_base():
    class Own(layers.Dense):
        def __init__(self, scale, **options):
            super().__init__(3, **options)

    class Closed(layers.Dense):
        def __init__(self, scale):
            super().__init__(3)

    assert init_names(Own)[:2] == ("scale", "units") and "name" in init_names(Own)
    assert init_names(Closed) == ("scale",)
