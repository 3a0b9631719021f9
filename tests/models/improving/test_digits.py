"""Sums of digits, learnt by nothing but whether an answer is right."""

import numpy as np

import exburn
from exburn.applications import Llama
from exburn.data import Document

PLUS, EQUAL, END = 10, 11, 12
PAIRS = [(a, b) for a in range(10) for b in range(10)]


def digits(number):
    return [int(digit) for digit in str(number)]


def right(texts, total):
    pairs = zip(texts, total, strict=True)
    return [float(list(text) == digits(number)) for text, number in pairs]


def test_sums_of_digits_are_learnt_from_rewards(users_compilation):
    exburn.utils.set_random_seed(0)
    sizes = dict(layers=2, width=64, heads=4, key_value_heads=4, mlp_width=128)
    model = Llama(16, generation={"end_tokens": [END]}, **sizes)
    model.compile(exburn.optimizers.AdamW(3e-3))
    rng, documents = np.random.default_rng(0), []
    for a, b in PAIRS * 8:  # a third of the sums are right, the others off by one
        total = max(a + b + int(rng.integers(-1, 2)), 0)
        tokens = np.array([a, PLUS, b, EQUAL, *digits(total), END])
        documents.append(Document(tokens, np.arange(len(tokens)) > 3))
    model.fit(documents, batch_tokens=1024, length=128, epochs=16, verbose=0)
    rows = [{"prompt": [a, PLUS, b, EQUAL], "total": a + b} for a, b in PAIRS]
    history = model.improve(
        rows,
        right,
        group=16,
        batch_size=50,
        max_new_tokens=3,
        num_iterations=2,
        epochs=60,
        learning_rate=6e-4,
        verbose=0,
    )
    rewards = history.history["reward"]
    assert rewards[0] < 0.5 and rewards[-1] > 0.8
    written = model.generate([row["prompt"] for row in rows], 3)
    assert np.mean(right(written, [row["total"] for row in rows])) >= 0.9
