"""Images in rows and columns, with labels, boxes or masks; drawn by matplotlib."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from exburn.errors import ArgumentError, require
from exburn.errors.boundary import api_boundary
from exburn.visualization.drawing import (
    Color,
    as_images,
    draw_bounding_boxes,
    draw_segmentation_masks,
)


@api_boundary
def plot_image_gallery(
    images: Any,
    y_true: Any = None,
    y_pred: Any = None,
    label_map: Mapping[Any, str] | None = None,
    rows: int | None = None,
    cols: int | None = None,
    value_range: tuple[float, float] = (0, 255),
    scale: float = 2,
    path: Any = None,
    show: bool | None = None,
    transparent: bool = True,
    dpi: float = 60,
    legend_handles: Any = None,
    data_format: str | None = None,
) -> Any:
    """Shows images in a grid, or saves the grid as a picture.

    Args:
        images: [batch, height, width, channels].
        y_true, y_pred: Labels of the images, which stand above them.
        label_map: Names of labels; needed for them.
        rows, cols: Of the grid; nearly as many rows as columns by default. What does
            not fit in is left out.
        value_range: The darkest and the lightest value of the images.
        scale: Inches of an image.
        path: A file for the picture, which is not shown then.
        show: Whether it is shown; by default without ``path``.
        transparent: Whether the saved picture has no background.
        dpi: Dots of the saved picture per inch.
        legend_handles: matplotlib's patches for a legend.
        data_format: ``"channels_last"`` or ``"channels_first"``.

    Returns:
        matplotlib's figure, if it is neither saved nor shown.

    Raises:
        ShapeError: The images are no batch.
        ArgumentError: Labels without names, or a picture to be saved and shown.
        MissingDependencyError: matplotlib is not installed.

    Example:
        >>> figure = plot_image_gallery(np.zeros((3, 8, 8, 3)), show=False)
        >>> len(figure.axes)
        4

    Source: ``keras.visualization.plot_image_gallery``.
    """
    op = "plot_image_gallery"
    if path is not None and show:
        raise ArgumentError(op, "the picture is saved or shown: give path or show")
    if (y_true is not None or y_pred is not None) and label_map is None:
        raise ArgumentError(op, "labels need their names: label_map={0: 'cat', …}")
    pixels, _ = as_images(op, images, data_format, scale=False)
    plt = require("matplotlib.pyplot", op, "a gallery needs matplotlib", extra="plot")
    count = len(pixels)
    if rows is None:
        rows = math.ceil(math.sqrt(count) if cols is None else count / cols)
    rows = max(rows, 1)
    cols = cols or max(math.ceil(count / rows), 1)
    shown = _in_bytes(pixels, value_range)
    figure, axes = plt.subplots(
        rows,
        cols,
        figsize=(cols * scale, rows * scale),
        frameon=False,
        layout="tight",
        squeeze=False,
    )
    for axis in axes.flat:
        axis.axis("off")
        axis.margins(x=0, y=0)
    for number, (axis, image) in enumerate(zip(axes.flat, shown, strict=False)):
        gray = image.shape[-1] == 1
        axis.imshow(image[..., 0] if gray else image, cmap="gray" if gray else None)
        titles = []
        for name, labels in (("Label", y_true), ("Pred", y_pred)):
            if labels is not None and number < len(labels):
                label = np.asarray(labels)[number].item()
                titles.append(f"{name}: {(label_map or {}).get(label, 'Unknown')}")
        if titles:
            axis.set_title("  ".join(titles), fontsize=8)
    if legend_handles is not None:
        figure.legend(handles=legend_handles, loc="lower center")
    if path is not None:
        options = {"pad_inches": 0, "bbox_inches": "tight"}
        figure.savefig(path, transparent=transparent, dpi=dpi, **options)
        plt.close(figure)
        return None
    if show is False:
        return figure
    plt.show()
    plt.close(figure)
    return None


@api_boundary
def plot_bounding_box_gallery(
    images: Any,
    bounding_box_format: str,
    y_true: Any = None,
    y_pred: Any = None,
    value_range: tuple[float, float] = (0, 255),
    true_color: Color = (0, 188, 212),
    pred_color: Color = (255, 235, 59),
    line_thickness: int = 2,
    font_scale: float = 1.0,
    text_thickness: int | None = None,
    class_mapping: Mapping[int, str] | None = None,
    ground_truth_mapping: Mapping[int, str] | None = None,
    prediction_mapping: Mapping[int, str] | None = None,
    legend: bool = False,
    legend_handles: Any = None,
    rows: int | None = None,
    cols: int | None = None,
    data_format: str | None = None,
    **kwargs: Any,
) -> Any:
    """Shows images with true and predicted boxes in a grid.

    Args:
        images: [batch, height, width, channels].
        bounding_box_format: As of :func:`draw_bounding_boxes`.
        y_true, y_pred: Boxes, as there.
        value_range: The darkest and the lightest value of the images.
        true_color, pred_color: Colors of the boxes.
        line_thickness, font_scale, text_thickness: As there.
        class_mapping: Names of labels.
        ground_truth_mapping, prediction_mapping: The same of the true, and of the
            predicted boxes alone.
        legend: Whether a legend tells the colors.
        legend_handles: A legend of one's own instead.
        rows, cols, data_format: As of :func:`plot_image_gallery`.
        **kwargs: Further ones, as there.

    Raises:
        ShapeError: The images are no batch, or boxes and labels do not fit together.
        ArgumentError: Two legends, or boxes without labels.
        MissingDependencyError: matplotlib or Pillow is not installed.

    Example:
        >>> boxes = {"boxes": [[[0.1, 0.1, 0.5, 0.5]]], "labels": [[0]]}
        >>> figure = plot_bounding_box_gallery(
        ...     np.zeros((1, 20, 20, 3)), "rel_xyxy", y_true=boxes, show=False
        ... )
        >>> len(figure.axes)
        1

    Source: ``keras.visualization.plot_bounding_box_gallery``.
    """
    op = "plot_bounding_box_gallery"
    patches = require("matplotlib.patches", op, "it needs matplotlib", extra="plot")
    if legend and legend_handles:
        raise ArgumentError(op, "there is one legend: give legend or legend_handles")
    pixels, _ = as_images(op, images, data_format, scale=False)
    pixels = _in_bytes(pixels, value_range)
    draw = functools.partial(
        draw_bounding_boxes,
        bounding_box_format=bounding_box_format,
        line_thickness=line_thickness,
        text_thickness=text_thickness,
        font_scale=font_scale,
        data_format="channels_last",
    )
    for boxes, color, names in (
        (y_true, true_color, ground_truth_mapping or class_mapping),
        (y_pred, pred_color, prediction_mapping or class_mapping),
    ):
        if boxes is not None:
            pixels = draw(pixels, boxes, color=color, class_mapping=names)
    if legend:
        legend_handles = [
            patches.Patch(color=np.array(true_color) / 255, label="Ground Truth"),
            patches.Patch(color=np.array(pred_color) / 255, label="Prediction"),
        ]
    return plot_image_gallery(
        pixels,
        rows=rows,
        cols=cols,
        legend_handles=legend_handles,
        data_format="channels_last",
        **kwargs,
    )


@api_boundary
def plot_segmentation_mask_gallery(
    images: Any,
    num_classes: int | None,
    value_range: tuple[float, float] = (0, 255),
    y_true: Any = None,
    y_pred: Any = None,
    color_mapping: Mapping[int, Color] | None = None,
    blend: bool = True,
    alpha: float = 0.8,
    ignore_index: int = -1,
    data_format: str | None = None,
    **kwargs: Any,
) -> Any:
    """Shows images beside the same with true, and with predicted classes painted.

    Args:
        images: [batch, height, width, channels]; each is a row of the grid.
        num_classes, color_mapping, blend, alpha, ignore_index: As of
            :func:`draw_segmentation_masks`.
        value_range: The darkest and the lightest value of the images.
        y_true, y_pred: Classes of the pixels, as there.
        data_format: ``"channels_last"`` or ``"channels_first"``.
        **kwargs: As of :func:`plot_image_gallery`.

    Raises:
        ShapeError: The images are no batch, or the masks have other sizes.
        MissingDependencyError: matplotlib is not installed.

    Example:
        >>> figure = plot_segmentation_mask_gallery(
        ...     np.zeros((2, 8, 8, 3)), 2, y_true=np.ones((2, 8, 8)), show=False
        ... )
        >>> len(figure.axes)
        4

    Source: ``keras.visualization.plot_segmentation_mask_gallery``.
    """
    op = "plot_segmentation_mask_gallery"
    pixels, last = as_images(op, images, data_format, scale=False)
    pixels = _in_bytes(pixels, value_range)
    columns = [pixels]
    for masks in (y_true, y_pred):
        if masks is None:
            continue
        masks = np.asarray(masks)
        if masks.ndim == 4:
            masks = masks[..., 0] if last else masks[:, 0]
        columns.append(
            draw_segmentation_masks(
                pixels,
                masks.astype(np.int32),
                num_classes,
                color_mapping,
                alpha,
                blend,
                ignore_index,
                "channels_last",
            )
        )
    grid = np.stack(columns, axis=1).reshape(-1, *pixels.shape[1:])
    return plot_image_gallery(
        grid,
        rows=len(pixels),
        cols=len(columns),
        data_format="channels_last",
        **kwargs,
    )


def _in_bytes(pixels: np.ndarray, value_range: tuple[float, float]) -> np.ndarray:
    """The pixels as bytes, the ends of a range as 0 and 255."""
    low, high = value_range
    scaled = (pixels.astype(np.float32) - low) / (high - low) * 255
    return np.clip(scaled, 0, 255).astype(np.uint8)
