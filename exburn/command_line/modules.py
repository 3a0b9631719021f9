"""The option ``--import``, for files that name classes of one's own."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Iterable

from exburn.errors import ArgumentError


def add_import(parser: argparse.ArgumentParser) -> None:
    """Declares ``--import MODULE``."""
    parser.add_argument(
        "--import",
        action="append",
        dest="modules",
        default=[],
        metavar="MODULE",
        help="imported first: registers classes of one's own that the files name",
    )


def import_modules(op: str, modules: Iterable[str]) -> None:
    """Imports modules, also from the current folder."""
    modules = list(modules)
    if modules:
        sys.path.append(os.getcwd())  # last, so that it hides nothing
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise ArgumentError(op, f"--import {module}: {error}") from error
