"""Weights in few bits: what is stored how, and layers that compute with it."""

from exburn.transforms.quantization.blocks import Blocks
from exburn.transforms.quantization.calibrate import Calibration, calibrate
from exburn.transforms.quantization.convert import (
    carry_out,
    freeze_parameters,
    require_finite,
)
from exburn.transforms.quantization.measure import measure
from exburn.transforms.quantization.plan import (
    Plan,
    choose,
    make_plan,
    packed_schemes,
    quantized_weights,
)
from exburn.transforms.quantization.quantized_layers import (
    AnyStandIn,
    LowRank,
    put_back,
    put_in_place,
)
from exburn.transforms.quantization.report import LayerReport, QuantizationReport
from exburn.transforms.quantization.samples import token_windows
from exburn.transforms.quantization.scheme import Scheme
from exburn.transforms.quantization.settings import Settings
from exburn.transforms.quantization.weight import QuantizedWeight

__all__ = [
    "AnyStandIn",
    "Blocks",
    "Calibration",
    "LayerReport",
    "LowRank",
    "Plan",
    "QuantizationReport",
    "QuantizedWeight",
    "Scheme",
    "Settings",
    "calibrate",
    "carry_out",
    "choose",
    "freeze_parameters",
    "make_plan",
    "measure",
    "packed_schemes",
    "put_back",
    "put_in_place",
    "quantized_weights",
    "require_finite",
    "token_windows",
]
