"""Weights in few bits: what is stored how, and layers that compute with it."""

from exburn.quantization.blocks import Blocks
from exburn.quantization.calibrate import Calibration, calibrate
from exburn.quantization.convert import carry_out, freeze_parameters, require_finite
from exburn.quantization.measure import measure
from exburn.quantization.plan import (
    Plan,
    choose,
    make_plan,
    packed_schemes,
    quantized_weights,
)
from exburn.quantization.report import LayerReport, QuantizationReport
from exburn.quantization.samples import token_windows
from exburn.quantization.scheme import Scheme
from exburn.quantization.settings import Settings
from exburn.quantization.stand_ins import LowRank, put_back, put_in_place
from exburn.quantization.weight import QuantizedWeight

__all__ = [
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
