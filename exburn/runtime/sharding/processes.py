"""The processes of one run: joining them, and what they tell each other.

Every function here is for all processes of a run, at the same place of the program, but
for ``is_main``, ``count``, ``index`` and ``shared_seed``, which ask nobody. With one
process all of them return at once, and start nothing.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import dataclasses
import functools
import importlib.util
import json
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from exburn.errors import ArgumentError, ProcessError, SaveError

_KERAS = "KERAS_DISTRIBUTION_"
_FRAME = 256  # bytes of a message; a longer one takes a second exchange
_LENGTH = 8  # of them, which say how long it is
_SHORTEST_PAUSE, _LONGEST_PAUSE = 5e-5, 5e-3  # seconds between two looks at a result
_LOOK_EVERY = 1.0  # seconds between two looks at who is alive
_GRACE = 15.0  # seconds that the main thread has to end once a process is lost
_FAREWELL = 5.0  # seconds to tell the others of an exception that nobody caught
_HEAD_START = 2.0  # seconds for them to end by themselves, before process 0
_PARTING = 20.0  # seconds in which all others let go of process 0
_LOST = 75  # exit status where the main thread could not be told: EX_TEMPFAIL


@dataclasses.dataclass(frozen=True)
class _Cluster:
    """What this process joined: the values it gave, and the seed that all share."""

    given: tuple[str | None, int | None, int | None]
    seed: int


_cluster: _Cluster | None = None


def initialize(
    job_addresses: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    heartbeat_timeout: int = 60,
    timeout: int = 300,
) -> None:
    """Joins the processes of a run; call it first, before any array is made.

    What is not given is read from ``KERAS_DISTRIBUTION_JOB_ADDRESSES``,
    ``KERAS_DISTRIBUTION_NUM_PROCESSES`` and ``KERAS_DISTRIBUTION_PROCESS_ID``, and then
    from what SLURM, Open MPI, Kubernetes or a cloud TPU tell the process. A second call
    with the same values does nothing.

    Args:
        job_addresses: ``"host:port"`` of process 0, or of all processes with commas in
            between: the first counts, and their number is that of the processes.
        num_processes: How many processes there are; 1 needs nothing else.
        process_id: The number of this one, from 0.
        heartbeat_timeout: Seconds without a sign of life after which a process is lost.
            The others then end with a ``ProcessError``.
        timeout: Seconds to wait until all processes are there. After that the process
            ends with a message and status 75: nothing can interrupt JAX.

    Raises:
        ArgumentError: No cluster was found, a value cannot be, JAX has begun to
            compute already, or the process has joined others before.
        ProcessError: The others cannot be joined, for example as the port is taken.

    Example:
        >>> initialize(num_processes=1)
        >>> count(), index(), is_main()
        (1, 0, True)
    """
    global _cluster
    address, number, own = _given(job_addresses, num_processes, process_id)
    given = address, number, own
    if _cluster is not None:
        if _cluster.given != given:
            raise ArgumentError(
                "initialize",
                "this process has joined others already",
                {"then": _described(*_cluster.given), "now": _described(*given)},
                hint="Call it once, at the beginning of the program.",
            )
        return
    if number == 1 and address is None:
        _cluster = _Cluster(given, secrets.randbits(32))
        return
    if not jax.distributed.is_initialized():
        if not _may_be_found(address, number, own):
            raise _not_found(address, number, own)
        _join(address, number, own, heartbeat_timeout, timeout)
    _cluster = _Cluster(given, broadcast(secrets.randbits(32)))


def count() -> int:
    """How many processes take part; 1 where ``initialize`` was not called."""
    return jax.process_count() if jax.distributed.is_initialized() else 1


def index() -> int:
    """The number of this process, from 0."""
    return jax.process_index() if jax.distributed.is_initialized() else 0


def is_main() -> bool:
    """Whether this is process 0, which prints and writes for all."""
    return index() == 0


def shared_seed() -> int | None:
    """A random seed that all processes know; ``None`` before ``initialize``."""
    return None if _cluster is None else _cluster.seed


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
    told = None
    if failure is not None:
        told = [isinstance(failure, OSError), f"{type(failure).__name__}: {failure}"]
    told = gather(told, at)[0]
    if failure is not None:
        raise failure
    if told is not None:
        kind = SaveError if told[0] else ProcessError
        raise kind(at, "process 0 failed, which does so for all", {"there": told[1]})


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
    known = isinstance(error, ProcessError) or is_broken()
    if _watch is None or known or _watch.failed:
        return
    _watch.failed = True
    what = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    with contextlib.suppress(ProcessError, TimeoutError):
        _send({"failed": what}, timeout)


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


# ---------------------------------------------------------------- joining
def _given(
    addresses: str | None, number: int | None, own: int | None
) -> tuple[str | None, int | None, int | None]:
    """Address of process 0, number of processes, number of this one."""
    if addresses is None:
        addresses = os.environ.get(f"{_KERAS}JOB_ADDRESSES")
    number = _whole("num_processes", number, f"{_KERAS}NUM_PROCESSES", 1)
    own = _whole("process_id", own, f"{_KERAS}PROCESS_ID", 0)
    if addresses is None:
        address = None
    elif not isinstance(addresses, str) or not addresses.strip():
        raise ArgumentError(
            "initialize",
            f"job_addresses must be text such as '10.0.0.1:1234', got {addresses!r}",
        )
    else:
        listed = [part.strip() for part in addresses.split(",")]
        if len(listed) > 1 and number not in (None, len(listed)):
            raise ArgumentError(
                "initialize",
                f"job_addresses names {len(listed)} processes, num_processes is "
                f"{number}",
            )
        if len(listed) > 1:
            number = len(listed)
        address = listed[0]
        if not address.rpartition(":")[2].isdecimal():
            raise ArgumentError(
                "initialize",
                f"the address of process 0 must end in a port, received {address!r}",
                hint="job_addresses='10.0.0.1:1234', with a port that is free there.",
            )
    if number is not None and own is not None and own >= number:
        raise ArgumentError(
            "initialize",
            f"process_id must be below num_processes, {number}, received {own}",
            hint="Processes are numbered from 0.",
        )
    return address, number, own


def _whole(name: str, value: Any, variable: str, least: int) -> int | None:
    """An argument, or an environment variable, as a whole number."""
    source = name
    if value is None:
        value, source = os.environ.get(variable), variable
        if value is None:
            return None
    text = str(value).strip()
    if isinstance(value, bool) or not text.isdecimal() or int(text) < least:
        raise ArgumentError(
            "initialize",
            f"{source} must be a whole number of {least} at least, received {value!r}",
        )
    return int(text)


def _described(address: str | None, number: int | None, own: int | None) -> str:
    return f"process {own} of {number} at {address}"


_CLOUD_TPU = ("TPU_WORKER_HOSTNAMES", "TPU_WORKER_ID", "MEGASCALE_COORDINATOR_ADDRESS")
_LOOKED_AT = {  # what JAX asks for each of its clusters
    "SLURM": ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID"),
    "Open MPI": ("OMPI_MCA_orte_hnp_uri",),
    "Kubernetes": ("KUBERNETES_SERVICE_HOST",),
    "cloud TPU": _CLOUD_TPU,
}


def _may_be_found(address: str | None, number: int | None, own: int | None) -> bool:
    """Whether the caller, or a cluster that JAX asks, may tell enough."""
    address = address or os.environ.get("JAX_COORDINATOR_ADDRESS")
    return None not in (address, number, own) or any(map(_is_there, _LOOKED_AT))


def _not_found(address: str | None, number: int | None, own: int | None) -> Exception:
    """The error that says what was looked for."""
    details = {
        "job_addresses": address
        or os.environ.get("JAX_COORDINATOR_ADDRESS")
        or f"not given, nor {_KERAS}JOB_ADDRESSES",
        "num_processes": number or f"not given, nor {_KERAS}NUM_PROCESSES",
        "process_id": f"not given, nor {_KERAS}PROCESS_ID" if own is None else own,
    }
    for cluster, variables in _LOOKED_AT.items():
        missing = [name for name in variables if name not in os.environ]
        details[cluster] = f"no {', '.join(missing)}"
        if not missing:  # of Kubernetes
            details[cluster] = "found, but not the package kubernetes"
    return ArgumentError(
        "initialize",
        "no cluster was found, and not all three values were given",
        details,
        hint="job_addresses='host:port', num_processes=2, process_id=0; a single "
        "process needs none of this, or num_processes=1.",
    )


def _is_there(cluster: str) -> bool:
    found = [name in os.environ for name in _LOOKED_AT[cluster]]
    if cluster == "Kubernetes":
        return all(found) and importlib.util.find_spec("kubernetes") is not None
    if cluster == "cloud TPU":  # some ask Google's metadata, as JAX knows how to
        return any(found) or importlib.util.find_spec("libtpu") is not None
    return all(found)


def _join(
    address: str | None, number: int | None, own: int | None, heartbeat: int, wait: int
) -> None:
    """Has JAX connect the processes, and begins to watch them."""
    settings = {
        "jax_enable_recoverability": True
    }  # else JAX aborts all other processes
    if "JAX_ENABLE_PREEMPTION_SERVICE" not in os.environ:
        # It takes SIGTERM from the process, which nothing but SIGKILL would end then.
        settings["jax_enable_preemption_service"] = False
    for name, value in settings.items():
        if name in jax.config.values:
            jax.config.update(name, value)
    shown = {
        name: jax.config.values[name]
        for name in ("jax_cuda_visible_devices", "jax_rocm_visible_devices")
    }
    late = threading.Timer(wait, _give_up, (_described(address, number, own), wait))
    late.daemon = True
    late.start()
    try:
        jax.distributed.initialize(
            coordinator_address=address,
            num_processes=number,
            process_id=own,
            initialization_timeout=int(wait + _GRACE),
            heartbeat_timeout_seconds=heartbeat,
        )
    except ValueError as error:  # a cluster was found, and does not tell enough
        raise _not_found(address, number, own) from error
    except RuntimeError as error:
        if "before" in str(error):
            raise ArgumentError(
                "initialize",
                "JAX has begun to compute in this process, and cannot join others now",
                hint="Call it first, before any array or model is made.",
            ) from error
        raise _apart(_described(address, number, own), error) from error
    finally:
        late.cancel()
    if _is_alone_on_host() and "JAX_LOCAL_DEVICE_IDS" not in os.environ:
        for name, value in shown.items():  # JAX takes one GPU for a process by itself
            jax.config.update(name, value)
    global _watch
    if jax.process_count() > 1:
        _watch = _Watch(heartbeat)
        atexit.register(_leave)


def _apart(own: str, cause: Any) -> ProcessError:
    return ProcessError(
        "initialize",
        "the processes did not find each other",
        {"this process": own, "cause": cause},
        hint="Start all of them at about the same time; is the address right, and its "
        "port free and reachable?",
    )


def _give_up(own: str, wait: int) -> None:
    """Ends the process with an error's text, before JAX does so without one."""
    error = _apart(own, f"{wait} s are over")
    print(f"exburn.errors.ProcessError: {error}", file=sys.stderr, flush=True)
    os._exit(_LOST)


def _is_alone_on_host() -> bool:
    """Whether the launcher started one process on each host, for all of its GPUs."""
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS") or os.environ.get("SLURM_NTASKS")
    nodes = os.environ.get("SLURM_STEP_NUM_NODES") or os.environ.get("SLURM_NNODES")
    if tasks is not None and nodes is not None:
        return tasks == nodes
    return os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == "1"


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
    return json.loads(text, object_hook=_made)


def _made(found: dict[str, Any]) -> Any:
    if found.keys() != {"$array"}:
        return found
    dtype, shape, text = found["$array"]
    data = np.frombuffer(base64.b64decode(text), jax.numpy.dtype(dtype))
    return data.reshape(shape).copy()


# ---------------------------------------------------------------- loss
class _Watch:
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
                    self._end(_lost(missing, error))
                return
            if missing and not self._over.is_set():
                self._end(_lost(missing))
                return

    def _end(self, error: ProcessError) -> None:
        self.error = error
        self.found.set()
        end = time.monotonic() + _GRACE
        while not self.told and time.monotonic() < end:
            time.sleep(_LOOK_EVERY / 4)
        if not self.told:
            print(f"exburn.errors.ProcessError: {error}", file=sys.stderr, flush=True)
            os._exit(_LOST)
        # Python waits for threads before it ends, such as one that writes a checkpoint.
        while not _is_ending():
            time.sleep(_LOOK_EVERY)
        if not self._over.wait(_FAREWELL):
            sys.stdout.flush()
            os._exit(_LOST)


def _is_ending() -> bool:
    """Whether the program is over, and Python waits for its threads."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame is None or frame.f_code.co_filename == threading.__file__


_watch: _Watch | None = None


def _lost(numbers: set[int], cause: Exception | None = None) -> ProcessError:
    named, one = ", ".join(map(str, sorted(numbers))), len(numbers) == 1
    return ProcessError(
        "distribution",
        f"process{'' if one else 'es'} {named} of {count()} {'is' if one else 'are'} "
        "lost: no sign of life came any more",
        {"this process": index()} | ({} if cause is None else {"cause": cause}),
        hint="Look at that process' output. Checkpoints that were written are intact: "
        'start again with fit(resume="auto"), also with other devices.',
    )


def _is_of_connection(error: BaseException) -> bool:
    """Whether a collective says that it lost another process."""
    text = str(error)
    return any(word in text for word in ("Gloo", "NCCL", "Connection", "UNAVAILABLE"))


def _leave() -> None:
    """Ends the interpreter together with the other processes.

    The one that leads must be the last. After a loss nothing can be waited for: JAX
    would do so for good.
    """
    watch = _watch
    assert watch is not None
    failure = getattr(sys, "last_value", None)  # an exception that nobody caught
    if failure is not None or watch.error is not None:
        status = 1 if watch.error is None else _LOST
        watch.stop()
        if failure is not None:
            tell_failure(failure, _FAREWELL)
        if is_main():  # JAX ends the others at once when this process is gone
            time.sleep(_HEAD_START)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    try:
        messages = _send({"left": True})
        watch.stop()
        together = all("left" in message for message in messages)
        if together and is_main():
            _await_parting()
        if together:
            jax.distributed.shutdown()
    except Exception as error:
        watch.stop()
        print(f"exburn: the processes did not end together: {error}", file=sys.stderr)


def _await_parting() -> None:
    """Waits until the others have let go of this process, which leads."""
    from jax.experimental import multihost_utils

    end, devices = time.monotonic() + _PARTING, jax.devices()
    with contextlib.suppress(multihost_utils.ProcessFailureError):
        while time.monotonic() < end:
            with multihost_utils.live_devices(devices) as alive:
                if len(alive) == len(jax.local_devices()):
                    return
