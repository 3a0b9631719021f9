"""All rows of arrays on the device: sent there, or left there by a run before."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from exburn.runtime.device import chosen_platform
from exburn.training.feed.arriving_rows import ArrivingRows
from exburn.training.feed.gather import HostGather
from exburn.training.feed.keeping import find_keys, may_keep, where_of
from exburn.training.feed.kept_arrays import (
    KeptArray,
    KeptArrays,
    Key,
    hosts_in,
    memory_of,
)
from exburn.training.placement import OneDevice

_LITTLE = 2 << 20  # bytes whose digest takes less time than copies of a state
_LARGE = 128 << 20  # bytes for which a GPU waits longer than for two small programs
_FAR = {"gpu", "tpu"}  # platforms that arrays travel to


class ResidentRows:
    """All rows of some arrays on the device: sent there, or left there by a run before.

    Args:
        store: What the run before has left, if this one may use it and leave its own.
        owners: What has to live for that: see ``owners_of``.
    """

    def __init__(
        self,
        dataset: Any,
        gatherer: HostGather,
        placement: OneDevice,
        store: KeptArrays | None = None,
        owners: Sequence[weakref.ref] = (),
    ):
        self._dataset, self._gatherer = dataset, gatherer
        self._placement, self._store, self._owners = placement, store, owners
        self._data: Any = None
        self._on_trial = False
        self._arriving: ArrivingRows | None = None

    def take(
        self, *, tries: bool = False, rows: np.ndarray | None = None
    ) -> tuple[Any, Callable[[], Any] | None]:
        """The rows, and what proves that they are current, if that is not known yet.

        Args:
            rows: Numbers of those that are needed now: with them a run may begin
                before it has the others. Then what was taken before is consumed.
            tries: Whether rows that may have changed since the run before may be
                given, with a function that says so: it returns ``None`` or other rows,
                which all programs are to be called with. It is called while the first
                one runs.
        """
        if self._on_trial:
            self.prove()
        if self._arriving is not None:
            self._data = self._hold(self._arriving, rows)
        elif self._data is None:
            store, tree = self._store, self._dataset.tree
            if rows is not None and self._may_begin_early():
                self._data = self._hold(self._begin_early(), rows)
            elif store is None:
                self._check()
                self._data = self._send_rows(tree)
            elif tries and self._is_worth_a_trial(store):
                self._on_trial = True
                self._data = self._put(store.arrays())
                return self._data, self.prove
            else:
                keys = self._find_keys()
                is_same = keys == store.keys()
                store.trusted = is_same or (
                    store.trusted and not store.holds_most(tree)
                )
                self._data = self._settle(store, keys)
        return self._data, None

    def prove(self) -> Any:
        """``None`` if the rows that were given are current; else those that are."""
        on_trial, self._on_trial = self._on_trial, False
        store = self._store
        if not on_trial or store is None:
            return None
        keys = self._find_keys()
        store.trusted = keys == store.keys()
        self._data, before = None, self._data
        data = self._settle(store, keys)
        self._data = before if store.trusted else data
        return None if store.trusted else data

    def finish(self) -> None:
        """Waits for all rows, where a run began before it had them."""
        if self._arriving is not None:
            self._data = self._hold(self._arriving, None)

    def close(self) -> None:
        """Gives the rows up, but for those that are kept for the next run."""
        arriving, self._arriving = self._arriving, None
        self._data, self._on_trial = None, False
        if arriving is not None:
            arriving.close()

    def _may_begin_early(self) -> bool:
        """Whether a run begins while its data are sent: see docs/decisions/transfers.md

        Only programs that have run on data of this form are ready sooner than these.
        """
        dataset, store = self._dataset, self._store
        return (
            store is not None
            and dataset.nbytes >= _LARGE
            and chosen_platform() in _FAR
            and self._placement.distribution is None
            and store.expects_others(dataset.tree)
        )

    def _begin_early(self) -> ArrivingRows:
        assert self._store is not None
        self._check()
        self._store.release()
        places = {memory_of(host): host for host in hosts_in(self._dataset.tree)}
        where, send = where_of(self._placement), self._placement.send_whole
        hosts = list(places.values())
        self._arriving = ArrivingRows(hosts, where, self._gatherer, send)
        return self._arriving

    def _hold(self, arriving: ArrivingRows, rows: np.ndarray | None) -> Any:
        """All rows, of which those that are asked for have come."""
        keys = arriving.hold(None if rows is None else rows.reshape(-1))
        hosts = list(hosts_in(self._dataset.tree))
        places = [memory_of(host) for host in hosts]
        distinct = dict.fromkeys(places)
        arrays = dict(zip(distinct, arriving.arrays, strict=True))
        if keys is not None:
            self._arriving, check = None, self._dataset.check
            by_place = dict(zip(distinct, keys, strict=True))
            keys = [by_place[place] for place in places]
            by_key = dict(zip(keys, map(arrays.get, places), strict=True))
            self._keep(keys, by_key, () if check is None else (check,))
        return self._put([arrays[place] for place in places])

    def _is_worth_a_trial(self, store: KeptArrays) -> bool:
        large = self._dataset.nbytes >= _LITTLE
        there = store.lie_at(where_of(self._placement))
        return large and there and store.trusted and store.are_of(self._dataset.tree)

    def _find_keys(self) -> list[Key]:
        hosts, where = hosts_in(self._dataset.tree), where_of(self._placement)
        return find_keys(list(hosts), where, self._gatherer)

    def _settle(self, store: KeptArrays, keys: list[Key]) -> Any:
        """The rows of some keys on the device: what is not there is sent."""
        dataset, hosts = self._dataset, list(hosts_in(self._dataset.tree))
        check = dataset.check
        passed = store.checks_of(keys)
        if check is not None and check not in passed:
            self._check()
            passed = *passed, check
        arrays = store.find(keys)
        pairs = dict(zip(keys, hosts, strict=True))
        missing = [key for key in pairs if key not in arrays]
        if missing:
            sent = self._send_rows([pairs[key] for key in missing])
            arrays |= zip(missing, sent, strict=True)
        self._keep(keys, arrays, passed, if_full=not missing)
        return self._put([arrays[key] for key in keys])

    def _keep(
        self,
        keys: list[Key],
        arrays: Mapping[Key, Any],
        passed: Sequence[Any],
        *,
        if_full: bool = False,
    ) -> None:
        """Leaves arrays for the next run.

        Args:
            if_full: Also where the device has not much memory: they were there before.
        """
        assert self._store is not None
        self._store.note_keys(keys)
        nbytes = sum(array.nbytes for array in arrays.values())
        if if_full or may_keep(nbytes, self._placement):
            slots = [
                KeptArray(memory_of(host), key, arrays[key])
                for key, host in zip(keys, hosts_in(self._dataset.tree), strict=True)
            ]
            self._store.keep(slots, self._owners, passed)

    def _put(self, arrays: Sequence[Any]) -> Any:
        """The rows, with arrays of the device in the place of NumPy's."""
        rest, send = iter(arrays), self._placement.send_whole
        return jax.tree.map(
            lambda leaf: next(rest) if isinstance(leaf, np.ndarray) else send(leaf),
            self._dataset.tree,
        )

    def _check(self) -> None:
        if self._dataset.check is not None:
            self._dataset.check(self._dataset.tree)

    def _send_rows(self, tree: Any) -> Any:
        if jax.default_backend() == "cpu":
            # JAX takes some arrays as they are, and would see some changes.
            tree = jax.tree.map(self._copy, tree)
        return self._placement.send_whole(tree)

    def _copy(self, leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        out = self._gatherer.empty(leaf.shape, leaf.dtype)
        self._gatherer.copy(leaf, out)
        return out
