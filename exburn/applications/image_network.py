"""The model that Keras' applications are: a graph that knows its images."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Self, cast

from exburn.applications.image_format import ImageFormat, TakesImages
from exburn.core import registry
from exburn.core.registry import register_builtin
from exburn.errors import FileFormatError
from exburn.models import Model
from exburn.models.config import rebuild
from exburn.module.symbolic_tensor import Symbol
from exburn.module.variable import Static


@register_builtin
class ImageNetwork(TakesImages, Model):
    """A functional model for images, with ``preprocess`` and ``decode``.

    Args:
        inputs: The symbol of the images.
        outputs: What is computed from it.
        images: What its images are like.
        name, trainable, dtype: As of ``Model``.

    Attributes:
        has_top: Whether the classifier is part of the model.

    Example:
        >>> from exburn.applications import VGG16
        >>> model = VGG16(weights=None, input_shape=(32, 32, 3), classes=2)
        >>> model.labels = ["cat", "dog"]
        >>> model.decode([[0.25, 0.75]], top=1)
        [[('1', 'dog', 0.75)]]
    """

    _keras_name = "Functional"  # what files of Keras' call such a layer

    def __init__(
        self,
        inputs: Any,
        outputs: Any,
        *,
        images: ImageFormat,
        name: str | None = None,
        trainable: bool = True,
        dtype: Any = None,
    ):
        Model.__init__(
            self, inputs, outputs, name=name, trainable=trainable, dtype=dtype
        )
        self._format = Static(images)

    @property
    def has_top(self) -> bool:
        return self._format.value.has_top

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of the classes; they go into the model's file.

        Raises:
            ArgumentError: They are set to others than as many as the classes.
        """
        return self._format.value.labels

    @labels.setter
    def labels(self, names: Any) -> None:
        self._format = Static(dataclasses.replace(self._format.value, labels=names))

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"images": self._format.value.get_config()}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        """The model of a ``get_config``, with fresh weights.

        Args: as of ``Model.from_config``.

        Raises:
            FileFormatError: It does not tell what the images are like.
        """
        description = config.get("images")
        if not isinstance(description, Mapping):
            raise FileFormatError(
                cls.__name__, f"its images are described by {description!r}"
            )
        images = ImageFormat.from_config(description)
        with registry.custom_objects(custom_objects):
            make = functools.partial(cls, images=images)
            return cast(Self, rebuild(make, config))

    def _with_graph(self, inputs: Any, outputs: Any) -> Model:
        images, at = self._format.value, slice(1, 3)
        if not images.channels_last:
            at = slice(2, 4)
        shape = inputs.shape if isinstance(inputs, Symbol) else ()
        channels = shape[-1 if images.channels_last else 1] if len(shape) == 4 else None
        if channels != images.channels:
            return super()._with_graph(inputs, outputs)
        images = dataclasses.replace(images, sides=shape[at])
        return type(self)(inputs, outputs, images=images, name=self.name)
