"""Networks for images that Keras has, with its names, layers and weights; and decoders.

Each is a function that makes a model; ``weights="imagenet"`` downloads Keras' file. The
families are modules: ``applications.resnet`` has ``preprocess_input`` and
``decode_predictions`` of its own. ``GPT2`` and ``Llama`` write texts: docs/text.md.

Example:
    >>> model = MobileNetV2(weights=None, input_shape=(32, 32, 3), classes=10)
    >>> model.name
    'mobilenetv2_1.00_32'
"""

from exburn.applications import (
    convnext,
    densenet,
    efficientnet,
    efficientnet_v2,
    gpt2,
    imagenet_utils,
    inception_resnet_v2,
    inception_v3,
    llama,
    mobilenet,
    mobilenet_v2,
    mobilenet_v3,
    nasnet,
    resnet,
    resnet50,
    resnet_v2,
    vgg16,
    vgg19,
    xception,
)
from exburn.applications.convnext import (
    ConvNeXtBase,
    ConvNeXtLarge,
    ConvNeXtSmall,
    ConvNeXtTiny,
    ConvNeXtXLarge,
)
from exburn.applications.densenet import (
    DenseNet121,
    DenseNet169,
    DenseNet201,
)
from exburn.applications.efficientnet import (
    EfficientNetB0,
    EfficientNetB1,
    EfficientNetB2,
    EfficientNetB3,
    EfficientNetB4,
    EfficientNetB5,
    EfficientNetB6,
    EfficientNetB7,
)
from exburn.applications.efficientnet_v2 import (
    EfficientNetV2B0,
    EfficientNetV2B1,
    EfficientNetV2B2,
    EfficientNetV2B3,
    EfficientNetV2L,
    EfficientNetV2M,
    EfficientNetV2S,
)
from exburn.applications.gpt2 import GPT2
from exburn.applications.inception_resnet_v2 import (
    InceptionResNetV2,
)
from exburn.applications.inception_v3 import (
    InceptionV3,
)
from exburn.applications.llama import Llama
from exburn.applications.mobilenet import (
    MobileNet,
)
from exburn.applications.mobilenet_v2 import (
    MobileNetV2,
)
from exburn.applications.mobilenet_v3 import (
    MobileNetV3Large,
    MobileNetV3Small,
)
from exburn.applications.nasnet import (
    NASNetLarge,
    NASNetMobile,
)
from exburn.applications.resnet import (
    ResNet50,
    ResNet101,
    ResNet152,
)
from exburn.applications.resnet_v2 import (
    ResNet50V2,
    ResNet101V2,
    ResNet152V2,
)
from exburn.applications.vgg16 import (
    VGG16,
)
from exburn.applications.vgg19 import (
    VGG19,
)
from exburn.applications.xception import (
    Xception,
)

__all__ = [
    "ConvNeXtBase",
    "ConvNeXtLarge",
    "ConvNeXtSmall",
    "ConvNeXtTiny",
    "ConvNeXtXLarge",
    "DenseNet121",
    "DenseNet169",
    "DenseNet201",
    "EfficientNetB0",
    "EfficientNetB1",
    "EfficientNetB2",
    "EfficientNetB3",
    "EfficientNetB4",
    "EfficientNetB5",
    "EfficientNetB6",
    "EfficientNetB7",
    "EfficientNetV2B0",
    "EfficientNetV2B1",
    "EfficientNetV2B2",
    "EfficientNetV2B3",
    "EfficientNetV2L",
    "EfficientNetV2M",
    "EfficientNetV2S",
    "GPT2",
    "InceptionResNetV2",
    "InceptionV3",
    "Llama",
    "MobileNet",
    "MobileNetV2",
    "MobileNetV3Large",
    "MobileNetV3Small",
    "NASNetLarge",
    "NASNetMobile",
    "ResNet101",
    "ResNet101V2",
    "ResNet152",
    "ResNet152V2",
    "ResNet50",
    "ResNet50V2",
    "VGG16",
    "VGG19",
    "Xception",
    "convnext",
    "densenet",
    "efficientnet",
    "efficientnet_v2",
    "gpt2",
    "imagenet_utils",
    "inception_resnet_v2",
    "inception_v3",
    "llama",
    "mobilenet",
    "mobilenet_v2",
    "mobilenet_v3",
    "nasnet",
    "resnet",
    "resnet50",
    "resnet_v2",
    "vgg16",
    "vgg19",
    "xception",
]
