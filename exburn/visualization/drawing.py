"""Boxes and masks drawn into arrays of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exburn.config import check_format
from exburn.errors import ArgumentError, DTypeError, ShapeError, require, unknown_name
from exburn.errors.boundary import api_boundary

Color = Sequence[int]
# Of a box: which of its four numbers are left, top, right (or width), bottom (height).
_ORDERS = {
    "xyxy": (0, 1, 2, 3),
    "yxyx": (1, 0, 3, 2),
    "xywh": (0, 1, 2, 3),
    "center_xywh": (0, 1, 2, 3),
    "center_yxhw": (1, 0, 3, 2),
}
_FORMATS = [*_ORDERS, *(f"rel_{name}" for name in _ORDERS)]
_PALETTE = np.array([2**25 - 1, 2**15 - 1, 2**21 - 1])  # Keras' colors


@api_boundary
def draw_bounding_boxes(
    images: Any,
    bounding_boxes: Mapping[str, Any],
    bounding_box_format: str,
    class_mapping: Mapping[int, str] | None = None,
    color: Color = (128, 128, 128),
    line_thickness: int = 2,
    text_thickness: int | None = 1,
    font_scale: float = 1.0,
    data_format: str | None = None,
) -> np.ndarray:
    """Images with boxes around what was found in them.

    Args:
        images: [batch, height, width, channels], of one or three channels; floats up
            to 1 are taken as shares of 255.
        bounding_boxes: ``"boxes"`` [batch, boxes, 4], ``"labels"`` [batch, boxes],
            where -1 stands for no box, and perhaps ``"confidences"`` [batch, boxes].
        bounding_box_format: ``"xyxy"``, ``"yxyx"``, ``"xywh"``, ``"center_xywh"``,
            ``"center_yxhw"``, in pixels, or with ``"rel_"`` before it in shares of the
            image.
        class_mapping: Names of labels, which are written beside their boxes.
        color: Red, green, blue.
        line_thickness: Width of a line in pixels.
        text_thickness: Width of the letters' lines, at least 2; the boxes' if None.
        font_scale: Size of the letters: 1 is 22 pixels.
        data_format: ``"channels_last"`` or ``"channels_first"``.

    Returns:
        [batch, height, width, channels] uint8, in the order of the images' axes.

    Raises:
        ShapeError: The images are no batch, or boxes and labels do not fit together.
        ArgumentError: ``bounding_boxes`` has no boxes or no labels.
        UnknownNameError: There is no such format.
        MissingDependencyError: Pillow is not installed.

    Example:
        >>> boxes = {"boxes": [[[2, 2, 7, 7]]], "labels": [[0]]}
        >>> drawn = draw_bounding_boxes(
        ...     np.zeros((1, 10, 10, 3)), boxes, "xyxy", line_thickness=1
        ... )
        >>> int((drawn == 128).all(-1).sum())  # pixels around a square of 6
        20

    Source: ``keras.visualization.draw_bounding_boxes``.
    """
    op = "draw_bounding_boxes"
    pixels, last = as_images(op, images, data_format)
    boxes, labels, confidences = _check_boxes(op, bounding_boxes, len(pixels))
    corners = _corners(op, boxes, bounding_box_format, pixels.shape[1:3])
    drawer = require("PIL.ImageDraw", op, "drawing needs Pillow", package="pillow")
    fonts = require("PIL.ImageFont", op, "drawing needs Pillow", package="pillow")
    image_of = require("PIL.Image", op, "drawing needs Pillow", package="pillow")
    font = fonts.load_default(max(1, round(22 * font_scale)))
    gray = pixels.shape[-1] == 1
    ink: Any = tuple(int(c) for c in color)
    fill = int(np.dot(ink, (0.299, 0.587, 0.114))) if gray else ink
    drawn = []
    for number, pixel in enumerate(pixels):
        picture = image_of.fromarray(pixel[..., 0] if gray else pixel)
        draw = drawer.Draw(picture)
        for box in range(boxes.shape[1]):
            label = int(labels[number, box])
            if label == -1:
                continue
            x1, y1, x2, y2 = (int(v) for v in corners[number, box])
            (x1, x2), (y1, y2) = sorted((x1, x2)), sorted((y1, y2))
            draw.rectangle((x1, y1, x2, y2), outline=fill, width=line_thickness)
            if label not in (class_mapping or {}):
                continue
            text = str((class_mapping or {})[label])
            if confidences is not None:
                text += f" | {confidences[number, box]:.2f}"
            width = max((text_thickness or line_thickness) - 2, 0)
            size = draw.textbbox((0, 0), text, font=font, stroke_width=width)[3]
            above = y1 - size - 2
            place = (x1 + 2, above if above > 0 else y1 + line_thickness + 2)
            draw.text(place, text, fill=fill, font=font, stroke_width=width)
        array = np.asarray(picture)
        drawn.append(array[..., None] if gray else array)
    result = np.stack(drawn) if drawn else pixels
    return result if last else result.transpose(0, 3, 1, 2)


@api_boundary
def draw_segmentation_masks(
    images: Any,
    segmentation_masks: Any,
    num_classes: int | None = None,
    color_mapping: Mapping[int, Color] | None = None,
    alpha: float = 0.8,
    blend: bool = True,
    ignore_index: int = -1,
    data_format: str | None = None,
) -> np.ndarray:
    """Images with the pixels of each class in a color.

    Args:
        images: [batch, height, width, channels], from 0 to 255.
        segmentation_masks: [batch, height, width] or with a last axis of 1: the classes
            of the pixels, from 1 on; 0 is the background, which is not painted.
        num_classes: Classes above it are not painted; all are if None.
        color_mapping: Colors by class, the background's too, if it is to be painted;
            some of its own if None.
        alpha: How much of a painted pixel is color.
        blend: Whether there is anything but color in it.
        ignore_index: A class that is not painted.
        data_format: ``"channels_last"`` or ``"channels_first"``, of images and masks.

    Returns:
        [batch, height, width, channels] uint8, in the order of the images' axes.

    Raises:
        ShapeError: The images are no batch, or the masks have other sizes.
        DTypeError: The masks hold no integers.
        ArgumentError: ``color_mapping`` has no color for a class.

    Example:
        >>> mask = np.array([[[0, 1], [2, -1]]])
        >>> draw_segmentation_masks(
        ...     np.full((1, 2, 2, 1), 100), mask, color_mapping={1: [0], 2: [200]}
        ... )[0, ..., 0].tolist()
        [[100, 20], [180, 100]]

    Source: ``keras.visualization.draw_segmentation_masks``.
    """
    op = "draw_segmentation_masks"
    pixels, last = as_images(op, images, data_format, scale=False)
    masks = np.asarray(segmentation_masks)
    if masks.dtype.kind not in "iu":
        raise DTypeError(op, f"masks must hold integers, received {masks.dtype}")
    if masks.ndim == 4:
        masks = masks[..., 0] if last else masks[:, 0]
    if masks.shape != pixels.shape[:3]:
        raise ShapeError(
            op,
            "masks must have the sizes of the images",
            {"images": pixels.shape, "masks": np.shape(segmentation_masks)},
        )
    exact = pixels.astype(np.float32)
    painted = exact.copy()
    for label in np.unique(masks).tolist():
        chosen = color_mapping or {}
        hidden = label < 0 or label == ignore_index or (label == 0 and 0 not in chosen)
        if hidden or (num_classes is not None and label > num_classes):
            continue
        if color_mapping is not None and label not in color_mapping:
            raise ArgumentError(
                op,
                f"color_mapping has no color for class {label}",
                {"classes with a color": ", ".join(map(str, color_mapping))},
            )
        color = chosen.get(label, (label * _PALETTE) % 255)
        share = alpha if blend else 1.0
        where = masks == label
        paint = np.asarray(color, np.float32)
        if pixels.shape[-1] == 1 and len(paint) == 3:
            paint = paint.mean(keepdims=True)
        painted[where] = exact[where] * (1 - share) + paint * share
    painted = painted.astype(np.uint8)
    return painted if last else painted.transpose(0, 3, 1, 2)


def as_images(
    op: str, images: Any, data_format: str | None, scale: bool = True
) -> tuple[np.ndarray, bool]:
    """A batch of images with channels last, and whether it had been so.

    Args:
        scale: Whether it becomes uint8, floats up to 1 as shares of 255.
    """
    pixels = np.asarray(images)
    if pixels.ndim != 4:
        raise ShapeError(
            op,
            f"images must be a batch of rank 4, received shape {pixels.shape}",
            hint="A single image is image[None].",
        )
    last = check_format(op, data_format) == "channels_last"
    if not last:
        pixels = pixels.transpose(0, 2, 3, 1)
    if scale and pixels.dtype != np.uint8:
        if pixels.dtype.kind not in "iub" and pixels.size and pixels.max() <= 1:
            pixels = pixels.astype(np.float32) * 255
        pixels = np.clip(pixels, 0, 255).astype(np.uint8)
    return pixels, last


def _check_boxes(
    op: str, entries: Any, batch: int
) -> tuple[np.ndarray, np.ndarray, Any]:
    """Boxes, labels and confidences of a dict."""
    if not isinstance(entries, Mapping) or not {"boxes", "labels"} <= entries.keys():
        raise ArgumentError(
            op,
            f"bounding_boxes must be a dict with 'boxes' and 'labels', not {entries!r}",
        )
    boxes = np.asarray(entries["boxes"], np.float64)
    labels = np.asarray(entries["labels"])
    confidences = entries.get("confidences")
    if confidences is not None:
        confidences = np.asarray(confidences)
    fits = boxes.ndim == 3 and boxes.shape[::2] == (batch, 4)
    if not fits or labels.shape != boxes.shape[:2]:
        raise ShapeError(
            op,
            f"boxes must be [{batch}, boxes, 4], and labels [{batch}, boxes]",
            {"boxes": boxes.shape, "labels": labels.shape},
        )
    return boxes, labels, confidences


def _corners(op: str, boxes: np.ndarray, kind: str, sizes: Any) -> np.ndarray:
    """Left, top, right and bottom of boxes, in pixels."""
    if kind not in _FORMATS:
        raise unknown_name("bounding box format", kind, _FORMATS, op=op)
    name = kind.removeprefix("rel_")
    boxes = boxes[..., _ORDERS[name]]
    first, second = boxes[..., :2], boxes[..., 2:]
    if name.startswith("center"):
        first = first - second / 2
    if name.endswith(("wh", "hw")):
        second = first + second
    height, width = sizes
    scale = (width, height) if kind.startswith("rel_") else (1, 1)
    return np.concatenate([first * scale, second * scale], axis=-1)
