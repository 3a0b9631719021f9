"""A file of weights as a mapping from names to arrays."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from exburn.errors.boundary import api_boundary, guard_methods
from exburn.runtime.files.atomic import path_of
from exburn.saving.stored import open_stored

_OP = "read_weights"


@guard_methods
class WeightFile(Mapping[str, np.ndarray]):
    """The arrays of a file by their names there; each is read when it is asked for.

    It is closed at the end of a ``with`` block, or with the last reference to it.

    Args:
        path: As of ``read_weights``.

    Attributes:
        shapes: Shape of each, of which nothing has been read.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> path = tempfile.mkdtemp() + "/weights.npz"
        >>> np.savez(path, kernel=np.ones((2, 3)))
        >>> with WeightFile(path) as file:
        ...     print(file.shapes, file["kernel"].sum())
        {'kernel': (2, 3)} 6.0
    """

    def __init__(self, path: Any):
        self.path = path_of(path, ".safetensors", _OP, exists=True)
        self._stack = contextlib.ExitStack()
        self._stored = self._stack.enter_context(open_stored(self.path, _OP))
        self.shapes = dict(self._stored.shapes)

    def __getitem__(self, name: str) -> np.ndarray:
        return np.array(self._stored.read([name])[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def close(self) -> None:
        """Closes the file."""
        self._stack.close()

    def __enter__(self) -> WeightFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"WeightFile({str(self.path)!r}, {len(self)} arrays)"


@api_boundary
def read_weights(path: Any) -> WeightFile:
    """The arrays of a file by their names there, as a mapping that reads lazily.

    Nothing in a file is run: descriptions in PyTorch's are read by an interpreter that
    knows tensors alone.

    Args:
        path: A safetensors file or its index, a file of ``torch.save`` (``.pth``,
            ``.pt``, ``.bin``), NumPy's ``.npz``, or Keras' ``.weights.h5``, ``.keras``
            and ``.h5``: its content tells what it is.

    Raises:
        FileFormatError: The file is damaged, or holds more than arrays.
        MissingFileError: There is no such file.
        MissingDependencyError: A file of Keras' needs h5py.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "w.npz")
        >>> np.savez(path, **{"fc.weight": np.ones((2, 3))})
        >>> with read_weights(path) as weights:
        ...     weights.shapes, weights["fc.weight"].sum().item()
        ({'fc.weight': (2, 3)}, 6.0)
    """
    return WeightFile(path)
