"""Noticing that another process of a run is lost, and not waiting for it for good."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

import jax

from exburn.errors import ProcessError

LOST = 75  # exit status where the main thread could not be told: EX_TEMPFAIL
GRACE = 15.0  # seconds that the main thread has to end once a process is lost
FAREWELL = 5.0  # seconds to tell the others of an exception that nobody caught
_SHORTEST_PAUSE, _LONGEST_PAUSE = 5e-5, 5e-3  # seconds between two looks at a result
_LOOK_EVERY = 1.0  # seconds between two looks at who is alive


def lost_process(error: BaseException) -> BaseException:
    """The ``ProcessError`` behind an error of a program, if a process is lost.

    What a broken connection raises does not say whose it was: that is known when signs
    of life have not come for some time.

    Args:
        error: What a program of several processes has raised.

    Returns:
        The error itself, where it is about something else.
    """
    if _watch is None or not _is_of_connection(error):
        return error
    if not _watch.found.wait(_watch.patience):
        return error
    try:
        check_alive()
    except ProcessError as found:
        found.__cause__ = error
        return found
    return error


def await_ready(tree: Any, timeout: float | None = None) -> Any:
    """Waits for arrays that a program of several processes computes; returns them.

    Unlike ``jax.block_until_ready`` it ends when a process is lost: what that was to
    send would never come.

    Args:
        tree: The arrays, in any structure.
        timeout: Seconds to wait at most.

    Raises:
        ProcessError: A process is lost.
        TimeoutError: The time is over.

    Example:
        >>> await_ready(jax.numpy.ones(1)).shape
        (1,)
    """
    if _watch is None:
        return tree
    pause, start = _SHORTEST_PAUSE, time.monotonic()
    for leaf in jax.tree.leaves(tree):
        while isinstance(leaf, jax.Array) and not leaf.is_ready():  # type: ignore[attr-defined]
            check_alive()
            if timeout is not None and time.monotonic() - start > timeout:
                raise TimeoutError
            time.sleep(pause)
            pause = min(1.5 * pause, _LONGEST_PAUSE)
    return tree


def begin_watch(heartbeat: int) -> LivenessWatch:
    """Begins to watch the other processes, for as long as this one runs."""
    global _watch
    _watch = LivenessWatch(heartbeat)
    return _watch


def watch() -> LivenessWatch | None:
    """What watches the other processes; ``None`` where there are none."""
    return _watch


def is_broken() -> bool:
    """Whether a process is known to be lost."""
    return _watch is not None and _watch.error is not None


def check_alive() -> None:
    """Raises if a process is known to be lost.

    Raises:
        ProcessError: It names the process.
    """
    if _watch is not None and _watch.error is not None:
        _watch.told = True
        raise _watch.error


class LivenessWatch:
    """A thread that notes when a process is lost, and ends this one if it is stuck.

    A program that waits for a lost process never ends, nor does the thread that waits
    for it: no exception can reach that. Where the main thread has not taken notice in
    time, the process ends with the error's text and an exit status.

    Args:
        heartbeat: Seconds after which JAX takes a silent process for lost.

    Attributes:
        error: What is to be raised, once a process is lost.
        found: Set from then on.
        told: Whether the main thread has raised it.
        failed: Whether this process has told the others that it fails.
        patience: Seconds in which a loss is found.
    """

    def __init__(self, heartbeat: int):
        self.error: ProcessError | None = None
        self.told = self.failed = False
        self.patience = heartbeat + 5 * _LOOK_EVERY
        self.found, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(
            target=self._look, name="exburn-processes", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._over.set()

    def _look(self) -> None:
        from jax.experimental import multihost_utils

        devices = jax.devices()
        everyone = {device.process_index for device in devices}
        while not self._over.wait(_LOOK_EVERY):
            try:
                with multihost_utils.live_devices(devices) as alive:
                    missing = everyone - {device.process_index for device in alive}
            except multihost_utils.ProcessFailureError as error:
                missing = {device.process_index for device in error.failed_devices}
            except Exception as error:  # whatever JAX raises if it cannot ask process 0
                missing = {0}
                if not self._over.is_set():
                    self._end(_loss_of(missing, error))
                return
            if missing and not self._over.is_set():
                self._end(_loss_of(missing))
                return

    def _end(self, error: ProcessError) -> None:
        self.error = error
        self.found.set()
        end = time.monotonic() + GRACE
        while not self.told and time.monotonic() < end:
            time.sleep(_LOOK_EVERY / 4)
        if not self.told:
            print(f"exburn.errors.ProcessError: {error}", file=sys.stderr, flush=True)
            os._exit(LOST)
        # Python waits for threads before it ends, such as one that writes a checkpoint.
        while not _is_ending():
            time.sleep(_LOOK_EVERY)
        if not self._over.wait(FAREWELL):
            sys.stdout.flush()
            os._exit(LOST)


def _is_ending() -> bool:
    """Whether the program is over, and Python waits for its threads."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame is None or frame.f_code.co_filename == threading.__file__


_watch: LivenessWatch | None = None


def _loss_of(numbers: set[int], cause: Exception | None = None) -> ProcessError:
    text, one = ", ".join(map(str, sorted(numbers))), len(numbers) == 1
    which = f"process {text}" if one else f"processes {text}"
    details: dict[str, Any] = {"this process": jax.process_index()}
    if cause is not None:
        details["cause"] = cause
    return ProcessError(
        "distribution",
        f"{which} of {jax.process_count()} {'is' if one else 'are'} lost: no sign of "
        "life came any more",
        details,
        hint="Look at that process' output. Checkpoints that were written are intact: "
        'start again with fit(resume="auto"), also with other devices.',
    )


def _is_of_connection(error: BaseException) -> bool:
    """Whether a collective says that it lost another process."""
    text = str(error)
    return any(word in text for word in ("Gloo", "NCCL", "Connection", "UNAVAILABLE"))
