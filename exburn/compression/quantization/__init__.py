"""Weights in few bits: what is stored how, and layers that compute with it."""

from exburn.compression.quantization.aware import (
    METHODS,
    add_ranges,
    all_ranges,
    check_record,
    is_simulated,
    measure_ranges,
    plan_as_trained,
    require_known,
    settle,
    simulate,
)
from exburn.compression.quantization.blocks import Blocks
from exburn.compression.quantization.calibrate import (
    CalibrationData,
    calibrate,
    token_windows,
)
from exburn.compression.quantization.convert import (
    carry_out,
    freeze_parameters,
    require_finite,
)
from exburn.compression.quantization.measure import measure
from exburn.compression.quantization.placing import find_places
from exburn.compression.quantization.plan import (
    QuantizationPlan,
    choose,
    make_plan,
    packed_schemes,
    quantized_weights,
)
from exburn.compression.quantization.quantized_layers import (
    AnyStandIn,
    LowRank,
    put_back,
    put_in_place,
)
from exburn.compression.quantization.scheme import Scheme
from exburn.compression.quantization.settings import QuantizationSettings
from exburn.compression.quantization.weight import (
    QuantizedWeight,
    SimulatedWeight,
    simulated_schemes,
)

__all__ = [
    "METHODS",
    "AnyStandIn",
    "Blocks",
    "CalibrationData",
    "LowRank",
    "QuantizationPlan",
    "QuantizedWeight",
    "Scheme",
    "QuantizationSettings",
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
