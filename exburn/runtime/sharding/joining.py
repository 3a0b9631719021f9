"""Joining the other processes of a run, and leaving together with them."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import importlib.util
import os
import secrets
import sys
import threading
import time
from typing import Any

import jax

from exburn.errors import ArgumentError, ProcessError
from exburn.errors.boundary import api_boundary
from exburn.runtime.sharding.liveness import FAREWELL, GRACE, LOST, begin_watch, watch
from exburn.runtime.sharding.processes import (
    broadcast,
    farewell,
    is_main,
    tell_failure,
)

_KERAS = "KERAS_DISTRIBUTION_"
_HEAD_START = 2.0  # seconds for the others to end by themselves, before process 0
_PARTING = 20.0  # seconds in which all others let go of process 0


@dataclasses.dataclass(frozen=True)
class _Cluster:
    """What this process joined: the values it gave, and the seed that all share."""

    arguments: tuple[str | None, int | None, int | None]
    seed: int


_cluster: _Cluster | None = None


@api_boundary
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
        >>> is_main()
        True
    """
    global _cluster
    address, number, own = _find_cluster(job_addresses, num_processes, process_id)
    arguments = address, number, own
    if _cluster is not None:
        if _cluster.arguments != arguments:
            raise ArgumentError(
                "initialize",
                "this process has joined others already",
                {"then": _describe(*_cluster.arguments), "now": _describe(*arguments)},
                hint="Call it once, at the beginning of the program.",
            )
        return
    if number == 1 and address is None:
        _cluster = _Cluster(arguments, secrets.randbits(32))
        return
    if not jax.distributed.is_initialized():
        if not _may_be_found(address, number, own):
            raise _not_found(address, number, own)
        _join(address, number, own, heartbeat_timeout, timeout)
    _cluster = _Cluster(arguments, broadcast(secrets.randbits(32)))


def shared_seed() -> int | None:
    """A random seed that all processes know; ``None`` before ``initialize``."""
    return None if _cluster is None else _cluster.seed


# ---------------------------------------------------------------- finding the others
def _find_cluster(
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
        hosts = [part.strip() for part in addresses.split(",")]
        if len(hosts) > 1 and number not in (None, len(hosts)):
            raise ArgumentError(
                "initialize",
                f"job_addresses names {len(hosts)} processes, num_processes is "
                f"{number}",
            )
        if len(hosts) > 1:
            number = len(hosts)
        address = hosts[0]
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


def _describe(address: str | None, number: int | None, own: int | None) -> str:
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
    present = [name in os.environ for name in _LOOKED_AT[cluster]]
    if cluster == "Kubernetes":
        return all(present) and importlib.util.find_spec("kubernetes") is not None
    if cluster == "cloud TPU":  # some ask Google's metadata, as JAX knows how to
        return any(present) or importlib.util.find_spec("libtpu") is not None
    return all(present)


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
    values = {
        name: jax.config.values[name]
        for name in ("jax_cuda_visible_devices", "jax_rocm_visible_devices")
    }
    late = threading.Timer(wait, _give_up, (_describe(address, number, own), wait))
    late.daemon = True
    late.start()
    try:
        jax.distributed.initialize(
            coordinator_address=address,
            num_processes=number,
            process_id=own,
            initialization_timeout=int(wait + GRACE),
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
        raise _apart(_describe(address, number, own), error) from error
    finally:
        late.cancel()
    if _is_alone_on_host() and "JAX_LOCAL_DEVICE_IDS" not in os.environ:
        for name, value in values.items():  # JAX takes one GPU for a process by itself
            jax.config.update(name, value)
    if jax.process_count() > 1:
        begin_watch(heartbeat)
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
    os._exit(LOST)


def _is_alone_on_host() -> bool:
    """Whether the launcher started one process on each host, for all of its GPUs."""
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS") or os.environ.get("SLURM_NTASKS")
    nodes = os.environ.get("SLURM_STEP_NUM_NODES") or os.environ.get("SLURM_NNODES")
    if tasks is not None and nodes is not None:
        return tasks == nodes
    return os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == "1"


# ---------------------------------------------------------------- leaving
def _leave() -> None:
    """Ends the interpreter together with the other processes.

    The one that leads must be the last. After a loss nothing can be waited for: JAX
    would do so for good.
    """
    others = watch()
    assert others is not None
    failure = getattr(sys, "last_value", None)  # an exception that nobody caught
    if failure is not None or others.error is not None:
        status = 1 if others.error is None else LOST
        others.stop()
        if failure is not None:
            tell_failure(failure, FAREWELL)
        if is_main():  # JAX ends the others at once when this process is gone
            time.sleep(_HEAD_START)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    try:
        together = farewell()
        others.stop()
        if together and is_main():
            _await_parting()
        if together:
            jax.distributed.shutdown()
    except Exception as error:
        others.stop()
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
