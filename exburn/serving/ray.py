"""A server as replicas of a Ray cluster: Ray Serve starts, scales and replaces them.

Each replica is a process with a server of its own, compiled for its devices. Ray's
proxies take the connections and share the requests out; how a request is read, batched
and answered is the same as without Ray.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from exburn.core.checks import check_count
from exburn.errors import ArgumentError, require
from exburn.errors.boundary import api_boundary

__all__ = ["deployment"]

if TYPE_CHECKING:
    from exburn.serving.http.server import Server

OP = "ray.deployment"  # in errors


@api_boundary
def deployment(
    server: Server | Callable[[], Server],
    *,
    replicas: int | tuple[int, int] = 1,
    requests_per_replica: int = 256,
    gpus_per_replica: int = 0,
    cpus_per_replica: int = 1,
    **options: Any,
) -> Any:
    """An application of Ray Serve, of replicas that each serve a server's models.

    Ray replaces a replica whose canaries do not come back. ``/metrics`` tells of the
    replica that it reaches; limits of a server hold for each of them.

    Args:
        server: A server, which is sent to the replicas with its models' weights; or a
            function without arguments that makes one there, best for large models and
            for files that every node has.
        replicas: How many, or the least and the most: then as many as the load needs.
        requests_per_replica: Requests under way in a replica; Ray keeps others waiting.
            More than ``batch_size``, or batches are never full. Ray adds replicas where
            more than half of them are under way.
        gpus_per_replica: GPUs of each; 0: replicas compute on CPUs.
        cpus_per_replica: CPUs that Ray sets aside for each.
        **options: Further options of ``ray.serve.deployment``: ``name``,
            ``autoscaling_config``, ``max_queued_requests`` …

    Returns:
        The application, for ``ray.serve.run`` or for ``import_path`` in a
        configuration.

    Raises:
        ArgumentError: An argument that can never work, or a server that cannot be sent.
        MissingDependencyError: Ray Serve is not installed.

    Example:
        >>> def make_server():
        ...     return exburn.serving.Server({"iris": "/models/iris.exburn"})
        >>> def start():
        ...     ray.serve.run(deployment(make_server, replicas=(1, 8)))
        >>> deployment(make_server, replicas=0)
        Traceback (most recent call last):
        exburn.errors.ArgumentError: ray.deployment: replicas must be an integer ≥ 1,
        received 0

    Reference:
        Ray Serve, https://docs.ray.io/en/latest/serve/index.html
    """
    if not (callable(server) or hasattr(server, "asgi")):
        raise ArgumentError(
            OP, f"server must be a Server, or make one, received {server!r}"
        )
    gpus = check_count(OP, "gpus_per_replica", gpus_per_replica, 0)
    cpus = check_count(OP, "cpus_per_replica", cpus_per_replica, 0)
    most = check_count(OP, "requests_per_replica", requests_per_replica)
    options = _scaling(replicas, most) | {"max_ongoing_requests": most} | options
    options.setdefault("name", "exburn")
    options["ray_actor_options"] = {
        "num_cpus": cpus,
        "num_gpus": gpus,
        # Without a GPU of its own a replica must not take another's.
        "runtime_env": {"env_vars": {"JAX_PLATFORMS": "cuda,cpu" if gpus else "cpu"}},
    } | options.get("ray_actor_options", {})
    serve = _serve()

    @serve.deployment(**options)
    @serve.ingress()
    class Replica:
        """A process that Ray starts."""

        def __init__(self, server: Any):
            self.server = server if hasattr(server, "asgi") else server()

        def __serve_build_asgi_app__(self) -> Any:
            return self.server.asgi()

        async def check_health(self) -> None:
            """Ray asks every few seconds, and replaces a replica that raises."""
            if not self.server._health.all_ready():
                raise RuntimeError("a partition does not answer its canaries")

    return Replica.bind(server)


def _scaling(replicas: Any, most: int) -> dict[str, Any]:
    """Ray's options for a number of replicas, or for the least and the most."""
    if not isinstance(replicas, tuple | list):
        return {"num_replicas": check_count(OP, "replicas", replicas)}
    counts = [check_count(OP, "replicas", count, 0) for count in replicas]
    if len(counts) != 2 or counts[0] > counts[1] or counts[1] == 0:
        reason = "replicas must be a number, or the least and the most"
        raise ArgumentError(OP, f"{reason}, received {replicas!r}")
    return {
        "autoscaling_config": {
            "min_replicas": counts[0],
            "max_replicas": counts[1],
            "target_ongoing_requests": max(most // 2, 1),
        }
    }


def _serve() -> Any:
    package = "'ray[serve]'"
    reason = "replicas are started by Ray Serve"
    return require("ray.serve", OP, reason, extra="ray", package=package)
