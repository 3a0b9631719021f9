"""ExBurn: Keras-style deep learning whose programs are JAX."""

from exburn import activations as activations
from exburn import callbacks as callbacks
from exburn import constraints as constraints
from exburn import datasets as datasets
from exburn import initializers as initializers
from exburn import layers as layers
from exburn import losses as losses
from exburn import metrics as metrics
from exburn import models as models
from exburn import optimizers as optimizers
from exburn import regularizers as regularizers
from exburn.context import key_scope as key_scope
from exburn.context import set_random_seed as set_random_seed
from exburn.device import device_info as device_info
from exburn.device import device_name as device_name
from exburn.dtypes import Precision as Precision
from exburn.dtypes import set_precision as set_precision
from exburn.layers import Input as Input
from exburn.models import Model as Model
from exburn.models import Sequential as Sequential
from exburn.registry import register as register
from exburn.symbol import lift as fn
from exburn.weights import InputSpec as InputSpec

__version__ = "0.1.0"
