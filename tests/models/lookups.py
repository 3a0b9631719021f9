"""Models that look strings up, and the same without: shared by tests of them."""

import numpy as np

import exburn
from exburn import layers as L

RNG = np.random.default_rng(0)
WORDS = RNG.choice(["ant", "bee", "cow", "yak"], 70)
NUMBERS = RNG.normal(size=(70, 2)).astype(np.float32)
Y = RNG.normal(size=(70, 1)).astype(np.float32)
VOCABULARY = ["bee", "ant", "cow"]
TEXTS = np.array(["so good", "a good and funny film", "bad", "how very bad"] * 9)
LABELS = np.array([1, 1, 0, 0] * 9)


def fill(model):
    """Gives weights that models of equal shapes share."""
    rng = np.random.default_rng(1)
    model.set_weights([rng.normal(size=w.shape) * 0.3 for w in model.get_weights()])
    return model


def head(ids, numbers):
    flat = L.Flatten()(L.Embedding(4, 3)(ids))
    return L.Dense(1)(L.Dropout(0.3)(L.Concatenate()([flat, numbers])))


def compiled(inputs, outputs, **options):
    model = exburn.Model(inputs, outputs)
    model.compile("adam", "mse", metrics=["mae"], seed=3, **options)
    return fill(model)


def looking_up(**options):
    word = exburn.Input((1,), dtype="string", name="word")
    number = exburn.Input((2,), name="n")
    lookup = L.StringLookup(vocabulary=VOCABULARY)
    return compiled([word, number], head(lookup(word), number), **options)


def plain(**options):
    ids, number = exburn.Input((1,), dtype="int32"), exburn.Input((2,))
    return compiled([ids, number], head(ids, number), **options)


def mapped(words):
    return L.StringLookup(vocabulary=VOCABULARY)(words[:, None])
