"""Sending the epochs' logs to a web server."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from exburn.callbacks.contract import Callback
from exburn.callbacks.contract.every import Every, check_every
from exburn.errors import warn

_TIMEOUT = 5.0


class RemoteMonitor(Callback):
    """Posts the logs of every epoch to ``root + path``.

    A server that does not answer within five seconds costs a warning, not the
    training.

    Args:
        root: Address of the server.
        path: Where on it.
        field: Name of the form's field that holds the JSON, unless ``send_as_json``.
        headers: Further HTTP headers.
        send_as_json: Post JSON itself (``application/json``) instead of a form.
        every: Which epochs are sent: all by default. With a filter of steps, seconds or
            chunks the running means within an epoch are, too, with their ``step``.

    Raises:
        CallbackError: ``root`` or ``path`` is no text, or ``root`` no address of HTTP.

    Example:
        >>> monitor = RemoteMonitor("http://localhost:9000", send_as_json=True)
        >>> monitor.request(0, {"loss": 0.5}).data
        b'{"epoch": 0, "loss": 0.5}'
    """

    light = True

    def __init__(
        self,
        root: str = "http://localhost:9000",
        path: str = "/publish/epoch/end/",
        field: str = "data",
        headers: Mapping[str, str] | None = None,
        send_as_json: bool = False,
        *,
        every: int | str | Every | None = None,
    ):
        self.every = check_every("RemoteMonitor", every)
        if self.every is not None and self.every.unit != "epochs":
            self.on_train_batch_end = self._after_batch
        self._epoch = 0
        self.root, self.path, self.field = root, path, field
        self.headers = dict(headers or {})
        self.send_as_json = send_as_json

    def request(self, epoch: int, logs: Mapping[str, Any]) -> urllib.request.Request:
        """The HTTP request for an epoch, counted from 0."""
        text = json.dumps({"epoch": epoch, **logs}, default=float)
        if self.send_as_json:
            data, kind = text, "application/json"
        else:
            data = urllib.parse.urlencode({self.field: text})
            kind = "application/x-www-form-urlencoded"
        headers = {"Content-Type": kind, **self.headers}
        return urllib.request.Request(self.root + self.path, data.encode(), headers)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._send(epoch, logs or {})

    def _after_batch(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._send(self._epoch, {"step": batch + 1, **(logs or {})})

    def _send(self, epoch: int, logs: dict[str, Any]) -> None:
        if not self.writes:
            return
        try:
            request = self.request(epoch, logs)
            urllib.request.urlopen(request, timeout=_TIMEOUT).close()
        except (OSError, urllib.error.URLError) as error:
            warn(f"RemoteMonitor: {self.root} did not take the logs: {error}")
