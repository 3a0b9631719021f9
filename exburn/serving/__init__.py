"""Answers requests: in the process, in shared batches; and over HTTP."""

from typing import TYPE_CHECKING, Any

from exburn.core.missing_names import missing
from exburn.errors import require
from exburn.serving.answer import Answer
from exburn.serving.hooks import emit
from exburn.serving.server import Serving
from exburn.serving.statistics import BucketStatistics, ServingStatistics

if TYPE_CHECKING:
    from exburn.serving.http.server import Server

__all__ = [
    "Answer",
    "BucketStatistics",
    "Server",
    "Serving",
    "ServingStatistics",
    "emit",
]


def __getattr__(name: str) -> Any:
    if name != "Server":
        raise missing(__name__, name)
    for module in ("starlette", "uvicorn", "httptools", "orjson", "prometheus_client"):
        require(module, "Server", f"HTTP needs {module}", extra="server")
    from exburn.serving.http.server import Server

    return Server
