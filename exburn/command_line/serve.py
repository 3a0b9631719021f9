"""Serves saved models over HTTP, by the Open Inference Protocol.

  exburn serve iris.exburn mood.keras --port 8000
  exburn serve old.exburn new.exburn --name iris:1 --name iris:2

A name without a version is that of version 1; of several, the last one is the default.
SIGTERM ends it when all that was asked is answered. It writes lines for people in a
terminal, and of JSON elsewhere. docs/server.md tells the rest.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exburn.command_line.modules import add_import, import_modules
from exburn.command_line.output import show
from exburn.errors import ArgumentError
from exburn.runtime.files.ordinary import read_text

__all__ = ["add_arguments", "run"]

_OP = "serve"
_MOST_KEYS = 1 << 20  # bytes of a file of keys


def _value(text: str) -> Any:
    """A number as one, and what has a unit as it is."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _names(text: str) -> list[str]:
    """Names between commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


# Options of Server: what is shown for the value, its type, the help.
_OPTIONS: dict[str, tuple[str, Any, str]] = {
    "host": ("ADDRESS", str, "address to listen at (127.0.0.1: this machine alone)"),
    "port": ("N", int, "port to listen at (8000); 0: a free one"),
    "max_body": ("SIZE", _value, 'most bytes of a body ("8 MB")'),
    "max_rows": ("N", int, "most rows of a request (any)"),
    "rate": ("N", float, "requests per second of each key or address (any)"),
    "max_queue": ("N", int, "requests to a model that may wait (1024)"),
    "max_streams": ("N", int, "answers in parts at once (16)"),
    "max_connections": ("N", int, "connections at once (1000, or half of the files)"),
    "max_memory": ("SIZE", _value, "host memory for requests (half of what is free)"),
    "timeout": ("TIME", _value, 'longest time for an answer ("2 s")'),
    "read_timeout": ("TIME", _value, 'longest time for a request to arrive ("10 s")'),
    "drain": ("TIME", _value, 'how long it goes on after SIGTERM ("20 s")'),
    "canary": ("TIME", _value, 'time within which a test batch must come back ("5 s")'),
    "allowed_hosts": ("NAMES", _names, "names it is asked under, between commas (its)"),
    "cors_origins": ("ORIGINS", _names, "pages from elsewhere that may ask (none)"),
    "batch_size": ("N", int, "most rows of a batch (32)"),
    "batch_timeout": ("TIME", _value, 'how long a row waits for others ("0 s")'),
    "ssl_certfile": ("FILE", str, "certificate for TLS, in PEM (none: no TLS)"),
    "ssl_keyfile": ("FILE", str, "its private key (in the certificate's file)"),
    "partitions": ("N", int, "devices, with a copy of the weights each (all)"),
    "mesh": ("NAME", str, 'divides one copy over all devices: "fsdp"'),
}
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="a saved model: .exburn, .keras, .h5",
    )
    parser.add_argument(
        "--name",
        action="append",
        dest="names",
        metavar="NAME[:VERSION]",
        help="what requests call the model; once for each file (the file's own name)",
    )
    parser.add_argument(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="keys, one a line, of which each request must have one (none are needed)",
    )
    add_import(parser)
    for name, (value, kind, text) in _OPTIONS.items():
        parser.add_argument(
            "--" + name.replace("_", "-"),
            type=kind,
            action="extend" if kind is _names else "store",
            metavar=value,
            default=argparse.SUPPRESS,
            help=text,
        )
    parser.add_argument(
        "--log-level",
        choices=_LEVELS,
        default="INFO",
        help="INFO writes a line for each request, WARNING only what failed (INFO)",
    )


def run(options: argparse.Namespace) -> None:
    """Serves until SIGTERM or Ctrl-C.

    Raises:
        ArgumentError, ModelFormatError, LoadError: An option or a file cannot be used.
        MissingDependencyError: The packages of ``exburn[server]`` are not installed.
    """
    models = _models(options.files, options.names)
    given = vars(options)
    wanted = {name: given[name] for name in (*_OPTIONS, "log_level") if name in given}
    if options.api_key_file is not None:
        wanted["api_keys"] = _keys(options.api_key_file)
    import_modules(_OP, options.modules)
    with _ends_at_sigterm():
        from exburn.serving import Server

        server = Server(models, **wanted)

    def tell(url: str) -> None:
        if options.json:
            show(options, {"models": models, "pid": os.getpid(), "url": url}, "")
            sys.stdout.flush()

    server.run(listening=tell)


@contextlib.contextmanager
def _ends_at_sigterm() -> Iterator[None]:
    """In the block, too, SIGTERM ends the process.

    In a container it is the first process, for which Linux ignores signals that nothing
    handles: models that are being compiled would go on until they are killed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _models(files: list[Path], names: list[str] | None) -> dict[str, dict[str, Path]]:
    """``{name: {version: file}}``."""
    if names is not None and len(names) != len(files):
        raise ArgumentError(
            _OP, f"--name is needed once for each file: {len(names)} for {len(files)}"
        )
    if names is None:
        called = [(file.stem, "1") for file in files]
    else:
        parts = [name.partition(":") for name in names]
        called = [(name, version if colon else "1") for name, colon, version in parts]
    models: dict[str, dict[str, Path]] = {}
    for file, (name, version) in zip(files, called, strict=True):
        versions = models.setdefault(name, {})
        if version in versions:
            raise ArgumentError(
                _OP,
                f"two models are called {name!r}, version {version!r}",
                {"one": versions[version], "another": file},
                hint="--name NAME, or --name NAME:VERSION, once for each file.",
            )
        versions[version] = file
    return models


def _keys(file: Path) -> list[str]:
    """The keys in a file; that it holds none must not open the server to everybody."""
    keys = read_text(file, _OP, _MOST_KEYS).split()
    if not keys:
        raise ArgumentError(_OP, f"{file} holds no API key")
    return keys
