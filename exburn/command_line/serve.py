"""Serves saved models over HTTP, by the Open Inference Protocol and OpenAI's API.

  exburn serve iris.exburn mood.keras --port 8000
  exburn serve old.exburn new.exburn --name iris:1 --name iris:2
  exburn serve qwen3-folder --quantize int4 --slots 64 --adapter poems=poems-folder

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
from typing import Any, get_type_hints

from exburn.applications import from_pretrained
from exburn.command_line.modules import add_import, import_modules
from exburn.command_line.output import show
from exburn.errors import ArgumentError
from exburn.runtime.files.ordinary import read_text
from exburn.saving import load_model
from exburn.saving.beside import read_beside
from exburn.serving.http.options import ServerOptions, split_names
from exburn.serving.options import Argument, ServingOptions, number_or_text

_OP = "serve"
_MOST_KEYS = 1 << 20  # bytes of a file of keys
_OF_BATCHES = ("batch_size", "batch_timeout", "partitions", "mesh")


_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def _options() -> dict[str, Argument]:
    """The options of a server that can be written in a command line, by name."""
    hints = {
        **get_type_hints(ServerOptions, include_extras=True),
        **get_type_hints(ServingOptions, include_extras=True),
    }
    return {
        name: argument
        for name, hint in hints.items()
        for argument in getattr(hint, "__metadata__", ())
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="a saved model: .exburn, .keras, .h5, .gguf, a folder of Hugging Face's",
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
    _add_texts(parser)
    for name, argument in _options().items():
        if argument.type is bool:
            parser.add_argument(
                "--" + name.replace("_", "-"),
                action="store_true",
                default=argparse.SUPPRESS,
                help=argument.help,
            )
            continue
        parser.add_argument(
            "--" + name.replace("_", "-"),
            type=argument.type,
            action="extend" if argument.type is split_names else "store",
            metavar=argument.shown,
            default=argparse.SUPPRESS,
            help=argument.help,
        )
    parser.add_argument(
        "--log-level",
        choices=_LEVELS,
        default="INFO",
        help="INFO writes a line for each request, WARNING only what failed (INFO)",
    )


def _add_texts(parser: argparse.ArgumentParser) -> None:
    """Declares the options of models that write texts."""
    texts = parser.add_argument_group("models that write texts")
    texts.add_argument(
        "--slots", type=int, metavar="N", help="texts that are written at once (32)"
    )
    texts.add_argument(
        "--cache",
        type=number_or_text,
        metavar="SIZE",
        help='memory for keys and values, as "20 GB" (2048 tokens a slot)',
    )
    texts.add_argument(
        "--quantize",
        metavar="MODE",
        help="int8, int4, nf4: weights in few bits (as they are)",
    )
    texts.add_argument(
        "--adapter",
        action="append",
        dest="adapters",
        metavar="NAME=FOLDER",
        help="an adapter of peft's, asked for as MODEL:NAME; as often as needed (none)",
    )


def run(options: argparse.Namespace) -> None:
    """Serves until SIGTERM or Ctrl-C."""
    files = _models(options.files, options.names)
    names = (*_options(), "log_level")
    settings = {name: value for name, value in vars(options).items() if name in names}
    if options.api_key_file is not None:
        settings["api_keys"] = _keys(options.api_key_file)
    import_modules(_OP, options.modules)
    with _ends_at_sigterm():
        from exburn.serving import Server

        models = {
            name: {version: _load(file, options) for version, file in versions.items()}
            for name, versions in files.items()
        }
        _check_read(models, settings)
        server = Server(models, **settings)

    def tell(url: str) -> None:
        if options.json:
            show(options, {"models": files, "pid": os.getpid(), "url": url}, "")
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


def _load(file: Path, options: argparse.Namespace) -> Any:
    """What a server takes of a file; one that says all itself as it is."""
    sizes = {"slots": options.slots, "cache": options.cache}
    sizes = {name: size for name, size in sizes.items() if size is not None}
    waiting = {"max_queue": options.max_queue} if "max_queue" in options else {}
    adapters = [_split_adapter(text) for text in options.adapters or ()]
    is_foreign = file.is_dir() or file.suffix == ".gguf"
    if not (is_foreign or sizes or adapters or options.quantize):
        return file
    from exburn.serving import TextStream

    model: Any
    if is_foreign:
        model = from_pretrained(file, quantize=options.quantize)
    else:
        if read_beside(file, _OP) is not None:
            raise ArgumentError(
                _OP,
                f"{file.name} holds sets for its model as it is, which --slots, "
                "--cache, --quantize and --adapter would not serve",
                hint="Leave them out; or save the model alone: model.save(path).",
            )
        model = load_model(file)
        if options.quantize is not None:
            model = model.quantize(options.quantize)
    for name, folder in adapters:
        model.load_adapter(folder, name=name)
    if adapters:
        model.set_adapter(None)  # its own name is the model without any
    if not (sizes or getattr(model, "tokenizer", None) is not None):
        return model
    texts = TextStream(model, **sizes, **waiting)
    texts.warm_up()
    return texts


def _check_read(models: dict[str, dict[str, Any]], settings: dict[str, Any]) -> None:
    """Raises where options are given that nothing of what is served reads.

    Raises:
        ArgumentError: All of it writes texts, and an option is of batches.
    """
    from exburn.serving import TextStream

    unread = [name for name in _OF_BATCHES if name in settings]
    served = [model for versions in models.values() for model in versions.values()]
    if unread and all(isinstance(model, TextStream) for model in served):
        raise ArgumentError(
            _OP,
            f"--{unread[0].replace('_', '-')} is of models that answer batches, and "
            "what is served here writes texts",
            hint="--slots and --cache say how many are written at once.",
        )


def _split_adapter(text: str) -> tuple[str, str]:
    name, equals, folder = text.partition("=")
    if not (name and equals and folder):
        raise ArgumentError(_OP, f"--adapter is NAME=FOLDER, received {text!r}")
    return name, folder


def _models(files: list[Path], names: list[str] | None) -> dict[str, dict[str, Path]]:
    """``{name: {version: file}}``."""
    if names is not None and len(names) != len(files):
        raise ArgumentError(
            _OP, f"--name is needed once for each file: {len(names)} for {len(files)}"
        )
    if names is None:
        called = [(_name_of(file), "1") for file in files]
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


def _name_of(file: Path) -> str:
    """A file's name without its kind; a folder's, in which dots are parts of it."""
    return file.resolve().name if file.is_dir() else file.stem


def _keys(file: Path) -> list[str]:
    """The keys in a file; that it holds none must not open the server to everybody."""
    keys = read_text(file, _OP, _MOST_KEYS).split()
    if not keys:
        raise ArgumentError(_OP, f"{file} holds no API key")
    return keys
