"""The model of a calibration, whose weights must stay as they were."""

from __future__ import annotations

import hashlib
import weakref
from typing import Any

import numpy as np

from exburn.errors import ArgumentError
from exburn.models.network import Network
from exburn.module.traversal import iter_weights


class ModelBond:
    """A model, and the digest of the weights that it must have.

    The digest is taken anew where an array of the weights is another object.

    Args:
        model: A built model.
        digest: That it must have; by default the one that it has.

    Attributes:
        digest: Of its weights as they were: 64 hexadecimal digits.
    """

    def __init__(self, model: Network, digest: str | None = None):
        self.model = model
        self._arrays: list[Any] = [] if digest else _references(model)
        self.digest = digest or weights_digest(model)

    def __reduce__(self) -> tuple[Any, ...]:
        return ModelBond, (self.model, self.digest)

    def check(self, op: str) -> None:
        """Raises ``ArgumentError`` if the model has other weights by now."""
        arrays = _arrays(self.model)
        same = map(lambda ref, array: ref() is array, self._arrays, arrays)
        if len(arrays) == len(self._arrays) and all(same):
            return
        check_digest(self.model, self.digest, op)
        self._arrays = _references(self.model)


def check_digest(model: Network, digest: str, op: str) -> None:
    """Raises ``ArgumentError`` if the model's weights have another digest."""
    if weights_digest(model) != digest:
        raise ArgumentError(
            op,
            f"the weights of {model.name!r} are not those that it was calibrated with",
            hint="Calibrate it as it is now: model.uncertainty(x, y).",
        )


def weights_digest(model: Network) -> str:
    """The SHA-256 of a model's weights: their paths, dtypes, shapes and numbers.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        >>> before = weights_digest(model)
        >>> model.set_weights([value + 1 for value in model.get_weights()])
        >>> before == weights_digest(model), len(before)
        (False, 64)
    """
    digest = hashlib.sha256()
    for path, weight, _ in iter_weights(model, carried=False):
        array = np.ascontiguousarray(weight.get_raw_value())
        digest.update(f"{path}:{array.dtype}{array.shape};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _arrays(model: Network) -> list[Any]:
    return [w.get_raw_value() for _, w, _ in iter_weights(model, carried=False)]


def _references(model: Network) -> list[Any]:
    return [weakref.ref(array) for array in _arrays(model)]
