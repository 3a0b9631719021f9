"""Graphs as functions, against Keras."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn

keras = pytest.importorskip("keras")
BOTH = pytest.mark.parametrize("api", [exburn, keras], ids=["exburn", "keras"])


@BOTH
def test_a_function_repeats_a_computation(api):
    a, b = api.KerasTensor((None, 2)), api.KerasTensor((None, 2))
    largest = api.ops.maximum(a, b)
    function = api.Function([a, b], {"sum": largest + 1, "twice": largest * 2})
    values = [np.zeros((1, 2), "f"), np.ones((1, 2), "f")]
    found = {key: np.asarray(v).tolist() for key, v in function(values).items()}
    assert found == {"sum": [[2, 2]], "twice": [[2, 2]]}
    assert function.compute_output_shape([(5, 2), (5, 2)])["sum"] == (5, 2)
    specs = [api.KerasTensor((3, 2)), api.KerasTensor((3, 2))]
    assert function.compute_output_spec(specs)["twice"].shape == (3, 2)
    assert [s.shape for s in function.inputs] == [(None, 2)] * 2
    assert len(function.outputs) == 2
    inner = api.Function(largest, function.outputs[0])  # from the middle on
    assert np.asarray(inner(np.ones((1, 2)))).tolist() == [[2, 2]]
    for wrong in (values[0], [values[0]], [np.ones((1, 3))] * 2, [np.ones(2)] * 2):
        with pytest.raises(ValueError):
            function(wrong)


@BOTH
def test_a_function_with_layers_has_no_weights(api):
    x = api.Input((4,))
    layer = api.layers.Dense(2)
    function = api.Function(x, layer(x) + 1)
    assert not hasattr(function, "weights")
    kinds = [type(operation).__name__ for operation in function.operations]
    assert kinds[:2] == ["InputLayer", "Dense"] and len(kinds) == 3
    given = np.ones((1, 4), "f")
    np.testing.assert_allclose(function(given), np.asarray(layer(given)) + 1)


def test_a_model_made_by_a_function_has_the_layers_in_it():
    """In Keras it has none of them, and trains nothing."""
    x = exburn.Input((4,))
    function = exburn.Function(x, exburn.layers.Dense(2)(x))
    y = exburn.Input((4,))
    model = exburn.Model(y, function(y))
    assert [w.path for w in model.weights] == ["dense/kernel", "dense/bias"]
    model.compile("sgd", "mse")
    before = model.get_weights()
    model.fit(np.ones((8, 4)), np.zeros((8, 2)), verbose=0)
    assert not np.array_equal(before[0], model.get_weights()[0])
    twin = jax.jit(function)(jnp.ones((1, 4)))
    np.testing.assert_allclose(twin, model.predict(np.ones((1, 4)), verbose=0), 1e-6)
