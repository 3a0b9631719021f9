"""What the processes of a run decide together: when to end, and with what to go on."""

from __future__ import annotations

import contextlib
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import Any

import jax
import numpy as np

from exburn.errors import ProcessError, warn
from exburn.runtime.sharding import processes
from exburn.runtime.sharding.arrays import checksum, put
from exburn.runtime.sharding.liveness import await_ready, lost_process
from exburn.runtime.signals import Termination
from exburn.training.feed.chunk import Chunk
from exburn.training.numbers import is_number
from exburn.training.state_holder import StateHolder

_OWN_DATA = (
    "All processes have the same data; those of each process' own are declared by "
    "mesh=distribution.DataParallel(auto_shard_dataset=False)."
)
_SAMPLES = 64  # rows of the data that are compared between processes
Chunks = Generator[Chunk, None, None]
_STOPS = {
    "fit": "stop_training",
    "evaluate": "stop_evaluating",
    "predict": "stop_predicting",
}


class Agreement:
    """Lets the processes of a run launch the same programs, and end at the same step.

    A program that spans processes waits until all of them have launched it. So before
    every chunk each says what it would do next, and whatever one of them alone decides,
    by its clock, by a signal or in a hook, holds for all from there on. Where a run is
    this process' own, nobody is asked.

    Args:
        op: ``"fit"``, ``"evaluate"`` or ``"predict"``.
        termination: Knows whether this process was told to end.
    """

    def __init__(
        self,
        holder: StateHolder,
        owner: Any,
        op: str,
        termination: Termination | None = None,
    ):
        self.active = holder.placement.spans_processes
        self._own_data, self._told_of_end = holder.placement.own_data, False
        self._form: list[Any] = []
        self._holder, self._owner, self._op = holder, owner, op
        self._termination, self._ends, self._due = termination, False, False
        self._glanced = time.perf_counter()

    # ------------------------------------------------------------------ at the start
    def check_alike(self, find_facts: Callable[[], dict[str, Any]]) -> None:
        """Raises unless all processes run the same.

        Args:
            find_facts: Gives what programs depend on, by names that a user knows. To
                find them takes a while, so that it is called only where there are
                others.
        """
        if not self.active:
            return
        facts = find_facts()
        texts = {name: repr(fact) for name, fact in facts.items()}
        texts = processes.gather(texts, self._op)
        for name in facts:
            values = [one[name] for one in texts]
            if len(set(values)) > 1:
                raise ProcessError(
                    self._op,
                    f"the processes run with different values of {name}",
                    {f"process {i}": value for i, value in enumerate(values)},
                    hint=_OWN_DATA
                    if name == "data"
                    else "All processes run the same program: the same model, "
                    "arguments, callbacks and random seed.",
                )

    def first(self, value: Any) -> Any:
        """The value of process 0."""
        return processes.broadcast(value) if self.active else value

    # ------------------------------------------------------------------ in the loop
    def chunks(
        self,
        chunks: Chunks,
        pause: float,
        op: str,
        follow: Callable[[], None] = lambda: None,
    ) -> Chunks:
        """The chunks, each of them once all processes have theirs.

        Args:
            pause: Seconds between two glances at running means.
        """
        if not self.active:
            return chunks
        return self._agree_on_each(chunks, pause, _STOPS[op], follow)

    def _agree_on_each(
        self, chunks: Chunks, pause: float, stop: str, follow: Callable[[], None]
    ) -> Chunks:
        with contextlib.closing(chunks):
            for chunk in _with_end(chunks):
                hooked = self._holder.hooked
                follow()
                self._form = self._form_of_model(hooked)
                more = self._ask(chunk, pause, stop)
                if chunk is None or not more or getattr(self._owner, stop):
                    return
                yield chunk

    def _ask(self, chunk: Chunk | None, pause: float, stop: str) -> bool:
        """Tells the others what comes next here, and follows what all have told."""
        holder, now = self._holder, time.perf_counter()
        answers = processes.gather(
            {
                "next": _form_of(chunk),
                "end": self._termination is not None and self._termination.requested,
                "stop": bool(getattr(self._owner, stop)),
                "due": now - self._glanced > pause,
                "model": self._form,
                "weights": holder.pop_new_weights(),
                "options": holder.pop_new_options(),
            },
            self._op,
        )
        self._ends = self._ends or any(one["end"] for one in answers)
        if any(one["stop"] for one in answers):
            setattr(self._owner, stop, True)
        self._due = answers[0]["due"]  # by the clock of process 0
        if self._due:
            self._glanced = now
        if any(one["model"] != answers[0]["model"] for one in answers):
            self._refuse("what is trained, or in numbers of layers", {})
        weights = [one["weights"] for one in answers]
        if any(one != weights[0] for one in weights):
            names = set().union(*weights)
            unlike = [n for n in names if len({one.get(n) for one in weights}) > 1]
            self._refuse("weights that hooks have set", {"weights": sorted(unlike)})
        forms = [one["next"] for one in answers]
        ends = self._own_data and None in forms
        if not ends and any(form != forms[0] for form in forms):
            self._refuse(
                "the next batches", {f"process {i}": f for i, f in enumerate(forms)}
            )
        if any(one["options"] for one in answers) and holder.state is not None:
            self._share_options()
        if ends and any(forms) and processes.is_main() and not self._told_of_end:
            self._told_of_end = True
            warn(
                f"{self._op}: the data of process {forms.index(None)} end before those "
                "of others, and so does the epoch."
            )
        return None not in forms

    def _form_of_model(self, hooked: bool) -> list[Any]:
        """What of a model in training must be alike, besides its weights."""
        state = self._holder.state
        if state is None:
            return []
        form: list[Any] = [zlib.crc32(",".join(state.params).encode())]
        if hooked:
            numbers = {n: v for n, v in state.others.items() if is_number(n)}
            form.append({name: checksum(value) for name, value in numbers.items()})
        return form

    def _refuse(self, what: str, details: dict[str, Any]) -> None:
        raise ProcessError(
            self._op,
            f"the processes differ in {what}",
            details,
            hint=f"Hooks must do the same in all processes. {_OWN_DATA}",
        )

    def _share_options(self) -> None:
        """Gives all processes the learning rate, and the like, of process 0."""
        state = self._holder.current_opt_state()
        leaves, structure = jax.tree.flatten(state)
        mine = [_number(leaf) for leaf in leaves]
        numbers = processes.gather(mine)
        if (
            any(repr(one) != repr(numbers[0]) for one in numbers)
            and processes.is_main()
        ):
            warn(
                f"{self._op}: hooks have set other options of the optimizer in other "
                "processes; those of process 0 hold."
            )
        if repr(mine) == repr(numbers[0]):
            return
        for at, (leaf, value) in enumerate(zip(leaves, numbers[0], strict=True)):
            if value is not None and value != mine[at]:
                leaves[at] = put(np.asarray(value, leaf.dtype), leaf.sharding)
        self._holder.set_options(structure.unflatten(leaves))

    def is_due(self, last: float, pause: float) -> bool:
        """Whether it is time for a glance, where all take it or none does."""
        if not self.active:
            return time.perf_counter() - last > pause
        due, self._due = self._due, False
        return due

    @property
    def ends(self) -> bool:
        """Whether the process was told to end, or another one of them."""
        if self.active or self._termination is None:
            return self._ends
        return self._termination.requested

    def stops(self) -> bool:
        """Whether training ends with this epoch."""
        if self.active:
            stop = processes.agree_any(self._owner.stop_training)
            self._owner.stop_training = stop
        return self._owner.stop_training

    def settle(self) -> None:
        """Has all processes end, where one was told to after the last chunk."""
        if self.active and self._termination is not None:
            ending = self._ends or self._termination.requested
            self._termination.requested = processes.agree_any(ending)

    def wait(self, tree: Any) -> None:
        """Waits until a program has computed its outputs."""
        jax.block_until_ready(await_ready(tree) if self.active else tree)


@contextlib.contextmanager
def telling_failures(active: Callable[[], bool]) -> Iterator[None]:
    """If the block raises, the other processes of the run are told so."""
    try:
        yield
    except BaseException as error:
        if not active():
            raise
        failure = lost_process(error)
        processes.tell_failure(failure)
        if failure is error:
            raise
        raise failure from error


def _with_end(chunks: Iterator[Chunk]) -> Iterator[Chunk | None]:
    yield from chunks
    yield None


def fingerprint(arrays: dict[str, Any]) -> int:
    """A number for the names, shapes and dtypes of arrays."""
    text = ",".join(f"{name}:{a.dtype}{a.shape}" for name, a in arrays.items())
    return zlib.crc32(text.encode())


def data_facts(dataset: Any, feed: Any) -> dict[str, Any]:
    """What of data must be the same in all processes."""
    if feed.own_data:
        return {"batch size": feed.batch_size, "steps": feed.steps}
    rows = getattr(dataset, "tree", None)
    return feed.facts | {"rows": None if rows is None else _checksum_of_rows(rows)}


def _checksum_of_rows(tree: Any) -> int:
    """A number for some rows of arrays, from all over them."""
    checksum = 0
    for leaf in jax.tree.leaves(tree):
        size = leaf.shape[0]
        if getattr(leaf.dtype, "hasobject", False) or not size:
            continue
        for row in range(0, size, max(size // _SAMPLES, 1)):
            checksum = zlib.crc32(np.ascontiguousarray(leaf[row]).tobytes(), checksum)
    return checksum


def _form_of(chunk: Chunk | None) -> Any:
    """What the program of a chunk depends on; ``None`` after the last one."""
    if chunk is None:
        return None
    leaves = jax.tree.leaves(chunk.arguments)
    text = repr([(np.shape(leaf), str(leaf.dtype)) for leaf in leaves])
    return [chunk.program, chunk.steps, zlib.crc32(text.encode())]


def _number(leaf: Any) -> Any:
    """A single number of an optimizer's state; ``None`` for an array."""
    if np.ndim(leaf) or not jax.numpy.issubdtype(leaf.dtype, jax.numpy.number):
        return None
    if isinstance(leaf, jax.Array):
        leaf = await_ready(leaf).addressable_data(0)
    return np.asarray(leaf).item()
