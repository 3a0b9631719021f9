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
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from exburn import optimizers
from exburn.core.checks import check_count
from exburn.errors import ArgumentError, ExBurnError, unknown_name
from exburn.models import Model
from exburn.models.cloning import clone_model
from exburn.models.compiling import replace_optimizer
from exburn.module.layer import Layer
from exburn.module.traversal import iter_modules
from exburn.optimizers import LossScaleOptimizer, MultiOptimizer
from exburn.training.fingerprint import Slot

Kind = Literal["seed", "rate", "slot", "optimizer", "batch_size"]
_OWN = {"seed": "seed", "batch_size": "batch_size", "optimizer": "optimizer"}
_RATES = ("learning_rate", "scale")
_NO_OPTIONS = {"name", "dtype", "trainable", "learning_rate", "loss_scale_factor"}
_OP = "sweep"


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the thing is that a path names.

    Attributes:
        path: The path.
        kind: What is to be done with it.
        holder: Finds in a copy of the model what has it; ``None`` if nothing does.
        key: The attribute, or the entry.
        layer: Path of the layer that has it, if one does.
    """

    path: str
    kind: Kind
    holder: Callable[[Model], Any] | None = None
    key: Any = None
    layer: str | None = None

    def slot(self, model: Model) -> Slot | None:
        """The place in a copy of the model, if it is one that holds a value."""
        if self.kind != "slot" or self.holder is None:
            return None
        holder = self.holder(model)
        slot = Slot(holder, self.key, self.path)
        try:
            slot.read()
        except (KeyError, IndexError):  # an argument that is kept in other attributes
            return None
        return slot

    def check(self, model: Model, value: Any) -> None:
        """Raises if a value can never work there.

        Raises:
            ArgumentError: With the path, and what the thing itself says.
        """
        try:
            self._check(model, value)
        except ExBurnError as error:
            error.add_note(f"in over={{{self.path!r}: …}}")
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
        elif self.holder is not None:
            _try_value(self.holder(model), self.key, value)

    def held(self, model: Model, value: Any) -> Any:
        """What is held of a value: a layer may make an interval of a number."""
        holder = None if self.holder is None else self.holder(model)
        if isinstance(holder, Layer) and self.key in (config := holder.get_config()):
            made = type(holder).from_config(config | {self.key: value})
            return vars(made).get(self.key, value)
        return value

    def put(self, model: Model, value: Any) -> Model:
        """The model with a value there: itself, or another one with fresh weights.

        Args:
            model: One that nobody else has.
            value: Of any kind.
        """
        if self.kind == "optimizer":
            replace_optimizer(model, copy.deepcopy(value))
        elif self.kind == "slot" and self.holder is not None:
            holder = self.holder(model)
            if isinstance(holder, Layer):
                return _with_layer(model, holder, self.key, value)
            setattr(holder, self.key, value)
        return model

    def set(self, model: Model, value: Any) -> None:
        """Sets a number in a model that is prepared for data."""
        if self.kind == "rate":
            setattr(model.optimizer, self.key, float(value))
        if self.kind != "slot" or self.holder is None:
            return
        holder = self.holder(model)
        if isinstance(holder, list):
            _weigh(model, self.key, float(value))
            return
        setattr(holder, self.key, self.held(model, value))
        settings, objective = model._run.value.settings, _objective(model)
        if settings is not None and len(objective.terms) == 1:
            if holder is objective.terms[0].given:  # as it would be saved
                settings["loss"] = holder


def _objective(model: Any) -> Any:
    return model._run.value.trainer.preparer.objective


def _weigh(model: Any, place: int, value: float) -> None:
    """Sets the factor of one output's loss."""
    objective = _objective(model)
    scales = [*objective._scales]
    scales[place] = value
    named = {objective.output_names[t.output]: scales[t.place] for t in objective.terms}
    weights = named if len(named) > 1 else scales
    objective.loss_weights = model._run.value.settings["loss_weights"] = weights


def find(model: Model, path: Any) -> Place:
    """The place that a path names in a built and compiled model.

    Raises:
        UnknownNameError: There is none, with the nearest paths there are.
    """
    for place in places(model):
        if place.path == path:
            return place
    if isinstance(path, str) and (place := _alias(model, path)) is not None:
        return place
    known = [place.path for place in places(model)]
    raise unknown_name(
        "path",
        path,
        known,
        op=_OP,
        hint="A path is an option of the optimizer, or <layer>/<option>.",
    )


def places(model: Model) -> Iterator[Place]:
    """All that can be varied in a model."""
    for path, kind in _OWN.items():
        yield Place(path, kind)  # type: ignore[arg-type]
    optimizer: Any = model.optimizer
    for name in _RATES:
        yield Place(name, "rate", key=name)
    yield from _of_optimizer(optimizer)
    if optimizer.schedule is not None:
        of_schedule = lambda m: _inner(m.optimizer).schedule  # noqa: E731
        for key in _options(optimizer.schedule):
            yield Place(f"learning_rate/{key}", "slot", of_schedule, key)
    yield from _of_loss(model)
    for path, module in iter_modules(model):
        if path and isinstance(module, Layer):
            yield from _of_layer(path, module)


def _alias(model: Model, path: str) -> Place | None:
    """A place by another name: that of a layer within layers, or ``optimizer/…``."""
    head, _, key = path.partition("/")
    if head == "optimizer" and key:
        found = [p for p in places(model) if p.path == key and p.layer is None]
        return dataclasses.replace(found[0], path=path) if found else None
    named = [
        where
        for where, module in iter_modules(model)
        if where and getattr(module, "name", None) == head
    ]
    if len(named) != 1:
        return None
    wanted = f"{named[0]}/{key}"
    for place in places(model):
        if place.path == wanted:
            return dataclasses.replace(place, path=path)
    return None


def _inner(optimizer: Any) -> Any:
    """The optimizer that has the options."""
    if isinstance(optimizer, LossScaleOptimizer):
        return _inner(optimizer.inner_optimizer)
    return optimizer


def _of_optimizer(optimizer: Any) -> Iterator[Place]:
    inner = _inner(optimizer)
    if isinstance(inner, MultiOptimizer):
        for i, one in enumerate(inner.optimizers):
            of_one = lambda m, i=i: _inner(m.optimizer).optimizers[i]  # noqa: E731
            for key in _options(one):
                yield Place(f"{i}/{key}", "slot", of_one, key)
        return
    for key in _options(inner):
        yield Place(key, "slot", lambda m: _inner(m.optimizer), key)


def _of_loss(model: Model) -> Iterator[Place]:
    terms, names = _objective(model).terms, _objective(model).output_names
    for i, term in enumerate(terms):
        output = names[term.output]
        of_loss = lambda m, i=i: _objective(m).terms[i].given  # noqa: E731
        scales = lambda m: _objective(m)._scales  # noqa: E731
        for key in _options(term.given):
            path = f"loss/{key}" if len(terms) == 1 else f"loss/{output}/{key}"
            yield Place(path, "slot", of_loss, key)
        where = "" if len(terms) == 1 else f"/{output}"
        yield Place(f"loss_weights{where}", "slot", scales, term.place)


def _of_layer(path: str, layer: Layer) -> Iterator[Place]:
    def at(model: Any, path: str = path) -> Any:
        return dict(iter_modules(model))[path]

    for key in _options(layer):
        yield Place(f"{path}/{key}", "slot", at, key, layer=path)
    for name, part in vars(layer).items():
        if name.startswith("_") or isinstance(part, Layer):
            continue
        if hasattr(part, "get_config"):
            of_part = lambda m, name=name, at=at: getattr(at(m), name)  # noqa: E731
            for key in _options(part):
                inside = f"{path}/{name}/{key}"
                yield Place(inside, "slot", of_part, key, layer=path)


def _options(thing: Any) -> list[str]:
    """Names of what the constructor of a thing takes."""
    try:
        parameters = inspect.signature(type(thing)).parameters.items()
        names = [name for name, p in parameters if p.kind is not p.VAR_KEYWORD]
    except (TypeError, ValueError):
        return []
    held = [name for name in names if name not in _NO_OPTIONS]
    kept = [n for n in vars(thing) if _is_number(vars(thing)[n]) and n[0] != "_"]
    return list(dict.fromkeys([*held, *kept]))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def is_array(values: list[Any]) -> bool:
    """Whether values could be entries of an array: numbers, or as many in each."""
    if all(isinstance(value, tuple | list) for value in values):
        alike = len(set(map(len, values))) == 1
        return alike and all(_is_number(v) for value in values for v in value)
    return all(map(_is_number, values))


def _try_value(holder: Any, key: Any, value: Any) -> None:
    """Makes another one with the value, which says what is wrong with it."""
    if isinstance(holder, list) or not hasattr(holder, "get_config"):
        return
    config = holder.get_config()
    if key in config:
        type(holder).from_config(config | {key: value})


def _with_layer(model: Model, layer: Layer, key: str, value: Any) -> Model:
    """The model with another layer in the place of one, and fresh weights."""

    def make(one: Layer) -> Layer:
        config = one.get_config()
        if one is not layer:
            return type(one).from_config(config)
        if key not in config:
            raise ArgumentError(
                _OP,
                f"{key!r} of layer {layer.name!r} cannot be varied: it is no argument "
                "of its constructor",
            )
        return type(one).from_config(config | {key: value})

    return clone_model(model, clone_function=make, recursive=True)
