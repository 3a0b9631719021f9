"""The network of Oxford's Visual Geometry Group with 19 layers.

Source: Simonyan & Zisserman, *Very Deep Convolutional Networks for Large-Scale Image
Recognition*, 2015.

Example:
    >>> model = VGG19(weights=None, classes=10)  # doctest: +SKIP
"""

from exburn.applications.application import kernels, preprocessing, variant
from exburn.applications.imagenet_utils import decode_predictions
from exburn.applications.vgg import SOURCE, build

__all__ = ["VGG19", "decode_predictions", "preprocess_input"]

VGG19 = variant(
    build,
    "VGG19",
    "vgg19",
    f"The network with 19 layers with weights.\n\n{SOURCE}",
    depths=(2, 2, 4, 4, 4),
    pretrained=kernels(
        "vgg19/vgg19",
        "cbe5617147190e668d6c5d5026f83318",
        "253f8cb515780f3b799900260a226db6",
    ),
)

preprocess_input = preprocessing("caffe")
