"""What the processes of one run tell each other.

Every function here is for all processes of a run, at the same place of the program, but
for ``is_main``, ``count`` and ``index``, which ask nobody. With one process all of them
return at once, and start nothing.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from exburn.errors import ProcessError, SaveError
from exburn.runtime.sharding.liveness import (
    await_ready,
    check_alive,
    is_broken,
    lost_process,
    watch,
)

_FRAME = 256  # bytes of a message; a longer one takes a second exchange
_LENGTH = 8  # of them, which say how long it is


def count() -> int:
    """How many processes take part; 1 where ``initialize`` was not called."""
    return jax.process_count() if jax.distributed.is_initialized() else 1


def index() -> int:
    """The number of this process, from 0."""
    return jax.process_index() if jax.distributed.is_initialized() else 0


def is_main() -> bool:
    """Whether this is process 0, which prints and writes for all."""
    return index() == 0


def gather(value: Any, at: str = "an agreement") -> list[Any]:
    """The value of every process, by its number.

    Args:
        value: Numbers, strings, ``None``, NumPy arrays, and lists and dicts of these.
        at: The place of the program, which must be the same in all of them.

    Raises:
        ProcessError: A process is lost, has failed, or is at another place.

    Example:
        >>> gather({"rows": 3})
        [{'rows': 3}]
    """
    if count() == 1:
        return [value]
    return _values(_send({"at": at, "value": value}))


def on_main(act: Callable[[], Any], at: str) -> None:
    """Has process 0 do something for all, which the others wait for.

    Args:
        act: What is to be done, such as writing a file.
        at: The place of the program, as of ``gather``.

    Raises:
        SaveError: In the others, where process 0 has raised an ``OSError``.
        ProcessError: Where it has raised something else.

    Example:
        >>> on_main(lambda: print("written"), "save")
        written
    """
    gather(None, at)  # nobody looks at the file system any more
    failure: Exception | None = None
    if is_main():
        try:
            act()
        except Exception as error:
            failure = error
    answer = None
    if failure is not None:
        answer = [isinstance(failure, OSError), f"{type(failure).__name__}: {failure}"]
    answer = gather(answer, at)[0]
    if failure is not None:
        raise failure
    if answer is not None:
        kind = SaveError if answer[0] else ProcessError
        raise kind(at, "process 0 failed, which does so for all", {"there": answer[1]})


def broadcast(value: Any) -> Any:
    """The value that process 0 gave, in every process; see ``gather``.

    Example:
        >>> broadcast([0.5, "val_loss"])
        [0.5, 'val_loss']
    """
    return value if count() == 1 else gather(value if is_main() else None)[0]


def agree_any(flag: bool) -> bool:
    """Whether one of the processes says so.

    Example:
        >>> agree_any(True)
        True
    """
    return bool(flag) if count() == 1 else any(gather(bool(flag)))


def agree_min(number: int) -> int:
    """The smallest of the processes' numbers.

    Example:
        >>> agree_min(3)
        3
    """
    return number if count() == 1 else min(gather(number))


def barrier(name: str) -> None:
    """Returns when all processes are here.

    Args:
        name: Of the place, for the error.

    Raises:
        ProcessError: A process is lost, or is at another place.
    """
    gather(None, name)


def tell_failure(error: BaseException, timeout: float = 30.0) -> None:
    """Lets the others know that this process leaves a common work by an error.

    They are told where they next agree on something, and end with a ``ProcessError``.

    Args:
        error: What has been raised here.
        timeout: Seconds to wait for the others to come to such a place.
    """
    is_shared, others = isinstance(error, ProcessError) or is_broken(), watch()
    if others is None or is_shared or others.failed:
        return
    others.failed = True
    what = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    with contextlib.suppress(ProcessError, TimeoutError):
        _send({"failed": what}, timeout)


def farewell() -> bool:
    """Waits until the others end, too; says whether all of them do."""
    return all("left" in message for message in _send({"left": True}))


# ---------------------------------------------------------------- exchange
def _send(message: dict[str, Any], timeout: float | None = None) -> list[dict]:
    """The messages of all processes, by their numbers."""
    check_alive()
    text = _encode(message)
    head, room = np.zeros(_FRAME, np.uint8), _FRAME - _LENGTH
    head[:_LENGTH] = np.frombuffer(np.int64(len(text)).tobytes(), np.uint8)
    head[_LENGTH : _LENGTH + len(text)] = np.frombuffer(text[:room], np.uint8)
    rows = _exchange(head, timeout)
    lengths = [int(row[:_LENGTH].view(np.int64)[0]) for row in rows]
    rows = rows[:, _LENGTH:]
    if (rest := max(lengths) - room) > 0:
        tail = np.zeros(1 << (rest - 1).bit_length(), np.uint8)  # few programs so
        more = np.frombuffer(text[room:], np.uint8)
        tail[: len(more)] = more
        rows = np.concatenate([rows, _exchange(tail, timeout)], axis=1)
    return [
        _decode(row[:length].tobytes())
        for row, length in zip(rows, lengths, strict=True)
    ]


def _values(messages: list[dict[str, Any]]) -> list[Any]:
    """What the messages hold; an error where one is a farewell."""
    for number, message in enumerate(messages):
        if "failed" in message:
            raise ProcessError(
                "distribution",
                f"process {number} of {count()} failed, and the others cannot go on",
                {"there": message["failed"], "this process": index()},
                hint="Look at that process' output.",
            )
        if "left" in message:
            raise ProcessError(
                "distribution",
                f"process {number} of {count()} has ended, and the others wait for it",
                {"this process": index()},
                hint="All processes must run the same program: the same fits, "
                "evaluations, predictions and saves.",
            )
    if len({message["at"] for message in messages}) > 1:
        raise ProcessError(
            "distribution",
            "the processes are at different places of the program",
            {f"process {i}": message["at"] for i, message in enumerate(messages)},
            hint="All of them must call the same: what uses a model that spans "
            "processes must not stand behind `if` for one of them.",
        )
    return [message["value"] for message in messages]


def _exchange(row: np.ndarray, timeout: float | None = None) -> np.ndarray:
    """The bytes of all processes, [process, byte], by a collective of JAX."""
    mine, everywhere = _places()
    try:
        shared = jax.make_array_from_process_local_data(mine, row[None])
        out = await_ready(_gather_program(everywhere)(shared), timeout)
        return np.asarray(out.addressable_data(0))
    except (RuntimeError, ValueError) as error:
        raise lost_process(error) from None


@functools.lru_cache(maxsize=1)
def _places() -> tuple[Any, Any]:
    """Shardings over one device of each process: divided, and whole everywhere.

    Of the processors where JAX has them: there nothing waits for what a GPU has yet to
    compute.
    """
    try:
        devices = jax.devices("cpu")
    except RuntimeError:  # JAX was told to have none
        devices = jax.devices()
    first: dict[int, Any] = {}
    for device in devices:
        first.setdefault(device.process_index, device)
    mesh = jax.sharding.Mesh(
        np.array([first[number] for number in sorted(first)]),
        ("process",),
        axis_types=(jax.sharding.AxisType.Auto,),
    )
    spec = jax.sharding.PartitionSpec
    return (
        jax.sharding.NamedSharding(mesh, spec("process")),
        jax.sharding.NamedSharding(mesh, spec()),
    )


@functools.lru_cache(maxsize=1)
def _gather_program(everywhere: Any) -> Callable[[Any], Any]:
    return jax.jit(lambda rows: rows, out_shardings=everywhere)


def _encode(value: Any) -> bytes:
    return json.dumps(value, default=_plain).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic) and value.ndim == 0 and value.dtype.kind in "biuf":
        return value.item()
    if hasattr(value, "__array__"):
        array = np.ascontiguousarray(value)
        text = base64.b64encode(array.tobytes()).decode()
        return {"$array": [array.dtype.name, list(np.shape(value)), text]}
    raise TypeError(f"{type(value).__name__} cannot be sent to other processes")


def _decode(text: bytes) -> Any:
    return json.loads(text, object_hook=_from_json)


def _from_json(value: dict[str, Any]) -> Any:
    if value.keys() != {"$array"}:
        return value
    dtype, shape, text = value["$array"]
    data = np.frombuffer(base64.b64decode(text), jax.numpy.dtype(dtype))
    return data.reshape(shape).copy()
