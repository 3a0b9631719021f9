"""The contract of a layer: ``build`` makes parameters, ``call`` computes.

``Layer.__call__`` is the only place that knows symbols. Weights are created as specs
and filled from the seed and their path once the root of the model is known, so the
same model has the same weights whatever the order in which it was built.
"""

from exburn.core.registry import snake_case
from exburn.module.layer.layer import Layer
from exburn.module.layer.stateless import Bound, bind_arrays

__all__ = ["Bound", "Layer", "bind_arrays", "snake_case"]
