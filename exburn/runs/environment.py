"""Where a run takes place: versions, machine, devices, commit, command."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from typing import Any

import jax

from exburn.runtime.device import device_info

_PACKAGES = "exburn jax jaxlib flax optax orbax-checkpoint numpy safetensors".split()
# Variables that change what programs are; never all of them: others hold secrets.
_VARIABLES = re.compile(r"(JAX|XLA|EXBURN|NCCL)_\w+|CUDA_VISIBLE_DEVICES|TF_GPU_\w+")
_SECRET = re.compile(r"(?i)(key|token|secret|password|passwd|credential)")
_HIDDEN = "(hidden)"


def describe_environment() -> dict[str, Any]:
    """The contents of ``environment.json``.

    Example:
        >>> found = describe_environment()
        >>> found["versions"]["jax"] == jax.__version__
        True
    """
    info = device_info()
    return {
        "versions": {"python": platform.python_version(), **_versions()},
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "host": platform.node(),
        "cpus": os.cpu_count(),
        "device": info["name"],
        "devices": [str(device.device_kind) for device in jax.local_devices()],
        "device_memory_bytes": info["memory_bytes"],
        "processes": jax.process_count(),
        "command": hide_secrets(sys.argv),
        "folder": os.environ.get("PWD"),
        "git": _commit(),
        "variables": {
            name: value
            for name, value in sorted(os.environ.items())
            if _VARIABLES.fullmatch(name) and not _SECRET.search(name)
        },
    }


def hide_secrets(words: list[str]) -> list[str]:
    """A command line without what follows words such as ``--api-key``.

    Example:
        >>> hide_secrets(["train.py", "--api-key", "abc", "--token=x", "--size", "3"])
        ['train.py', '--api-key', '(hidden)', '--token=(hidden)', '--size', '3']
    """
    shown: list[str] = []
    hides = False
    for number, word in enumerate(words):
        name, equals, _ = word.partition("=")
        secret = bool(number) and name.startswith("-") and bool(_SECRET.search(name))
        if hides and not word.startswith("-"):
            shown.append(_HIDDEN)
        else:
            shown.append(f"{name}={_HIDDEN}" if secret and equals else word)
        hides = secret and not equals
    return shown


def _versions() -> dict[str, str]:
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _commit() -> dict[str, Any] | None:
    """The commit of the folder that the process runs in, if it is git's."""

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "--no-optional-locks", *words],
                capture_output=True,
                text=True,
                timeout=2,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    if commit is None:
        return None
    changed = git("status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "changed": changed is None or bool(changed)}
