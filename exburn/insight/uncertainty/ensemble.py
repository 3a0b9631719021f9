"""``method="ensemble"``: models that were trained each by itself, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from exburn.core.checks import check_count
from exburn.errors import ArgumentError, ShapeError
from exburn.insight.uncertainty.outputs import find_head
from exburn.insight.uncertainty.posterior import OP, check_noise
from exburn.insight.uncertainty.samples import (
    SampledPredictor,
    make_sampled,
    read_rows,
)
from exburn.models.network import Network
from exburn.module.building import inspect_call
from exburn.training.module import SplitModule
from exburn.tuning.result import SweepResult


def ensemble(
    model: Network,
    x: Any = None,
    y: Any = None,
    *,
    members: Sequence[Network] | SweepResult | None = None,
    top: int = 5,
    noise: float | None = None,
    output: int | str | None = None,
    batch_size: int = 32,
) -> SampledPredictor:
    """``method="ensemble"``: the mean of models trained from different seeds.

    Members are run side by side, in one program. Their weights are copied.

    Args:
        x, y: Rows that no member was trained on, by which the noise of values is found;
            classes need none.
        members: Models with the layers and shapes of this one, of which it may be one;
            or what ``exburn.tuning.sweep`` returned.
        top: How many of a sweep's lanes, the best first.
        noise: The variance of values around their mean.
        output: The name or number of an output, of a model with several.
        batch_size: Rows of a step.

    Source: B. Lakshminarayanan et al., "Simple and Scalable Predictive Uncertainty
    Estimation using Deep Ensembles", 2017.
    """
    batch_size = check_count(OP, "batch_size", batch_size)
    head = find_head(model, output, OP)
    noise = check_noise(noise, head)
    if isinstance(members, SweepResult):
        members = members.models(check_count(OP, "top", top, 2))
    if not isinstance(members, Sequence) or not all(
        isinstance(member, Network) for member in members
    ):
        raise ArgumentError(
            OP,
            "members must be a list of models, or the result of a sweep",
            {"received": type(members)},
            hint="model.uncertainty(method='ensemble', members=[model, other])",
        )
    if len(members) < 2:
        raise ArgumentError(
            OP, f"an ensemble has two members at least, received {len(members)}"
        )
    own, each = SplitModule(model), [SplitModule(member) for member in members]
    for number, split in enumerate(each):
        _check_alike(own, split, number)
    read = [_arrays(split) for split in each]
    weights = {name: np.stack([arrays[name] for arrays in read]) for name in read[0]}
    rows = read_rows(model, head, x, y, noise)
    fields = {"way": "ensemble", "samples": len(each), "seed": 0, "weights": weights}
    return make_sampled(model, head, rows, noise, batch_size, **fields)


def _arrays(split: SplitModule) -> dict[str, np.ndarray]:
    """All arrays of a model by their names, on the host."""
    params, frozen, others = split.read()
    return {n: np.asarray(v) for n, v in (params | frozen | others).items()}


def _check_alike(own: SplitModule, other: SplitModule, number: int) -> None:
    """Raises ``ShapeError`` if a member has not the model's weights and program."""
    pairs = [_shapes(split) for split in (own, other)]
    if pairs[0] != pairs[1]:
        first, second = pairs
        odd = next(n for n in first | second if first.get(n) != second.get(n))
        facts = {"weight": odd, "model": first.get(odd), "member": second.get(odd)}
    elif _program(own) != _program(other):
        facts = {"difference": "an option of a layer, or the order of layers"}
    elif not all(
        np.array_equal(value, other.constants[name])
        for name, value in own.constants.items()
    ):
        facts = {"difference": "arrays that are attributes of layers"}
    else:
        return
    raise ShapeError(
        OP,
        f"member {number} must be the model, but for the numbers of its weights",
        facts,
        hint="exburn.tuning.Ensemble(members) is a model of unlike members.",
    )


def _program(split: SplitModule) -> str:
    """The model's computation as text, without the numbers of its weights."""
    traced = inspect_call(split.module)
    return "" if traced is None else str(traced[0])


def _shapes(split: SplitModule) -> dict[str, Any]:
    """The shapes of a model's arrays by their names."""
    return {n: (v.shape, str(v.dtype)) for g in split.peek() for n, v in g.items()}
