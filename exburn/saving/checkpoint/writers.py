"""The processes that write one checkpoint together."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exburn.errors import CheckpointError
from exburn.runtime.sharding import processes

_PATIENCE = 600.0  # seconds to wait for another process' part


@dataclasses.dataclass(frozen=True)
class Writers:
    """The processes that write a checkpoint: this one alone, or all of a run.

    They wait for each other by JAX's coordination, not by programs on their devices:
    those belong to the training, beside which a thread writes.

    Args:
        index: Number of this process.
        count: How many write.
    """

    index: int = 0
    count: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process makes the folder, and writes what is no array."""
        return self.count == 1 or self.index == 0

    def options(self, turn: str = "") -> Any:
        """What Orbax is told: who takes part, and by which name they wait.

        Args:
            turn: A name that all of them use once.
        """
        from orbax.checkpoint import options

        if self.count == 1:  # one of several processes may write alone
            own = processes.index()
            return options.MultiprocessingOptions(
                primary_host=own, active_processes={own}
            )
        return options.MultiprocessingOptions(
            primary_host=0,
            active_processes=set(range(self.count)),
            barrier_sync_key_prefix=turn,
        )

    @contextlib.contextmanager
    def part(self, turn: str, failures: Path) -> Iterator[None]:
        """A part of the work, which is done when all have left the block.

        Args:
            turn: A name that all of them use once.
            failures: Beginning of the names of files in which they tell of errors.

        Raises:
            CheckpointError: It failed in another process.
        """
        if self.count == 1:
            yield
            return
        try:
            yield
        except BaseException as error:
            with contextlib.suppress(OSError):
                what = f"{type(error).__name__}: {error}"[:500]
                Path(f"{failures}-{self.index}").write_text(what)
            self._wait(turn)
            raise
        self._wait(turn)
        for number in range(self.count):
            path = Path(f"{failures}-{number}")
            if number != self.index and path.exists():
                raise CheckpointError(
                    "checkpoint",
                    f"process {number} of {self.count} could not write its part",
                    {"folder": failures.parent, "there": path.read_text()},
                )

    def _wait(self, turn: str) -> None:
        from orbax.checkpoint import multihost

        wait = multihost.get_barrier_sync_fn(processes=set(range(self.count)))
        wait(key=turn, timeout_ms=int(1e3 * _PATIENCE))


def all_processes() -> Writers:
    """All processes of the run.

    Example:
        >>> all_processes()
        Writers(index=0, count=1)
    """
    return Writers(processes.index(), processes.count())
