"""The types of the keyword arguments that all layers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from exburn.core.annotations import Identifier


class CommonOptions(TypedDict, total=False):
    """Keyword arguments that every layer takes, whatever it lists itself."""

    trainable: bool
    autocast: bool
    input_shape: Sequence[int | None] | None
    batch_input_shape: Sequence[int | None] | None


class UntypedOptions(CommonOptions, total=False):
    """Options of layers that list ``name`` and ``dtype`` themselves."""

    activity_regularizer: Identifier
    input_dim: int | None


class UnnamedOptions(UntypedOptions, total=False):
    """Options of layers that list ``name`` themselves."""

    dtype: Any


class LayerOptions(UnnamedOptions, total=False):
    """Keyword arguments that every layer takes; see ``Layer``."""

    name: str | None


class UnregularizedOptions(CommonOptions, total=False):
    """Options of layers that list ``activity_regularizer`` themselves."""

    dtype: Any
    name: str | None
    input_dim: int | None
