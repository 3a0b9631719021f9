"""Tests of ``exburn.ops.blocks``, beside Keras' and on symbols."""

from tests.ops.cases import IMAGES, Draws, case
from tests.ops.check import Cases
from tests.ops.small import RGB, ROWS

from exburn import errors, ops

draws = Draws()
floats, ints = draws.floats, draws.ints
CASES = Cases(
    {
        "fold": [
            case(floats(2, 12, 9), (4, 4), 2),
            case(floats(2, 12, 9), (6, 6), 2, 2, 1, 2),
        ],
        "unfold": [case(IMAGES, 2), case(IMAGES, (2, 3), 1, 1, 2)],
        "depth_to_space": [
            case(floats(2, 3, 4, 8), 2),
            case(floats(2, 8, 3, 4), 2, "channels_first"),
        ],
        "space_to_depth": [
            case(IMAGES, 2),
            case(floats(2, 3, 4, 6), 2, "channels_first"),
        ],
        "rearrange": [
            case(IMAGES, "b (h p) w c -> b h (p w) c", p=2),
            case(IMAGES, "b h w c -> (b h) (w c)"),
        ],
    }
)


UNKNOWN_BATCH = ("fold unfold depth_to_space space_to_depth rearrange").split()


REFUSALS = [
(lambda: ops.depth_to_space(RGB, 0), errors.ArgumentError),
(lambda: ops.depth_to_space(RGB, 2), errors.ShapeError),
(lambda: ops.space_to_depth(RGB, 3), errors.ShapeError),
(lambda: ops.rearrange(ROWS, "a b -> a"), errors.ArgumentError),
(lambda: ops.rearrange(ROWS, "a (b c) -> a b c"), errors.ArgumentError),
(lambda: ops.rearrange(ROWS, "a (b c) -> a b c", b=4), errors.ArgumentError),
]  # fmt: skip
