"""Every layer, under Keras' names."""

from exburn.layer import Layer
from exburn.layers.activation.activation import Activation
from exburn.layers.activation.rectified import ELU, LeakyReLU, PReLU, ReLU
from exburn.layers.activation.softmax import Softmax
from exburn.layers.convolution.conv import Conv1D, Conv2D, Conv3D
from exburn.layers.convolution.depthwise import DepthwiseConv1D, DepthwiseConv2D
from exburn.layers.convolution.depthwise import SeparableConv1D, SeparableConv2D
from exburn.layers.convolution.transposed import Conv1DTranspose, Conv2DTranspose
from exburn.layers.convolution.transposed import Conv3DTranspose
from exburn.layers.core.dense import Dense
from exburn.layers.core.einsum_dense import EinsumDense
from exburn.layers.core.function import Function, Lambda
from exburn.layers.core.identity import Identity, Rescaling
from exburn.layers.core.input import Input, InputLayer
from exburn.layers.core.module import ModuleLayer
from exburn.layers.core.wrapper import Wrapper
from exburn.layers.merging.concatenate import Concatenate, Dot
from exburn.layers.merging.elementwise import Add, Average, Maximum, Minimum
from exburn.layers.merging.elementwise import Multiply, Subtract
from exburn.layers.merging.functional import add, average, concatenate, dot
from exburn.layers.merging.functional import maximum, minimum, multiply, subtract
from exburn.layers.normalization.batch import BatchNormalization
from exburn.layers.normalization.layer import GroupNormalization, LayerNormalization
from exburn.layers.normalization.layer import RMSNormalization, UnitNormalization
from exburn.layers.normalization.spectral import SpectralNormalization
from exburn.layers.pooling.adaptive import AdaptiveAveragePooling1D
from exburn.layers.pooling.adaptive import AdaptiveAveragePooling2D
from exburn.layers.pooling.adaptive import AdaptiveAveragePooling3D
from exburn.layers.pooling.adaptive import AdaptiveMaxPooling1D
from exburn.layers.pooling.adaptive import AdaptiveMaxPooling2D
from exburn.layers.pooling.adaptive import AdaptiveMaxPooling3D
from exburn.layers.pooling.everywhere import GlobalAveragePooling1D
from exburn.layers.pooling.everywhere import GlobalAveragePooling2D
from exburn.layers.pooling.everywhere import GlobalAveragePooling3D
from exburn.layers.pooling.everywhere import GlobalMaxPooling1D, GlobalMaxPooling2D
from exburn.layers.pooling.everywhere import GlobalMaxPooling3D
from exburn.layers.pooling.window import AveragePooling1D, AveragePooling2D
from exburn.layers.pooling.window import AveragePooling3D, MaxPooling1D, MaxPooling2D
from exburn.layers.pooling.window import MaxPooling3D
from exburn.layers.regularization.activity import ActivityRegularization
from exburn.layers.regularization.noise import AlphaDropout, Dropout, GaussianDropout
from exburn.layers.regularization.noise import GaussianNoise, SpatialDropout1D
from exburn.layers.regularization.noise import SpatialDropout2D, SpatialDropout3D
from exburn.layers.reshaping.border import Cropping1D, Cropping2D, Cropping3D
from exburn.layers.reshaping.border import ZeroPadding1D, ZeroPadding2D, ZeroPadding3D
from exburn.layers.reshaping.shape import Flatten, Permute, RepeatVector, Reshape
from exburn.layers.reshaping.upsampling import UpSampling1D, UpSampling2D, UpSampling3D
from exburn.weights import InputSpec

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

__all__ = sorted(
    name for name, value in list(globals().items())
    if name[0] != "_" and callable(value)
)
