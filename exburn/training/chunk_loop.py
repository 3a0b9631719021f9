"""The loop over chunks: of training, evaluation, prediction and a sweep's lanes."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

import jax

from exburn.errors import ExBurnError, locate
from exburn.runtime.kept_memory import kept_memory
from exburn.training.agreement import Agreement, Chunks
from exburn.training.feed.chunk import Chunk
from exburn.training.timing import Timing

GLANCE = 0.1  # seconds between two looks at the running means
IN_FLIGHT = 2  # chunks that are dispatched ahead of the device

_NO_SHIELD = contextlib.nullcontext()

Call = tuple[Callable, tuple, dict[str, Any]]  # a program, and what it is called with


class ChunkHandler:
    """The two ends of a chunk's program, and all that goes on around its calls.

    Attributes:
        done: Steps that are done.
        flight: What programs have returned, and the device may still compute.
        hears: Whether hooks are called for each chunk.
        glances: Whether somebody looks at running means from time to time.
        timing: What the time goes to, if that is measured.
        place: What the chunks are of, in errors.
    """

    hears = glances = False
    timing: Timing | None = None
    place: str | None = None

    def __init__(self, agreement: Agreement):
        self.agreement, self.done = agreement, 0
        self.flight: deque[Any] = deque()

    def begin(self, chunk: Chunk) -> Call:
        """Calls the hooks before a chunk; returns its program and the arguments."""
        raise NotImplementedError

    def take(self, chunk: Chunk, results: Any) -> Any:
        """Keeps what the program has returned; returns what to wait for."""
        raise NotImplementedError

    def call_hooks(self, chunk: Chunk) -> None:
        """Calls the hooks after a chunk, where it ``hears`` of chunks."""

    def after(self) -> bool:
        """Does what follows a chunk and its hooks; returns whether the loop ends."""
        return False

    def glance(self) -> None:
        """Looks at running means."""

    def shield(self) -> contextlib.AbstractContextManager[Any]:
        """Surrounds a call that must not be interrupted before its results are kept."""
        return _NO_SHIELD

    def wait(self) -> None:
        """Waits for the oldest results in flight."""
        self.agreement.wait(self.flight.popleft())

    def works(self) -> bool:
        """Whether the device still computes the last results, where that is asked."""
        return False


def run_chunks(chunks: Chunks, handler: ChunkHandler) -> Generator[None, None, None]:
    """Runs chunk after chunk, some of them ahead of the device.

    Yields:
        After the hooks of each chunk, if there are any.
    """
    timing, agreement, last = handler.timing, handler.agreement, time.perf_counter()
    with contextlib.closing(chunks), kept_memory():
        timed = chunks if timing is None else timing.data(chunks, handler.works)
        for chunk in timed:
            program, args, options = handler.begin(chunk)
            with handler.shield():
                try:
                    results = program(*args, **options)
                except ExBurnError as error:
                    # A loader's batches may change their shape: it says which do.
                    if (place := handler.place) is not None:
                        where = f"in batch {handler.done} of the {place}, or after it"
                        locate(error, where)
                    raise
                handler.flight.append(handler.take(chunk, results))
                handler.done += chunk.steps
            if chunk.index is not None:
                # Hooks may write to what the rows are sent from.
                jax.block_until_ready(chunk.data)
            if handler.hears:
                handler.call_hooks(chunk)
                yield
            if handler.after():
                break
            if len(handler.flight) > IN_FLIGHT:
                handler.wait()
            if handler.glances and agreement.is_due(last, GLANCE):
                last = time.perf_counter()
                handler.glance()
