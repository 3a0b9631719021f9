"""Tests of ``exburn.layers.contract.projected_attention``."""

import numpy as np
import pytest
from tests.golden import keras
from tests.layers.peer import data

from exburn import layers

X = data(4, 6, 8)


@pytest.mark.parametrize("kind", ["MultiHeadAttention", "GroupedQueryAttention"])
def test_an_overridden_computation_is_called(kind):
    """As Keras calls it: it gets the heads, and all masks of the call as one."""
    queries, values = data(2, 5, 8), data(2, 5, 8, seed=1)
    seen = np.arange(5) < np.array([[3], [5]])
    outputs, masks = [], []
    options = {"num_heads": 4, "key_dim": 2}
    if kind == "GroupedQueryAttention":
        options = {"num_query_heads": 4, "num_key_value_heads": 2, "head_dim": 2}
    for library in (keras.layers, layers):
        base = getattr(library, kind, None) or library.GroupQueryAttention

        class Moved(base):
            def _compute_attention(self, query, key, value, mask=None, *rest, **more):
                mask = more.pop("attention_mask", mask)
                masks.append(np.asarray(mask))
                out, weights = super()._compute_attention(
                    query, key, value, mask, *rest, **more
                )
                return out + key.mean(), weights

        layer = Moved(**options)
        layer.build(queries.shape, values.shape)
        weights = [data(*w.shape, seed=i) for i, w in enumerate(layer.weights)]
        layer.set_weights(weights)
        given = {"value_mask": seen, "use_causal_mask": True}
        outputs.append(np.asarray(layer(queries, values, **given)))
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.broadcast_to(masks[-1], (2, 5, 5)), masks[0])
    assert len(masks) == 2


def test_the_projections_have_the_names_of_keras():
    layers_of = [m.MultiHeadAttention(2, 4) for m in (layers, keras.layers)]
    for layer in layers_of:
        layer(X, X)
    for name in ("query", "key", "value", "output"):
        ours, theirs = (getattr(layer, f"{name}_dense") for layer in layers_of)
        assert tuple(ours.kernel.shape) == tuple(theirs.kernel.shape)


@pytest.mark.parametrize("name", ["MultiHeadAttention", "GroupQueryAttention"])
def test_the_projections_are_called_as_in_keras(name):
    sizes = {"MultiHeadAttention": (2, 4), "GroupQueryAttention": (4, 2, 1)}[name]
    found = []
    for space in (layers, keras.layers):
        layer = getattr(space, name)(*sizes)
        layer.build((None, 5, 8), (None, 5, 8))
        dense = ("query_dense", "key_dense", "value_dense", "output_dense")
        private = [getattr(layer, f"_{attribute}") for attribute in dense]
        found.append([part.name for part in private])
    assert found[0] == found[1] == ["query", "key", "value", "attention_output"]
