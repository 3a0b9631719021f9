"""The compiled programs: train, evaluate and predict over one chunk of batches."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core import forward_context
from exburn.core.substitution import substituting
from exburn.errors import ShapeError
from exburn.kernels.conv.dispatch import pointwise_products
from exburn.module.building import untouched_metrics
from exburn.training import invariants
from exburn.training.compiled import CompileLog
from exburn.training.custom_step import LOGS, CustomSteps, own_steps
from exburn.training.lookups import Lookups, with_gradients
from exburn.training.module import SplitModule
from exburn.training.numbers import holding
from exburn.training.objective.objective import Objective
from exburn.training.objective.readings import Readings, packed
from exburn.training.settings import Settings
from exburn.training.state import TrainState

__all__ = ["Programs", "one_number", "own_loss"]

# The argument that holds the data. Row numbers, if any, come next.
_DATA = {"train": 2, "evaluate": 2, "predict": 1}


class Programs:
    """Pure functions of (state, data), compiled once for each shape of data set.

    Args:
        split: The module.
        objective: Losses and metrics.
        optimizer: The optimizer, or ``None`` for a model that is only evaluated.
        counts: Traces of each program so far; incremented here, read by users.
        settings: What the programs have built in, for the log.
        custom: Steps that the model's class defines itself, if any.
        unroll: Steps of a chunk that are compiled into one iteration of the loop, of
            the programs that train, and of others.
        options: What the compiler is told of the programs that train, and of others.
        pointwise: Whether pointwise convolutions are products: ``pointwise_products``.
        joins_lookups: Whether the gradients of lookups are summed at once: ``lookups``.
        eager: Runs without compiling, for debugging.
        log: Where compilations are noted.
        compiling: Called with a program's name before it is compiled.
        like: Programs that differ in the optimizer alone, which only trains.
    """

    def __init__(
        self,
        split: SplitModule,
        objective: Objective,
        optimizer: Any,
        counts: Counter[str],
        *,
        settings: Settings,
        custom: CustomSteps | None = None,
        unroll: Callable[[bool], int] = lambda training: 1,
        options: Callable[[bool], dict[str, Any] | None] = lambda training: None,
        pointwise: bool | None = None,
        joins_lookups: bool = False,
        eager: bool = False,
        log: CompileLog | None = None,
        compiling: Callable[[str], None] | None = None,
        like: Programs | None = None,
    ):
        self._compiling, self._options = compiling, options
        self._pointwise, self._joins_lookups = pointwise, joins_lookups
        self.custom = custom
        self.split, self.objective, self.optimizer = split, objective, optimizer
        self.counts, self.unroll, self.eager = counts, unroll, eager
        self.log, self.settings = log or CompileLog(), settings
        # Not the totals: those an epoch begins with stay on the device for others.
        self._chunks = self._jit(self._train, "train", donate=(0,))
        self._groups = self._jit(self._train_groups, "train", donate=(0,))
        self.proven: set[tuple] = set()  # what ran to its end: see memory.run_safely
        self.joins: dict[Any, bool] = {}  # what may run as one: see ``joining``
        self._further: dict[str, Callable] = {}
        if like is None:
            self.evaluate = self._jit(self._evaluate, "evaluate")
            self.predict = self._jit(self._predict, "predict")
        else:
            self.evaluate, self.predict = like.evaluate, like.predict
            self._further = like._further

    def further(self, name: str, make: Callable[[], Callable]) -> Callable:
        """Another program over the same state: made once, compiled, and counted.

        Args:
            name: Under which it is kept and counted.
            make: Makes the pure function; called the first time only.
        """
        if name not in self._further:
            self._further[name] = self._jit(make(), name)
        return self._further[name]

    def train(
        self, state: TrainState, data: Any, index: Any, count: Any
    ) -> tuple[TrainState, Readings]:
        """Trains on a chunk; consumes the state, but for its totals."""
        return _trained(self._chunks, state, data, index, count)

    def train_groups(
        self, state: TrainState, data: Any, index: Any, count: Any
    ) -> tuple[TrainState, Readings]:
        """As ``train``, on whole groups of batches, each of which makes one update."""
        return _trained(self._groups, state, data, index, count)

    def begin(self, name: str, state: TrainState, chunk: tuple) -> None:
        """Begins to compile a training program, in a thread, if it is the first one.

        Args:
            name: ``"train"`` or ``"train_groups"``.
            state: The state it will be called with; it stays as it is.
            chunk: The other arguments.
        """
        program = self._groups if name == "train_groups" else self._chunks
        if not self.eager:
            program.ahead(state.replace(metrics=None), state.metrics, *chunk)

    def _jit(self, fn: Callable, name: str, donate: tuple[int, ...] = ()) -> Any:
        def counted(*args):
            self.counts[name] += 1
            if self._compiling is not None:
                self._compiling(name)
            # Losses, optax and the optimizers promote; layers were traced before.
            standard = jax.numpy_dtype_promotion("standard")
            with standard, pointwise_products(self._pointwise):
                return fn(*args)

        counted.__name__ = f"exburn_{name}"
        if self.eager:
            return fn
        options = self._options(name == "train")
        compiled = jax.jit(counted, donate_argnums=donate, compiler_options=options)
        if name not in _DATA:
            return compiled
        return self.log.watched(
            compiled, name, lambda: self.counts[name], _DATA[name], self.settings
        )

    def trace(self, kind: str, state: Any, data: Any) -> Any:
        """One step on specs, as ``jax.jit(…).trace`` returns it; it is not counted.

        Args:
            kind: ``"train"`` or ``"predict"``.
            state: Specs of a ``TrainState``, or of the module's arrays.
            data: Specs of a chunk of one batch.
        """
        with pointwise_products(self._pointwise):
            if kind == "train":
                step = jax.jit(self._train, donate_argnums=(0,))
                bare, totals = state.replace(metrics=None), state.metrics
                return step.trace(bare, totals, data, None, None)
            start = jax.ShapeDtypeStruct((), jnp.int32)
            return jax.jit(self._predict).trace(state, data, None, start)

    # ------------------------------------------------------------------ one step
    def step(self, state: TrainState, batch: Any, row_mask: Any) -> TrainState:
        """One update: a pure function, fit for ``jax.vmap`` and ``jax.lax.scan``."""
        with holding(self.split.numbers, state.others):
            return self._step(state, batch, row_mask)

    def _step(self, state: TrainState, batch: Any, row_mask: Any) -> TrainState:
        if own := own_steps(self.custom, "train"):
            return own.train(state, batch)
        grads, new = self._gradients(state, batch, row_mask)
        search = {}
        if self.optimizer.searches:
            search["value_fn"] = lambda p: self.loss(p, state, batch, row_mask)[0]
        update = self.optimizer.update(grads, state.opt_state, state.params, **search)
        return self._updated(state, new, update)

    def _updated(self, before: TrainState, new: TrainState, update: tuple):
        """The state after an update; if that was left out, statistics stay, too."""
        params, opt_state = update
        left_out = self.optimizer.skips(before.opt_state, opt_state)
        frozen = {n: new.frozen[n] for n in before.assigned_frozen(new)}
        new = new.assigned(before.others_after(frozen | new.others, left_out))
        params = self.split.constrain(params)
        return new.replace(params=params, opt_state=opt_state)

    def _gradients(self, state: TrainState, batch: Any, row_mask: Any):
        """The gradients of one batch, and a state with all it changes but an update."""
        x, y, w = batch

        def objective(params, tables=None):
            return self.loss(params, state, batch, row_mask, tables)

        if self._joins_lookups:
            (_, found), grads = with_gradients(objective, state.params)
        else:
            differentiate = jax.value_and_grad(objective, has_aux=True)
            (_, found), grads = differentiate(state.params)
        loss, outputs, others, parts, masks, own = found
        outputs = jax.lax.stop_gradient(outputs)
        rows = _rows(x, row_mask)
        totals = self.objective.with_states(state.metrics, own)
        seen = y, outputs, w, masks, row_mask, rows
        draws = forward_context.key_scope(lambda: _key_of_metrics(state.key()))
        values = self.split.reading(state.params, state.frozen, state.others)
        with draws, substituting(values):
            totals = self.objective.update(
                totals, loss, parts, *seen, graded=bool(parts)
            )
        new = state.assigned(others)
        return grads, new.replace(metrics=totals, step=state.step + 1)

    def _group(self, state: TrainState, data: Any, items: tuple) -> TrainState:
        """One update from the mean gradient of a group of batches."""

        assigned: set[str] = set()  # the others come out of the loop as they were

        def micro_step(state, item):
            with holding(self.split.numbers, state.others):
                grads, new = self._gradients(state, *_batch(data, item))
            assigned.update(state.assigned_frozen(new))
            sums = self.optimizer.accumulate_batch(grads, state.opt_state)
            with holding(self.split.numbers, new.others):
                params = self._between_updates(state.params, item)
            return new.replace(params=params, opt_state=sums), None

        unroll = min(self.unroll(True), len(items[2]))
        new, _ = jax.lax.scan(micro_step, state, items, unroll=unroll)
        frozen = {n: new.frozen[n] for n in assigned}
        new = new.replace(frozen=state.frozen | frozen)
        update = self.optimizer.update_accumulated(new.opt_state, new.params)
        with holding(self.split.numbers, new.others):
            return self._updated(state, new, update)

    def _between_updates(self, params: Any, item: tuple) -> Any:
        """Parameters after a batch of a group: constraints hold after every batch.

        As in Keras, which matters if they move in steps, or from the first weights. The
        last batch of a group is followed by its update, and only then by them.
        """
        last = item[2] % self.optimizer.accumulate == self.optimizer.accumulate - 1
        constrained = self.split.constrain(params)
        changed = {n: p for n, p in constrained.items() if p is not params[n]}
        return params | {n: jnp.where(last, params[n], p) for n, p in changed.items()}

    def loss(
        self,
        params: Any,
        state: TrainState,
        batch: Any,
        row_mask: Any,
        tables: Lookups | None = None,
    ) -> Any:
        """What a step minimizes: the loss at ``params``, in a training pass.

        Returns:
            The loss, scaled as the optimizer wants it, and what came with it: the loss
            itself, the outputs (and those with spare classes), the other variables, the
            losses by name, the masks, the states of the model's own metrics.
        """
        states = self.objective.states(state.metrics)
        with self.objective.own.working_on(states) as own:
            preds, others, ctx = self.split.forward(
                (params, state.frozen, state.others),
                batch[0],
                training=True,
                key=state.key(),
                row_mask=row_mask,
                tables=tables,
            )
            filled, masks = ctx.attached(preds)
            outputs = preds, filled
            with substituting(ctx.scope):
                loss, parts = self._loss(batch, outputs, ctx, masks, row_mask, params)
            if getattr(ctx.root, "own_compute_loss", None):  # which may assign, too
                groups = params, state.frozen, state.others
                others = self.split.others_of(ctx.root, *groups)
        scaled = one_number(loss)
        if self.optimizer.scales_loss:
            scaled = self.optimizer.scale_loss(loss, state.opt_state)
        return scaled, (loss, outputs, others, parts, masks, own)

    def eval_step(
        self, arrays: tuple, totals: Any, batch: Any, row_mask: Any, key: Any
    ) -> Any:
        """The totals after evaluating one batch."""
        with holding(self.split.numbers, arrays[2]):
            return self._eval_step(arrays, totals, batch, row_mask, key)

    def _eval_step(self, arrays, totals, batch, row_mask, key):
        if own := own_steps(self.custom, "test"):
            return own.test(arrays, totals, batch, key)
        x, y, w = batch
        with self.objective.own.working_on(self.objective.states(totals)) as own:
            preds, _, ctx = self.split.forward(
                arrays, x, training=False, key=key, row_mask=row_mask
            )
            filled, masks = ctx.attached(preds)
            outputs = preds, filled
            with substituting(ctx.scope):
                loss, parts = self._loss(
                    batch, outputs, ctx, masks, row_mask, arrays[0]
                )
        totals = self.objective.with_states(totals, own)
        draws = forward_context.key_scope(lambda: _key_of_metrics(key))
        with draws, substituting(self.split.reading(*arrays)):
            return self.objective.update(
                totals, loss, parts, y, outputs, w, masks, row_mask, _rows(x, row_mask)
            )

    def _loss(self, batch, outputs, ctx, masks, row_mask, params):
        """The loss with everything that layers and regularizers add to it."""
        x, y, w = batch
        own = getattr(ctx.root, "own_compute_loss", None)
        if own is not None:  # what layers add it adds itself, or leaves out
            with forward_context.forward(ctx):
                given = {"x": x, "y": y, "y_pred": outputs[0], "sample_weight": w}
                return own_loss(own, ctx.training, **given), ctx.parts
        with forward_context.key_scope(ctx.key):  # of a loss that draws
            loss, parts = self.objective.loss(y, outputs, w, masks, row_mask)
        penalty = self.split.penalty(params)
        for extra in [*ctx.losses, *([] if penalty is None else [penalty])]:
            loss = loss + jnp.sum(jnp.asarray(extra, jnp.float32))
        return loss, parts

    # ------------------------------------------------------------------ chunks
    def _train(self, state, totals, data, index, count):
        def body(state, item):
            batch, row_mask = _batch(data, item)
            new = self.step(state, batch, row_mask)
            return _if_active(item, new, state)

        state = state.replace(metrics=totals)
        state = self._loop(body, state, data, index, count, training=True)
        return state, self.results(state.metrics)

    def _train_groups(self, state, totals, data, index, count):
        size = self.optimizer.accumulate

        def body(state, items):
            new = self._group(state, data, items)
            return _if_active(jax.tree.map(lambda v: v[0], items), new, state), None

        groups = jax.tree.map(
            lambda v: v.reshape(-1, size, *v.shape[1:]), _items(data, index, count)
        )
        state, _ = jax.lax.scan(body, state.replace(metrics=totals), groups)
        return state, self.results(state.metrics)

    def _evaluate(self, arrays, totals, data, index, count, start):
        def one(totals, batch, row_mask, rows, key):
            return self.eval_step(arrays, totals, batch, row_mask, key)

        totals = self.over_batches(one, totals, data, index, count, start)
        return totals, self.results(totals)

    def over_batches(self, one, totals, data, index, count, start):
        """``totals = one(totals, batch, row_mask, rows, key)`` for every batch."""

        def body(totals, item):
            batch, row_mask = _batch(data, item)
            key = jax.random.fold_in(_eval_key(), start + item[2])
            new = one(totals, batch, row_mask, _rows(batch[0], row_mask), key)
            return _if_active(item, new, totals)

        return self._loop(body, totals, data, index, count, training=False)

    def _predict(self, arrays, data, index, start):
        def one(item):
            (x, _, _), _ = _batch(data, item)
            key = jax.random.fold_in(_eval_key(), start + item[2])
            numbers = holding(self.split.numbers, arrays[2])
            with untouched_metrics(self.split.module), numbers:
                if own := own_steps(self.custom, "predict"):
                    return own.predict(arrays, x, key)
                return self.split.forward(arrays, x, training=False, key=key)[0]

        xs = _items(data, index, None)
        if jax.tree.leaves(xs)[0].shape[0] == 1:
            out = one(jax.tree.map(lambda v: v[0], xs))
            return jax.tree.map(lambda v: v[None], out)
        unroll = min(self.unroll(False), len(xs[2]))

        def body(carry, item):
            return carry, one(item)

        return invariants.scan(body, None, xs, unroll=unroll)[1]

    def results(self, totals: Any) -> Readings:
        """The means of losses and metrics so far."""
        own = totals.get(LOGS)
        return packed(self.objective.results(totals) if own is None else own)

    def _loop(self, body, carry, data, index, count, training):
        """Runs ``body`` for every step: a scan, or a single call for one step."""
        items = _items(data, index, count)
        length = len(items[2])
        if length == 1:
            return body(carry, jax.tree.map(lambda v: v[0], items))
        scan = jax.lax.scan if training else invariants.scan
        carry, _ = scan(
            lambda c, item: (body(c, item), None),
            carry,
            items,
            unroll=min(self.unroll(training), length),
        )
        return carry


def own_loss(own: Callable, training: bool, **given: Any) -> jax.Array:
    """The scalar of a ``compute_loss``; it need not take ``training``."""
    kinds = inspect.signature(own).parameters.values()
    if any(p.name == "training" or p.kind is p.VAR_KEYWORD for p in kinds):
        given["training"] = training
    return jnp.asarray(own(**given), jnp.float32)


def one_number(loss: jax.Array) -> jax.Array:
    """The loss, if it is one number: nothing else can be minimized."""
    if loss.ndim:
        raise ShapeError(
            "fit",
            f"what is minimized must be one number, the loss has shape {loss.shape}",
            hint="Leave out reduction='none'; a compute_loss returns ops.mean(loss).",
        )
    return loss


def _trained(program: Any, state: TrainState, *chunk: Any) -> Any:
    return program(state.replace(metrics=None), state.metrics, *chunk)


def _eval_key() -> jax.Array:
    """Key of layers that draw at inference, too: the same at every evaluation.

    With the number of the batch, which each ``predict`` begins to count elsewhere.
    """
    return jax.random.key(0)


def _key_of_metrics(key: jax.Array) -> jax.Array:
    """That of what metrics draw in a step with this key."""
    return jax.random.fold_in(key, forward_context.path_hash("metrics"))


def _items(data: Any, index: Any, count: Any) -> tuple[Any, Any, jax.Array]:
    """What differs between the steps of a chunk: rows, their count, the step."""
    source = index if index is not None else _joined(data)
    return source, count, jnp.arange(jax.tree.leaves(source)[0].shape[0])


def _joined(data: Any) -> Any:
    """A chunk's batches, which may have come in parts."""
    if not isinstance(data, list):
        return data
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *data)


def _batch(data: Any, item: tuple) -> tuple[Any, Any]:
    """The batch of one step, and which of its rows are real (``None``: all)."""
    source, count, _ = item
    if not isinstance(source, tuple):  # row numbers into resident data
        batch = jax.tree.map(lambda v: v[source], data)
    else:
        batch = source
    if count is None:
        return batch, None
    size = jax.tree.leaves(batch)[0].shape[0]
    return batch, jnp.arange(size) < jnp.maximum(count[0], 1)


def _if_active(item: tuple, new: Any, old: Any) -> Any:
    """The new carry; the old one after a step of no rows, which fills up a chunk."""
    count = item[1]
    if count is None or len(count) < 2:
        return new
    return jax.tree.map(lambda n, o: jnp.where(count[1], n, o), new, old)


def _rows(x: Any, row_mask: Any) -> Any:
    if row_mask is None:
        return float(jax.tree.leaves(x)[0].shape[0])
    return row_mask.sum(dtype=jnp.float32)
