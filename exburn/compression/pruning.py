"""``prune``: a copy of a model with fewer numbers that are not zero, or fewer units."""

from __future__ import annotations

from typing import Any

import numpy as np

from exburn.compression import masking
from exburn.compression.channels import narrow
from exburn.compression.masking import SparsitySchedule
from exburn.compression.quantization.plan import choose
from exburn.errors import ArgumentError
from exburn.errors.boundary import api_boundary
from exburn.layers import Embedding
from exburn.models import Model
from exburn.models.copies import go_on_like
from exburn.models.lora import adapted_layers
from exburn.models.session import require_idle
from exburn.module.building import require_built
from exburn.module.copying import twin
from exburn.module.selection import layer_paths


@api_boundary
def prune(
    model: Model,
    sparsity: float | None = None,
    schedule: SparsitySchedule | None = None,
    pattern: str | None = None,
    scope: str = "global",
    *,
    filters: Any = None,
) -> Any:
    """A new model, of whose weights a share is zero and stays so; this one stays.

    The numbers of least magnitude go, now or by a schedule while the model trains. Each
    pruned weight has a mask, which is part of the model's state: it goes through
    ``fit``, files, checkpoints, copies and ``add_lora``. ``quantize`` keeps the zeros.
    Such zeros save no time; ``pattern="channels"`` does: it takes whole units away, and
    the model that comes out is truly narrower.

    Args:
        model: A built model. If it is compiled, so is the new one, which goes on with
            the optimizer's state; its schedule, if it has one, begins anew.
        sparsity: Share of the numbers that go, or with ``"channels"`` of the units, in
            [0, 1); that of the pattern, else 0.8 by default.
        schedule: When they go: ``PolynomialSparsity(begin=0, end=2000)`` or
            ``ConstantSparsity(begin=100)``, of ``exburn.compression``; at once by
            default. Steps are batches of ``fit``.
        pattern: ``None`` for any numbers; ``"2:4"`` leaves 2 of every 4 neighbours
            along the axis that a product sums over, likewise any ``"n:m"``;
            ``"channels"`` takes units of Dense layers, filters of convolutions, heads
            of attention and states of recurrent layers away, at once, from a
            Sequential or functional model.
        scope: ``"global"``: the least of all layers go; ``"layer"``: the same share of
            each layer.
        filters: Which layers: a name, path or pattern as for ``freeze``, a list of
            them, or a function called with each layer. By default all Dense,
            EinsumDense, convolutional, attention and recurrent layers; Embedding and
            depthwise convolutions only if they are named.

    Returns:
        The model. ``exburn.compression.sparsity(model)`` shows what is zero.

    Raises:
        ArgumentError: The sparsity is not in [0, 1) or not that of the pattern, an
            axis cannot be divided, no layer can be pruned, or the model has adapters;
            of channels: units that go through a layer which cannot be followed, which
            is named.
        BusyError: The model is being trained.
        UnknownNameError: A pattern of ``filters`` names no layer.
        NotBuiltError: The model has no weights yet.

    Example:
        >>> from exburn import Input, Sequential
        >>> from exburn.layers import Dense
        >>> model = Sequential([Input((64,)), Dense(128, "relu"), Dense(10)])
        >>> pruned = prune(model, sparsity=0.9)
        >>> int((pruned.layers[0].kernel.numpy() == 0).sum() > 64 * 128 // 2)
        1
        >>> narrow = prune(model, sparsity=0.5, pattern="channels")
        >>> [layer.units for layer in narrow.layers]
        [64, 10]

    Source: Zhu & Gupta, *To Prune, or Not to Prune: Exploring the Efficacy of Pruning
    for Model Compression*, 2017; Mishra et al., *Accelerating Sparse Deep Neural
    Networks*, 2021 (2:4); Li et al., *Pruning Filters for Efficient ConvNets*, 2017.
    """
    require_model(model, "prune")
    require_idle(model, "prune")
    if adapted := adapted_layers(model):
        raise ArgumentError(
            "prune",
            f"{adapted[0]!r} has a low-rank adapter",
            hint="Call model.merge_lora() first, or add_lora() after prune().",
        )
    chosen = choose(model, filters, op="prune")
    if pattern == "channels":
        if filters is None:
            layers = layer_paths(model)
            chosen = {p for p in chosen if not isinstance(layers[p], Embedding)}
        return narrow(model, sparsity, schedule, scope, chosen)
    options = sparsity, schedule, pattern, scope
    plan = masking.make_plan(model, *options, chosen, named=filters is not None)
    copy = twin(model)
    masking.drop_plans(copy)  # its masks stay, and grow
    masking.install(copy, plan)
    masking.begin(copy, plan)
    go_on_like(copy, model)
    return copy


@api_boundary
def strip(model: Model) -> Any:
    """A new model without the masks: zeros are as any other number; this one stays.

    Args:
        model: A pruned model.

    Returns:
        The model, whose files hold what those of the unpruned model did.

    Raises:
        ArgumentError: It is no model.
        NotBuiltError: It has no weights yet.
        BusyError: It is being trained.

    Example:
        >>> from exburn import Input, Sequential
        >>> from exburn.layers import Dense
        >>> pruned = prune(Sequential([Input((8,)), Dense(8)]), sparsity=0.5)
        >>> len(pruned.weights), len(strip(pruned).weights)
        (4, 2)
    """
    require_model(model, "strip")
    require_idle(model, "strip")
    copy = twin(model)
    masking.strip(copy)
    go_on_like(copy, model)
    return copy


@api_boundary
def masks(model: Model) -> dict[str, np.ndarray]:
    """The masks of a pruned model: True where a number may be used, by weight's path.

    Args:
        model: The model.

    Returns:
        bool arrays of the weights' shapes; none of a model that is not pruned.

    Raises:
        ArgumentError: It is no model.
        NotBuiltError: It has no weights yet.

    Example:
        >>> from exburn import Input, Sequential
        >>> from exburn.layers import Dense
        >>> pruned = prune(Sequential([Input((4,)), Dense(2)]), pattern="2:4")
        >>> masks(pruned)["dense/kernel"].sum(0).tolist()
        [2, 2]
    """
    require_model(model, "masks")
    return {
        masking.join(path, name): np.asarray(
            masking.unpack(mask.get_value(), getattr(layer, name).shape)
        )
        for path, layer, name, mask in masking.iter_masks(model)
    }


@api_boundary
def apply_masks(model: Model) -> None:
    """Sets weights to zero where their masks are, in place.

    ``fit``, ``train_on_batch`` and a model's own ``train_step`` do it by themselves; a
    loop with ``optimizer.apply`` calls this after each update.

    Args:
        model: A pruned model.

    Raises:
        ArgumentError: It is no model.
        NotBuiltError: It has no weights yet.

    Example:
        >>> import numpy as np
        >>> from exburn import Input, Sequential
        >>> from exburn.layers import Dense
        >>> pruned = prune(Sequential([Input((4,)), Dense(2)]), pattern="2:4")
        >>> pruned.layers[0].kernel.assign(np.ones((4, 2)))  # doctest: +ELLIPSIS
        Parameter(...
        >>> apply_masks(pruned)
        >>> float(pruned.layers[0].kernel.numpy().sum())
        4.0
    """
    require_model(model, "apply_masks")
    masking.apply_masks(model)


def require_model(model: Any, op: str) -> None:
    """Refuses what is no model, and one without weights."""
    if not isinstance(model, Model):
        raise ArgumentError(op, f"a model is needed, received {type(model).__name__}")
    require_built(model, op)
