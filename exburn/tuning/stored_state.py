"""The state of a sweep as a checkpoint has it, checked before any of it is used."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.saving.json_text import damage_error, is_count
from exburn.saving.shards import TensorFile
from exburn.tuning.records import LaneRecord

if TYPE_CHECKING:
    from exburn.tuning.run import SweepRun

ARRAYS = "exburn-sweep-arrays-1"
_NAME = re.compile(r"sweep-\d{6,}-[0-9a-f]{8}\.safetensors")


def saved_provenance(told: Mapping[str, Any], path: Any) -> dict[str, str]:
    """What the result of a sweep depends on, as a checkpoint says it.

    Args:
        told: What the checkpoint says.
        path: Its file, named in errors.

    Raises:
        ModelFormatError: It does not.
    """
    saved = told.get("provenance")
    if not isinstance(saved, dict) or not _are_names([*saved.values()]):
        raise damage_error("sweep", path, "it does not say what the sweep depends on")
    return saved


def check_state(told: Mapping[str, Any], run: SweepRun, path: Any) -> None:
    """Raises if what a checkpoint says cannot be of this sweep, or leads elsewhere.

    Args:
        told: What it says.
        run: The sweep.
        path: Its file, named in errors.

    Raises:
        ModelFormatError: Something in it is of another kind, or out of range.
    """
    epochs, lanes = run.epochs, len(run.lanes)
    variants = len(run.variants)

    def need(holds: bool, what: str) -> None:
        if not holds:
            reason = "a checkpoint does not have this in its place"
            raise damage_error("sweep", path, reason, place=what)

    need(is_count(told.get("epochs"), epochs), "epochs")
    need(is_count(told.get("decided"), epochs), "decided")
    name = told.get("arrays")
    need(isinstance(name, str) and _NAME.fullmatch(name) is not None, "arrays")
    for part in ("records", "lanes", "groups"):
        need(isinstance(told.get(part), list), part)
    need(len(told["records"]) == len(told["lanes"]) == lanes, "lanes")
    for record in told["records"]:
        need(LaneRecord.from_config(record).epochs <= epochs, "records")
    for lane in told["lanes"]:
        need(isinstance(lane, dict), "lanes")
        flags = (lane.get("kept"), lane.get("opt_state"))
        need(all(isinstance(flag, bool) for flag in flags), "lanes")
        need(is_count(lane.get("step")), "step")
        need(is_count(lane.get("variant"), variants - 1), "variant")
    for group in told["groups"]:
        need(isinstance(group, dict), "groups")
        variant, members = group.get("variant"), group.get("members")
        need(is_count(variant, variants - 1), "variant")
        need(isinstance(members, list) and len(members) > 0, "members")
        need(all(is_count(number, lanes - 1) for number in members), "members")
        own = {told["lanes"][number]["variant"] for number in members}
        need(own == {variant}, "variant")
        need(is_count(group.get("done")), "done")
        need(isinstance(group.get("totals"), bool), "totals")
        names = [group.get("names"), group.get("others")]
        none = names == [None, None]
        need(none or all(_are_names(listed) for listed in names), "names")


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


class StoredArrays:
    """The arrays of a checkpoint, of any dtype, as bytes.

    Args:
        file: The file that has them.
    """

    def __init__(self, file: TensorFile):
        self._file = file
        if file.format != ARRAYS:
            raise damage_error("sweep", file.path, "it holds no sweep's arrays")

    def read(self, name: str) -> np.ndarray:
        """The array of a name.

        Raises:
            ModelFormatError: There is none, or it is damaged.
        """
        if name not in self._file.entries:
            raise damage_error("sweep", self._file.path, f"there is no array {name!r}")
        return self._file.read_one(name)

    def read_rows(self, name: str, rows: int, columns: int | None = None) -> np.ndarray:
        """The array of a name, which has numbers of each lane.

        Args:
            name: Its name.
            rows: How many lanes there are.
            columns: How many numbers each lane has, if that is known.

        Raises:
            ModelFormatError: It has another shape.
        """
        data = self.read(name)
        shape = (rows,) if columns is None else (rows, columns)
        if data.shape[: len(shape)] != shape or (
            columns is not None and data.ndim != 2
        ):
            reason = f"the array {name!r} has another shape than it needs"
            raise damage_error("sweep", self._file.path, reason, shape=data.shape)
        return data

    def read_like(self, name: str, like: Any) -> np.ndarray:
        """The array of a name, of the shape and dtype of another one.

        Args:
            name: Its name.
            like: The other one, which may have keys.

        Raises:
            ModelFormatError: It has another number of bytes.
        """
        if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
            like = jax.random.key_data(like)
        data, dtype = self.read(name), np.dtype(like.dtype)
        if data.nbytes != math.prod(like.shape) * dtype.itemsize:
            reason = f"the array {name!r} has another size than it needs"
            raise damage_error("sweep", self._file.path, reason)
        return np.frombuffer(data.tobytes(), dtype).reshape(like.shape)
