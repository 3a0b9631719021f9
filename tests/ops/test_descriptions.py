"""The texts of ops that are functions of JAX; their examples run among the others."""

from exburn import ops
from exburn.ops.descriptions import _descriptions


def test_every_text_is_that_of_an_op():
    for name, known in _descriptions().items():
        places = (ops, ops.nn, ops.linalg, ops.numpy)
        found = next(getattr(place, name) for place in places if hasattr(place, name))
        assert found.__doc__.startswith(known.line)
        assert found.__module__ == "exburn.ops"
        assert "\nArgs:\n" in found.__doc__ and "\nExample:\n" in found.__doc__


def test_arguments_have_the_words_of_their_op_or_of_all():
    said = ops.concatenate.__doc__
    assert "It is ``jax.numpy.concatenate``, with Keras' arguments." in said
    assert "    xs: A list of arrays.\n    axis: The axis that grows;" in said
    assert "    axis: The axes that go away" in ops.sum.__doc__
    assert ">>> import numpy as np\n" in ops.isnan.__doc__
