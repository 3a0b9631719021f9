"""The package ``release`` of the checkout, which is no part of what is installed."""

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def load(name):
    """A module of ``release``; the checkout is on the path for that alone."""
    sys.path.insert(0, str(ROOT))
    try:
        return importlib.import_module(f"release.{name}")
    finally:
        sys.path.remove(str(ROOT))
