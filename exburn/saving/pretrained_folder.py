"""Folders of weights as Hugging Face's libraries have them, here or on a hub."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from exburn.errors import (
    ArgumentError,
    DataError,
    FileFormatError,
    MissingFileError,
    require,
)
from exburn.runtime.files.ordinary import Source
from exburn.runtime.files.together import finish_changes
from exburn.saving.json_text import parse_json

CONFIG, WEIGHTS = "config.json", "model.safetensors"
# Files that say how the inputs of a model are made, and what it writes.
COMPANIONS = (
    "additional_chat_templates/",
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
    "preprocessor_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
)
_MOST_CONFIG = 4 << 20  # bytes
# The files that other libraries look for, in this order; else the only one of a kind.
_NAMES = (
    WEIGHTS,
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_SUFFIXES = (
    (".safetensors",),
    (".weights.h5",),
    (".keras",),
    (".h5", ".hdf5"),
    (".pth", ".pt", ".bin"),
    (".npz",),
)
_FIRST = ("*.safetensors", "*.json", "*.txt", "*.jinja", "tokenizer.model")
_THEN = ("*.bin", "*.h5", "*.keras", "*.pth", "*.pt")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+(?:@[\w./-]+)?")
_FILE = re.compile(
    r".*\.(h5|hdf5|keras|safetensors|pth|pt|bin|npz|json|gguf)", re.IGNORECASE
)


def is_hub_name(text: Any) -> bool:
    """Whether a text has the form of a repository's name on a hub.

    Example:
        >>> is_hub_name("google/vit-base-patch16-224"), is_hub_name("models/vgg.h5")
        (True, False)
    """
    matches = isinstance(text, str) and _REPOSITORY.fullmatch(text) is not None
    matches = (
        matches and ".." not in text
    )  # of a revision: it names a file of the cache
    return matches and not _FILE.fullmatch(text) and not text.startswith((".", "/"))


def local_source(source: Any, op: str) -> Path:
    """The file or folder that a path or the name of a repository means.

    What a killed writer has left to do in a folder is finished.

    Args:
        source: A path, or ``"user/model"``, also ``"user/model@revision"``.

    Raises:
        MissingFileError: There is no such file or folder, and it is no such name.
        DataError: The hub does not have it, or cannot be reached.
        LoadError: The folder's last save was cut off, and cannot be finished.
        MissingDependencyError: A name needs ``huggingface_hub``.
    """
    try:
        text = os.path.expanduser(os.fspath(source))
    except TypeError:
        raise ArgumentError(
            op, f"a path or the name of a repository is needed, received {source!r}"
        ) from None
    if os.path.exists(text):
        path = Path(text)
        if path.is_dir():
            finish_changes(path, op)
        return path
    if not is_hub_name(source):
        raise MissingFileError(op, f"there is no file or folder {text!r}")
    return _download(source, op)


def _download(name: str, op: str) -> Path:
    hub = require(
        "huggingface_hub",
        op,
        f"there is no file or folder {name!r}, and to fetch it from a hub needs "
        "huggingface_hub",
        extra="hub",
    )
    repository, _, revision = name.partition("@")
    options = {"revision": revision or None, "ignore_patterns": ["*/*"]}
    try:
        folder = hub.snapshot_download(
            repository, allow_patterns=list(_FIRST), **options
        )
        if not _candidates(Path(folder)):
            folder = hub.snapshot_download(
                repository, allow_patterns=[*_FIRST, *_THEN], **options
            )
    except Exception as error:  # of the hub's client, or of what it fetches with
        first = (str(error).splitlines() or [""])[0]
        raise DataError(
            op,
            f"{name!r} is no file or folder here, and the hub does not give it",
            {"cause": f"{type(error).__name__}: {first}"},
            hint="Check the name and the network, or give the path of a folder. "
            "HF_ENDPOINT names another hub, HF_TOKEN lets private ones in.",
        ) from error
    return Path(folder)


def find_weights(source: Path, op: str) -> Path:
    """The file of weights that is meant: itself, or the one in a folder.

    Raises:
        MissingFileError: The folder has none.
        ArgumentError: It has several, and none of the usual name.
    """
    if not os.path.isdir(source):
        return source
    for name in _NAMES:
        if (source / name).is_file():
            return source / name
    candidates = _candidates(source)
    if not candidates:
        names = sorted(path.name for path in source.iterdir())[:8]
        raise MissingFileError(
            op,
            f"there are no weights in the folder {os.fspath(source)!r}",
            {"it has": ", ".join(names) or "nothing"},
            hint="It should have model.safetensors, or one file of weights.",
        )
    if len(candidates) > 1:
        raise ArgumentError(
            op,
            f"the folder {os.fspath(source)!r} has several files of weights",
            {"files": ", ".join(path.name for path in candidates)},
            hint="Give the path of one of them.",
        )
    return candidates[0]


def _candidates(folder: Path) -> list[Path]:
    """The files of the first kind of which there are any."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    for suffixes in _SUFFIXES:
        if matches := [path for path in files if path.name.endswith(suffixes)]:
            return matches
    return []


def read_config(folder: Path, op: str) -> tuple[dict[str, Any], str]:
    """What ``config.json`` says, and its text.

    Raises:
        MissingFileError: There is none.
        ModelFormatError: It is damaged.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise MissingFileError(
            op,
            f"the folder {os.fspath(folder)!r} has no {CONFIG}",
            hint="It tells the sizes of the model. Make the model yourself, and pass "
            "the file as weights=.",
        )
    return read_json(path, op)


def read_json(path: Path, op: str) -> tuple[dict[str, Any], str]:
    """What a JSON file of the folder says, and its text.

    Raises:
        ModelFormatError: It is damaged.
    """
    with Source(path, op=op) as file:
        if file.size > _MOST_CONFIG:
            raise FileFormatError(op, f"{path.name} is too large", {"file": path})
        raw = file.read(0, file.size)
    content = parse_json(raw, op, path, path.name)
    if not isinstance(content, dict):
        raise FileFormatError(op, f"{path.name} must hold an object", {"file": path})
    return content, raw.decode()
