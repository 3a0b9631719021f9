"""``model.serve``: a model behind HTTP, in one call."""

from __future__ import annotations

from typing import Any

from exburn.errors.boundary import api_boundary
from exburn.models import Model


@api_boundary
def serve(
    self: Model,
    port: int = 8000,
    *,
    name: str | None = None,
    **options: Any,
) -> None:
    """Serves the model over HTTP until SIGTERM or Ctrl-C.

    The same as ``exburn.serving.Server({model.name: model}, port=port).run()``.

    Args:
        port: Where it listens, on this machine alone unless ``host`` says otherwise.
        name: What requests call the model; its own name by default.
        **options: Those of ``exburn.serving.Server``.

    Raises:
        MissingDependencyError: The packages of ``exburn[server]`` are not installed.
        ArgumentError: An option is not allowed, or the port is in use.
    """
    # Only here, so that the method can be looked at without the server's packages.
    from exburn.serving import Server

    Server({name or self.name: self}, port=port, **options).run()
