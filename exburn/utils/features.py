"""What becomes of one column of a table, or of several that are crossed."""

from __future__ import annotations

from typing import Any

from exburn.core import registry
from exburn.core.checks import check_choice, check_count
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.module.layer import Layer


@register_builtin
class Feature:
    """The way of one column: the layer that reads it, and what becomes of its result.

    Args:
        dtype: Dtype of the column: ``"float32"``, ``"int32"``, ``"string"`` …
        preprocessor: The layer.
        output_mode: ``"float"`` for results that are used as they are, ``"int"`` for
            numbers of categories, ``"one_hot"`` for numbers that become vectors.

    Raises:
        ArgumentError: Another mode, or ``preprocessor`` is no layer.

    Source: ``FeatureSpace.feature`` of Keras.
    """

    def __init__(self, dtype, preprocessor, output_mode):
        self.output_mode = check_choice(
            "Feature", "output_mode", output_mode, ("int", "one_hot", "float")
        )
        if isinstance(preprocessor, dict):
            preprocessor = registry.deserialize(preprocessor)
        if not isinstance(preprocessor, Layer):
            raise ArgumentError(
                "Feature",
                f"preprocessor is a layer, received {type(preprocessor).__name__}",
                hint="exburn.layers has Normalization, StringLookup, Hashing …",
            )
        self.dtype, self.preprocessor = dtype, preprocessor

    def get_config(self) -> dict[str, Any]:
        return {
            "dtype": self.dtype,
            "preprocessor": registry.serialize(self.preprocessor),
            "output_mode": self.output_mode,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Feature:
        return cls(**config)


@register_builtin
class Cross:
    """Features whose combinations are categories of their own.

    Args:
        feature_names: Names of two features or more.
        crossing_dim: Number of categories; combinations are hashed into them.
        output_mode: ``"one_hot"`` for vectors, or ``"int"``.

    Raises:
        ArgumentError: An argument is out of range.

    Source: ``FeatureSpace.cross`` of Keras.
    """

    def __init__(self, feature_names, crossing_dim, output_mode="one_hot"):
        self.output_mode = check_choice(
            "Cross", "output_mode", output_mode, ("int", "one_hot")
        )
        self.feature_names = tuple(feature_names)
        if len(self.feature_names) < 2:
            raise ArgumentError(
                "Cross", f"two features or more are crossed, received {feature_names!r}"
            )
        self.crossing_dim = check_count("Cross", "crossing_dim", crossing_dim)

    @property
    def name(self) -> str:
        """The features' names, with ``_X_`` between them."""
        return "_X_".join(self.feature_names)

    def get_config(self) -> dict[str, Any]:
        return {
            "feature_names": list(self.feature_names),
            "crossing_dim": self.crossing_dim,
            "output_mode": self.output_mode,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Cross:
        return cls(**config)
