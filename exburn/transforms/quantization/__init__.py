"""Weights in few bits: what is stored how, and layers that compute with it."""

from exburn.transforms.quantization.aware import (
    add_ranges,
    all_ranges,
    check_record,
    is_simulated,
    plan_as_trained,
    require_known,
    settle,
    simulate,
)
from exburn.transforms.quantization.blocks import Blocks
from exburn.transforms.quantization.calibrate import Calibration, calibrate
from exburn.transforms.quantization.convert import (
    carry_out,
    freeze_parameters,
    require_finite,
)
from exburn.transforms.quantization.measure import measure
from exburn.transforms.quantization.placing import find_places
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
from exburn.transforms.quantization.ranging import METHODS, measure_ranges
from exburn.transforms.quantization.samples import token_windows
from exburn.transforms.quantization.scheme import Scheme
from exburn.transforms.quantization.settings import Settings
from exburn.transforms.quantization.simulated import (
    SimulatedWeight,
    simulated_schemes,
)
from exburn.transforms.quantization.weight import QuantizedWeight

__all__ = [
    "METHODS",
    "AnyStandIn",
    "Blocks",
    "Calibration",
    "LowRank",
    "Plan",
    "QuantizedWeight",
    "Scheme",
    "Settings",
    "SimulatedWeight",
    "add_ranges",
    "all_ranges",
    "calibrate",
    "carry_out",
    "check_record",
    "choose",
    "find_places",
    "freeze_parameters",
    "is_simulated",
    "make_plan",
    "measure",
    "measure_ranges",
    "packed_schemes",
    "plan_as_trained",
    "put_back",
    "put_in_place",
    "quantized_weights",
    "require_finite",
    "require_known",
    "settle",
    "simulate",
    "simulated_schemes",
    "token_windows",
]
