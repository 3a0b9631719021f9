"""Images with what a model says of them: boxes, masks, labels, in galleries."""

from exburn.visualization.drawing import draw_bounding_boxes, draw_segmentation_masks
from exburn.visualization.galleries import (
    plot_bounding_box_gallery,
    plot_image_gallery,
    plot_segmentation_mask_gallery,
)

__all__ = [
    "draw_bounding_boxes",
    "draw_segmentation_masks",
    "plot_bounding_box_gallery",
    "plot_image_gallery",
    "plot_segmentation_mask_gallery",
]
