"""Decoders of each family beside what ``transformers`` has computed (``make.py``)."""

from pathlib import Path

import jax
import numpy as np
import pytest

from exburn.applications import Llama, from_pretrained
from exburn.applications.decoder import Decoder
from exburn.applications.families import FAMILIES
from exburn.losses import SparseCategoricalCrossentropy

HERE = Path(__file__).parent
PROMPTS = (3, 7, 5)


@pytest.fixture(scope="module")
def recorded():
    """Model and recorded arrays of each family, made when they are first asked for."""
    cases = {}

    def case(name):
        if name not in cases:
            arrays = dict(np.load(HERE / name / "expected.npz"))
            cases[name] = from_pretrained(HERE / name), arrays
        return cases[name]

    return case


def close(found, expected, tolerance=1e-5):
    """Whether all are near, measured by the largest."""
    apart = np.abs(np.asarray(found) - expected).max()
    assert apart <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("name", FAMILIES)
def test_scores_are_those_of_transformers(name, recorded):
    model, expected = recorded(name)
    assert type(model) is (Llama if name in ("llama", "mistral") else Decoder)
    assert model.family.model_type == name
    close(model(expected["ids"]), expected["logits"])


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_are_those_of_transformers(name, recorded):
    model, expected = recorded(name)
    ids, loss = expected["ids"], SparseCategoricalCrossentropy(from_logits=True)
    weights = model.trainable_variables

    def score(values):
        logits, _ = model.stateless_call(values, [], ids)
        return loss(ids[:, 1:], logits[:, :-1])

    values = jax.grad(score)([weight.value for weight in weights])
    paths = [weight.path.removeprefix(f"{model.name}/") for weight in weights]
    gradients = dict(zip(paths, map(np.asarray, values), strict=True))
    count = 0
    for move in model.weight_rules("transformers").save_plan(gradients):
        parts = tuple(gradients[target] for target in move.targets)
        tensors = move.transform.save(parts, len(move.sources))
        for tensor, source in zip(tensors, move.sources, strict=True):
            norm = expected[f"gradient/{source}"]
            assert np.linalg.norm(tensor) == pytest.approx(norm, rel=1e-4), source
            count += 1
    assert count == sum(path.startswith("gradient/") for path in expected)


@pytest.mark.parametrize("name", FAMILIES)
def test_texts_are_those_of_transformers(name, recorded):
    model, expected = recorded(name)
    prompts = [expected["ids"][row, :size] for row, size in enumerate(PROMPTS)]
    texts = model.generate(prompts, 10)  # rows of unlike lengths, with a cache
    tokens = np.zeros((3, max(PROMPTS) + 10), "int32")
    for row, prompt in enumerate(prompts):
        np.testing.assert_array_equal(texts[row], expected[f"written/{row}"])
        tokens[row, : len(prompt) + 10] = [*prompt, *texts[row]]
    best = np.argmax(model(tokens), -1)  # without one: each is the likeliest next
    for row, size in enumerate(PROMPTS):
        np.testing.assert_array_equal(best[row, size - 1 : size + 9], texts[row])
