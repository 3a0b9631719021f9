"""A request and its answer, as far as they are known."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(slots=True)
class Exchange:
    """A request and its answer, for logs, metrics and traces.

    Attributes:
        caller: The key's short name, or the client's address.
        route: What is asked for; empty where nothing is found.
        model, version: What answers.
        received, sent: Bytes of the bodies.
        read: Whether the whole body has come.
        added: Headers that its answer gets, whatever it is.
        status: Of the answer; 499 for a client that left.
        error: What failed, if that is a fault of the server.
    """

    id: str
    method: str
    path: str
    headers: Mapping[bytes, bytes]
    caller: str = ""
    route: str = ""
    model: str = ""
    version: str = ""
    rows: int = 0
    received: int = 0
    sent: int = 0
    read: bool = False
    added: list[tuple[bytes, bytes]] = dataclasses.field(default_factory=list)
    status: int = 499
    error: BaseException | None = None
    began: float = dataclasses.field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """The time that it has taken until now."""
        return time.perf_counter() - self.began

    def fields(self) -> dict[str, Any]:
        """The fields of its line in the log."""
        return {
            "request_id": self.id,
            "method": self.method,
            "path": self.path[:200],
            "status": self.status,
            "ms": round(self.seconds * 1e3, 3),
            "model": self.model,
            "version": self.version,
            "rows": self.rows,
            "received": self.received,
            "sent": self.sent,
            "caller": self.caller,
        }
