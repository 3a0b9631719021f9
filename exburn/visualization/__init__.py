"""What a model says, drawn: boxes, masks and labels of images, a confusion matrix."""

from typing import TYPE_CHECKING

from exburn.core.missing_names import refuser
from exburn.visualization.drawing import draw_bounding_boxes, draw_segmentation_masks
from exburn.visualization.galleries import (
    plot_bounding_box_gallery,
    plot_image_gallery,
    plot_segmentation_mask_gallery,
)
from exburn.visualization.predictions import (
    confusion_matrix,
    plot_confusion_matrix,
    plot_prediction_images,
    plot_prediction_table,
)

__all__ = [
    "confusion_matrix",
    "draw_bounding_boxes",
    "draw_segmentation_masks",
    "plot_bounding_box_gallery",
    "plot_confusion_matrix",
    "plot_image_gallery",
    "plot_prediction_images",
    "plot_prediction_table",
    "plot_segmentation_mask_gallery",
]

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
