"""Answers requests: in the process, in shared batches; and over HTTP."""

import importlib
from typing import TYPE_CHECKING, Any

from exburn.core.missing_names import missing
from exburn.errors import require
from exburn.errors.boundary import api_boundary
from exburn.serving import ray
from exburn.serving.answer import Answer
from exburn.serving.hooks import emit
from exburn.serving.server import Serving
from exburn.serving.statistics import BucketStatistics, ServingStatistics
from exburn.serving.text import TextStream

if TYPE_CHECKING:
    from exburn.serving.http.endpoint import Endpoint
    from exburn.serving.http.images import Images
    from exburn.serving.http.server import Server

__all__ = [
    "Answer",
    "BucketStatistics",
    "Endpoint",
    "Images",
    "Server",
    "Serving",
    "ServingStatistics",
    "TextStream",
    "emit",
    "ray",
]


# Imported when they are asked for: with packages that only a server needs.
_OF_SERVERS = {"Endpoint": "endpoint", "Images": "images", "Server": "server"}
_NEEDED = ("starlette", "uvicorn", "httptools", "orjson", "prometheus_client")


@api_boundary
def __getattr__(name: str) -> Any:
    if name not in _OF_SERVERS:
        raise missing(__name__, name)
    for module in _NEEDED:
        require(module, "Server", f"HTTP needs {module}", extra="server")
    module = importlib.import_module(f"exburn.serving.http.{_OF_SERVERS[name]}")
    return getattr(module, name)
