"""Answers requests: in the process, in shared batches; and over HTTP."""

from typing import TYPE_CHECKING

from exburn.core.lazy_names import importer
from exburn.errors import require
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
_OF_SERVERS = {
    "exburn.serving.http.endpoint": "Endpoint",
    "exburn.serving.http.images": "Images",
    "exburn.serving.http.server": "Server",
}


def _require_packages() -> None:
    for module in ("starlette", "uvicorn", "httptools", "orjson", "prometheus_client"):
        require(module, "Server", f"HTTP needs {module}", extra="server")


__getattr__ = importer(__name__, _OF_SERVERS, before=_require_packages)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
