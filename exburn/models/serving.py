"""A model behind HTTP, in one call."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exburn.models.model import Model


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
    # On a level above models, and loaded for those who serve.
    serving = importlib.import_module("exburn.serving")
    serving.Server({name or self.name: self}, port=port, **options).run()
