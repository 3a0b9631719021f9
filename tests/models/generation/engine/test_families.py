"""Families of decoders: windows, soft caps, grouped heads, angles by length."""

from pathlib import Path

import numpy as np
import pytest

from exburn.applications import from_pretrained
from exburn.errors import ArgumentError
from exburn.models.generation.engine import TextEngine, TextRequest

FAMILIES = Path(__file__).parents[3] / "applications" / "families"
SIZES, NEW = (3, 25, 9, 14), 6


@pytest.mark.parametrize(
    "name", ["gemma2", "gemma3_text", "mixtral", "longer_dynamic", "longer_longrope"]
)
def test_texts_are_those_of_generate(name):
    model = from_pretrained(FAMILIES / name)
    words = int(np.load(FAMILIES / name / "expected.npz")["logits"].shape[-1])
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, words, size) for size in SIZES]
    prompts.append(np.concatenate([prompts[1][:17], prompts[0]]))
    turns = name == "longer_longrope"
    with TextEngine(model, slots=2, page=4, prefill=32) as engine:
        if turns:  # at eight tokens
            with pytest.raises(ArgumentError, match="have other angles of positions"):
                engine.submit(TextRequest(prompts[0], NEW + 1, temperature=0))
            prompts = prompts[1:]
        answers = engine.write([TextRequest(p, NEW, temperature=0) for p in prompts])
    texts = [row.tolist() for row in model.generate(prompts, NEW)]
    assert [answer.result().tokens.tolist() for answer in answers] == texts
    # Keys that depend on the length of their text are of no use to another.
    assert bool(answers[-1].shared_tokens) is not name.startswith("longer")
