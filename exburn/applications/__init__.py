"""Networks that others have trained: Keras' for images, and further families.

Each of Keras' is a function that makes a model; ``weights="imagenet"`` downloads Keras'
file. EfficientNet-Lite, ViT, BERT, GPT-2, Llama and Decoder are classes, whose
``from_pretrained`` reads a folder of another library; the last three write texts.
All of them know their inputs and classes: ``model.preprocess``, ``model.decode``.
Families are modules: ``applications.resnet`` has ``preprocess_input`` and
``decode_predictions`` of its own.

Example:
    >>> model = MobileNetV2(weights=None, input_shape=(32, 32, 3), classes=10)
    >>> model.name
    'mobilenetv2_1.00_32'
"""

from typing import TYPE_CHECKING

from exburn.applications import (
    bert,
    convnext,
    densenet,
    efficientnet,
    efficientnet_lite,
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
    vit,
    xception,
)
from exburn.applications.bert import BERT
from exburn.applications.convnext import (
    ConvNeXtBase,
    ConvNeXtLarge,
    ConvNeXtSmall,
    ConvNeXtTiny,
    ConvNeXtXLarge,
)
from exburn.applications.decoder import Decoder
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
from exburn.applications.efficientnet_lite import (
    EfficientNetLite,
    EfficientNetLite0,
    EfficientNetLite1,
    EfficientNetLite2,
    EfficientNetLite3,
    EfficientNetLite4,
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
from exburn.applications.pretrained import Pretrained, from_pretrained
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
from exburn.applications.vit import (
    ViT,
    ViTBase16,
    ViTBase32,
    ViTLarge16,
    ViTSmall16,
    ViTTiny16,
)
from exburn.applications.xception import (
    Xception,
)
from exburn.core.missing_names import refuser

__all__ = [
    "BERT",
    "ConvNeXtBase",
    "ConvNeXtLarge",
    "ConvNeXtSmall",
    "ConvNeXtTiny",
    "ConvNeXtXLarge",
    "Decoder",
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
    "EfficientNetLite",
    "EfficientNetLite0",
    "EfficientNetLite1",
    "EfficientNetLite2",
    "EfficientNetLite3",
    "EfficientNetLite4",
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
    "Pretrained",
    "ResNet101",
    "ResNet101V2",
    "ResNet152",
    "ResNet152V2",
    "ResNet50",
    "ResNet50V2",
    "VGG16",
    "VGG19",
    "ViT",
    "ViTBase16",
    "ViTBase32",
    "ViTLarge16",
    "ViTSmall16",
    "ViTTiny16",
    "Xception",
    "bert",
    "convnext",
    "densenet",
    "efficientnet",
    "efficientnet_lite",
    "efficientnet_v2",
    "from_pretrained",
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
    "vit",
    "xception",
]

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
