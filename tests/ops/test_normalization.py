"""Tests of ``exburn.ops.normalization``, beside Keras' and on symbols."""

from tests.ops.cases import IMAGES, Draws, K, S, V, W, X, case
from tests.ops.check import Cases

draws = Draws()
floats, ints = draws.floats, draws.ints
CASES = Cases(
    {
        "batch_normalization": [
            case(X, V, W, -1),
            case(X, V, W, -1, W, V, 0.1),
            case(K, V, W, -1),
            case(IMAGES, floats(6), floats(6), 1, scale=floats(6)),
        ],
        "layer_normalization": [
            case(X),
            case(X, V, W, epsilon=0.1),
            case(IMAGES, floats(8, 3), axis=(2, 3)),
        ],
        "rms_normalization": [case(X), case(X, V, epsilon=0.1)],
        "moments": [case(X, 0), case(IMAGES, (1, 2), keepdims=True)],
        "normalize": [case(S), case(S, 0, 1), case(S, -1, 3)],
    }
)


UNKNOWN_BATCH = (
    "batch_normalization layer_normalization rms_normalization normalize"
).split()
