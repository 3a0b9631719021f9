"""Every layer, under Keras' names.

- Core: ``Dense``, ``deserialize``, ``EinsumDense``, ``Embedding``, ``FlaxLayer``,
  ``Identity``, ``Input``, ``InputLayer``, ``InputSpec``, ``JaxLayer``, ``Lambda``,
  ``Layer``, ``Masking``, ``ModuleLayer``, ``PositionEmbedding``, ``Rescaling``,
  ``ReversibleEmbedding``, ``serialize``, ``TernaryDense``, ``Wrapper``.
- Convolution: ``Conv1D``, ``Conv1DTranspose``, ``Conv2D``, ``Conv2DTranspose``,
  ``Conv3D``, ``Conv3DTranspose``, ``DepthwiseConv1D``, ``DepthwiseConv2D``,
  ``SeparableConv1D``, ``SeparableConv2D``.
- Pooling: ``AdaptiveAveragePooling1D``, ``AdaptiveAveragePooling2D``,
  ``AdaptiveAveragePooling3D``, ``AdaptiveMaxPooling1D``, ``AdaptiveMaxPooling2D``,
  ``AdaptiveMaxPooling3D``, ``AveragePooling1D``, ``AveragePooling2D``,
  ``AveragePooling3D``, ``GlobalAveragePooling1D``, ``GlobalAveragePooling2D``,
  ``GlobalAveragePooling3D``, ``GlobalMaxPooling1D``, ``GlobalMaxPooling2D``,
  ``GlobalMaxPooling3D``, ``MaxPooling1D``, ``MaxPooling2D``, ``MaxPooling3D``.
- Recurrent: ``Bidirectional``, ``ConvLSTM1D``, ``ConvLSTM2D``, ``ConvLSTM3D``, ``GRU``,
  ``GRUCell``, ``LSTM``, ``LSTMCell``, ``RNN``, ``SimpleRNN``, ``SimpleRNNCell``,
  ``StackedRNNCells``, ``TimeDistributed``.
- Attention: ``AdditiveAttention``, ``Attention``, ``GroupedQueryAttention``,
  ``MultiHeadAttention``, ``RotaryEmbedding``.
- Normalization: ``BatchNormalization``, ``GroupNormalization``, ``LayerNormalization``,
  ``RMSNormalization``, ``SpectralNormalization``, ``UnitNormalization``.
- Regularization: ``ActivityRegularization``, ``AlphaDropout``, ``Dropout``,
  ``GaussianDropout``, ``GaussianNoise``, ``SpatialDropout1D``, ``SpatialDropout2D``,
  ``SpatialDropout3D``.
- Reshaping: ``Cropping1D``, ``Cropping2D``, ``Cropping3D``, ``Flatten``, ``Permute``,
  ``RepeatVector``, ``Reshape``, ``UpSampling1D``, ``UpSampling2D``, ``UpSampling3D``,
  ``ZeroPadding1D``, ``ZeroPadding2D``, ``ZeroPadding3D``.
- Merging: ``Add``, ``add``, ``Average``, ``average``, ``Concatenate``, ``concatenate``,
  ``Dot``, ``dot``, ``Maximum``, ``maximum``, ``Minimum``, ``minimum``, ``Multiply``,
  ``multiply``, ``Subtract``, ``subtract``.
- Activation: ``Activation``, ``ELU``, ``LeakyReLU``, ``PReLU``, ``ReLU``, ``Softmax``.
- Preprocessing: ``CategoryEncoding``, ``Discretization``, ``HashedCrossing``,
  ``Hashing``, ``IntegerLookup``, ``MelSpectrogram``, ``Normalization``, ``Pipeline``,
  ``STFTSpectrogram``, ``StringLookup``, ``TextVectorization``.
- Images: ``AugMix``, ``AutoContrast``, ``CenterCrop``,
  ``ContrastLimitedAdaptiveHistogramEqualization``, ``CutMix``, ``Equalization``,
  ``MaxNumBoundingBoxes``, ``MixUp``, ``Mosaic``, ``RandAugment``,
  ``RandomBrightness``, ``RandomColorDegeneration``, ``RandomColorJitter``,
  ``RandomContrast``, ``RandomCrop``, ``RandomElasticTransform``, ``RandomErasing``,
  ``RandomFlip``, ``RandomGaussianBlur``, ``RandomGrayscale``, ``RandomHue``,
  ``RandomInvert``, ``RandomPerspective``, ``RandomPosterization``,
  ``RandomRotation``, ``RandomSaturation``, ``RandomSharpness``, ``RandomShear``,
  ``RandomTranslation``, ``RandomZoom``, ``Resizing``, ``Solarization``.

Keras' second names stand for the same classes, as ``MaxPool2D`` for ``MaxPooling2D``.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from exburn.core import registry
from exburn.core.missing_names import refuser
from exburn.errors.boundary import api_boundary
from exburn.layers.activation.activation import Activation
from exburn.layers.activation.rectified import ELU, LeakyReLU, PReLU, ReLU
from exburn.layers.activation.softmax import Softmax
from exburn.layers.attention import *
from exburn.layers.convolution.conv import Conv1D, Conv2D, Conv3D
from exburn.layers.convolution.depthwise import *
from exburn.layers.convolution.transposed import *
from exburn.layers.core.dense import Dense
from exburn.layers.core.einsum_dense import EinsumDense
from exburn.layers.core.flax_layer import FlaxLayer
from exburn.layers.core.function import Lambda
from exburn.layers.core.identity import Identity, Rescaling
from exburn.layers.core.input import Input, InputLayer
from exburn.layers.core.jax_layer import JaxLayer
from exburn.layers.core.module import ModuleLayer
from exburn.layers.core.ternary_dense import TernaryDense
from exburn.layers.core.wrapper import Wrapper
from exburn.layers.embedding import Embedding, ReversibleEmbedding
from exburn.layers.masking import Masking
from exburn.layers.merging.concatenate import Concatenate, Dot
from exburn.layers.merging.elementwise import *
from exburn.layers.merging.functional import *
from exburn.layers.normalization.batch import BatchNormalization
from exburn.layers.normalization.layer import *
from exburn.layers.normalization.spectral import SpectralNormalization
from exburn.layers.pooling.adaptive import *
from exburn.layers.pooling.global_pooling import *
from exburn.layers.pooling.window import *
from exburn.layers.position_embedding import PositionEmbedding
from exburn.layers.preprocessing.category_encoding import CategoryEncoding
from exburn.layers.preprocessing.discretization import Discretization
from exburn.layers.preprocessing.hashing import HashedCrossing, Hashing
from exburn.layers.preprocessing.image.box_count import MaxNumBoundingBoxes
from exburn.layers.preprocessing.image.colour import *
from exburn.layers.preprocessing.image.distortion import *
from exburn.layers.preprocessing.image.erasing import RandomErasing
from exburn.layers.preprocessing.image.filtering import *
from exburn.layers.preprocessing.image.geometry import *
from exburn.layers.preprocessing.image.histogram import *
from exburn.layers.preprocessing.image.mixing import CutMix, MixUp, Mosaic
from exburn.layers.preprocessing.image.policy import AugMix, RandAugment
from exburn.layers.preprocessing.image.resizing import CenterCrop, RandomCrop, Resizing
from exburn.layers.preprocessing.image.tone import *
from exburn.layers.preprocessing.integer_lookup import IntegerLookup
from exburn.layers.preprocessing.normalization import Normalization
from exburn.layers.preprocessing.pipeline import Pipeline
from exburn.layers.preprocessing.spectrogram import MelSpectrogram, STFTSpectrogram
from exburn.layers.preprocessing.string_lookup import StringLookup
from exburn.layers.preprocessing.text_vectorization import TextVectorization
from exburn.layers.recurrent import *
from exburn.layers.regularization.activity import ActivityRegularization
from exburn.layers.regularization.noise import *
from exburn.layers.reshaping.border import *
from exburn.layers.reshaping.shape import Flatten, Permute, RepeatVector, Reshape
from exburn.layers.reshaping.upsampling import UpSampling1D, UpSampling2D, UpSampling3D
from exburn.module.input_spec import InputSpec
from exburn.module.layer import Layer

# fmt: off
__all__ = [
    "ELU", "GRU", "LSTM", "RNN", "Activation", "ActivityRegularization",
    "AdaptiveAveragePooling1D", "AdaptiveAveragePooling2D", "AdaptiveAveragePooling3D",
    "AdaptiveMaxPooling1D", "AdaptiveMaxPooling2D", "AdaptiveMaxPooling3D", "Add",
    "AdditiveAttention", "AlphaDropout", "Attention", "AugMix", "AutoContrast",
    "Average", "AveragePooling1D", "AveragePooling2D", "AveragePooling3D", "AvgPool1D",
    "AvgPool2D", "AvgPool3D", "BatchNormalization", "Bidirectional", "CategoryEncoding",
    "CenterCrop", "Concatenate", "ContrastLimitedAdaptiveHistogramEqualization",
    "Conv1D", "Conv1DTranspose", "Conv2D", "Conv2DTranspose", "Conv3D",
    "Conv3DTranspose", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "Convolution1D",
    "Convolution1DTranspose", "Convolution2D", "Convolution2DTranspose",
    "Convolution3D", "Convolution3DTranspose", "Cropping1D", "Cropping2D", "Cropping3D",
    "CutMix", "Dense", "DepthwiseConv1D", "DepthwiseConv2D", "Discretization", "Dot",
    "Dropout", "EinsumDense", "Embedding", "Equalization", "Flatten", "FlaxLayer",
    "GRUCell", "GaussianDropout", "GaussianNoise", "GlobalAveragePooling1D",
    "GlobalAveragePooling2D", "GlobalAveragePooling3D", "GlobalAvgPool1D",
    "GlobalAvgPool2D", "GlobalAvgPool3D", "GlobalMaxPool1D", "GlobalMaxPool2D",
    "GlobalMaxPool3D", "GlobalMaxPooling1D", "GlobalMaxPooling2D", "GlobalMaxPooling3D",
    "GroupNormalization", "GroupQueryAttention", "GroupedQueryAttention",
    "HashedCrossing", "Hashing", "Identity", "Input", "InputLayer", "InputSpec",
    "IntegerLookup", "JaxLayer", "LSTMCell", "Lambda", "Layer", "LayerNormalization",
    "LeakyReLU", "Masking", "MaxNumBoundingBoxes", "MaxPool1D", "MaxPool2D",
    "MaxPool3D", "MaxPooling1D", "MaxPooling2D", "MaxPooling3D", "Maximum",
    "MelSpectrogram", "Minimum", "MixUp", "ModuleLayer", "Mosaic", "MultiHeadAttention",
    "Multiply", "Normalization", "PReLU", "Permute", "Pipeline", "PositionEmbedding",
    "RMSNormalization",
    "RandAugment", "RandomBrightness", "RandomColorDegeneration", "RandomColorJitter",
    "RandomContrast", "RandomCrop", "RandomElasticTransform", "RandomErasing",
    "RandomFlip", "RandomGaussianBlur", "RandomGrayscale", "RandomHue", "RandomInvert",
    "RandomPerspective", "RandomPosterization", "RandomRotation", "RandomSaturation",
    "RandomSharpness", "RandomShear", "RandomTranslation", "RandomZoom", "ReLU",
    "RepeatVector", "Rescaling", "Reshape", "Resizing", "ReversibleEmbedding",
    "RotaryEmbedding", "STFTSpectrogram", "SeparableConv1D", "SeparableConv2D",
    "SeparableConvolution1D", "SeparableConvolution2D", "SimpleRNN", "SimpleRNNCell",
    "Softmax", "Solarization", "SpatialDropout1D", "SpatialDropout2D",
    "SpatialDropout3D", "SpectralNormalization", "StackedRNNCells", "StringLookup",
    "Subtract", "TernaryDense", "TextVectorization", "TimeDistributed",
    "UnitNormalization",
    "UpSampling1D", "UpSampling2D", "UpSampling3D", "Wrapper", "ZeroPadding1D",
    "ZeroPadding2D", "ZeroPadding3D", "add", "average", "concatenate", "deserialize",
    "dot", "maximum", "minimum", "multiply", "serialize", "subtract",
]
# fmt: on

# Keras' second names of the same classes
AvgPool1D, AvgPool2D, AvgPool3D = AveragePooling1D, AveragePooling2D, AveragePooling3D
MaxPool1D, MaxPool2D, MaxPool3D = MaxPooling1D, MaxPooling2D, MaxPooling3D
GlobalAvgPool1D = GlobalAveragePooling1D
GlobalAvgPool2D = GlobalAveragePooling2D
GlobalAvgPool3D = GlobalAveragePooling3D
GlobalMaxPool1D = GlobalMaxPooling1D
GlobalMaxPool2D = GlobalMaxPooling2D
GlobalMaxPool3D = GlobalMaxPooling3D
Convolution1D, Convolution2D, Convolution3D = Conv1D, Conv2D, Conv3D
Convolution1DTranspose = Conv1DTranspose
Convolution2DTranspose = Conv2DTranspose
Convolution3DTranspose = Conv3DTranspose
SeparableConvolution1D, SeparableConvolution2D = SeparableConv1D, SeparableConv2D


@api_boundary
def serialize(layer: Layer) -> dict[str, Any]:
    """The layer's class name and configuration; see :func:`deserialize`.

    Args:
        layer: A layer.

    Example:
        >>> serialize(Flatten(name="flat"))["class_name"]
        'Flatten'
    """
    return registry.serialize(layer)


@api_boundary
def deserialize(
    config: dict[str, Any], custom_objects: Mapping[str, Any] | None = None
) -> Layer:
    """Makes a layer from what :func:`serialize` returned; its weights are fresh.

    Args:
        config: The description of a layer.
        custom_objects: Classes and functions by name, besides those registered.

    Raises:
        UnknownNameError: The class is not known.

    Example:
        >>> deserialize(serialize(Dense(3, name="head"))).name
        'head'
    """
    with registry.custom_objects(custom_objects):
        return registry.deserialize(config)


if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(
        __name__,
        {
            "TFSMLayer": (
                "there is no TensorFlow; exburn.predict runs ONNX and StableHLO"
            ),
            "TorchModuleWrapper": "rewrite the module as a Layer",
        },
    )
