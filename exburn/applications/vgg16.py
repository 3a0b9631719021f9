"""The network of Oxford's Visual Geometry Group with 16 layers.

Source: Simonyan & Zisserman, *Very Deep Convolutional Networks for Large-Scale Image
Recognition*, 2015.

Example:
    >>> model = VGG16(include_top=False, weights=None, input_shape=(32, 32, 3))
    >>> model.output_shape
    (None, 1, 1, 512)
"""

from exburn.applications.application import kernels, preprocessing, variant
from exburn.applications.imagenet_utils import decode_predictions
from exburn.applications.vgg import SOURCE, build

__all__ = ["VGG16", "decode_predictions", "preprocess_input"]

VGG16 = variant(
    build,
    "VGG16",
    "vgg16",
    f"The network with 16 layers with weights.\n\n{SOURCE}",
    depths=(2, 2, 3, 3, 3),
    pretrained=kernels(
        "vgg16/vgg16",
        "64373286793e3c8b2b4e3219cbf3544b",
        "6d6bbae143d832006294945121d1f1fc",
    ),
)

preprocess_input = preprocessing("caffe")
