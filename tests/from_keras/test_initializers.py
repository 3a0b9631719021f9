"""The page's section "Initializers, activations, regularizers"."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.from_keras.page import says
from tests.from_keras.small import BOTH

import exburn
from exburn.errors import ArgumentError

keras = pytest.importorskip("keras")
each = pytest.mark.parametrize("framework", BOTH)


@says("Initializers are NumPy code on the host")
@each
def test_draws_of_initializers(framework):
    initializer = framework.initializers.GlorotUniform()
    first, second = initializer((2, 2)), initializer((2, 2))
    assert isinstance(first, np.ndarray) == (framework is exburn)
    assert np.array_equal(first, second) == (framework is keras)
    seeded = framework.initializers.GlorotUniform(seed=1)
    assert np.array_equal(seeded((2, 2)), seeded((2, 2)))


@says("Seeded numbers differ from Keras'")
def test_seeded_numbers():
    ours, theirs = (
        np.asarray(f.initializers.GlorotUniform(seed=1)((2, 2))) for f in BOTH
    )
    assert not np.isclose(ours, theirs).any()


@says("returns a wrapping `Initializer`")
@each
def test_functions_as_initializers(framework):
    def twos(shape, dtype=None):
        return np.full(shape, 2, "float32")

    made = framework.initializers.get(twos)
    np.testing.assert_array_equal(np.asarray(made((2,))), [2, 2])
    wraps = isinstance(made, framework.initializers.Initializer)
    assert wraps == (framework is exburn)


@says("`sparsemax` is the exact projection")
def test_sparsemax():
    """The projection of four values whose sum is 1.4 shifts them by 0.1."""
    x = jnp.array([[0.5, 0.4, 0.3, 0.2]])
    ours, theirs = (np.asarray(f.activations.sparsemax(x)) for f in BOTH)
    np.testing.assert_allclose(ours, [[0.4, 0.3, 0.2, 0.1]], rtol=1e-5)
    assert theirs.sum() == 0


@says('`get("l1_l2")` is `L1L2(0.01, 0.01)`')
def test_the_name_of_two_penalties():
    made = exburn.regularizers.get("l1_l2")
    assert made.get_config() == {"l1": 0.01, "l2": 0.01}
    with pytest.raises(ValueError, match="l1_l2"):
        keras.regularizers.get("l1_l2")


@says("Bad bounds of `MaxNorm` and `MinMaxNorm` are errors")
@pytest.mark.parametrize(
    ("name", "bounds"),
    [("MaxNorm", [-1]), ("MinMaxNorm", [2, 1]), ("MinMaxNorm", [-1])],
)
def test_bounds_of_norms(name, bounds):
    with pytest.raises(ArgumentError, match=name):
        getattr(exburn.constraints, name)(*bounds)
    getattr(keras.constraints, name)(*bounds)
