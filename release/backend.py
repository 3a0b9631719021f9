"""The build backend: setuptools, whose archives are written anew.

Of the same files and the same version of setuptools they are the same bytes each time
(``archives.py``), and a wheel holds its bill of materials (PEP 770).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from setuptools import build_meta

# What a build asks for beside the two archives, as it is.
from setuptools.build_meta import (
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

from release.archives import repack_sdist, repack_wheel

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None) -> str:
    """Makes a wheel (PEP 517): its name in the folder."""
    name = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    _rewrite(Path(wheel_directory) / name, repack_wheel)
    return name


def build_sdist(sdist_directory, config_settings=None) -> str:
    """Makes an sdist (PEP 517): its name in the folder."""
    name = build_meta.build_sdist(sdist_directory, config_settings)
    _rewrite(Path(sdist_directory) / name, repack_sdist)
    return name


def _rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))
