"""Keras' stateful way of calling an optimizer, on top of the pure one."""

from __future__ import annotations


class Eager:
    """Filled in below."""
