"""The models of a server, and their versions."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exburn.core.lazy_names import load_predictor
from exburn.errors import ArgumentError
from exburn.runtime.files.atomic import path_of
from exburn.saving import load_model
from exburn.saving.beside import read_beside
from exburn.serving.http.endpoint import Endpoint
from exburn.serving.http.failures import RequestFailure
from exburn.serving.http.signature import Signature
from exburn.serving.options import ServingOptions
from exburn.serving.server import Serving
from exburn.serving.text import TextStream

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Entry:
    """A version of a model that is served.

    Args:
        owns_text: Whether what writes texts was made for this entry alone.

    Attributes:
        serving: Answers its requests; ``None`` if it only generates.
        stream: What generates, or ``None``.
        text: What writes texts, if that is what generates.
    """

    def __init__(
        self,
        name: str,
        version: str,
        endpoint: Endpoint,
        options: ServingOptions,
        *,
        owns_text: bool = False,
    ):
        self._owns_text = owns_text
        self.name, self.version, self.stream = name, version, endpoint.stream
        self.endpoint, self.text = endpoint, endpoint.text
        self._made_here = not isinstance(endpoint.model, Serving)
        self.serving: Serving | None = None
        if not self._made_here:
            self.serving = endpoint.model
        elif endpoint.model is not None:
            self.serving = Serving(endpoint.model, **vars(options))
        try:
            self.signature = Signature(self.serving, endpoint)
        except BaseException:
            self.close(0)
            raise

    def close(self, timeout: float) -> None:
        """Answers what it was asked, and ends, unless somebody else made it."""
        if self._made_here and self.serving is not None:
            self.serving.close(drain=True, timeout=timeout)
        if self._owns_text and self.text is not None:
            self.text.close(timeout=timeout)


class Registry:
    """Models by name and version; requests never wait for a change of it."""

    def __init__(self, options: ServingOptions):
        self._options = options
        self._models: dict[str, dict[str, Entry]] = {}
        self._lock = threading.Lock()
        self.closed = False

    def __iter__(self) -> Iterator[Entry]:
        return iter([e for v in [*self._models.values()] for e in [*v.values()]])

    def names(self) -> list[str]:
        """The names of the models."""
        return list(self._models)

    def versions(self, name: str) -> list[str]:
        """The versions of a model, the one that was loaded last at the end."""
        return list(self._models.get(name, ()))

    def get(self, name: str, version: str | None = None) -> Entry:
        """A version of a model; the one that was loaded last if none is named."""
        versions = self._models.get(name)
        if not versions:
            raise RequestFailure(404, "there is no such model")
        entry = next(reversed(versions.values())) if version is None else None
        entry = versions.get(version) if version is not None else entry
        if entry is None:
            raise RequestFailure(404, "the model has no such version")
        return entry

    def load(
        self, name: str, model: Any, version: str = "1", *, timeout: float = 30.0
    ) -> Entry:
        """Serves a model, or another one in the place of a version.

        It is compiled first; then requests go to it, and the one whose place it takes
        answers what it was asked.

        Args:
            model: What ``Serving`` takes, a ``Serving``, an ``Endpoint``, or the file
                of a model.
            timeout: Seconds that the one before has for what it was asked.
        """
        for what, text in (("model", name), ("version", version)):
            if not isinstance(text, str) or not _NAME.fullmatch(text):
                raise ArgumentError(
                    "Server",
                    f"the name of a {what} must be of letters, digits, '.', '_' and "
                    f"'-', at most 100, received {text!r}",
                    hint="Give it another: Server({'name': model}), or serve --name.",
                )
        if isinstance(model, str | Path):
            model = _load(model)
        endpoint = Endpoint.of(model, self._options.max_queue)
        if isinstance(endpoint.model, str | Path):
            endpoint = endpoint.of_model(_load(endpoint.model))
        owns_text = not isinstance(model, Endpoint | TextStream)
        options = self._options
        entry = Entry(name, version, endpoint, options, owns_text=owns_text)
        with self._lock:
            if self.closed:
                entry.close(0)
                raise ArgumentError("Server", "the server is closed")
            versions = dict(self._models.get(name, {}))
            before = versions.pop(version, None)
            versions[version] = entry  # the last one is the default
            self._models[name] = versions
        if before is not None:
            before.close(timeout)
        return entry

    def unload(
        self, name: str, version: str | None = None, *, timeout: float = 30.0
    ) -> None:
        """Serves a version of a model no more, or none of them.

        What was asked is answered; requests that come afterwards get 404.
        """
        with self._lock:
            versions = dict(self._models.get(name, {}))
            gone = [v for v in versions if version in (None, v)]
            if not gone:
                what = name if version is None else f"{name}, version {version}"
                raise ArgumentError("Server", f"there is no model {what}")
            entries = [versions.pop(v) for v in gone]
            if versions:
                self._models[name] = versions
            else:
                del self._models[name]
        for entry in entries:
            entry.close(timeout)

    def close(self, timeout: float) -> None:
        """Answers what was asked, and ends all that was made here."""
        with self._lock:
            self.closed = True
        until = time.monotonic() + timeout
        for entry in self:
            entry.close(max(until - time.monotonic(), 0))


def _load(path: str | Path) -> Any:
    """The model of a file; where a predictor of sets lies beside it, that."""
    if read_beside(path_of(path, ".exburn", "Server", exists=True), "Server") is None:
        return load_model(path)
    return load_predictor(path)
