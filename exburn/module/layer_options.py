"""The types of the keyword arguments that all layers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from exburn.core.annotations import Identifier


class ShapeOptions(TypedDict, total=False):
    """Shapes that the first layer of a Sequential may be given, as in Keras."""

    input_shape: Sequence[int | None] | None
    batch_input_shape: Sequence[int | None] | None


class InputOptions(ShapeOptions, total=False):
    """Options of ``Layer`` itself, which lists the others."""

    input_dim: int | None


class ModelOptions(InputOptions, total=False):
    """Options of ``Model``, which lists the others."""

    activity_regularizer: Identifier
    autocast: bool


class ContainerOptions(ModelOptions, total=False):
    """Options of models that list ``name`` and the models that they are made of."""

    trainable: bool
    dtype: Any


class CommonOptions(ShapeOptions, total=False):
    """Keyword arguments that every layer takes, whatever it lists itself."""

    trainable: bool
    autocast: bool


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
