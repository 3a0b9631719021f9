"""Tests of ``exburn.ops.alignment``, beside Keras' and on symbols."""

from tests.ops.cases import LENGTHS, Draws, case
from tests.ops.check import Cases
from tests.ops.small import ROWS

from exburn import errors, ops

draws = Draws()
floats, ints = draws.floats, draws.ints
CASES = Cases(
    {
        "ctc_loss": [
            case(ints(2, 3, low=1), floats(2, 8, 5), LENGTHS - 5, LENGTHS),
            case(
                ints(2, 3, high=4), floats(2, 8, 5), LENGTHS - 5, LENGTHS, mask_index=4
            ),
        ],
        "ctc_decode": [
            case(floats(2, 8, 4, low=-3, high=3), LENGTHS),
            case(floats(2, 8, 4, low=-3, high=3), LENGTHS - 1, merge_repeated=False),
            case(
                floats(2, 4, 3, low=-3, high=3),
                LENGTHS - 4,
                "beam_search",
                60,
                3,
                mask_index=1,
            ),
        ],
    }
)


UNKNOWN_BATCH = ["ctc_loss", "ctc_decode"]


REFUSALS = [
(lambda: ops.ctc_decode(ROWS[None], [4], "best"), errors.UnknownNameError),
]  # fmt: skip
