"""The part of a model that trains."""

from __future__ import annotations

from exburn.models.averaging import Averaging
from exburn.models.batches import Batches
from exburn.models.fitting import Fitting
from exburn.models.freezing import Freezing
from exburn.models.hooks import Watching
from exburn.models.inferring import Inferring
from exburn.models.inspection import Inspection
from exburn.models.options import OptimizerOptions
from exburn.models.own_steps import OwnSteps
from exburn.models.reporting import Reporting
from exburn.models.saving import Keeping
from exburn.models.state_tree import StateTree

__all__ = ["Training"]


class Training(
    OwnSteps,
    Batches,
    Keeping,
    StateTree,
    Freezing,
    Averaging,
    Inspection,
    OptimizerOptions,
    Reporting,
    Watching,
    Fitting,
    Inferring,
):
    """``compile``, ``fit`` and all that belongs to them; mixed into ``Model``."""
