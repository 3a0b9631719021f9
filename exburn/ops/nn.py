"""The ops that neural networks are made of."""

from exburn.ops.activation import *  # noqa: F403
from exburn.ops.alignment import *  # noqa: F403
from exburn.ops.attention import *  # noqa: F403
from exburn.ops.blocks import depth_to_space as depth_to_space
from exburn.ops.blocks import fold as fold
from exburn.ops.blocks import space_to_depth as space_to_depth
from exburn.ops.blocks import unfold as unfold
from exburn.ops.convolution import *  # noqa: F403
from exburn.ops.crossentropy import *  # noqa: F403
from exburn.ops.fourier import polar as polar
from exburn.ops.normalization import *  # noqa: F403
from exburn.ops.pooling import *  # noqa: F403
from exburn.ops.similarity import psnr as psnr
