"""Rows that a run begins with while the others are still on their way to the device."""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.runtime.threads import Prefetch
from exburn.training.feed.gather import HostGather
from exburn.training.feed.keeping import PieceDigests
from exburn.training.feed.kept_arrays import Key

_PIECE = 32 << 20  # bytes of a transfer: see docs/decisions/feeds.md
_UNDER_WAY = 2  # pieces that are being sent
_MOST = 4  # chunks that all rows must make, for one to be sent before the others


class ArrivingRows:
    """Arrays of the device that are filled piece by piece while programs read them.

    A thread sends all rows in their order. Those that a program needs before they have
    come that way are copied out by the host and sent at once. Each piece is written
    over what was there, and its digest computed before it was sent: so, in the end, the
    arrays hold what the digests are of, even if another thread writes to the host's
    arrays meanwhile.

    Args:
        hosts: The arrays, of as many rows each.
        where: Where they come to lie: see ``where_of``.
        send: Puts arrays there.

    Example:
        >>> x = np.arange(8, dtype=np.float32)
        >>> with HostGather(1) as gatherer:
        ...     rows = ArrivingRows([x], None, gatherer, jax.device_put)
        ...     keys = rows.hold()
        >>> np.asarray(rows.arrays[0]).sum(), keys[0][1:3]
        (np.float32(28.0), ((8,), '<f4'))
    """

    def __init__(
        self,
        hosts: Sequence[np.ndarray],
        where: Any,
        gatherer: HostGather,
        send: Callable[[Any], Any],
    ):
        self._hosts, self._gatherer, self._send = list(hosts), gatherer, send
        self._digests = digests = PieceDigests(hosts, where)
        self._size = len(hosts[0])
        row = sum(host.nbytes for host in hosts) // self._size
        self._length = length = min(max(_PIECE // max(row, 1), 1), self._size)
        self._written = np.zeros(self._size, bool)
        self._left = -(-self._size // length)  # pieces that are not written yet
        self._memory = contextlib.ExitStack()
        self._reuse = self._memory.enter_context(gatherer.reusing())
        self.arrays = _empty(tuple((host.shape, host.dtype.str) for host in hosts))
        # The thread has no reference to this object: see ``Prefetch``.
        self._pieces = Prefetch(lambda: _send_pieces(hosts, length, digests, send))

    def hold(self, rows: np.ndarray | None = None) -> list[Key] | None:
        """Sees to it that rows are there; consumes the arrays of before.

        Args:
            rows: Their numbers; all are waited for if ``None``, or if they are many.

        Returns:
            The keys of the arrays, once all has come.
        """
        waits = rows is None or _MOST * rows.size > self._size
        for start, piece in self._pieces if waits else self._pieces.ready():
            self.arrays = _write_piece(self.arrays, piece, np.int32(start))
            self._written[start : start + self._length] = True
            self._left -= 1
        if not self._left:
            self.close()
            return self._digests.keys()
        assert rows is not None
        missing = np.unique(rows[~self._written[rows]])
        if missing.size:
            padded = np.full(rows.size, missing[0], np.int32)  # for one program
            padded[: missing.size] = missing
            host = self._gatherer.take(self._hosts, padded)
            sent = self._send(host)
            self.arrays = _write_rows(self.arrays, padded, sent)
            self._written[missing] = True
            self._reuse(host, sent)
        return None

    def close(self) -> None:
        """Ends the thread, wherever it is."""
        self._pieces.close()
        self._memory.close()


def _send_pieces(
    hosts: Sequence[np.ndarray],
    length: int,
    digests: PieceDigests,
    send: Callable[[Any], Any],
) -> Iterator[tuple[int, list[jax.Array]]]:
    """Numbers of the first rows of pieces, and these, which have come to the device."""
    sent: deque[tuple[int, list[jax.Array]]] = deque()
    for start in range(0, len(hosts[0]), length):
        digests.read(start + length)
        sent.append((start, send([host[start : start + length] for host in hosts])))
        if len(sent) == _UNDER_WAY:
            yield jax.block_until_ready(sent.popleft())
    while sent:
        yield jax.block_until_ready(sent.popleft())


@functools.partial(jax.jit, static_argnums=0)
def _empty(forms: tuple[tuple[tuple[int, ...], str], ...]) -> list[jax.Array]:
    as_sent = jax.dtypes.canonicalize_dtype  # of float64 JAX makes float32
    return [jnp.zeros(shape, as_sent(dtype)) for shape, dtype in forms]


@functools.partial(jax.jit, donate_argnums=0)
def _write_piece(arrays: Any, piece: Any, start: Any) -> Any:
    put = jax.lax.dynamic_update_slice_in_dim
    return [put(a, p, start, 0) for a, p in zip(arrays, piece, strict=True)]


@functools.partial(jax.jit, donate_argnums=0)
def _write_rows(arrays: Any, rows: Any, values: Any) -> Any:
    return [a.at[rows].set(v) for a, v in zip(arrays, values, strict=True)]
