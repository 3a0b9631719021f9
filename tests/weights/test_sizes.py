"""Sizes that a configuration names, beside the tensors that have them."""

import pytest

from exburn.errors import FileFormatError
from exburn.weights.sizes import Size, check_sizes

SHAPES = {
    "embed.weight": (32, 8),
    **{f"layers.{n}.k.weight": (4, 8) for n in range(3)},
    "norm.weight": (8,),
}


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (Size("vocab", 32, r"^embed\.weight$", 0), None),
        (
            Size("vocab", 2**31, r"^embed\.weight$", 0),
            "vocab: 2147483648, in the file 32",
        ),
        (Size("width", 8, r"^embed\.weight$", 1), None),
        (Size("width", 9, r"^norm\.weight$", 1), None),  # it has no such axis
        (Size("layers", 3, r"layers\.(\d+)\."), None),
        (
            Size("layers", 2**31, r"layers\.(\d+)\."),
            "layers: 2147483648, in the file 3",
        ),
        (Size("layers", 2, r"layers\.(\d+)\."), "layers: 2, in the file 3"),
        (Size("groups", 2, r"\.k\.weight$", 0, unit=2), None),
        (Size("groups", 4, r"\.k\.weight$", 0, unit=2), "groups: 4, in the file 2"),
        (Size("classes", 9, "classifier", 0, each=8), None),
        (
            Size("classes", 99, "classifier", 0, each=8),
            "more than the file has numbers",
        ),
    ],
)
def test_sizes(size, text):
    if text is None:
        check_sizes([size], SHAPES, "op")
        return
    with pytest.raises(FileFormatError, match=text):
        check_sizes([size], SHAPES, "op", file="model.safetensors")
