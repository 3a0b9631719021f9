"""Bounding boxes: their formats, and what is computed with them.

A box is four numbers in the last axis. Inside, boxes are ``"xyxy"``: left, top, right
and bottom, in pixels from the top left corner of the image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from exburn.config import epsilon
from exburn.core.checks import check_choice
from exburn.core.precision import standardize_dtype
from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, ShapeError
from exburn.errors.boundary import api_boundary

__all__ = [
    "affine_transform",
    "clip_to_image_size",
    "compute_ciou",
    "compute_iou",
    "convert_format",
    "crop",
    "decode_deltas_to_boxes",
    "encode_box_to_deltas",
    "pad",
]

#: The formats by their names; ``rel_…`` are parts of the image's width and height.
FORMATS = (
    "xyxy",
    "yxyx",
    "xywh",
    "center_xywh",
    "center_yxhw",
    "rel_xyxy",
    "rel_yxyx",
    "rel_xywh",
    "rel_center_xywh",
)
_ENCODINGS = ("center_xywh", "center_yxhw")


def _check_boxes(op: str, boxes: Any, dtype: Any = None) -> Any:
    boxes = jnp.asarray(boxes, dtype)
    if not boxes.ndim or boxes.shape[-1] != 4:
        raise ShapeError(
            op, "a box is four numbers, the last axis", {"boxes": describe(boxes)}
        )
    return boxes


def _columns(boxes: Any) -> tuple:
    """The four numbers of each box, each ``[..., 1]``."""
    return tuple(jnp.split(boxes, 4, -1))


def _join(*columns: Any) -> Any:
    return jnp.concatenate(jnp.broadcast_arrays(*columns), -1)


@api_boundary
def convert_format(boxes, source, target, height=None, width=None, dtype="float32"):
    """Boxes of one format in another.

    ==================== ===========================================
    ``"xyxy"``           left, top, right, bottom
    ``"yxyx"``           top, left, bottom, right
    ``"xywh"``           left, top, width, height
    ``"center_xywh"``    x and y of the middle, width, height
    ``"center_yxhw"``    y and x of the middle, height, width
    ``"rel_xyxy"``       as ``"xyxy"``, as parts of the image's size; so are
                         ``"rel_yxyx"``, ``"rel_xywh"``, ``"rel_center_xywh"``
    ==================== ===========================================

    Args:
        boxes: The boxes, or a dictionary with ``"boxes"``, whose other entries stay.
        source: Their format.
        target: The format that they get.
        height, width: The image's, if one of the formats is relative and the other not.
        dtype: Of the result.

    Shape:
        boxes: [..., 4] → [..., 4]

    Raises:
        ArgumentError: A format is none of these, or the image's size is missing.
        ShapeError: The last axis does not hold four numbers.

    Example:
        >>> convert_format([10, 20, 30, 60], "xyxy", "xywh").tolist()
        [10.0, 20.0, 20.0, 40.0]
    """
    op = "convert_format"
    if isinstance(boxes, Mapping):
        moved = convert_format(boxes["boxes"], source, target, height, width, dtype)
        return {**boxes, "boxes": moved}
    dtype = standardize_dtype(dtype)
    boxes = _check_boxes(op, boxes, dtype)
    source = check_choice(op, "source", source, FORMATS)
    target = check_choice(op, "target", target, FORMATS)
    was_relative, is_relative = source.startswith("rel_"), target.startswith("rel_")
    if (was_relative or is_relative) and (height is None or width is None):
        raise ArgumentError(
            op,
            "height and width of the image are needed",
            {"source": source, "target": target},
        )
    if source == target:
        return boxes
    left, top, right, bottom = _edges(boxes, source.removeprefix("rel_"))
    if was_relative != is_relative:
        height, width = jnp.asarray(height, dtype), jnp.asarray(width, dtype)
        if was_relative:
            left, right, top, bottom = (
                *(left * width, right * width),
                *(top * height, bottom * height),
            )
        else:
            left, right, top, bottom = (
                *(left / width, right / width),
                *(top / height, bottom / height),
            )
    return _in_format(left, top, right, bottom, target.removeprefix("rel_"))


def _edges(boxes: Any, source: str) -> tuple:
    """Left, top, right and bottom of boxes of an absolute format."""
    a, b, c, d = _columns(boxes)
    if source == "xyxy":
        return a, b, c, d
    if source == "yxyx":
        return b, a, d, c
    if source == "xywh":
        return a, b, a + c, b + d
    x, y, w, h = (a, b, c, d) if source == "center_xywh" else (b, a, d, c)
    return x - w / 2, y - h / 2, x + w / 2, y + h / 2


def _in_format(left, top, right, bottom, target: str) -> Any:
    if target == "xyxy":
        return _join(left, top, right, bottom)
    if target == "yxyx":
        return _join(top, left, bottom, right)
    w, h = right - left, bottom - top
    if target == "xywh":
        return _join(left, top, w, h)
    x, y = left + w / 2, top + h / 2
    return _join(x, y, w, h) if target == "center_xywh" else _join(y, x, h, w)


@api_boundary
def clip_to_image_size(
    bounding_boxes, height=None, width=None, bounding_box_format="xyxy"
):
    """The part of each box that is within the image; boxes without one get label -1.

    Args:
        bounding_boxes: A dictionary with ``"boxes"`` and, if there are any,
            ``"labels"``.
        height, width: The image's; relative boxes need none.
        bounding_box_format: ``"xyxy"`` or ``"rel_xyxy"``.

    Shape:
        boxes: [..., n, 4] → the same; labels: [..., n] or [..., n, classes] → the same

    Raises:
        ArgumentError: The format is another, or the image's size is missing.
        ShapeError: The last axis does not hold four numbers.

    Example:
        >>> boxes = {"boxes": [[-5, 2, 9, 30], [12, 0, 15, 4]], "labels": [3, 1]}
        >>> clipped = clip_to_image_size(boxes, height=10, width=10)
        >>> clipped["boxes"].tolist(), clipped["labels"].tolist()
        ([[0, 2, 9, 10], [10, 0, 10, 4]], [3, -1])
    """
    op = "clip_to_image_size"
    _require_corners(op, bounding_box_format, ("xyxy", "rel_xyxy"))
    boxes = _check_boxes(op, bounding_boxes["boxes"])
    if bounding_box_format == "rel_xyxy":
        height = width = 1
    elif height is None or width is None:
        raise ArgumentError(op, "height and width of the image are needed")
    else:
        height, width = (jnp.asarray(side, boxes.dtype) for side in (height, width))
    left, top, right, bottom = _columns(boxes)
    boxes = _join(
        *(jnp.clip(left, 0, width), jnp.clip(top, 0, height)),
        *(jnp.clip(right, 0, width), jnp.clip(bottom, 0, height)),
    )
    result = {**bounding_boxes, "boxes": boxes}
    if bounding_boxes.get("labels") is not None:
        result["labels"] = _without_empty(boxes, bounding_boxes["labels"])
    return result


def _without_empty(boxes: Any, labels: Any) -> Any:
    """The labels, -1 for boxes without an area."""
    labels = jnp.asarray(labels)
    if not jnp.issubdtype(labels.dtype, jnp.inexact):
        labels = labels.astype(jnp.promote_types(labels.dtype, jnp.int8))
    filled = _area(boxes) > 0
    return jnp.where(
        filled[..., None] if labels.ndim == boxes.ndim else filled, labels, -1
    )


def _area(boxes: Any) -> Any:
    """Areas ``[..., n]`` of boxes ``[..., n, 4]``, x or y first."""
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def _require_corners(op: str, value: Any, formats: tuple = ("xyxy",)) -> None:
    if value not in formats:
        raise ArgumentError(
            op,
            f"bounding_box_format is {' or '.join(formats)}, received {value!r}",
            hint="Convert the boxes with convert_format before and after.",
        )


@api_boundary
def affine_transform(
    boxes,
    angle,
    translate_x,
    translate_y,
    scale,
    shear_x,
    shear_y,
    height,
    width,
    center_x=None,
    center_y=None,
    bounding_box_format="xyxy",
):
    """The smallest upright boxes around boxes that were turned, slanted and moved.

    Args:
        boxes: The boxes.
        angle: By how many degrees each image's boxes turn, anticlockwise.
        translate_x, translate_y: How far they move to the left and up, as parts of
            the image's size less one pixel.
        scale: Factor of the boxes' sizes.
        shear_x, shear_y: Angles of the slants, in degrees.
        height, width: The image's.
        center_x, center_y: The place that stays, as parts of the image's size less
            one pixel; its middle by default.
        bounding_box_format: ``"xyxy"``.

    Shape:
        boxes: [batch, n, 4] and numbers [batch], or [n, 4] and single numbers → the
        same

    Raises:
        ArgumentError: The format is another.
        ShapeError: The last axis does not hold four numbers.

    Example:
        >>> turned = affine_transform(
        ...     [[1.0, 1.0, 3.0, 2.0]], 90.0, 0.0, 0.0, 1.0, 0.0, 0.0, 5, 5
        ... )
        >>> turned.round(4).tolist()
        [[1.0, 1.0, 2.0, 3.0]]
    """
    op = "affine_transform"
    _require_corners(op, bounding_box_format)
    boxes = _check_boxes(op, boxes)
    wide = jnp.promote_types(boxes.dtype, jnp.float32)
    angle, moved_x, moved_y, scale, shear_x, shear_y = (
        jnp.asarray(value, wide)
        for value in (angle, translate_x, translate_y, scale, shear_x, shear_y)
    )
    turn = -jnp.deg2rad(angle)
    slant_x, slant_y = -jnp.deg2rad(shear_x), -jnp.deg2rad(shear_y)
    height, width = jnp.asarray(height, wide), jnp.asarray(width, wide)
    x = (0.5 if center_x is None else center_x) * (width - 1)
    y = (0.5 if center_y is None else center_y) * (height - 1)
    # [[a, b], [c, d]] turns and slants, with determinant 1: its inverse is plain
    a = jnp.cos(turn - slant_y) / jnp.cos(slant_y)
    b = a * jnp.tan(slant_x) + jnp.sin(turn)
    c = -jnp.sin(turn - slant_y) / jnp.cos(slant_y)
    d = jnp.cos(turn) - c * jnp.tan(slant_x)
    to_x, to_y = x - moved_x * (width - 1), y - moved_y * (height - 1)
    x_x, x_y, y_x, y_y = scale * d, scale * -b, scale * -c, scale * a
    matrix = jnp.broadcast_arrays(
        *(x_x, x_y, x - x_x * to_x - x_y * to_y),
        *(y_x, y_y, y - y_x * to_x - y_y * to_y),
    )
    # [batch] → [batch, 1], for all boxes of an image
    matrix = [entry[..., None] if entry.ndim else entry for entry in matrix]
    return around_moved_corners(
        boxes.astype(wide), lambda px, py: _affine(matrix, px, py)
    )


def _affine(matrix, x, y) -> tuple:
    a0, a1, a2, b0, b1, b2 = matrix
    return a0 * x + a1 * y + a2, b0 * x + b1 * y + b2


def around_moved_corners(boxes, move) -> Any:
    """The smallest upright boxes around boxes whose corners were moved.

    Args:
        boxes: Boxes ``[..., n, 4]``, ``"xyxy"``.
        move: Gives the new places ``(x, y)`` of places ``x, y``, each ``[..., n]``.
    """
    left, top, right, bottom = jnp.moveaxis(boxes, -1, 0)
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    x, y = (
        jnp.stack(values, -1)
        for values in zip(*[move(*c) for c in corners], strict=True)
    )
    return jnp.stack([x.min(-1), y.min(-1), x.max(-1), y.max(-1)], -1)


@api_boundary
def crop(boxes, top, left, height, width, bounding_box_format="xyxy"):
    """Boxes in a window of the image: their parts inside, counted from its corner.

    Args:
        boxes: The boxes.
        top, left: Where the window begins.
        height, width: Of the window.
        bounding_box_format: ``"xyxy"``.

    Shape:
        boxes: [..., 4] → [..., 4]

    Raises:
        ArgumentError: The format is another.
        ShapeError: The last axis does not hold four numbers.

    Example:
        >>> crop([[10, 20, 50, 60]], 10, 20, 40, 15).tolist()
        [[0, 10, 15, 40]]
    """
    _require_corners("crop", bounding_box_format)
    x1, y1, x2, y2 = _columns(_check_boxes("crop", boxes))
    return _join(
        *(jnp.clip(x1 - left, 0, width), jnp.clip(y1 - top, 0, height)),
        *(jnp.clip(x2 - left, 0, width), jnp.clip(y2 - top, 0, height)),
    )


@api_boundary
def pad(boxes, top, left, height=None, width=None, bounding_box_format="xyxy"):
    """Boxes in an image that has got borders.

    Args:
        boxes: The boxes.
        top, left: Widths of the borders at the top and on the left.
        height, width: Not used.
        bounding_box_format: ``"xyxy"``.

    Shape:
        boxes: [..., 4] → [..., 4]

    Raises:
        ArgumentError: The format is another.
        ShapeError: The last axis does not hold four numbers.

    Example:
        >>> pad([[10, 20, 50, 60]], 1, 5).tolist()
        [[15, 21, 55, 61]]
    """
    _require_corners("pad", bounding_box_format)
    x1, y1, x2, y2 = _columns(_check_boxes("pad", boxes))
    return _join(x1 + left, y1 + top, x2 + left, y2 + top)


def _size(image_shape: Any) -> tuple:
    return (None, None) if image_shape is None else tuple(image_shape)[:2]


def _check_variance(op: str, variance: Any) -> Any:
    if variance is None:
        return None
    variance = jnp.asarray(variance, jnp.float32)
    if not variance.ndim or variance.shape[-1] != 4:
        raise ArgumentError(op, f"variance is four numbers, received {variance}")
    return variance


@api_boundary
def encode_box_to_deltas(
    anchors,
    boxes,
    anchor_format,
    box_format,
    encoding_format="center_yxhw",
    variance=None,
    image_shape=None,
):
    """How boxes differ from anchors, as a detector learns it.

    ``((middle - anchor_middle) / anchor_size, log(size / anchor_size)) / variance``

    Args:
        anchors: The anchors.
        boxes: The boxes, one an anchor.
        anchor_format, box_format: Their formats, as in :func:`convert_format`.
        encoding_format: ``"center_yxhw"`` or ``"center_xywh"``: the order of the
            deltas.
        variance: Four numbers by which the deltas are divided; None for none.
        image_shape: (height, width, channels), for relative formats.

    Shape:
        anchors: [n, 4], boxes: [n, 4] or [batch, n, 4] → as the boxes

    Raises:
        ArgumentError: A format or ``variance`` is wrong, or the image's size missing.
        ShapeError: The last axis does not hold four numbers.

    Example:
        >>> deltas = encode_box_to_deltas(
        ...     [[0, 0, 10, 10]], [[5, 0, 15, 20]], "xyxy", "xyxy"
        ... )
        >>> deltas.round(3).tolist()
        [[0.5, 0.5, 0.6930000185966492, 0.0]]

    Source: Girshick et al., *Rich Feature Hierarchies for Accurate Object Detection and
    Semantic Segmentation*, 2014.
    """
    op = "encode_box_to_deltas"
    variance = _check_variance(op, variance)
    encoding = check_choice(op, "encoding_format", encoding_format, _ENCODINGS)
    height, width = _size(image_shape)
    anchors = convert_format(anchors, anchor_format, encoding, height, width)
    boxes = convert_format(boxes, box_format, encoding, height, width)
    anchor_size = jnp.maximum(anchors[..., 2:], epsilon())
    size = jnp.maximum(boxes[..., 2:], epsilon())
    move = (boxes[..., :2] - anchors[..., :2]) / anchor_size
    deltas = jnp.concatenate([move, jnp.log(size / anchor_size)], -1)
    return deltas if variance is None else deltas / variance


@api_boundary
def decode_deltas_to_boxes(
    anchors,
    boxes_delta,
    anchor_format,
    box_format,
    encoded_format="center_yxhw",
    variance=None,
    image_shape=None,
):
    """The boxes that :func:`encode_box_to_deltas` made deltas of.

    Args:
        anchors: The anchors, or a dictionary of those of several levels.
        boxes_delta: The deltas, one an anchor; a dictionary if the anchors are one.
        anchor_format: Format of the anchors, as in :func:`convert_format`.
        box_format: The format that the boxes get.
        encoded_format: ``"center_yxhw"`` or ``"center_xywh"``: the order of the deltas.
        variance: Four numbers by which the deltas are multiplied; None for none.
        image_shape: (height, width, channels), for relative formats.

    Shape:
        anchors: [n, 4], boxes_delta: [n, 4] or [batch, n, 4] → as the deltas

    Raises:
        ArgumentError: A format or ``variance`` is wrong, or the image's size missing.
        ShapeError: The last axis does not hold four numbers.

    Example:
        >>> decode_deltas_to_boxes(
        ...     [[0, 0, 10, 10]], [[0.5, 0.5, 0.0, 0.0]], "xyxy", "xyxy"
        ... ).tolist()
        [[5.0, 5.0, 15.0, 15.0]]
    """
    op = "decode_deltas_to_boxes"
    variance = _check_variance(op, variance)
    encoding = check_choice(op, "encoded_format", encoded_format, _ENCODINGS)
    height, width = _size(image_shape)

    def decode(anchors, deltas):
        anchors = convert_format(anchors, anchor_format, encoding, height, width)
        deltas = _check_boxes(op, deltas)
        if variance is not None:
            deltas = deltas * variance
        size = anchors[..., 2:]
        middle = deltas[..., :2] * size + anchors[..., :2]
        boxes = jnp.concatenate([middle, jnp.exp(deltas[..., 2:]) * size], -1)
        return convert_format(boxes, encoding, box_format, height, width)

    if isinstance(anchors, Mapping) and isinstance(boxes_delta, Mapping):
        return {level: decode(a, boxes_delta[level]) for level, a in anchors.items()}
    return decode(anchors, boxes_delta)


@api_boundary
def compute_iou(
    boxes1,
    boxes2,
    bounding_box_format,
    use_masking=False,
    mask_val=-1,
    image_shape=None,
):
    """The area that each two boxes share, as part of the area that they cover.

    Args:
        boxes1, boxes2: The boxes.
        bounding_box_format: The format of both, as in :func:`convert_format`.
        use_masking: Whether pairs with a box of negative numbers alone get
            ``mask_val``.
        mask_val: The value of such pairs.
        image_shape: (height, width, channels), for relative formats.

    Shape:
        boxes1: [n, 4] or [batch, n, 4], boxes2: [m, 4] or [batch, m, 4] → [n, m] or
        [batch, n, m]

    Raises:
        ArgumentError: The format is unknown, or the image's size is missing.
        ShapeError: The boxes have another rank.

    Example:
        >>> compute_iou([[0, 0, 2, 2]], [[1, 0, 3, 2], [5, 5, 6, 6]], "xyxy").round(
        ...     4
        ... ).tolist()
        [[0.33329999446868896, 0.0]]
    """
    op = "compute_iou"
    height, width = _size(image_shape)
    first, second = (
        jnp.asarray(convert_format(boxes, bounding_box_format, "xyxy", height, width))
        for boxes in (boxes1, boxes2)
    )
    for boxes in (first, second):
        if boxes.ndim not in (2, 3):
            raise ShapeError(
                op, "boxes have rank 2, or 3 in a batch", {"boxes": describe(boxes)}
            )
    first, second = first[..., :, None, :], second[..., None, :, :]
    low = jnp.maximum(first[..., :2], second[..., :2])
    high = jnp.minimum(first[..., 2:], second[..., 2:])
    shared = jnp.maximum(high - low, 0).prod(-1)  # [..., n, m]
    covered = _area(first) + _area(second) - shared
    share = shared / (covered + epsilon())
    if not use_masking:
        return share
    absent = (first.max(-1) < 0) | (second.max(-1) < 0)
    return jnp.where(absent, jnp.asarray(mask_val, share.dtype), share)


@api_boundary
def compute_ciou(boxes1, boxes2, bounding_box_format, image_shape=None):
    """The complete intersection over union of two boxes, which a detector maximises.

    ``iou - distance² / diagonal² - alpha * v``: the distance is that of the middles,
    the diagonal that of the smallest box around both, ``v`` compares the proportions.

    Args:
        boxes1, boxes2: The boxes, one beside the other.
        bounding_box_format: The format of both, as in :func:`convert_format`.
        image_shape: (height, width, channels), for relative formats.

    Shape:
        boxes1: [..., 4], boxes2: [..., 4] → [...]

    Raises:
        ArgumentError: The format is unknown, or the image's size is missing.
        ShapeError: The last axis does not hold four numbers.

    Example:
        >>> round(float(compute_ciou([0, 0, 2, 2], [1, 0, 3, 2], "xyxy")), 4)
        0.2564

    Source: Zheng et al., *Distance-IoU Loss: Faster and Better Learning for Bounding
    Box Regression*, 2020.
    """
    height, width = _size(image_shape)
    first, second = (
        convert_format(boxes, bounding_box_format, "xyxy", height, width)
        for boxes in (boxes1, boxes2)
    )
    small = epsilon()
    w1, h1 = first[..., 2] - first[..., 0], first[..., 3] - first[..., 1] + small
    w2, h2 = second[..., 2] - second[..., 0], second[..., 3] - second[..., 1] + small
    low = jnp.maximum(first[..., :2], second[..., :2])
    high = jnp.minimum(first[..., 2:], second[..., 2:])
    shared = jnp.maximum(high - low, 0).prod(-1)
    iou = shared / (w1 * h1 + w2 * h2 - shared + 2 * small)
    low = jnp.minimum(first[..., :2], second[..., :2])
    high = jnp.maximum(first[..., 2:], second[..., 2:])
    diagonal = jnp.square(high - low).sum(-1) + small
    middles = (first[..., :2] + first[..., 2:] - second[..., :2] - second[..., 2:]) / 2
    distance = jnp.square(middles).sum(-1)
    gap = jnp.arctan(w2 / h2) - jnp.arctan(w1 / h1)
    v = 4 / jnp.pi**2 * jnp.square(gap)
    alpha = v / (v - iou + (1 + small))
    return iou - distance / diagonal - alpha * v
