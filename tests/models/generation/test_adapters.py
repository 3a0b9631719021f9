"""Texts of several adapters in one call: each row with its own."""

import numpy as np
import pytest
from tests.models.test_several_adapters import filled

import exburn
from exburn import errors, layers
from exburn.applications import Llama

KINDS = {"a": "lora", "b": "rslora", "c": "dora"}


@pytest.fixture(scope="module")
def model():
    model = Llama(40, layers=1, width=32, heads=4, key_value_heads=2, mlp_width=48)
    for rank, (name, kind) in enumerate(KINDS.items(), 2):
        model.add_lora(rank, alpha=64, name=name, kind=kind)
        filled(model, name, rank)
    return model


@pytest.fixture(scope="module")
def prompts():
    rng = np.random.default_rng(0)
    return [rng.integers(0, 40, n) for n in (3, 9, 1, 5, 7)]


@pytest.mark.parametrize("options", [{}, {"beams": 3}])
def test_rows_have_the_texts_of_their_adapters(model, prompts, options):
    texts = {}
    for name in (*KINDS, None):
        model.set_adapter(name)
        texts[name] = model.generate(prompts, 8, **options)
    assert len({str(rows) for rows in texts.values()}) == 4
    names = ["a", None, "b", "c", "a"]
    got = model.generate(prompts, 8, adapter=names, **options)
    for row, name in enumerate(names):
        np.testing.assert_array_equal(got[row], texts[name][row])
    assert model.active_adapter is None
    model.set_adapter("c")  # of which a row with None has the state, and no other
    got = model.generate(prompts, 8, adapter=["a", None, "b", None, "a"], **options)
    for row, name in enumerate(["a", "c", "b", "c", "a"]):
        np.testing.assert_array_equal(got[row], texts[name][row])
    for row, text in enumerate(model.generate(prompts, 8, adapter="b", **options)):
        np.testing.assert_array_equal(text, texts["b"][row])


def test_wrong_names_and_layers_without_rows_are_refused(model, prompts):
    with pytest.raises(errors.UnknownNameError, match="'d'"):
        model.generate(prompts, 2, adapter=["a", None, "d", "a", "b"])
    for adapter in (["a"], 3, {"a": 1}):
        with pytest.raises(errors.ArgumentError, match="one for each of 5 prompts"):
            model.generate(prompts, 2, adapter=adapter)
    inputs = layers.Input((None,), dtype="int32")
    x = layers.Embedding(20, 16)(inputs)
    x = layers.Add()([x, layers.Conv1D(16, 1, name="conv")(x)])
    other = exburn.Model(inputs, layers.Dense(20)(x))
    other.add_lora(2, name="a", filter="conv")
    other.set_adapter(None)
    with pytest.raises(errors.ArgumentError, match="conv: its adapters cannot"):
        other.generate([[1, 2], [3]], 2, adapter=["a", None])


def test_a_layer_that_does_not_see_rows_first_is_refused():
    """Also where a batch has as many rows as the other axis."""

    class Turned(layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = layers.Dense(40, name="inner")

        def call(self, x):
            return self.inner(x.swapaxes(0, 1)).swapaxes(0, 1)

    model = exburn.Sequential(
        [exburn.Input((None,), dtype="int32"), layers.Embedding(40, 40), Turned()]
    )
    model.add_lora(2, name="a", filter="*inner*")
    model.set_adapter(None)
    ids = np.arange(16 * 16).reshape(16, 16) % 40
    with pytest.raises(errors.ArgumentError, match="inner: its adapters cannot"):
        model.generate(ids, 2, adapter=["a", None] * 8)
