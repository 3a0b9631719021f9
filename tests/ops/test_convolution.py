"""Tests of ``exburn.ops.convolution``, beside Keras' and on symbols."""

from tests.ops.cases import IMAGES, SEQUENCE, VOLUMES, Draws, case
from tests.ops.check import Cases
from tests.ops.small import RGB

from exburn import errors, ops

draws = Draws()
floats, ints = draws.floats, draws.ints
CASES = Cases(
    {
        "conv": [
            case(IMAGES, floats(3, 3, 3, 4)),
            case(IMAGES, floats(3, 2, 3, 4), 2, "same"),
            case(SEQUENCE, floats(3, 3, 4), 1, "valid", dilation_rate=2),
            case(VOLUMES, floats(2, 2, 2, 1, 4), padding="same"),
            case(IMAGES, floats(3, 3, 6, 4), data_format="channels_first"),
        ],
        "conv_transpose": [
            case(IMAGES, floats(3, 3, 4, 3)),
            case(IMAGES, floats(3, 2, 4, 3), 2, "same"),
            case(IMAGES, floats(3, 3, 4, 3), (3, 2), "valid", output_padding=1),
            case(SEQUENCE, floats(2, 4, 3), 3),
            case(SEQUENCE, floats(3, 4, 3), 1, "same", dilation_rate=2),
        ],
        "depthwise_conv": [
            case(IMAGES, floats(3, 3, 3, 2)),
            case(SEQUENCE, floats(2, 3, 2), 2, "same"),
        ],
        "separable_conv": [
            case(IMAGES, floats(3, 3, 3, 2), floats(1, 1, 6, 4), 1, "same")
        ],
    }
)


UNKNOWN_BATCH = ("conv conv_transpose depthwise_conv separable_conv").split()


REFUSALS = [
(lambda: ops.conv(RGB, RGB[..., :2]), errors.ShapeError),
(lambda: ops.conv(RGB, RGB[0]), errors.ShapeError),
(lambda: ops.conv_transpose(RGB, RGB, 2, "same", 2), errors.ArgumentError),
]  # fmt: skip
