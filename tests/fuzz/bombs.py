"""Bombs over all readers: files that multiply what they hold, and arrays of any shape.

Keras has no part in it. A reader gives back what a file holds, or refuses it by an
error of ExBurn's, within the memory and the time that the file's length explains. Some
files have bytes changed besides, so that checks before the one for the bomb are met.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from tests import limits
from tests.bombs import npz, safetensors
from tests.bombs.readers import TABLE
from tests.fuzz.values import pick
from tests.saving import mutations, torch_files

from exburn.errors import ExBurnError

TOLERANCE = 0.0
_SECONDS = 20.0  # mutated files may be long, and the nightly machine is busy
_SIZES = (0, 1, 2, 3, 5, 1000, 2**16, 2**31, 2**32 + 1, 2**62, 2**63 - 1)
_ARRAYS = ("npz", "pth", "safetensors")


def play(
    format: str, reader: str, *, bomb: str = "", seed: int = 0, array: Any = None
) -> dict[str, str]:
    """What a reader says of a bomb; raises ``AssertionError`` if it costs too much.

    Args:
        format, reader, bomb: Names of the table.
        seed: Of the bytes that are changed; 0 for none.
        array: Shape, strides and bytes of an array, instead of a bomb.
    """
    bombs, readers = TABLE[format]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if array is None:
            path = bombs[bomb](folder)
        else:
            path = _file_of(format, folder, *array)
        if seed and path.is_file():
            path.write_bytes(mutations.mutate(path.read_bytes(), random.Random(seed)))
        try:
            limits.bounded(lambda: readers[reader](path), seconds=_SECONDS)
        except (ExBurnError, SystemExit) as error:
            return {"outcome": "refused", "length": str(len(str(error)) < 3000)}
    return {"outcome": "read", "length": "True"}


def _file_of(
    format: str, folder: Path, shape: list[int], strides: list[int], count: int
) -> Path:
    """A file that says an array of this shape is in so many bytes."""
    if format == "npz":
        return npz.archive(
            folder, [("x.npy", npz.array(tuple(shape), content=bytes(count)))]
        )
    if format == "safetensors":
        about = {"x": safetensors.entry(shape, 0, count)}
        return safetensors.file(folder, about, bytes(count))
    numbers = torch_files.Storage(np.zeros(count // 4, "f4"), "0")
    path = folder / "model.pth"
    tensors = {"x": torch_files.Tensor(numbers, shape, strides)}
    path.write_bytes(torch_files.zipped(tensors))
    return path


def draw(rng: np.random.Generator) -> dict:
    if rng.random() < 0.3:
        format = pick(rng, *_ARRAYS)
        rank = int(rng.integers(0, 5))
        shape = [pick(rng, *_SIZES) for _ in range(rank)]
        strides = [pick(rng, 0, 1, 2, 1000, 2**40) for _ in range(rank)]
        count = 4 * int(rng.integers(0, 2000))
        array = [shape, strides, count]
        return {"format": format, "reader": _reader(rng, format), "array": array}
    format = pick(rng, *TABLE)
    bomb = pick(rng, *TABLE[format][0])
    seed = int(rng.integers(1, 10**6)) if rng.random() < 0.5 else 0
    reader = _reader(rng, format)
    return {"format": format, "reader": reader, "bomb": bomb, "seed": seed}


def _reader(rng: np.random.Generator, format: str) -> str:
    return pick(rng, *TABLE[format][1])


def render(spec: dict) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in spec.items())
    return f"from tests.fuzz.bombs import play\nresult = play({arguments})"


def judge(result: Any) -> str | None:
    """The error that is none of ExBurn's, or what the reader cost."""
    if isinstance(result, Exception):
        return f"error: {type(result).__name__}: {str(result).splitlines()[0][:300]}"
    if result["result['length']"] != "True":
        return "text: the error's message is longer than 3,000 characters"
    return None
