"""The serving that callers hold."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from exburn.core.methods import with_methods
from exburn.errors import (
    ArgumentError,
    DataError,
    DTypeError,
    ShapeError,
    unknown_name,
)
from exburn.errors.boundary import guard_methods
from exburn.serving import streams
from exburn.serving.answer import Answer
from exburn.serving.batcher import Batcher, Request
from exburn.serving.computation import Computation
from exburn.serving.hooks import StreamHooks
from exburn.serving.options import (
    ServingOptions,
    change_options,
    places_of,
    seconds,
)
from exburn.serving.partition import Partition, compile_bursts, compile_sizes
from exburn.serving.statistics import Recorder, ServingStatistics


@guard_methods
@with_methods
class Serving:
    """Answers requests of many threads and coroutines in shared, compiled batches.

    Rows of different callers run together: a batch starts when ``batch_size`` rows
    wait, or ``batch_timeout`` after its first row, and goes on growing while every
    device is busy. Batches are padded to a few sizes, whose programs are all compiled
    before this returns. The weights are a snapshot: training the model further changes
    no answers until ``update_weights``.

    Args:
        model: An ExBurn model, any ``flax.nnx.Module``, or a function that ``jax.jit``
            takes: ``f(x)``, or ``f(weights, x)`` with ``weights``.
        batch_size: Most rows of a batch. Larger requests are split and joined again.
        batch_timeout: How long the first row of a batch waits for others: a string
            with a unit, a number of seconds, or a ``datetime.timedelta``.
        partitions: Devices, each with a copy of the weights and a thread of its own:
            a number of them, a list, or ``None`` for all local ones. Or distributions,
            each of which divides a copy over the devices of its mesh.
        mesh, layout: As of ``model.compile``: one copy of the weights, which the
            devices of a mesh divide, as they do the rows of a batch. The default where
            the model is trained with its weights divided.
        padding: Sizes that batches are padded to. ``True``: powers of two up to
            ``batch_size``; ``False``: none, so that every size has its program; or the
            sizes, of which the largest must be ``batch_size``.
        example: An input with any number of rows, or specs of one, where the shapes do
            not follow from the model.
        batch_keys: ``{key: example}`` for requests of several shapes. Each key has its
            own queue and programs.
        weights: A tree of arrays for ``f(weights, x)``.
        preprocessing: ``f(request) -> (x, info)``, run in the caller's thread.
        postprocessing: ``f(output, info) -> answer``, run in the thread that asks for
            the answer. Without preprocessing ``info`` is ``None``.
        max_queue: Requests that may wait; one more raises ``QueueFullError``.
        check_numerics: Whether requests with NaN or infinity are refused.
        burst: Most full batches that one call runs, one after the other, where several
            wait. ``None``: measured at the start, more than one if calls take longer
            than batches; 1: never more than one. With hooks it is always 1.
        hooks: Names under which the program streams values by ``serving.emit``; see
            ``events``. Requests are then not split.

    Raises:
        ArgumentError, DTypeError, NotBuiltError: What is to be served is not clear.

    Example:
        >>> import numpy as np
        >>> from exburn import Sequential, layers
        >>> model = Sequential([layers.Input((3,)), layers.Dense(2)])
        >>> x = np.ones((5, 3), np.float32)
        >>> with Serving(model, batch_size=4, batch_timeout="5 ms") as serving:
        ...     answer = serving(x)  # or: serving.submit(x).result()
        >>> bool(np.allclose(answer, model.predict(x, verbose=0)))
        True
    """

    def __init__(
        self,
        model: Any,
        batch_size: int = 32,
        batch_timeout: Any = "50 ms",
        *,
        partitions: int | Sequence[Any] | None = None,
        mesh: Any = None,
        layout: Any = None,
        padding: bool | Sequence[int] = True,
        example: Any = None,
        batch_keys: Mapping[Hashable, Any] | None = None,
        weights: Any = None,
        preprocessing: Callable[[Any], tuple[Any, Any]] | None = None,
        postprocessing: Callable[[Any, Any], Any] | None = None,
        max_queue: int = 1024,
        check_numerics: bool = False,
        burst: int | None = None,
        hooks: Sequence[str] = (),
    ):
        options = ServingOptions(
            batch_size=batch_size,
            batch_timeout=batch_timeout,
            partitions=partitions,
            mesh=mesh,
            layout=layout,
            padding=padding,
            example=example,
            batch_keys=batch_keys,
            weights=weights,
            preprocessing=preprocessing,
            postprocessing=postprocessing,
            max_queue=max_queue,
            check_numerics=check_numerics,
            burst=burst,
            hooks=hooks,
        )
        self._options = options
        self.batch_size, self.buckets = options.batch_size, options.buckets
        self.batch_timeout = float(options.batch_timeout)
        self.check_numerics = options.check_numerics
        places = places_of(options.partitions, options.mesh, options.layout, model)
        self.devices = [device for place in places for device in place.devices]
        self._hooks = StreamHooks(tuple(options.hooks))
        inputs = options.examples
        self._computation = Computation(model, inputs, options.weights, self._hooks)
        self._recorder = Recorder(self.batch_size, self.buckets)
        self._batcher = Batcher(
            inputs,
            batch_size=self.batch_size,
            timeout=self.batch_timeout,
            most=options.max_queue,
            whole=bool(self._hooks),
            partitions=len(places),
            recorder=self._recorder,
        )
        parts = self._computation, self._batcher, self._recorder, self.buckets
        self._partitions = [Partition(i, at, *parts) for i, at in enumerate(places)]
        self._compile()
        self._start()

    def _compile(self) -> None:
        """Loads the weights, and compiles all programs that requests may need."""
        self.update_weights()
        computation, partitions = self._computation, self._partitions
        sizes = dict.fromkeys(computation.inputs, self.buckets)
        compile_sizes(computation, partitions, sizes)
        if not self._hooks and (most := self._options.burst) != 1:
            self._batcher.bursts = compile_bursts(computation, partitions, most)
        self._quick: set[Hashable] = set()
        if not self._hooks and not self.batch_timeout:
            self._quick = {k for k in computation.inputs if partitions[0].is_quick(k)}
        self._hooks.check()
        self._recorder.reset()

    def _start(self) -> None:
        self._closing = threading.Lock()
        self._started = time.monotonic()
        # The threads know the batcher, not this object: dropping it ends them.
        end = weakref.finalize(self, _stop, self._batcher, self._partitions, 0)
        end.atexit = False  # but _close_all, before JAX takes its devices down
        for partition in self._partitions:
            partition.thread.start()
        _open.add(self)

    # ------------------------------------------------------------------ requests
    stream, batches = streams.stream, streams.batches
    astream, events = streams.astream, streams.events

    def __call__(
        self, x: Any, *, key: Hashable | None = None, timeout: Any = None
    ) -> Any:
        """The answer to one request; waits for it. The same as ``run``."""
        return self._request(x, key, timeout, copy=False).result()

    def run(self, x: Any, *, key: Hashable | None = None, timeout: Any = None) -> Any:
        """The answer to one request; waits for it.

        Args:
            x: The rows: an array or a tree of arrays, as for ``predict``.
            key: The batch key; found by the shapes if there are several.
            timeout: Seconds (or ``"200 ms"``) after which the request fails.

        Returns:
            The output for the rows as NumPy arrays, postprocessed.

        Raises:
            DataError, DTypeError, ShapeError: The request does not fit the model.
            QueueFullError: ``max_queue`` requests wait already.
            DeadlineExceededError: There was no answer within ``timeout``.
            BatchFailedError: The batch that it ran in raised.
            ServingClosedError: The serving was closed.
        """
        return self(x, key=key, timeout=timeout)

    def submit(
        self,
        x: Any,
        *,
        key: Hashable | None = None,
        timeout: Any = None,
        copy: bool = True,
    ) -> Answer:
        """Queues a request, and returns its future at once.

        Args:
            x: The rows, as for ``run``.
            key: As for ``run``.
            timeout: As for ``run``.
            copy: Whether the arrays are copied, so that they may be changed before the
                answer is there.

        Raises:
            As ``run``; what happens after the request is queued, ``result`` raises.
        """
        return self._request(x, key, timeout, copy=copy)

    async def arun(
        self,
        x: Any,
        *,
        key: Hashable | None = None,
        timeout: Any = None,
        copy: bool = True,
    ) -> Any:
        """As ``run``, for coroutines: ``await serving.arun(x)``.

        Cancelling the task drops the request, if none of it is in a batch yet. With
        ``copy=False`` the arrays must not change before the answer is there.
        """
        answer = self.submit_together(x, key=key, timeout=timeout, copy=copy)
        return await self.wait_for(answer)

    def submit_together(
        self,
        x: Any,
        *,
        key: Hashable | None = None,
        timeout: Any = None,
        copy: bool = True,
    ) -> Answer:
        """As ``submit``, in a coroutine: what a turn of its loop asks begins together.

        Otherwise the first of many requests would begin a batch alone, and the thread
        that runs it would take turns with the one that reads the others.

        Raises:
            As ``submit``; RuntimeError: No event loop runs in this thread.
        """
        loop = asyncio.get_running_loop()
        answer = self._request(x, key, timeout, copy=copy, hold=True)
        loop.call_soon(self._release)
        return answer

    def _release(self) -> None:
        """Begins what was held; a lone quick request here, where no thread is woken."""
        request = self._batcher.release(self._quick)
        if request is not None:
            self._partitions[0].run_alone(request)

    async def wait_for(self, answer: Answer) -> Any:
        """The result of what ``submit`` returned, for coroutines.

        Cancelling the task drops the request, if none of it is in a batch yet.
        """
        alarm = None
        if answer.deadline is not None:
            left = answer.deadline - time.monotonic()
            alarm = asyncio.get_running_loop().call_later(left, answer.expire)
        try:
            return await asyncio.wrap_future(answer)
        finally:
            if alarm is not None:
                alarm.cancel()

    def _request(
        self,
        x: Any,
        key: Hashable | None,
        timeout: Any,
        *,
        copy: bool,
        listener: Callable[[str, Any], None] | None = None,
        hold: bool = False,
    ) -> Answer:
        asked = time.monotonic()
        x, info = self._prepare(x)
        how = {"copy": copy, "listener": listener, "hold": hold}
        return self._queue(x, info, key, timeout, asked, **how)

    def _prepare(self, x: Any) -> tuple[Any, Any]:
        """The rows for the program, and what postprocessing is told."""
        if self._options.preprocessing is None:
            return self._computation.encode(x), None
        prepared = self._options.preprocessing(x)
        if not isinstance(prepared, tuple) or len(prepared) != 2:
            raise ArgumentError(
                "serving",
                "preprocessing must return (x, info), received "
                f"{type(prepared).__name__}",
                hint="info goes to postprocessing(output, info); None will do.",
            )
        x, info = prepared
        return self._computation.encode(x), info

    def _queue(
        self,
        x: Any,
        info: Any,
        key: Hashable | None,
        timeout: Any,
        asked: float | None = None,
        *,
        copy: bool = True,
        listener: Callable[[str, Any], None] | None = None,
        hold: bool = False,
    ) -> Answer:
        deadline = None
        if timeout is not None:
            asked = time.monotonic() if asked is None else asked
            deadline = asked + seconds("serving", "timeout", timeout)
        try:
            key, values = self._match(x, key, copy=copy)
            if self._hooks and len(values[0]) > self.batch_size:
                raise ArgumentError(
                    "serving",
                    "with hooks a request is not split: it may have at most "
                    f"{self.batch_size} rows, received {len(values[0])}",
                    hint="Raise batch_size, or send fewer rows.",
                )
        except Exception:
            self._recorder.count("invalid")
            raise
        finish = None
        if self._options.postprocessing is not None:
            finish = functools.partial(_finish, self._options.postprocessing, info)
        answer = Answer(deadline, finish)
        self._batcher.put(Request(key, values, answer, listener), hold=hold)
        return answer

    def _match(
        self, x: Any, key: Hashable | None, *, copy: bool
    ) -> tuple[Hashable, list[np.ndarray]]:
        """The request's batch key and arrays."""
        by_key, match = self._computation.inputs, self._computation.match
        if key is None and len(by_key) == 1:
            key = next(iter(by_key))
        if key is not None:
            if key not in by_key:
                raise unknown_name("batch key", key, map(str, by_key), op="serving")
            return key, match(x, key, finite=self.check_numerics, copy=copy)
        other: Exception | None = None
        for name in by_key:
            try:
                return name, match(x, name, finite=self.check_numerics, copy=copy)
            except ShapeError:
                continue
            except (DataError, DTypeError) as error:
                other = error
        if other is not None:
            raise other
        raise ShapeError(
            "serving",
            "the request fits none of the batch keys",
            {
                str(name): ", ".join(map(str, inputs.shapes))
                for name, inputs in by_key.items()
            },
            hint="Pad its rows to one of these shapes.",
        )

    # ------------------------------------------------------------------ operation
    def update_weights(self, weights: Any = None) -> None:
        """Serves the model's weights as they are now, or the given ones.

        Nothing is compiled. Batches that run keep the old weights; no batch mixes them.

        Args:
            weights: ``{path: array}`` for modules, a tree for functions; by default the
                model is read again.

        Raises:
            ArgumentError: Other names, shapes or dtypes than those that are served.
        """
        new = self._computation.read(weights)
        for partition in self._partitions:
            partition.load(new)

    @property
    def trace_counts(self) -> dict[tuple[Hashable, int], int]:
        """The number of traces of the program of each batch key and size.

        Sizes above ``batch_size`` are bursts of full batches.
        """
        return dict(self._computation.traces)

    def statistics(self) -> ServingStatistics:
        """Counts, fill, waiting and running times; prints as a table."""
        depths = self._batcher.depth().values()
        requests, rows = (sum(each) for each in zip(*depths, strict=True))
        return self._recorder.read((requests, rows))

    def reset_statistics(self) -> None:
        """Counts from zero."""
        self._recorder.reset()

    def with_options(self, **changes: Any) -> Serving:
        """Another serving of the same model, with some options changed.

        It reads the model's weights anew. This one stays open.

        Args:
            changes: Options of the constructor: ``batch_size=64``.

        Raises:
            UnknownNameError: There is no such option.
        """
        options = change_options(self._options, changes, "with_options")
        return Serving(self._computation.source, **vars(options))

    def status(self) -> dict[str, Any]:
        """The state: what is served, where, and what waits now.

        Returns:
            ``state`` (``"running"``, ``"closing"``, ``"closed"``), ``model``,
            ``batch_size``, ``batch_timeout`` (seconds), ``buckets``, ``devices``,
            ``running`` (batches on each device), ``queue_depth``, ``rows_waiting``,
            ``keys`` (what waits by key) and ``uptime`` (seconds).
        """
        alive = any(p.thread.is_alive() for p in self._partitions)
        state = "closing" if self._batcher.closing else "running"
        depth = self._batcher.depth()
        return {
            "state": state if alive else "closed",
            "model": self._computation.name,
            "batch_size": self.batch_size,
            "batch_timeout": self.batch_timeout,
            "buckets": self.buckets,
            "devices": [str(partition.place) for partition in self._partitions],
            "running": [partition.running for partition in self._partitions],
            "queue_depth": sum(requests for requests, _ in depth.values()),
            "rows_waiting": sum(rows for _, rows in depth.values()),
            "keys": {key: requests for key, (requests, _) in depth.items()},
            "uptime": time.monotonic() - self._started,
        }

    def send_probes(self) -> list[concurrent.futures.Future[float]]:
        """Sends every partition a batch of zeros, ahead of what waits.

        Statistics do not count these batches. A device that hangs, or a partition whose
        thread is gone, leaves its future without a result.

        Returns:
            A future for each partition: the seconds that its batch took.

        Raises:
            ServingClosedError: The serving was closed.

        Example:
            >>> import numpy as np
            >>> from exburn import Serving
            >>> with Serving(lambda x: x + 1, example=np.ones((1, 2))) as serving:
            ...     seconds = [probe.result(10) for probe in serving.send_probes()]
            >>> len(seconds) == len(serving.devices)
            True
        """
        count = len(self._partitions)
        return [self._batcher.put_probe(index) for index in range(count)]

    @property
    def closed(self) -> bool:
        """Tells whether ``close`` was called."""
        return self._batcher.closing

    def close(self, *, drain: bool = True, timeout: Any = 30.0) -> None:
        """Takes no more requests, and ends when those it has are answered.

        Args:
            drain: Whether requests that wait still run, at once; else they fail.
            timeout: Seconds after which what still waits fails with
                ``ServingClosedError``. Batches that run are not interrupted.
        """
        limit = seconds("serving", "timeout", timeout)
        self._batcher.close(drain=drain)
        with self._closing:
            _stop(self._batcher, self._partitions, limit)
        _open.discard(self)

    async def aclose(self, *, drain: bool = True, timeout: Any = 30.0) -> None:
        """As ``close``, without blocking the event loop."""
        await asyncio.to_thread(self.close, drain=drain, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        status = self.status()
        return (
            f"<Serving of {status['model']!r}, {status['state']}: batches of "
            f"{self.batch_size} rows on {len(self.devices)} devices>"
        )


def _finish(postprocessing: Callable, info: Any, output: Any) -> Any:
    return postprocessing(output, info)


_open: weakref.WeakSet[Serving] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """An interpreter that exits answers what it has, before JAX ends."""
    for serving in list(_open):
        serving.close(timeout=5)


def _after_fork() -> None:
    for serving in list(_open):
        serving._batcher.end_in_fork()
    _open.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)


def _stop(batcher: Batcher, partitions: list[Partition], limit: float) -> None:
    batcher.close(drain=limit > 0)
    until = time.monotonic() + limit
    for partition in partitions:
        if partition.thread is not threading.current_thread():
            partition.thread.join(max(until - time.monotonic(), 0))
    batcher.abandon()
