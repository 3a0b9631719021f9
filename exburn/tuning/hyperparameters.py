"""What a path of a sweep names, and where that is in a model.

==========================  ======================================================
path                        what it names
==========================  ======================================================
``seed``                    the seed of ``compile``: weights, shuffling, dropout
``learning_rate``           that of the optimizer; also ``scale``
``momentum``                an option of the optimizer; ``optimizer/momentum``, too
``learning_rate/alpha``     an option of its schedule
``hidden/rate``             an option of the layer of this name or path
``dense/kernel_regularizer/l2``  an option of something that a layer has
``loss/label_smoothing``    an option of the loss; ``loss/<output>/…`` of several
``loss_weights/<output>``   the factor of an output's loss
``optimizer``, ``batch_size``    another optimizer, other rows of a step
==========================  ======================================================
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import numpy as np
from flax import nnx

from exburn import optimizers
from exburn.core.checks import check_count, check_number
from exburn.errors import ArgumentError, ExBurnError, locate, unknown_name
from exburn.models import Model
from exburn.models.compiling import replace_optimizer
from exburn.module.input_spec import InputSpec
from exburn.module.layer import Layer
from exburn.module.signature import init_names
from exburn.module.traversal import iter_modules
from exburn.optimizers import LossScaleOptimizer, MultiOptimizer
from exburn.training.fingerprint import SettingSlot
from exburn.tuning.remaking import (
    CannotRemake,
    arguments_of,
    differs_elsewhere,
    is_same,
    remake,
    with_layer,
    with_loss,
    with_optimizer,
)

Kind = Literal[
    "seed",
    "rate",
    "optimizer",
    "batch_size",
    "option",
    "schedule",
    "loss",
    "loss_weights",
]
_HELD = ("option", "schedule", "loss", "loss_weights")  # what attributes hold
_OWN = {"seed": "seed", "batch_size": "batch_size", "optimizer": "optimizer"}
_RATES = ("learning_rate", "scale")
_NO_OPTIONS = {"name", "dtype", "trainable", "learning_rate", "loss_scale_factor"}
_OP = "sweep"


@dataclasses.dataclass(frozen=True)
class HyperparameterPlace:
    """Where the thing is that a path names.

    Attributes:
        holder: Finds in a copy of the model what has it; ``None`` if nothing does.
        layer: Path of the layer that has it, if one does.
        part: The attribute of the layer that holds the holder, if the layer does not
            have the option itself.
    """

    path: str
    kind: Kind
    holder: Callable[[Model], Any] | None = None
    key: Any = None
    layer: str | None = None
    part: str | None = None

    def slot(self, model: Model) -> SettingSlot | None:
        """The place in a copy of the model, if it is one that holds a value."""
        if self.kind not in _HELD or self.holder is None:
            return None
        holder = self.holder(model)
        slot = SettingSlot(holder, self.key, self.path)
        try:
            slot.read()
        except (KeyError, IndexError):  # an argument that is kept in other attributes
            return None
        return slot

    def check(self, model: Model, value: Any) -> None:
        """Raises if a value can never work there."""
        try:
            self._check(model, value)
        except ExBurnError as error:
            locate(error, f"in over={{{self.path!r}: …}}")
            raise

    def _check(self, model: Model, value: Any) -> None:
        if self.kind == "seed":
            if check_count(_OP, self.path, value, least=0) >= 2**32:
                raise ArgumentError(_OP, f"a seed is below 2**32, received {value}")
        elif self.kind == "batch_size":
            check_count(_OP, self.path, value)
        elif self.kind == "optimizer":
            optimizers.get(copy.deepcopy(value))
        elif self.kind == "rate":
            optimizer: Any = model.optimizer
            if optimizer.schedule is not None and self.key == "learning_rate":
                raise ArgumentError(
                    _OP,
                    "the learning rate is that of a schedule",
                    {"schedule": type(optimizer.schedule).__name__},
                    hint="Vary learning_rate/initial_learning_rate, or scale, which "
                    "is a factor of it.",
                )
            type(optimizer)._check_rate(optimizer, value)
        elif self.kind == "loss_weights":
            check_number(_OP, self.path, value, -math.inf)
        elif self.holder is not None and not self._is_assigned(self.holder(model)):
            self.remade(model, value)

    def _is_assigned(self, holder: Any) -> bool:
        """Whether the key is an attribute alone, and no argument of a constructor."""
        if self.key in init_names(type(holder)) or self.key not in vars(holder):
            return False
        try:
            return self.key not in arguments_of(holder)
        except CannotRemake:
            return True

    def remade(self, model: Model, value: Any) -> Any:
        """What has the option, made anew with a value."""
        assert self.holder is not None
        own = value if value is None or is_array([value]) else copy.deepcopy(value)
        return remake(self.holder(model), {self.key: own})

    def value_in(self, model: Model, value: Any) -> Any:
        """What is held of a value: a layer may make an interval of a number."""
        if self.kind == "loss_weights" or self.holder is None:
            return value
        if self._is_assigned(self.holder(model)):
            return value
        return vars(self.remade(model, value)).get(self.key, value)

    def why_alone(self, model: Model, values: Iterable[Any]) -> str:
        """Why no array can stand for values of a number; empty if one can."""
        if self.kind == "loss_weights" or self.holder is None:
            return ""
        holder = self.holder(model)
        if self.part is not None and _count_holders(model, holder) > 1:
            return "an option of something that is in several places"
        if self.kind == "loss" and _count_terms(model, holder) > 1:
            return "an option of a loss of several outputs"
        if self._is_assigned(holder):
            return ""
        own = remake_alike(holder)
        distinct = {repr(value): value for value in values}.values()
        holders = (_built_like(self.remade(model, value), holder) for value in distinct)
        if any(differs_elsewhere(own, one, self.key) for one in holders):
            return "a number from which something else is computed"
        return ""

    def put(self, model: Model, value: Any) -> Model:
        """The model with a value there: itself, or another one with fresh weights."""
        try:
            return self._put(model, value)
        except ExBurnError as error:
            locate(error, f"in over={{{self.path!r}: …}}")
            raise

    def _put(self, model: Model, value: Any) -> Model:
        if self.kind == "optimizer":
            replace_optimizer(model, copy.deepcopy(value))
        if self.kind not in _HELD or self.holder is None:
            return model
        holder = self.holder(model)
        if self.kind == "loss_weights":
            _weigh(model, self.key, float(value))
        elif self._is_assigned(holder):
            setattr(holder, self.key, value)
        elif self.layer is not None:
            return self._put_in_layer(model, value)
        elif self.kind == "schedule":
            optimizer = self._optimizer(model)
            schedule = self.remade(model, value)
            new = remake(optimizer, {"learning_rate": schedule})
            with_optimizer(model, optimizer, new)
        elif self.kind == "loss":
            with_loss(model, holder, self.remade(model, value))
        else:
            with_optimizer(model, holder, self.remade(model, value))
        return model

    def _optimizer(self, model: Model) -> Any:
        """The optimizer that has the schedule."""
        return _inner(model.optimizer)

    def _put_in_layer(self, model: Model, value: Any) -> Model:
        layer = dict(iter_modules(model))[self.layer or ""]
        key, new = self.key, value
        if self.part is not None:
            key, new = self.part, self.remade(model, value)
        changed_model = with_layer(model, layer, key, new)
        if not self._has(changed_model, model, value):
            raise ArgumentError(
                _OP, f"{self.path!r} cannot be varied: a layer around it sets it"
            )
        return changed_model

    def _has(self, changed_model: Model, model: Model, value: Any) -> bool:
        """Whether the thing in another model has the value that it was to get."""
        assert self.holder is not None
        try:
            holder = self.holder(changed_model)
        except (KeyError, AttributeError):
            return False
        remade = self.remade(model, value)
        if not isinstance(holder, Layer):
            return not differs_elsewhere(holder, remade, "")
        now, then = arguments_of(holder), arguments_of(remade)
        return is_same(now[self.key], then[self.key])

    def set(self, model: Model, value: Any) -> None:
        """Sets a number in a model that is prepared for data."""
        if self.kind == "rate":
            setattr(model.optimizer, self.key, float(value))
        if self.kind not in _HELD or self.holder is None:
            return
        holder = self.holder(model)
        if self.kind == "loss_weights":
            _weigh(model, self.key, float(value))
            return
        setattr(holder, self.key, self.value_in(model, value))
        settings = model._training_session.settings
        if self.kind == "loss" and settings is not None:  # as it would be saved
            settings["loss"] = _objective(model).losses


def remake_alike(holder: Any) -> Any:
    """A thing made again with its own arguments, built if it is a built layer."""
    return _built_like(remake(holder, {}), holder)


def _built_like(layer: Any, holder: Any) -> Any:
    """A layer, built for the shapes of another one; other things as they are."""
    if isinstance(holder, Layer) and holder.built and not layer.built:
        shapes, named = holder._meta.value.shapes
        layer.build(*shapes, **named)
    return layer


def _count_holders(model: Model, part: Any) -> int:
    """How many attributes of a model's layers hold an object."""
    count = 0
    for _, module in iter_modules(model):
        if isinstance(module, Layer):
            count += sum(value is part for value in vars(module).values())
    return count


def _count_terms(model: Model, loss: Any) -> int:
    return sum(term.original is loss for term in _objective(model).terms)


def _objective(model: Any) -> Any:
    return model._training_session.objective


def _weigh(model: Any, place: int, value: float) -> None:
    """Sets the factor of one output's loss."""
    objective = _objective(model)
    scales = [*objective._scales]
    scales[place] = value
    named = {objective.output_names[t.output]: scales[t.place] for t in objective.terms}
    weights = named if len(named) > 1 else scales
    objective.loss_weights = model._training_session.settings["loss_weights"] = weights


def find(model: Model, path: Any) -> HyperparameterPlace:
    """The place that a path names in a built and compiled model."""
    for place in places(model):
        if place.path == path:
            return place
    if isinstance(path, str) and (place := _alias(model, path)) is not None:
        return place
    paths = [place.path for place in places(model)]
    raise unknown_name(
        "path",
        path,
        paths,
        op=_OP,
        hint="A path is an option of the optimizer, or <layer>/<option>.",
    )


def places(model: Model) -> Iterator[HyperparameterPlace]:
    """All that can be varied in a model."""
    for path, kind in _OWN.items():
        yield HyperparameterPlace(path, kind)  # type: ignore[arg-type]
    optimizer: Any = model.optimizer
    for name in _RATES:
        yield HyperparameterPlace(name, "rate", key=name)
    yield from _of_optimizer(optimizer)
    if optimizer.schedule is not None:
        of_schedule = lambda m: _inner(m.optimizer).schedule  # noqa: E731
        for key in _options(optimizer.schedule):
            yield HyperparameterPlace(
                f"learning_rate/{key}", "schedule", of_schedule, key
            )
    yield from _of_loss(model)
    for path, module in iter_modules(model):
        if path and isinstance(module, Layer):
            yield from _of_layer(path, module)


def _alias(model: Model, path: str) -> HyperparameterPlace | None:
    """A place by another name: that of a layer within layers, or ``optimizer/…``."""
    head, _, key = path.partition("/")
    if head == "optimizer" and key:
        own = [p for p in places(model) if p.path == key and p.layer is None]
        return dataclasses.replace(own[0], path=path) if own else None
    named = [
        where
        for where, module in iter_modules(model)
        if where and getattr(module, "name", None) == head
    ]
    if len(named) != 1:
        return None
    full_path = f"{named[0]}/{key}"
    for place in places(model):
        if place.path == full_path:
            return dataclasses.replace(place, path=path)
    return None


def _inner(optimizer: Any) -> Any:
    """The optimizer that has the options."""
    if isinstance(optimizer, LossScaleOptimizer):
        return _inner(optimizer.inner_optimizer)
    return optimizer


def _of_optimizer(optimizer: Any) -> Iterator[HyperparameterPlace]:
    inner = _inner(optimizer)
    if isinstance(inner, MultiOptimizer):
        for i, one in enumerate(inner.optimizers):
            of_one = lambda m, i=i: _inner(m.optimizer).optimizers[i]  # noqa: E731
            for key in _options(one):
                yield HyperparameterPlace(f"{i}/{key}", "option", of_one, key)
        return
    for key in _options(inner):
        yield HyperparameterPlace(key, "option", lambda m: _inner(m.optimizer), key)


def _of_loss(model: Model) -> Iterator[HyperparameterPlace]:
    terms, names = _objective(model).terms, _objective(model).output_names
    for i, term in enumerate(terms):
        output = names[term.output]
        of_loss = lambda m, i=i: _objective(m).terms[i].original  # noqa: E731
        scales = lambda m: _objective(m)._scales  # noqa: E731
        for key in _options(term.original):
            path = f"loss/{key}" if len(terms) == 1 else f"loss/{output}/{key}"
            yield HyperparameterPlace(path, "loss", of_loss, key)
        path = "loss_weights" if len(terms) == 1 else f"loss_weights/{output}"
        yield HyperparameterPlace(path, "loss_weights", scales, term.place)


def _of_layer(path: str, layer: Layer) -> Iterator[HyperparameterPlace]:
    def at(model: Any, path: str = path) -> Any:
        return dict(iter_modules(model))[path]

    options = _options(layer)
    for key in options:
        yield HyperparameterPlace(f"{path}/{key}", "option", at, key, path)
    for name in dict.fromkeys([*options, *vars(layer)]):
        part = None if name.startswith("_") else _part(layer, name)
        if hasattr(part, "get_config"):
            of_part = lambda m, name=name, at=at: getattr(at(m), name)  # noqa: E731
            for key in _options(part):
                inside = f"{path}/{name}/{key}"
                yield HyperparameterPlace(inside, "option", of_part, key, path, name)


def _part(layer: Layer, name: str) -> Any:
    """An object that a layer was given, or made; ``None`` where it has none."""
    try:
        part = getattr(layer, name, None)
    except ExBurnError:  # a property that has no value yet
        return None
    return None if isinstance(part, nnx.Module | InputSpec | type) else part


def _options(thing: Any) -> list[str]:
    """Names of what the constructor of a thing takes."""
    arguments = [name for name in init_names(type(thing)) if name not in _NO_OPTIONS]
    numbers = [n for n in vars(thing) if _is_number(vars(thing)[n]) and n[0] != "_"]
    return list(dict.fromkeys([*arguments, *numbers]))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def is_array(values: list[Any]) -> bool:
    """Whether values could be entries of an array: numbers, or as many in each."""
    if all(isinstance(value, tuple | list) for value in values):
        alike = len(set(map(len, values))) == 1
        return alike and all(_is_number(v) for value in values for v in value)
    return all(map(_is_number, values))


def is_exact(values: list[Any]) -> bool:
    """Whether whole numbers among values are the same in float32, as seeds may not be.

    Example:
        >>> is_exact([0.1, 2**24]), is_exact([2**24 + 1])
        (True, False)
    """
    whole = (value for value in values if isinstance(value, int | np.integer))
    return all(int(np.float32(value)) == value for value in whole)
