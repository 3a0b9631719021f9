"""Every name of Keras is in the namespace of ours."""

import pytest
from tests.golden import keras

from exburn import backend, config, mixed_precision, tree


def public(module):
    return {n for n in dir(module) if not n.startswith("_")}


@pytest.mark.parametrize("name", ["tree", "config", "backend", "mixed_precision"])
def test_every_name_of_keras_is_here(name):
    ours = {"tree": tree, "config": config, "backend": backend}
    module = ours.get(name, mixed_precision)
    assert public(getattr(keras, name)) - public(module) == set()
