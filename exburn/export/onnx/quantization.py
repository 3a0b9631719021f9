"""Rules of rounding, and of weights of few bits."""

from __future__ import annotations

import numpy as np

from exburn.export.onnx.graph import Constant, Integers, Value, unsigned
from exburn.export.onnx.lowering import Lowering, NotExpressible, rule
from exburn.transforms.quantization.marks import READ, ROUND


@rule("composite")
def _composite(low: Lowering, step, x: Value, scale: Value, zero: Value | None = None):
    """An array between QuantizeLinear and DequantizeLinear, or a weight behind one."""
    name = step.params["name"]
    if name == READ and isinstance(x, Constant) and isinstance(scale, Constant):
        return Integers(x.array, scale.array, x.path)
    if name != ROUND or not (
        isinstance(scale, Constant) and isinstance(zero, Constant)
    ):
        raise NotExpressible("Its scales are not known when the file is written")
    graph = low.graph
    zero = Constant(unsigned(zero.array))
    few = graph.add("QuantizeLinear", x, scale, zero, shape=x.shape, dtype=np.uint8)
    return graph.add(
        "DequantizeLinear", few, scale, zero, shape=x.shape, dtype=np.float32
    )
