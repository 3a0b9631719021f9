"""Packages of the checkout that are no part of what is installed."""

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def load(name):
    """A module, as ``release.surface``; the checkout is on the path for that alone."""
    sys.path.insert(0, str(ROOT))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT))
