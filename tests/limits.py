"""What a call may cost: memory and time, for files that attack."""

import contextlib
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from exburn.errors import ExBurnError

MEMORY = 160 << 20  # bytes: twice what a short file may ask for, and a little
SECONDS = 3.0  # of processors, and twenty times as many by the clock
_ADDRESSES = 2 << 30  # bytes of addresses: threads reserve more than they use


class TooSlow(BaseException):
    """The call took more time than it may; no library catches it."""


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TooSlow(f"more than {seconds} s")

    clocks = {
        (signal.SIGPROF, signal.ITIMER_PROF): seconds,
        (signal.SIGALRM, signal.ITIMER_REAL): 20 * seconds,
    }
    before = {number: signal.signal(number, ring) for number, _ in clocks}
    for (_, timer), limit in clocks.items():
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for _, timer in clocks:
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _addresses(more: int) -> Iterator[None]:
    """Within the block, the process gets so many more bytes of addresses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _status(name: str) -> int:
    """Bytes that the system tells of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def bounded(
    call: Callable[[], object], memory: int = MEMORY, seconds: float = SECONDS
) -> object:
    """Calls it; raises what it raises, and ``AssertionError`` if it costs too much.

    Args:
        call: A function without arguments.
        memory: Bytes that the process may take beyond what it has.
        seconds: Of processors.
    """
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    try:
        with _alarm(seconds), _addresses(_ADDRESSES):
            return call()
    except MemoryError as error:
        if isinstance(error, ExBurnError):
            raise  # a program was told
        raise AssertionError("it asked for more memory than it may") from error
    except TooSlow as error:
        raise AssertionError(str(error)) from error
    finally:
        peak = _status("VmHWM") - before
        assert peak < memory, f"{peak >> 20} MB"
