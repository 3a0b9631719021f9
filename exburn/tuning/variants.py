"""The programs of a sweep: a model of one structure, made ready to run in lanes."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.data import ArrayDataset, StreamDataset
from exburn.errors import ArgumentError
from exburn.models import Model
from exburn.models.fit_data import encode_for, prepare_for_fit
from exburn.models.preparing import output_names
from exburn.models.session import require_trainer
from exburn.module.building import redraw
from exburn.module.traversal import iter_modules, iter_weights
from exburn.runtime.device import host
from exburn.training.feed.base import Feed
from exburn.training.feed.chunking import FeedRequest, make_feed
from exburn.training.fingerprint import SettingSlot
from exburn.training.memory import state_specs
from exburn.training.numbers import holding, is_number
from exburn.training.placement import OneDevice
from exburn.training.program import Programs
from exburn.training.requests import FitData
from exburn.training.state import TrainState
from exburn.tuning import lanes
from exburn.tuning.hyperparameters import HyperparameterPlace, is_array, is_exact
from exburn.tuning.lane_feed import LaneFeed
from exburn.tuning.lanes import Lanes
from exburn.tuning.records import Trial
from exburn.tuning.room import check_room
from exburn.tuning.widths import (
    MaskedWidths,
    Unsupported,
    Width,
    follow,
    narrow,
    narrow_shapes,
    widen,
)

_STRUCTURAL = ("optimizer", "batch_size")  # kinds that no array stands for


class Variant:
    """Trials whose models have one structure, so that one program runs them.

    Args:
        source: The model whose weights the lanes begin with; it stays as it is.
        fixed: What all of these trials have, and no array stands for.

    Attributes:
        model: A copy of the source, with what is fixed; programs are made of it.
        arrays: Paths whose values are numbers of each lane, and the names of these.
        constant: Paths that turned out to need programs of their own, and why.
        largest: What is fixed, and the widest of each width.
    """

    def __init__(
        self,
        source: Model,
        data: FitData,
        places: Mapping[str, HyperparameterPlace],
        fixed: Trial,
        trials: Sequence[Trial],
        epochs: int,
        reasons: Mapping[str, str] | None = None,
        placement: OneDevice | None = None,
    ):
        self.source, self.places, self.fixed = source, places, fixed
        self.data = dataclasses.replace(data)
        if "batch_size" in fixed:
            self.data.batch_size = fixed["batch_size"]
        self.constant: dict[str, str] = dict(reasons or {})
        self.widths = self._follow_widths(trials)
        if self.constant.keys() - (reasons or {}).keys():
            return  # it is made anew, for fewer trials
        self.largest = fixed | {p: width.most for p, width in self.widths.items()}
        make = partial(self._with_layers, self.largest)
        check_room(make, self.largest, placement)
        if self._encodes_anew():
            encode_for(make(), self.data)
        self.model = self.make_model(self.largest)
        prepare_for_fit(self.model, self.data)
        self.trainer = require_trainer(self.model, "sweep")
        self.holder, self.preparer = self.trainer.holder, self.trainer.preparer
        self.arrays: dict[str, str] = {}
        self._values_in: dict[tuple[str, str], Any] = {}
        self.of_widths: dict[str, str] = {}  # numbers, and the paths they stand for
        self._take_widths()
        self._take(trials)
        prepare_for_fit(self.model, self.data)
        self.holder.optimizer.set_epochs(self.data.known_steps, epochs)
        self._programs: dict[Lanes, Programs] = {}
        self._why: str | None = None
        self._feeds: dict[tuple, Feed] = {}
        if placement is not None:
            self.holder.placement = placement
        if self.widths:
            inner = self.holder.placement
            self.holder.placement = MaskedWidths(inner, self.widths, self.model)
        self.states = LaneStates(self)

    def takes(self, fixed: Trial, trials: Sequence[Trial]) -> bool:
        """Whether its programs run other trials, too."""
        if repr(sorted(fixed.items())) != repr(sorted(self.fixed.items())):
            return False
        for path in {path for trial in trials for path in trial}.difference(fixed):
            values = [trial[path] for trial in trials if path in trial]
            if path in self.widths:
                if max(values) > self.widths[path].most:
                    return False
            elif self.places[path].kind not in ("seed", "rate"):
                if path not in self.arrays or not is_array(values):
                    return False
        return True

    def _encodes_anew(self) -> bool:
        """Tells whether the host makes other arrays of the data than for the source."""
        host = self.source.host_graph
        if host is None:
            return False
        layers = dict(iter_modules(self.source))
        paths = [
            path
            for path in self._of_layers(self.fixed)
            if host.reads(self.source.nodes, layers[self.places[path].layer or ""])
        ]
        whole = self.data.sources[0]
        stream = isinstance(whole, StreamDataset)
        if paths and host.is_encoded(whole.peek()[0] if stream else whole.tree[0]):
            raise ArgumentError(
                "sweep",
                f"{paths[0]!r} decides what the host makes of the data, and these were "
                "made already",
                hint="Pass the data themselves, not what encode_inputs made of them.",
            )
        # Rows that are looked up batch by batch come in batches of the source's size.
        batched = isinstance(self.data.dataset, StreamDataset)
        return bool(paths) or (batched and "batch_size" in self.fixed)

    # ------------------------------------------------------------------ the model
    def make_model(self, fixed: Trial) -> Model:
        """A model of this structure, compiled like the source and begun like it."""
        model = self._with_layers(fixed)
        of_layers = self._of_layers(fixed)
        if of_layers:
            _keep_weights(self.source, model, self.source_seed)
            for path in of_layers:
                place = self.places[path]
                _check_initializer(self.source, model, place, self.source_seed)
        others = [path for path in _whole_first(fixed) if path not in of_layers]
        if others:  # losses are known when the model is prepared
            prepare_for_fit(model, dataclasses.replace(self.data))
        for path in others:
            model = self.places[path].put(model, fixed[path])
        return model

    def _of_layers(self, fixed: Trial) -> list[str]:
        """The paths that change layers, and so which weights there are."""
        paths = _whole_first(fixed)
        return [path for path in paths if self.places[path].layer is not None]

    def _with_layers(self, fixed: Trial) -> Model:
        """A copy of the source with the layers of some values."""
        model = copy.deepcopy(self.source)
        for path in self._of_layers(fixed):
            model = self.places[path].put(model, fixed[path])
        return model

    @property
    def source_seed(self) -> int:
        """The seed of the model's own ``fit``."""
        return require_trainer(self.source, "sweep").holder.seed

    # ------------------------------------------------------------------ widths
    def _follow_widths(self, trials: Sequence[Trial]) -> dict[str, Width]:
        """Widths that differ by lane, by path; notes those that cannot."""
        widths = {}
        for path, place in self.places.items():
            values = [t[path] for t in trials if path in t]
            if place.key not in ("units", "filters") or path in self.fixed:
                continue
            if place.layer is None or place.holder is None or not is_array(values):
                continue
            layer = place.holder(self.source)
            own = getattr(layer, place.key)
            if any(path not in trial for trial in trials):
                values.append(own)
            try:
                width = follow(self.source, path, layer, max(map(int, values)))
                drawn = redraw(self.source, self.source_seed)
                if any(axis.weight not in drawn for axis in width.axes):
                    raise Unsupported("a width of weights that somebody has set")
                widths[path] = width
            except Unsupported as error:
                self.constant[path] = str(error)
        return widths

    def _take_widths(self) -> None:
        """Makes arguments of the programs of the lanes' widths."""
        for path, width in self.widths.items():
            slots = width.slots(self.model)
            named = self._take_slots(slots)
            for slot in slots:
                if slot.place not in named:
                    self.constant[path] = "a width that is needed to compile a step"
                else:
                    self.of_widths[named[slot.place]] = path

    def units(self, trial: Trial) -> dict[str, int]:
        """The units of a lane, by the paths of the widths that differ."""
        units = {}
        for path in self.widths:
            place = self.places[path]
            assert place.holder is not None
            own = getattr(place.holder(self.source), place.key)
            units[path] = int(trial.get(path, own))
        return units

    # ------------------------------------------------------------------ numbers
    def _take(self, trials: Sequence[Trial]) -> None:
        """Makes arguments of the programs of the numbers that differ, if it can be."""
        slots: dict[str, SettingSlot] = {}
        for path, place in self.places.items():
            values = [t[path] for t in trials if path in t]
            if path in self.fixed or not values or place.kind in ("seed", "rate"):
                continue
            if path in self.widths:
                continue
            slot = place.slot(self.model)
            if slot is not None:
                values = [self.value_in(path, value) for value in values]
            if slot is None or not is_array(values):
                self.constant[path] = "values that are no numbers of one attribute"
                continue
            if not is_exact(values):
                self.constant[path] = "whole numbers that are no float32"
                continue
            if why := place.why_alone(
                self.model, [t[path] for t in trials if path in t]
            ):
                self.constant[path] = why
                continue
            if slot.read() is None and all(path in t for t in trials):
                slot.write(values[0])
            if not is_array([slot.read(), values[0]]):
                self.constant[path] = f"the model's own, which is {slot.read()!r}"
                continue
            slots[path] = slot
        for path, slot in slots.items():
            if not slot.read():  # zero may stand for nothing, and leave out a slot
                slot.write(next((float(t[path]) for t in trials if t.get(path)), 0.0))
            if (name := self._take_slots([slot]).get(slot.place)) is None:
                self.constant[path] = "a number that decides how a step is compiled"
            elif not self._reads(name):
                self.constant[path] = "a number that no step reads"
            else:
                self.arrays[path] = name

    def value_in(self, path: str, value: Any) -> Any:
        """What the model holds of a trial's value."""
        key = path, repr(value)
        if key not in self._values_in:
            self._values_in[key] = self.places[path].value_in(self.model, value)
        return self._values_in[key]

    def _take_slots(self, slots: Sequence[SettingSlot]) -> dict[Any, str]:
        """Makes arguments of a step of what slots hold, if it can be.

        Returns:
            The names of all numbers that are arguments, by the places of their slots.
        """
        self.preparer.take_slots(slots)
        if self.holder.step:
            self.holder.refit_state()
        else:
            self.holder.opt_state = None
        batch = self.preparer.batch_specs["train"]
        names = partial(output_names, self.model)
        self.preparer.prepare(batch, names=names, op="sweep")
        return {
            n.slot.place: name for name, n in self.preparer.splitter.numbers.items()
        }

    def _reads(self, name: str) -> bool:
        """Whether a step of training computes with a number."""
        preparer = self.preparer
        steps = preparer.programs.steps.without_counting()
        state = state_specs(preparer, "train")
        batch = preparer.batch_specs["train"]
        with jax.numpy_dtype_promotion("standard"):
            jaxpr = jax.make_jaxpr(lambda s, b: steps.step(s, b, None))(state, batch)
        leaves = jax.tree_util.tree_leaves_with_path(state)
        place = next(i for i, (path, _) in enumerate(leaves) if _key(path) == name)
        argument = jaxpr.jaxpr.invars[place]
        return any(v is argument for eqn in jaxpr.jaxpr.eqns for v in eqn.invars)

    # ------------------------------------------------------------------ programs
    @property
    def placement(self) -> OneDevice:
        """Where lanes lie."""
        return self.holder.placement

    def making_states(self) -> contextlib.AbstractContextManager[Any]:
        """In the block states are made in host memory if several devices divide them.

        All of them may be more than one device holds.
        """
        if self.placement.devices == 1:
            return contextlib.nullcontext()
        return jax.default_device(host())

    def why_in_turn(self) -> str:
        """Why lanes can only run one after the other; empty if they can together."""
        if self._why is None:
            self._why = "run_eagerly" if self.preparer.eager else ""
            try:
                self._trace_lanes()
            except Exception as error:
                first = str(error).strip().partition("\n")[0]
                self._why = f"a step cannot be that of many ({first[:120]})"
        return self._why

    def _trace_lanes(self) -> None:
        """Traces a step of two lanes; raises what a model that has none raises."""
        programs = self.preparer.make_programs(self.placement, lanes=Lanes(True))
        state: Any = _with_axes(state_specs(self.preparer, "train"), 2)
        batch = _with_axes(self.preparer.batch_specs["train"], 1, 2)
        whole = state.replace(metrics=None), state.metrics, batch, None, None
        jax.eval_shape(programs.steps.without_counting().train, *whole)

    def programs(self, of: Lanes) -> Programs:
        """The programs of some lanes: compiled once, whatever numbers they have."""
        if of not in self._programs:
            placement = self.holder.placement
            programs = self.preparer.make_programs(placement, lanes=of)
            self._programs[of] = programs
        return self._programs[of]

    # ------------------------------------------------------------------ data
    def feed(
        self,
        kind: str,
        seeds: Sequence[int],
        rows: Sequence[np.ndarray] | None,
    ) -> LaneFeed:
        """The chunks of some lanes; data on a device are there once for all of them."""
        data, training = self.data, kind == "train"
        held_out = data.dataset if rows is not None else data.validation
        dataset: Any = data.dataset if training else held_out
        batch_size = data.batch_size
        if not training:
            batch_size = data.validation_batch_size or batch_size

        def make(count: int | None, resident: bool) -> Feed:
            key = kind, id(dataset), None if count == dataset_size else count, resident
            if training and getattr(dataset, "reiterable", False):
                key = *key, len(self._feeds)  # each group reads a loader for itself
            if key not in self._feeds:
                part = dataset if key[2] is None else dataset.rows(0, count)
                request = FeedRequest(
                    training=training,
                    shuffle=data.shuffle if training else False,
                    steps=data.steps if training else data.validation_steps,
                    reused=True,
                    resident=True if resident else None,
                    earlier=self.holder.epochs_before(0) if training else 0,
                    use=None if training else "test",
                )
                feed = make_feed(self.preparer, part, batch_size, request)
                self._feeds[key] = feed
            return self._feeds[key]

        dataset_size = getattr(dataset, "size", None)
        send = getattr(self.placement, "send_own", lambda rows: rows)
        own_order = training and isinstance(dataset, ArrayDataset)
        shuffle = data.shuffle if own_order else False
        return LaneFeed(make, seeds, rows, shuffle=shuffle, send=send)

    def close(self) -> None:
        """Drops what lies on the device for all lanes."""
        for feed in self._feeds.values():
            feed.close()
        self._feeds = {}

    # ------------------------------------------------------------------ one lane
    def make_alone(self, trial: Trial) -> Model:
        """The model of one trial, of its own widths, before it is trained."""
        return self.make_model({**self.fixed, **self.units(trial)})

    def narrow(self, trial: Trial, tree: Any) -> Any:
        """The arrays of a lane as its own model has them, which may be narrower."""
        if not self.widths:
            return tree
        units = self.units(trial)
        shapes = {p: w.get_raw_value().shape for p, w, _ in iter_weights(self.model)}

        def one(path: tuple, leaf: Any) -> Any:
            for key in reversed(path):
                name: Any = getattr(key, "key", None)
                if name in shapes and shapes[name] == np.shape(leaf):
                    return narrow(self.widths, units, name, leaf)
            return leaf

        return jax.tree_util.tree_map_with_path(one, tree)

    def seed(self, trial: Trial) -> int:
        """The seed of a lane."""
        return int(trial.get("seed", self.source_seed))


class LaneStates:
    """The states that the lanes of a variant begin with, by their trials."""

    def __init__(self, variant: Variant):
        # No circle: the arrays would stay until Python looks for garbage.
        proxy: Any = weakref.proxy(variant)
        self._variant: Variant = proxy
        self._holder = variant.holder
        self._drawn: dict[tuple, dict[str, np.ndarray]] = {}
        self._init: Any = None
        self._warm: Any = None

    def initial(self, trials: Sequence[Trial]) -> TrainState:
        """The state that the lanes of some trials begin with."""
        count, seeds = len(trials), [self._variant.seed(trial) for trial in trials]
        groups = [dict(group) for group in self._holder.split.read()]
        redraws = bool(self._variant.widths) or any("seed" in trial for trial in trials)
        drawn = [self._draw(trial) for trial in trials] if redraws else [{}]
        for group in groups:
            for name, value in group.items():
                if is_number(name):
                    continue
                if name in drawn[0]:
                    values = np.stack([weights[name] for weights in drawn])
                    group[name] = jax.device_put(values)
                else:
                    group[name] = lanes.repeat(value, count)
        params, frozen, others = groups
        others |= self._numbers(others, trials)
        opt_state = self._opt_state(params, others, trials)
        opt_state = self.with_warmup(opt_state, others)
        return TrainState(
            params,
            frozen,
            others,
            opt_state,
            None,
            jnp.full(count, self._holder.step, jnp.int32),
            jax.device_put(lanes.seeds_data(seeds)),
        )

    def with_values(self, state: TrainState, trials: Sequence[Trial]) -> TrainState:
        """States of lanes with the numbers and seeds of other trials."""
        seeds = [self._variant.seed(trial) for trial in trials]
        new = state.replace(
            others={**state.others, **self._numbers(state.others, trials)},
            opt_state=self.with_rates(state.opt_state, trials),
            seed=jax.device_put(lanes.seeds_data(seeds)),
        )
        return self._variant.placement.state(new)

    def _draw(self, trial: Trial) -> dict[str, np.ndarray]:
        """The weights of a lane that nobody has changed, by name."""
        variant = self._variant
        seed, units = variant.seed(trial), variant.units(trial)
        key = seed, *units.values()
        if key in self._drawn:
            return self._drawn[key]
        structural = any(variant.places[p].layer is not None for p in variant.fixed)
        of = variant.model if structural or variant.widths else variant.source
        shapes = {path: w.get_raw_value().shape for path, w, _ in iter_weights(of)}
        drawn = redraw(of, seed, narrow_shapes(variant.widths, units, shapes))
        self._drawn[key] = {
            name: widen(variant.widths, name, value, shapes[name])
            for name, value in drawn.items()
        }
        return self._drawn[key]

    def _numbers(self, others: Mapping, trials: Sequence[Trial]) -> dict[str, Any]:
        """The numbers among some arrays, as the lanes of trials have them."""
        return {
            name: lanes.numbers_array(self._values(name, trials))
            for name in others
            if is_number(name)
        }

    def _values(self, name: str, trials: Sequence[Trial]) -> list[Any]:
        """A number in each lane; where it does not vary it is the source's."""
        variant = self._variant
        if name in variant.of_widths:
            width = variant.of_widths[name]
            return [variant.units(trial)[width] for trial in trials]
        path = next((p for p, n in variant.arrays.items() if n == name), None)
        if path is None:
            own = variant.preparer.splitter.numbers[name].slot.read()
            return [own] * len(trials)
        slot = variant.places[path].slot(variant.source)
        own = None if slot is None else slot.read()
        return [variant.value_in(path, t[path]) if path in t else own for t in trials]

    def _opt_state(self, params: Any, others: Any, trials: Sequence[Trial]) -> Any:
        optimizer, count = self._holder.optimizer, len(trials)
        if self._holder.step and self._holder.opt_state is not None:
            state = lanes.repeat(self._holder.opt_state, count)
            return self.with_rates(state, trials)
        numbers = self._holder.split.numbers

        def init(params: Any, others: Any) -> Any:
            with holding(numbers, others):
                return optimizer.init(params)

        if self._init is None:
            self._init = jax.jit(jax.vmap(init))
        numbers_of = {name: v for name, v in others.items() if is_number(name)}
        return self.with_rates(self._init(params, numbers_of), trials)

    def with_rates(self, opt_state: Any, trials: Sequence[Trial]) -> Any:
        """The optimizers' states with the learning rates of the lanes' trials."""
        optimizer = self._holder.optimizer
        for path, place in self._variant.places.items():
            if place.kind != "rate" or not any(path in trial for trial in trials):
                continue
            own = getattr(optimizer, place.key)
            values = [float(trial.get(path, own)) for trial in trials]
            changed = {place.key: np.array(values, np.float32)}
            opt_state = optimizer.with_hyperparameters(opt_state, **changed)
        return opt_state

    def with_warmup(self, opt_state: Any, others: Any) -> Any:
        """The optimizers' states with the warm-up of ``compile``, if there is one."""
        if (warmup := self._variant.model._training_session.warmup) is None:
            return opt_state
        optimizer, numbers = self._holder.optimizer, self._holder.split.numbers
        warmup = copy.copy(warmup)
        warmup.set_model(self._variant.model)
        warmup.set_params({"steps": self._variant.data.known_steps})

        def rate_of(rate: Any, others: Any) -> Any:
            with holding(numbers, others):
                steps = jnp.zeros_like(rate["warmup_steps"])
                return optimizer.rate({"rate": {**rate, "warmup_steps": steps}})

        values = {name: v for name, v in others.items() if is_number(name)}
        if self._warm is None:
            self._warm = jax.jit(jax.vmap(rate_of))
        target = self._warm(opt_state["rate"], values)
        options = warmup.hyperparameters(np.asarray(target))
        return optimizer.with_hyperparameters(opt_state, **options)


def _keep_weights(source: Model, model: Model, seed: int) -> None:
    """Gives a model of another structure those weights that were not just drawn."""
    initial = redraw(source, seed)
    own = {path: weight for path, weight, _ in iter_weights(model)}
    for path, weight, _ in iter_weights(source):
        value = weight.get_raw_value()
        if path in initial or path not in own:
            continue
        if own[path].get_raw_value().shape == value.shape:
            own[path].set_raw_value(jnp.copy(value))


def _check_initializer(
    source: Model, model: Model, place: HyperparameterPlace, seed: int
) -> None:
    """Raises if a place is an initializer's, and no weight is made by it."""
    name = place.part or str(place.key)
    initializer = getattr(dict(iter_modules(model))[place.layer or ""], name, None)
    if not name.endswith("initializer") or initializer is None:
        return
    initial = redraw(source, seed)
    set_since = {path for path, _, _ in iter_weights(source)} - initial.keys()
    drawn = [
        path
        for path, weight, _ in iter_weights(model)
        if weight.get_metadata().get("initializer") is initializer
    ]
    if drawn and set_since.issuperset(drawn):
        raise ArgumentError(
            "sweep",
            f"{place.path!r} would change nothing: the weights of "
            f"{place.layer!r} were set or trained since they were drawn",
            {"weights": ", ".join(drawn)},
            hint="Sweep a model that is not trained yet, as its clone_model.",
        )


def _whole_first(paths: Iterable[str]) -> list[str]:
    """Paths in the order in which values are put: a whole, and then its options."""
    order = sorted(paths, key=lambda path: (path.count("/"), path))
    return sorted(order, key=lambda path: path != "optimizer")


def _with_axes(specs: Any, *sizes: int) -> Any:
    """Specs with further axes in front."""
    return jax.tree.map(
        lambda v: jax.ShapeDtypeStruct((*sizes, *v.shape), v.dtype), specs
    )


def _key(path: tuple) -> Any:
    """The name of a leaf in the dict that holds it."""
    return getattr(path[-1], "key", None)


def make_variants(
    source: Model,
    data: FitData,
    places: Mapping[str, HyperparameterPlace],
    trials: Sequence[Trial],
    epochs: int,
    placement: OneDevice | None = None,
    variants: list[Variant] | None = None,
) -> list[Variant]:
    """The variant of each trial: one for all whose values are arrays of a program.

    Args:
        source: The model, built, compiled and prepared for the data.
        variants: Variants of earlier trials, which have their programs; those that are
            made here join them.
    """
    variants = [] if variants is None else variants
    structural = {path for path, p in places.items() if p.kind in _STRUCTURAL}
    reasons: dict[str, str] = {}
    while True:
        parts: dict[tuple, list[int]] = {}
        for number, trial in enumerate(trials):
            key = tuple((p, repr(trial[p])) for p in sorted(structural) if p in trial)
            parts.setdefault(key, []).append(number)
        assigned: list[Any] = [None] * len(trials)
        for numbers in parts.values():
            own = [trials[i] for i in numbers]
            fixed = {p: own[0][p] for p in structural if p in own[0]}
            options = places, fixed, own, epochs, reasons, placement
            variant = next((v for v in variants if v.takes(fixed, own)), None)
            variant = variant or Variant(source, data, *options)
            if variant.constant.keys() - structural:
                structural |= variant.constant.keys()
                reasons.update(variant.constant)
                break
            for i in numbers:
                assigned[i] = variant
        else:
            variants += [v for v in dict.fromkeys(assigned) if v not in variants]
            return assigned
