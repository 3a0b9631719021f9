"""Models and data that runs on several devices are compared with."""

import numpy as np

import exburn
from exburn import layers

ROWS = 130


def mlp():
    return exburn.Sequential(
        [
            exburn.Input((20,)),
            layers.Dense(64, "relu"),
            layers.LayerNormalization(),
            layers.Dropout(0.3),
            layers.Dense(4),
        ]
    )


def convnet():
    """Without a bias before the normalization, whose gradient would be rounding."""
    return exburn.Sequential(
        [
            exburn.Input((8, 8, 2)),
            layers.Conv2D(8, 3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.Activation("tanh"),  # a relu may change its side by rounding
            layers.GlobalAveragePooling2D(),
            layers.Dense(4),
        ]
    )


def transformer():
    tokens = exburn.Input((12,), dtype="int32")
    x = layers.Embedding(50, 16, mask_zero=True)(tokens)
    x = layers.LayerNormalization()(
        x + layers.MultiHeadAttention(4, 4, dropout=0.1)(x, x)
    )
    y = layers.Dense(16)(layers.Dropout(0.2)(layers.Dense(32, "gelu")(x)))
    x = layers.LayerNormalization()(x + y)
    return exburn.Model(tokens, layers.Dense(4)(layers.GlobalAveragePooling1D()(x)))


MAKERS = {"mlp": mlp, "convnet": convnet, "transformer": transformer}


def data(name, rows=ROWS):
    """Inputs, labels and weights of rows."""
    rng = np.random.default_rng(0)
    x = {
        "mlp": rng.normal(size=(rows, 20)).astype("float32"),
        "convnet": rng.normal(size=(rows, 8, 8, 2)).astype("float32"),
        "transformer": rng.integers(0, 50, (rows, 12)),
    }[name]
    return x, rng.integers(0, 4, rows), rng.uniform(0.5, 2, rows).astype("float32")


def compiled(name, mesh=None, optimizer="adam", **options):
    """One of the models, compiled; with the same weights each time."""
    exburn.set_random_seed(3)
    model = MAKERS[name]() if isinstance(name, str) else name()
    options = {"loss": "cross_entropy", "metrics": ["accuracy"]} | options
    model.compile(optimizer, mesh=mesh, **options)
    return model


def assert_close(found, wanted, tolerance=1e-5):
    """Numbers in any structure, which differ by what sums in another order make."""
    import jax

    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
