"""Tests of ``exburn.ops.similarity``, beside Keras' and on symbols."""

from tests.ops.cases import Draws, X, Y, case
from tests.ops.check import Cases

draws = Draws()
floats, ints = draws.floats, draws.ints
CASES = Cases(
    {
        "psnr": [case(X, Y, 1.0)],
        "image.ssim": [
            case(floats(2, 16, 16, 3), floats(2, 16, 16, 3)),
            case(floats(12, 14, 1), floats(12, 14, 1), filter_size=7),
        ],
    }
)


UNKNOWN_BATCH = ["image.ssim"]
