"""Training on a cluster of Ray: workers, restarts and elastic sizes by Ray Train.

Ray starts the workers, notices when one is lost, and starts all of them again, on as
many as there are then. What a run goes on from are ExBurn's own checkpoints, in a
folder that all workers see.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from exburn.core.checks import check_count
from exburn.errors import ArgumentError, require
from exburn.errors.boundary import api_boundary

__all__ = ["fit", "run_folder"]

OP = "ray.fit"  # in errors


@api_boundary
def fit(
    train_fn: Callable[..., Any],
    config: Mapping[str, Any] | None = None,
    *,
    workers: int | tuple[int, int] = 1,
    gpus_per_worker: int = 0,
    cpus_per_worker: int = 1,
    folder: str | Path | None = None,
    max_failures: int = 3,
    **scaling: Any,
) -> Any:
    """Runs a training function in the workers of a Ray cluster, as one JAX program.

    In each worker the devices of all are JAX's, as after ``distribution.initialize``:
    ``compile(mesh="data")`` divides the batch over the whole cluster. Ray is joined as
    by ``ray.init()``: the cluster of ``RAY_ADDRESS``, or one on this machine.

    If a worker is lost, Ray ends the others and runs ``train_fn`` again from its first
    line: with ``resume="auto"`` and a checkpoint in ``run_folder()`` the training goes
    on where it was.

    Args:
        train_fn: Builds, compiles and fits a model; without arguments, or with
            ``config``. It is pickled, and so is what it returns: a History arrives as
            its dict.
        config: What ``train_fn`` is called with.
        workers: How many, or the least and the most: then Ray takes what the cluster
            has, and after a loss what is left. Best is one for each host.
        gpus_per_worker: GPUs of each; 0: workers compute on CPUs.
        cpus_per_worker: CPUs that Ray sets aside for each.
        folder: The run's folder, which all workers see; a new one in
            ``~/ray_results`` by default, which is right on a single machine only.
        max_failures: How often lost workers are replaced; -1: always.
        **scaling: Further options of Ray's ``ScalingConfig``, such as
            ``accelerator_type`` or ``placement_strategy``.

    Returns:
        Ray's ``Result``, whose ``return_value`` is what ``train_fn`` returned in worker
        0, and whose ``path`` is the run's folder.

    Raises:
        ArgumentError: An argument that can never work.
        MissingDependencyError: Ray Train is not installed.
        ray.train.TrainingFailedError: ``train_fn`` failed more than ``max_failures``
            times.

    Example:
        >>> def train():
        ...     model = make_model()
        ...     model.compile("adam", loss="cross_entropy", mesh="data")
        ...     saving = ModelCheckpoint(run_folder() / "checkpoints")
        ...     return model.fit(x, y, callbacks=[saving], resume="auto")
        >>> fit(train, workers=0)
        Traceback (most recent call last):
        exburn.errors.ArgumentError: ray.fit: workers must be an integer ≥ 1, received 0

    Reference:
        Ray Train, https://docs.ray.io/en/latest/train/train.html
    """
    if not callable(train_fn):
        raise ArgumentError(OP, f"train_fn must be a function, received {train_fn!r}")
    workers = _check_workers(workers)
    gpus = check_count(OP, "gpus_per_worker", gpus_per_worker, 0)
    cpus = check_count(OP, "cpus_per_worker", cpus_per_worker, 0)
    failures = check_count(OP, "max_failures", max_failures, -1)
    path = None if folder is None else _absolute(folder)
    train = _ray("ray.train")
    # Ray's own set-up of JAX numbers the GPUs of a worker from 0, so that two workers
    # of one host would both compute on the first: ours meet by themselves.
    alone = _ray("ray.train.v2.jax.config").JaxConfig()
    trainer = _ray("ray.train.v2.jax").JaxTrainer(
        functools.partial(_work, train_fn, config),
        jax_config=alone,
        scaling_config=train.ScalingConfig(
            num_workers=workers,
            use_gpu=gpus > 0,
            resources_per_worker={"CPU": cpus} | ({"GPU": gpus} if gpus else {}),
            **scaling,
        ),
        run_config=train.RunConfig(
            name=path and path.name,
            storage_path=path and str(path.parent),
            failure_config=train.FailureConfig(max_failures=failures),
            # Without a GPU of its own a worker must not take another's.
            worker_runtime_env={
                "env_vars": {"JAX_PLATFORMS": "cuda,cpu" if gpus else "cpu"}
            },
        ),
    )
    return trainer.fit()


@api_boundary
def run_folder() -> Path:
    """The folder of the run, in a training function: all workers see the same one.

    A worker's current directory is its own, so checkpoints belong here.

    Raises:
        MissingDependencyError: Ray Train is not installed.

    Example:
        >>> run_folder()  # doctest: +SKIP
        PosixPath('/shared/runs/mnist')
    """
    return Path(_ray("ray.train").get_context().get_storage().experiment_fs_path)


def _work(train_fn: Callable[..., Any], config: Mapping[str, Any] | None) -> Any:
    """Runs in each worker: meets the others, then trains."""
    from exburn.distribution import initialize  # which imports this module

    context = _ray("ray.train").get_context()
    count, rank = context.get_world_size(), context.get_world_rank()
    if count > 1:
        address = _free_address() if rank == 0 else None
        share = _ray("ray.train.collective").broadcast_from_rank_zero
        initialize(share(address), count, rank)
    result = train_fn() if config is None else train_fn(config)
    return getattr(result, "history", result)


def _free_address() -> str:
    """An address of this host with a port that is free now."""
    with socket.socket() as free:
        free.bind(("", 0))
        return f"{_ray('ray.util').get_node_ip_address()}:{free.getsockname()[1]}"


def _ray(module: str) -> Any:
    reason = "workers are started by Ray Train"
    return require(module, OP, reason, extra="ray", package="'ray[train]'")


def _check_workers(value: Any) -> int | tuple[int, int]:
    if not isinstance(value, (tuple, list)):
        return check_count(OP, "workers", value)
    counts = [check_count(OP, "workers", count) for count in value]
    if len(counts) != 2 or counts[0] > counts[1]:
        reason = "workers must be a number, or the least and the most"
        raise ArgumentError(OP, f"{reason}, received {value!r}")
    return counts[0], counts[1]


def _absolute(folder: str | Path) -> Path:
    if "://" in str(folder):
        raise ArgumentError(
            OP,
            f"folder must be a path that all workers see, received {folder!r}",
            hint="Mount the bucket, or name a folder of a shared file system.",
        )
    return Path(folder).expanduser().absolute()
