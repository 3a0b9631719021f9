"""What image models know of inputs and outputs: sizes, colours, names of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from exburn.applications.image_format import ImageFormat, TakesImages
from exburn.applications.pretrained import Pretrained
from exburn.applications.scaling import Scaling
from exburn.errors import ArgumentError
from exburn.module.variable import Static


class ImageModel(TakesImages, Pretrained):
    """Base of pretrained models for images.

    Subclasses have ``mean``, ``deviation``, ``crop``, ``interpolation``, ``labels``,
    ``resize`` and ``crop_mode`` among the arguments of their constructor, and pass them
    to ``_describe``.

    Args:
        include_top: Whether the classifier is part of the model.
        input_shape: Shape of the images, without the batch.
        classes: Number of classes of the top.
        classifier_activation: Activation of the top; ``None`` for logits.
        mean: Of each channel, of pixels from 0 to 1: for ``preprocess``.
        deviation: The same of their deviations.
        crop: Share of an image's shorter side that ``preprocess`` keeps; ``True`` for
            the middle of what ``resize`` makes; ``None`` for the whole image, whatever
            its form.
        interpolation: ``"nearest"``, ``"bilinear"``, ``"bicubic"``, ``"lanczos"``,
            ``"box"`` or ``"hamming"``, for ``preprocess``.
        labels: Names of the classes, for ``decode``; ImageNet's if None.
        resize: For ``preprocess``: the length of the shorter side, or (height, width),
            before a cut; ``False`` for images as they are.
        crop_mode: ``"center"``, ``"border"`` or ``"squash"``, for a share as ``crop``.

    Attributes:
        has_top: Whether the classifier is part of the model; known by then.
    """

    has_top: bool

    def _describe(
        self,
        shape: Sequence[Any],
        classes: int,
        *,
        mean: Any,
        deviation: Any,
        **options: Any,
    ) -> None:
        """Notes what goes in and comes out.

        Args:
            shape: Of the images.
            classes: How many there are.
            mean, deviation: The constructor's.
            **options: The constructor's others, which ``ImageFormat`` takes.

        Raises:
            ArgumentError: The labels are not as many as the classes, or a value is out
                of range.
        """
        op = type(self).__name__
        channels = shape[-1]
        for name, value in (("mean", mean), ("deviation", deviation)):
            if np.shape(value) not in ((), (1,), (channels,)):
                raise ArgumentError(
                    op,
                    f"{name} has a number for each of {channels} channels, received "
                    f"{value!r}",
                )
        scaling = Scaling(
            tuple(np.broadcast_to(mean, channels).tolist()),
            tuple(np.broadcast_to(deviation, channels).tolist()),
        )
        sides = shape[0], shape[1]
        self._format = Static(
            ImageFormat(op, sides, channels, scaling, classes, self.has_top, **options)
        )
