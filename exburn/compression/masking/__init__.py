"""Weights with zeros that stay zeros: masks, and how they grow while a model trains."""

from exburn.compression.masking.masks import (
    apply_masks,
    iter_masks,
    join,
    mask_of,
    mask_values,
    remove_mask,
    unpack,
)
from exburn.compression.masking.plan import (
    PruningPlan,
    begin,
    drop_plans,
    forget,
    install,
    iter_plans,
    make_plan,
    prunable,
    records_of,
    restore,
    strip,
)
from exburn.compression.masking.schedules import (
    ConstantSparsity,
    PolynomialSparsity,
    SparsitySchedule,
)
from exburn.compression.masking.training import WeightMasking

__all__ = [
    "ConstantSparsity",
    "WeightMasking",
    "PruningPlan",
    "PolynomialSparsity",
    "SparsitySchedule",
    "apply_masks",
    "begin",
    "drop_plans",
    "forget",
    "install",
    "iter_masks",
    "iter_plans",
    "join",
    "make_plan",
    "mask_of",
    "mask_values",
    "prunable",
    "records_of",
    "remove_mask",
    "restore",
    "strip",
    "unpack",
]
