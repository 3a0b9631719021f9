"""ExBurn's training options, for ``compile`` or for a single ``fit``.

They are settings of the optimizer under ExBurn's names, applied in its order: gradients
are accumulated, clipped by their global norm, clipped by value, the L2 weight decay is
added, and the optimizer's rule follows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

from exburn.callbacks import WarmUp
from exburn.core.checks import check_count, check_number
from exburn.errors import ArgumentError, unknown_name
from exburn.metrics import Metric
from exburn.models.network import Network
from exburn.models.session import require_trainer
from exburn.optimizers import LossScaleOptimizer, MultiOptimizer, Optimizer, schedules

if TYPE_CHECKING:
    from exburn.training.state_holder import StateHolder


def _schedule(op: str, name: str, value: Any) -> Any:
    if isinstance(value, Real):  # fit(learning_rate=…): the same at every step
        return schedules.ExponentialDecay(check_number(op, name, value), 1, 1.0)
    return schedules.get(tuple(value) if isinstance(value, list) else value)


def _group(op: str, name: str, value: Any) -> int | None:
    batches = check_count(op, name, value, floats=True)
    return None if batches == 1 else batches


#: Option → the optimizer's attribute, and the check that makes its value. ``compile``
#: says what each option means; its signature and that of ``fit`` hold all of them.
_OPTIONS: dict[str, tuple[str, Callable[[str, str, Any], Any]]] = {
    "lr_schedule": ("_learning_rate", _schedule),
    "weight_decay": ("l2_weight_decay", check_number),
    "clip_norm": ("global_clipnorm", partial(check_number, open_low=True)),
    "clip_value": ("clipvalue", partial(check_number, open_low=True)),
    "accumulate_gradients": ("gradient_accumulation_steps", _group),
    "nesterov": ("nesterov", lambda op, name, value: bool(value)),
}

#: That of the option ``nesterov`` for an SGD without momentum.
_MOMENTUM = 0.9

#: Attributes that the shape of the optimizer's state depends on.
_OF_STATE = {"gradient_accumulation_steps", "nesterov"}


@contextlib.contextmanager
def options(self: Network, **options: Any) -> Iterator[None]:
    """Trains with other options inside the block.

    Args:
        **options: ``clip_norm``, ``clip_value``, ``weight_decay``,
            ``accumulate_gradients``, ``nesterov``, ``learning_rate``,
            ``lr_schedule``, as of ``fit``; None keeps what ``compile`` was given.
            A schedule counts from where the block begins.

    Raises:
        NotCompiledError: ``compile`` was not called.
        ArgumentError: A value can never work, or does not suit the optimizer.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        >>> model.compile("adam", "mse")
        >>> with model.options(clip_norm=1.0):
        ...     _ = model.train_on_batch(np.ones((4, 2)), np.ones((4, 1)))
    """
    with options_after(self, 0, **options):
        yield


@contextlib.contextmanager
def options_after(self: Network, batches: int, **options: Any) -> Iterator[None]:
    """Trains with other options inside the block, of a training that has begun before.

    Args:
        batches: The last batches before the block that its schedule counts, too.
    """
    changes = {name: value for name, value in options.items() if value is not None}
    trainer = require_trainer(self, "options")
    if not changes:
        yield
        return
    optimizer, restarts = trainer.holder.optimizer, "lr_schedule" in changes
    if (rate := changes.pop("learning_rate", None)) is not None:
        if "lr_schedule" not in changes and _has_one_number(optimizer):
            with _at_rate(optimizer, rate), options_after(self, batches, **changes):
                yield
            return
        changes.setdefault("lr_schedule", rate)
    values = _check_options("fit", optimizer, changes)
    key = (tuple(sorted((n, _hashable(v)) for n, v in changes.items())),)
    key += (optimizer.revision,)
    variants = self._training_session.variants
    targets = _targets(optimizer)
    if key not in variants:
        # One schedule object for all these fits: it knows their epochs.
        variants[key] = (values, [t._revision for t in targets])
    values, revisions = variants[key]
    old = trainer.preparer.program_cache.variant
    before = []
    for target, revision in zip(targets, revisions, strict=True):
        if not callable(target._learning_rate):
            target._number = target._learning_rate
        new = _for_one(target, values) | {"_revision": revision}
        before.append({n: getattr(target, n) for n in new if hasattr(target, n)})
        _put(target, new)
    trainer.preparer.program_cache.variant = key
    other_state = not values.keys().isdisjoint(_OF_STATE)
    try:
        if other_state:
            trainer.holder.refit_state()
        if restarts:  # else the rate is a number, the same at every count
            with _schedule_from_here(trainer.holder, batches):
                yield
        else:
            yield
    finally:
        variants[key] = (values, [t._revision for t in targets])
        for target, saved in zip(targets, before, strict=True):
            _put(target, saved)
        trainer.preparer.program_cache.variant = old
        if other_state:
            trainer.holder.refit_state()


def set_options(optimizer: Optimizer, *, learning_rate: Any, **options: Any) -> None:
    """Sets options that are not None for good: those of ``compile``."""
    changes = {name: value for name, value in options.items() if value is not None}
    values = _check_options("compile", optimizer, changes)
    if learning_rate is not None:
        optimizer.learning_rate = learning_rate
    for target in _targets(optimizer):
        for name, value in _for_one(target, values).items():
            if name == "_learning_rate":
                target.learning_rate = value
            else:
                setattr(target, name, value)


def weigh_batches(optimizer: Optimizer, by_tokens: bool) -> None:
    """Sets whether batches of accumulated gradients count by their tokens, or alike."""
    for target in {optimizer, *_targets(optimizer)}:
        _put(target, {"_by_tokens": by_tokens})


def _has_one_number(optimizer: Optimizer) -> bool:
    """Whether its learning rate can be set, which compiles nothing."""
    (first, *others) = _targets(optimizer)
    return not others and first.schedule is None


@contextlib.contextmanager
def _schedule_from_here(holder: StateHolder, batches: int) -> Iterator[None]:
    """Lets schedules count from here in the block, and afterwards as they did before.

    That of ``compile`` has counted from the first update, and may have come to its end.
    """
    before = holder.opt_state
    start = None if before is None else holder.optimizer.schedule_start(before)
    if before is not None:
        holder.opt_state = holder.optimizer.restart_schedule(before, batches)
    try:
        yield
    finally:
        if holder.opt_state is not None:
            holder.opt_state = holder.optimizer.with_schedule_start(
                holder.opt_state, start
            )


@contextlib.contextmanager
def warm_up_from_here(holder: StateHolder, batches: int) -> Iterator[None]:
    """Lets a warm-up count from here in the block, and ends it with the block.

    Args:
        batches: The last batches before the block that the warm-up counts, too.
    """
    if holder.opt_state is not None:
        holder.opt_state = holder.optimizer.restart_warm_up(holder.opt_state, batches)
    try:
        yield
    finally:
        if holder.opt_state is not None:
            holder.opt_state = holder.optimizer.end_warm_up(holder.opt_state)


@contextlib.contextmanager
def _at_rate(optimizer: Optimizer, value: Any) -> Iterator[None]:
    before = float(optimizer.learning_rate)
    optimizer.learning_rate = check_number("fit", "learning_rate", value)
    try:
        yield
    finally:
        optimizer.learning_rate = before


def _put(optimizer: Optimizer, values: dict[str, Any]) -> None:
    """Sets attributes without telling that the optimizer has changed."""
    for name, value in values.items():
        object.__setattr__(optimizer, name, value)


def _targets(optimizer: Optimizer) -> list[Optimizer]:
    """The optimizers that do the work."""
    if isinstance(optimizer, LossScaleOptimizer):
        return _targets(optimizer.inner_optimizer)
    if isinstance(optimizer, MultiOptimizer):
        return [t for inner in optimizer.optimizers for t in _targets(inner)]
    return [optimizer]


def _check_options(
    op: str, optimizer: Optimizer, options: dict[str, Any]
) -> dict[str, Any]:
    """The options as attributes of the optimizer."""
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name not in _OPTIONS:
            raise unknown_name("option", name, _OPTIONS, op=op)
        attribute, check = _OPTIONS[name]
        values[attribute] = check(op, name, value)
    if "nesterov" in values:
        missing = [t for t in _targets(optimizer) if not hasattr(t, "nesterov")]
        if missing:
            raise ArgumentError(
                op,
                f"nesterov is an option of SGD, received {missing[0]!r}",
                hint='compile(optimizer="sgd", nesterov=True), or "nadam".',
            )
    return values


def _for_one(optimizer: Optimizer, values: dict[str, Any]) -> dict[str, Any]:
    """The attributes that one of the optimizers gets."""
    if values.get("nesterov") and not getattr(optimizer, "momentum", None):
        return values | {"momentum": _MOMENTUM}
    return values


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):  # the configuration of a schedule
        return repr(value)
    return tuple(value) if isinstance(value, list) else value


def warm_up(warmup: Any, op: str) -> WarmUp | None:
    """The callback of the option ``warmup``: epochs, or ``(epochs, start, target)``."""
    if warmup is None or isinstance(warmup, WarmUp):
        return warmup
    if isinstance(warmup, tuple | list):
        if len(warmup) != 3:
            raise ArgumentError(
                op,
                "warmup is a number of epochs or (epochs, start, target), received "
                f"{warmup!r}",
            )
        epochs, start, target = warmup
        return WarmUp(target, epochs=epochs, initial=start)
    epochs = check_number(op, "warmup", warmup)
    return WarmUp(epochs=epochs) if epochs else None


def with_accuracy(metrics: Any) -> Any:
    """The metrics of ``compile`` with accuracy among them."""
    if metrics is None:
        return ["accuracy"]
    if isinstance(metrics, str | Metric) or callable(metrics):
        metrics = [metrics]
    if isinstance(metrics, dict) or any(isinstance(m, list | tuple) for m in metrics):
        raise ArgumentError(
            "compile",
            "accuracy=True is for models with one output",
            hint='Name it where you want it: metrics={"output": ["accuracy"]}.',
        )
    names = [m for m in metrics if m in ("accuracy", "acc")]
    return list(metrics) if names else [*metrics, "accuracy"]
