"""Every layer, under Keras' names.

- Core: ``Dense``, ``deserialize``, ``EinsumDense``, ``Embedding``, ``FlaxLayer``,
  ``Identity``, ``Input``, ``InputLayer``, ``InputSpec``, ``JaxLayer``, ``Lambda``,
  ``Layer``, ``Masking``, ``MixtureOfExperts``, ``ModuleLayer``, ``ODE``,
  ``PositionEmbedding``, ``Rescaling``, ``ReversibleEmbedding``, ``RouterLosses``,
  ``serialize``, ``TernaryDense``, ``Wrapper``.
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
from exburn.core.lazy_names import importer
from exburn.errors.boundary import api_boundary
from exburn.module.input_spec import InputSpec
from exburn.module.layer import Layer

if TYPE_CHECKING:
    from exburn.layers.activation.activation import (
        Activation,
    )
    from exburn.layers.activation.rectified import (
        ELU,
        LeakyReLU,
        PReLU,
        ReLU,
    )
    from exburn.layers.activation.softmax import (
        Softmax,
    )
    from exburn.layers.attention.dot_product import (
        AdditiveAttention,
        Attention,
    )
    from exburn.layers.attention.grouped_query import (
        GroupedQueryAttention,
        GroupQueryAttention,
    )
    from exburn.layers.attention.multi_head import (
        MultiHeadAttention,
    )
    from exburn.layers.attention.rotary import (
        RotaryEmbedding,
    )
    from exburn.layers.convolution.conv import (
        Conv1D,
        Conv2D,
        Conv3D,
    )
    from exburn.layers.convolution.conv import (
        Conv1D as Convolution1D,
    )
    from exburn.layers.convolution.conv import (
        Conv2D as Convolution2D,
    )
    from exburn.layers.convolution.conv import (
        Conv3D as Convolution3D,
    )
    from exburn.layers.convolution.depthwise import (
        DepthwiseConv1D,
        DepthwiseConv2D,
        SeparableConv1D,
        SeparableConv2D,
    )
    from exburn.layers.convolution.depthwise import (
        SeparableConv1D as SeparableConvolution1D,
    )
    from exburn.layers.convolution.depthwise import (
        SeparableConv2D as SeparableConvolution2D,
    )
    from exburn.layers.convolution.transposed import (
        Conv1DTranspose,
        Conv2DTranspose,
        Conv3DTranspose,
    )
    from exburn.layers.convolution.transposed import (
        Conv1DTranspose as Convolution1DTranspose,
    )
    from exburn.layers.convolution.transposed import (
        Conv2DTranspose as Convolution2DTranspose,
    )
    from exburn.layers.convolution.transposed import (
        Conv3DTranspose as Convolution3DTranspose,
    )
    from exburn.layers.core.dense import (
        Dense,
    )
    from exburn.layers.core.einsum_dense import (
        EinsumDense,
    )
    from exburn.layers.core.flax_layer import (
        FlaxLayer,
    )
    from exburn.layers.core.function import (
        Lambda,
    )
    from exburn.layers.core.identity import (
        Identity,
        Rescaling,
    )
    from exburn.layers.core.input import (
        Input,
        InputLayer,
    )
    from exburn.layers.core.jax_layer import (
        JaxLayer,
    )
    from exburn.layers.core.mixture_of_experts import (
        MixtureOfExperts,
        RouterLosses,
    )
    from exburn.layers.core.module import (
        ModuleLayer,
    )
    from exburn.layers.core.ode import (
        ODE,
    )
    from exburn.layers.core.ternary_dense import (
        TernaryDense,
    )
    from exburn.layers.core.wrapper import (
        Wrapper,
    )
    from exburn.layers.embedding import (
        Embedding,
        ReversibleEmbedding,
    )
    from exburn.layers.masking import (
        Masking,
    )
    from exburn.layers.merging.concatenate import (
        Concatenate,
        Dot,
    )
    from exburn.layers.merging.elementwise import (
        Add,
        Average,
        Maximum,
        Minimum,
        Multiply,
        Subtract,
    )
    from exburn.layers.merging.functional import (
        add,
        average,
        concatenate,
        dot,
        maximum,
        minimum,
        multiply,
        subtract,
    )
    from exburn.layers.normalization.batch import (
        BatchNormalization,
    )
    from exburn.layers.normalization.layer import (
        GroupNormalization,
        LayerNormalization,
        RMSNormalization,
        UnitNormalization,
    )
    from exburn.layers.normalization.spectral import (
        SpectralNormalization,
    )
    from exburn.layers.pooling.adaptive import (
        AdaptiveAveragePooling1D,
        AdaptiveAveragePooling2D,
        AdaptiveAveragePooling3D,
        AdaptiveMaxPooling1D,
        AdaptiveMaxPooling2D,
        AdaptiveMaxPooling3D,
    )
    from exburn.layers.pooling.global_pooling import (
        GlobalAveragePooling1D,
        GlobalAveragePooling2D,
        GlobalAveragePooling3D,
        GlobalMaxPooling1D,
        GlobalMaxPooling2D,
        GlobalMaxPooling3D,
    )
    from exburn.layers.pooling.global_pooling import (
        GlobalAveragePooling1D as GlobalAvgPool1D,
    )
    from exburn.layers.pooling.global_pooling import (
        GlobalAveragePooling2D as GlobalAvgPool2D,
    )
    from exburn.layers.pooling.global_pooling import (
        GlobalAveragePooling3D as GlobalAvgPool3D,
    )
    from exburn.layers.pooling.global_pooling import (
        GlobalMaxPooling1D as GlobalMaxPool1D,
    )
    from exburn.layers.pooling.global_pooling import (
        GlobalMaxPooling2D as GlobalMaxPool2D,
    )
    from exburn.layers.pooling.global_pooling import (
        GlobalMaxPooling3D as GlobalMaxPool3D,
    )
    from exburn.layers.pooling.window import (
        AveragePooling1D,
        AveragePooling2D,
        AveragePooling3D,
        MaxPooling1D,
        MaxPooling2D,
        MaxPooling3D,
    )
    from exburn.layers.pooling.window import (
        AveragePooling1D as AvgPool1D,
    )
    from exburn.layers.pooling.window import (
        AveragePooling2D as AvgPool2D,
    )
    from exburn.layers.pooling.window import (
        AveragePooling3D as AvgPool3D,
    )
    from exburn.layers.pooling.window import (
        MaxPooling1D as MaxPool1D,
    )
    from exburn.layers.pooling.window import (
        MaxPooling2D as MaxPool2D,
    )
    from exburn.layers.pooling.window import (
        MaxPooling3D as MaxPool3D,
    )
    from exburn.layers.position_embedding import (
        PositionEmbedding,
    )
    from exburn.layers.preprocessing.category_encoding import (
        CategoryEncoding,
    )
    from exburn.layers.preprocessing.discretization import (
        Discretization,
    )
    from exburn.layers.preprocessing.hashing import (
        HashedCrossing,
        Hashing,
    )
    from exburn.layers.preprocessing.image.box_count import (
        MaxNumBoundingBoxes,
    )
    from exburn.layers.preprocessing.image.colour import (
        RandomColorDegeneration,
        RandomColorJitter,
        RandomGrayscale,
        RandomHue,
        RandomSaturation,
    )
    from exburn.layers.preprocessing.image.distortion import (
        RandomElasticTransform,
        RandomPerspective,
    )
    from exburn.layers.preprocessing.image.erasing import (
        RandomErasing,
    )
    from exburn.layers.preprocessing.image.filtering import (
        RandomGaussianBlur,
        RandomSharpness,
    )
    from exburn.layers.preprocessing.image.geometry import (
        RandomFlip,
        RandomRotation,
        RandomShear,
        RandomTranslation,
        RandomZoom,
    )
    from exburn.layers.preprocessing.image.histogram import (
        AutoContrast,
        ContrastLimitedAdaptiveHistogramEqualization,
        Equalization,
    )
    from exburn.layers.preprocessing.image.mixing import (
        CutMix,
        MixUp,
        Mosaic,
    )
    from exburn.layers.preprocessing.image.policy import (
        AugMix,
        RandAugment,
    )
    from exburn.layers.preprocessing.image.resizing import (
        CenterCrop,
        RandomCrop,
        Resizing,
    )
    from exburn.layers.preprocessing.image.tone import (
        RandomBrightness,
        RandomContrast,
        RandomInvert,
        RandomPosterization,
        Solarization,
    )
    from exburn.layers.preprocessing.integer_lookup import (
        IntegerLookup,
    )
    from exburn.layers.preprocessing.normalization import (
        Normalization,
    )
    from exburn.layers.preprocessing.pipeline import (
        Pipeline,
    )
    from exburn.layers.preprocessing.spectrogram import (
        MelSpectrogram,
        STFTSpectrogram,
    )
    from exburn.layers.preprocessing.string_lookup import (
        StringLookup,
    )
    from exburn.layers.preprocessing.text_vectorization import (
        TextVectorization,
    )
    from exburn.layers.recurrent.bidirectional import (
        Bidirectional,
    )
    from exburn.layers.recurrent.conv_lstm import (
        ConvLSTM1D,
        ConvLSTM2D,
        ConvLSTM3D,
    )
    from exburn.layers.recurrent.gru import (
        GRU,
        GRUCell,
    )
    from exburn.layers.recurrent.lstm import (
        LSTM,
        LSTMCell,
    )
    from exburn.layers.recurrent.rnn import (
        RNN,
    )
    from exburn.layers.recurrent.simple_rnn import (
        SimpleRNN,
        SimpleRNNCell,
    )
    from exburn.layers.recurrent.stacked import (
        StackedRNNCells,
    )
    from exburn.layers.recurrent.time_distributed import (
        TimeDistributed,
    )
    from exburn.layers.regularization.activity import (
        ActivityRegularization,
    )
    from exburn.layers.regularization.noise import (
        AlphaDropout,
        Dropout,
        GaussianDropout,
        GaussianNoise,
        SpatialDropout1D,
        SpatialDropout2D,
        SpatialDropout3D,
    )
    from exburn.layers.reshaping.border import (
        Cropping1D,
        Cropping2D,
        Cropping3D,
        ZeroPadding1D,
        ZeroPadding2D,
        ZeroPadding3D,
    )
    from exburn.layers.reshaping.shape import (
        Flatten,
        Permute,
        RepeatVector,
        Reshape,
    )
    from exburn.layers.reshaping.upsampling import (
        UpSampling1D,
        UpSampling2D,
        UpSampling3D,
    )

# Imported when they are first used; ``A=B`` is Keras' second name of a class.
_LAZY_NAMES = {
    "exburn.layers.activation.activation": "Activation",
    "exburn.layers.activation.rectified": "ELU LeakyReLU PReLU ReLU",
    "exburn.layers.activation.softmax": "Softmax",
    "exburn.layers.attention.dot_product": "AdditiveAttention Attention",
    "exburn.layers.attention.grouped_query": (
        "GroupQueryAttention GroupedQueryAttention"
    ),
    "exburn.layers.attention.multi_head": "MultiHeadAttention",
    "exburn.layers.attention.rotary": "RotaryEmbedding",
    "exburn.layers.convolution.conv": (
        "Conv1D Conv2D Conv3D Convolution1D=Conv1D Convolution2D=Conv2D "
        "Convolution3D=Conv3D"
    ),
    "exburn.layers.convolution.depthwise": (
        "DepthwiseConv1D DepthwiseConv2D SeparableConv1D SeparableConv2D "
        "SeparableConvolution1D=SeparableConv1D "
        "SeparableConvolution2D=SeparableConv2D"
    ),
    "exburn.layers.convolution.transposed": (
        "Conv1DTranspose Conv2DTranspose Conv3DTranspose "
        "Convolution1DTranspose=Conv1DTranspose "
        "Convolution2DTranspose=Conv2DTranspose "
        "Convolution3DTranspose=Conv3DTranspose"
    ),
    "exburn.layers.core.dense": "Dense",
    "exburn.layers.core.einsum_dense": "EinsumDense",
    "exburn.layers.core.flax_layer": "FlaxLayer",
    "exburn.layers.core.function": "Lambda",
    "exburn.layers.core.identity": "Identity Rescaling",
    "exburn.layers.core.input": "Input InputLayer",
    "exburn.layers.core.jax_layer": "JaxLayer",
    "exburn.layers.core.mixture_of_experts": "MixtureOfExperts RouterLosses",
    "exburn.layers.core.module": "ModuleLayer",
    "exburn.layers.core.ode": "ODE",
    "exburn.layers.core.ternary_dense": "TernaryDense",
    "exburn.layers.core.wrapper": "Wrapper",
    "exburn.layers.embedding": "Embedding ReversibleEmbedding",
    "exburn.layers.masking": "Masking",
    "exburn.layers.merging.concatenate": "Concatenate Dot",
    "exburn.layers.merging.elementwise": (
        "Add Average Maximum Minimum Multiply Subtract"
    ),
    "exburn.layers.merging.functional": (
        "add average concatenate dot maximum minimum multiply subtract"
    ),
    "exburn.layers.normalization.batch": "BatchNormalization",
    "exburn.layers.normalization.layer": (
        "GroupNormalization LayerNormalization RMSNormalization UnitNormalization"
    ),
    "exburn.layers.normalization.spectral": "SpectralNormalization",
    "exburn.layers.pooling.adaptive": (
        "AdaptiveAveragePooling1D AdaptiveAveragePooling2D AdaptiveAveragePooling3D "
        "AdaptiveMaxPooling1D AdaptiveMaxPooling2D AdaptiveMaxPooling3D"
    ),
    "exburn.layers.pooling.global_pooling": (
        "GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D "
        "GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D "
        "GlobalAvgPool1D=GlobalAveragePooling1D "
        "GlobalAvgPool2D=GlobalAveragePooling2D "
        "GlobalAvgPool3D=GlobalAveragePooling3D GlobalMaxPool1D=GlobalMaxPooling1D "
        "GlobalMaxPool2D=GlobalMaxPooling2D GlobalMaxPool3D=GlobalMaxPooling3D"
    ),
    "exburn.layers.pooling.window": (
        "AveragePooling1D AveragePooling2D AveragePooling3D MaxPooling1D MaxPooling2D "
        "MaxPooling3D AvgPool1D=AveragePooling1D AvgPool2D=AveragePooling2D "
        "AvgPool3D=AveragePooling3D MaxPool1D=MaxPooling1D MaxPool2D=MaxPooling2D "
        "MaxPool3D=MaxPooling3D"
    ),
    "exburn.layers.position_embedding": "PositionEmbedding",
    "exburn.layers.preprocessing.category_encoding": "CategoryEncoding",
    "exburn.layers.preprocessing.discretization": "Discretization",
    "exburn.layers.preprocessing.hashing": "HashedCrossing Hashing",
    "exburn.layers.preprocessing.image.box_count": "MaxNumBoundingBoxes",
    "exburn.layers.preprocessing.image.colour": (
        "RandomColorDegeneration RandomColorJitter RandomGrayscale RandomHue "
        "RandomSaturation"
    ),
    "exburn.layers.preprocessing.image.distortion": (
        "RandomElasticTransform RandomPerspective"
    ),
    "exburn.layers.preprocessing.image.erasing": "RandomErasing",
    "exburn.layers.preprocessing.image.filtering": "RandomGaussianBlur RandomSharpness",
    "exburn.layers.preprocessing.image.geometry": (
        "RandomFlip RandomRotation RandomShear RandomTranslation RandomZoom"
    ),
    "exburn.layers.preprocessing.image.histogram": (
        "AutoContrast ContrastLimitedAdaptiveHistogramEqualization Equalization"
    ),
    "exburn.layers.preprocessing.image.mixing": "CutMix MixUp Mosaic",
    "exburn.layers.preprocessing.image.policy": "AugMix RandAugment",
    "exburn.layers.preprocessing.image.resizing": "CenterCrop RandomCrop Resizing",
    "exburn.layers.preprocessing.image.tone": (
        "RandomBrightness RandomContrast RandomInvert RandomPosterization Solarization"
    ),
    "exburn.layers.preprocessing.integer_lookup": "IntegerLookup",
    "exburn.layers.preprocessing.normalization": "Normalization",
    "exburn.layers.preprocessing.pipeline": "Pipeline",
    "exburn.layers.preprocessing.spectrogram": "MelSpectrogram STFTSpectrogram",
    "exburn.layers.preprocessing.string_lookup": "StringLookup",
    "exburn.layers.preprocessing.text_vectorization": "TextVectorization",
    "exburn.layers.recurrent.bidirectional": "Bidirectional",
    "exburn.layers.recurrent.conv_lstm": "ConvLSTM1D ConvLSTM2D ConvLSTM3D",
    "exburn.layers.recurrent.gru": "GRU GRUCell",
    "exburn.layers.recurrent.lstm": "LSTM LSTMCell",
    "exburn.layers.recurrent.rnn": "RNN",
    "exburn.layers.recurrent.simple_rnn": "SimpleRNN SimpleRNNCell",
    "exburn.layers.recurrent.stacked": "StackedRNNCells",
    "exburn.layers.recurrent.time_distributed": "TimeDistributed",
    "exburn.layers.regularization.activity": "ActivityRegularization",
    "exburn.layers.regularization.noise": (
        "AlphaDropout Dropout GaussianDropout GaussianNoise SpatialDropout1D "
        "SpatialDropout2D SpatialDropout3D"
    ),
    "exburn.layers.reshaping.border": (
        "Cropping1D Cropping2D Cropping3D ZeroPadding1D ZeroPadding2D ZeroPadding3D"
    ),
    "exburn.layers.reshaping.shape": "Flatten Permute RepeatVector Reshape",
    "exburn.layers.reshaping.upsampling": "UpSampling1D UpSampling2D UpSampling3D",
}

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
    "MelSpectrogram", "Minimum", "MixUp", "MixtureOfExperts", "ModuleLayer",
    "Mosaic", "MultiHeadAttention",
    "Multiply", "Normalization", "ODE", "PReLU", "Permute", "Pipeline",
    "PositionEmbedding", "RMSNormalization",
    "RandAugment", "RandomBrightness", "RandomColorDegeneration", "RandomColorJitter",
    "RandomContrast", "RandomCrop", "RandomElasticTransform", "RandomErasing",
    "RandomFlip", "RandomGaussianBlur", "RandomGrayscale", "RandomHue", "RandomInvert",
    "RandomPerspective", "RandomPosterization", "RandomRotation", "RandomSaturation",
    "RandomSharpness", "RandomShear", "RandomTranslation", "RandomZoom", "ReLU",
    "RepeatVector", "Rescaling", "Reshape", "Resizing", "ReversibleEmbedding",
    "RotaryEmbedding", "RouterLosses", "STFTSpectrogram",
    "SeparableConv1D", "SeparableConv2D",
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


@api_boundary
def serialize(layer: Layer) -> dict[str, Any]:
    """The layer's class name and configuration; see :func:`deserialize`.

    Args:
        layer: A layer.

    Example:
        >>> from exburn.layers import Flatten
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
        >>> from exburn.layers import Dense
        >>> deserialize(serialize(Dense(3, name="head"))).name
        'head'
    """
    with registry.custom_objects(custom_objects):
        return registry.deserialize(config)


if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = importer(
        __name__,
        _LAZY_NAMES,
        instead={
            "TFSMLayer": (
                "there is no TensorFlow; exburn.predict runs ONNX and StableHLO"
            ),
            "TorchModuleWrapper": "rewrite the module as a Layer",
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
