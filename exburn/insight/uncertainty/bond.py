"""The model of a calibration, whose weights and options must stay as they were."""

from __future__ import annotations

import hashlib
import weakref
from typing import Any

import numpy as np

from exburn.errors import ArgumentError
from exburn.models.inferring import require_predictor
from exburn.models.network import Network
from exburn.module.building import materialize
from exburn.module.traversal import iter_weights
from exburn.training.checkpoint.provenance import describe_module
from exburn.training.fingerprint import Fingerprint

_NO_MATTER = (".trainable", "._own_policy")  # ends of the names of options


class ModelBond:
    """A model, and the digest of the weights and options that it must have.

    It is taken anew where an array of the weights, or an option, is another object.

    Args:
        model: A built model.
        digest: That it must have; by default the one that it has.

    Attributes:
        digest: Of it as it was: 64 hexadecimal digits.
    """

    def __init__(self, model: Network, digest: str | None = None):
        self.model = model
        self._arrays: list[Any] = []
        self._options: Fingerprint | None = None
        self.digest = digest or digest_of(model)
        if digest is None:
            self._arrays, self._options = _references(model), Fingerprint(model)

    def __reduce__(self) -> tuple[Any, ...]:
        return ModelBond, (self.model, self.digest)

    def check(self, op: str) -> None:
        """Raises ``ArgumentError`` if the model has other weights or options by now."""
        arrays = _arrays(self.model)
        same = map(lambda ref, array: ref() is array, self._arrays, arrays)
        if len(arrays) == len(self._arrays) and all(same):
            if self._options is not None and self._options.holds(self.model):
                return
        check_digest(self.model, self.digest, op)
        self._arrays, self._options = _references(self.model), Fingerprint(self.model)


def check_digest(model: Network, digest: str, op: str) -> None:
    """Raises ``ArgumentError`` if the model has another digest."""
    if digest_of(model) != digest:
        raise ArgumentError(
            op,
            f"the weights or options of {model.name!r} are not those that it was "
            "calibrated with",
            hint="Calibrate it as it is now: model.uncertainty(x, y).",
        )


def digest_of(model: Network) -> str:
    """The SHA-256 of a model: of its layers' options, and of its weights.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        >>> before = digest_of(model)
        >>> model.set_weights([value + 1 for value in model.get_weights()])
        >>> before == digest_of(model), len(before)
        (False, 64)
    """
    materialize(model, require_predictor(model).holder.seed)
    digest = hashlib.sha256(_describe_options(model).encode())
    for path, weight, _ in iter_weights(model, carried=False):
        array = np.ascontiguousarray(weight.get_raw_value())
        digest.update(f"{path}:{array.dtype}{array.shape};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _describe_options(model: Network) -> str:
    """The options of all layers, but for those that change nothing of a prediction."""
    texts = describe_module(model)
    rows = [f"{k}={v}" for k, v in texts.items() if not k.endswith(_NO_MATTER)]
    return "\n".join(rows)


def _arrays(model: Network) -> list[Any]:
    return [w.get_raw_value() for _, w, _ in iter_weights(model, carried=False)]


def _references(model: Network) -> list[Any]:
    return [weakref.ref(array) for array in _arrays(model)]
