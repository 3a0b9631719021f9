import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ShapeError

LENGTHS = [3, 9, 4, 9, 5, 7]
RNG = np.random.default_rng(0)
IDS = [RNG.integers(1, 12, n) for n in LENGTHS]
SERIES = [RNG.normal(size=(n, 5)).astype(np.float32) for n in LENGTHS]
ENDS = layers.GlobalAveragePooling1D, layers.GlobalMaxPooling1D


def embed(**options):
    return layers.Embedding(12, 8, **options)


class Block(exburn.Layer):
    """A user's layer, whose sum loses the mask that its attention needs."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attention = layers.MultiHeadAttention(2, 4)
        self.norm = layers.LayerNormalization()

    def call(self, x):
        x = self.norm(x + self.attention(x, x))
        return x + self.attention(x, x)


def attention():
    ids = exburn.Input((None,), dtype="int32")
    x = embed()(ids)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    x = layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
    return exburn.Model(ids, layers.Dense(3)(x))


def branches():
    series = exburn.Input((None, 5))
    parts = [layers.Conv1D(4, n, padding="same")(series) for n in (3, 5)]
    x = layers.Concatenate()(parts)
    return exburn.Model(series, layers.GlobalMaxPooling1D()(x))


def sequential(*parts):
    return lambda: exburn.Sequential([part() for part in parts])


def of(cls, *args, **options):
    return lambda: cls(*args, **options)


GRU = of(layers.GRU, 4)
EVERY_STEP = of(layers.GRU, 4, return_sequences=True)
MODELS = {
    "lstm": (sequential(embed, of(layers.LSTM, 4)), IDS),
    "gru": (sequential(GRU), SERIES),
    "as many units as positions": (
        sequential(embed, of(layers.GRU, 9), of(layers.Dense, 9)),
        IDS,
    ),
    "both ways": (
        sequential(of(layers.Bidirectional, layers.GRU(4, return_sequences=True)), GRU),
        SERIES,
    ),
    "every step": (sequential(embed, EVERY_STEP, of(layers.Dense, 2)), IDS),
    "mask of zeros": (sequential(of(embed, mask_zero=True), GRU), IDS),
    "mask of another value": (sequential(of(layers.Masking, -1.0), GRU), SERIES),
    "attention": (attention, IDS),
    "a user's block": (sequential(embed, Block, ENDS[0]), IDS),
    "mean": (sequential(embed, ENDS[0]), IDS),
    "maximum": (sequential(embed, ENDS[1]), IDS),
    "same": (
        sequential(
            of(layers.Conv1D, 4, 3, padding="same", bias_initializer="ones"),
            of(layers.Conv1D, 4, 5, padding="same"),
            ENDS[0],
        ),
        SERIES,
    ),
    "causal": (
        sequential(
            of(layers.Conv1D, 4, 3, padding="causal", strides=2),
            of(layers.Conv1D, 4, 2, padding="causal"),
        ),
        SERIES,
    ),
    "valid": (sequential(of(layers.Conv1D, 4, 2, strides=2), ENDS[1]), SERIES),
    "depthwise": (
        sequential(
            of(layers.DepthwiseConv1D, 3, padding="same"),
            of(layers.SeparableConv1D, 4, 3, padding="same"),
            ENDS[0],
        ),
        SERIES,
    ),
    "pooling": (
        sequential(
            of(layers.BatchNormalization), of(layers.MaxPooling1D, 2), EVERY_STEP
        ),
        SERIES,
    ),
    "maximum of neighbours": (
        sequential(of(layers.MaxPooling1D, 3, strides=1, padding="same"), ENDS[0]),
        SERIES,
    ),
    "branches": (branches, SERIES),
    "each step by itself": (
        sequential(of(layers.TimeDistributed, layers.Dense(3)), GRU),
        SERIES,
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_filled_up_row_gives_what_it_gives_alone(name):
    make, rows = MODELS[name]
    exburn.set_random_seed(0)
    model = make()
    together = model.predict(rows, verbose=0)
    for row in (0, 2):
        (alone,) = model.predict(rows[row][None], verbose=0)
        np.testing.assert_allclose(together[row], alone, rtol=1e-5, atol=1e-6)


def test_batch_statistics_leave_filling_out():
    rows = [np.full((n, 1), n, np.float32) for n in (1, 3)]
    model = exburn.Sequential([layers.BatchNormalization(momentum=0.0), GRU()])
    model.compile(exburn.optimizers.SGD(0.0), "mse")
    model.fit(rows, np.zeros((2, 4)), verbose=0)
    assert model.layers[0].moving_mean.numpy() == pytest.approx(2.5)  # (1 + 3 · 3) / 4


def test_rows_shorter_than_a_window():
    model = exburn.Sequential([layers.Conv1D(2, 4), layers.GlobalMaxPooling1D()])
    with pytest.raises(ShapeError, match="row 0 of 3 positions is shorter than"):
        model.predict(SERIES, verbose=0)


def test_scores_of_attention_cannot_be_cut():
    x = exburn.Input((None, 5))
    scores = layers.MultiHeadAttention(1, 2)(x, x, return_attention_scores=True)[1]
    with pytest.raises(ShapeError, match="output 0 has an axis as long as the rows"):
        exburn.Model(x, scores).predict(SERIES, verbose=0)
