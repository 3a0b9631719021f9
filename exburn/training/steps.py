"""One step of training, evaluation or prediction, and the loops over a chunk."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core import forward_context, random_keys
from exburn.core.forward_context import Interceptor
from exburn.core.jax_dispatch import original
from exburn.core.substitution import substituting
from exburn.data import has_padded
from exburn.errors import ShapeError
from exburn.losses.contract.likelihood import LikelihoodResult
from exburn.losses.residual import (
    DATA_LOSS,
    RESIDUAL_LOSS,
    Residual,
    equation_of,
)
from exburn.module.building import untouched_metrics
from exburn.runtime.blocks.rematerializing import remat_blocks
from exburn.runtime.blocks.scanning import scan_blocks
from exburn.runtime.kernels.conv.dispatch import pointwise_products
from exburn.runtime.kernels.head_loss import with_few_scores
from exburn.training import invariants
from exburn.training.block_stacks import BlockStacks, pays
from exburn.training.custom_step import LOGS, CustomSteps, own_steps
from exburn.training.lookups import Lookups, value_and_grad
from exburn.training.module import SplitModule
from exburn.training.numbers import holding
from exburn.training.objective.head import loss_of_head
from exburn.training.objective.likelihood import (
    likelihood_loss,
    loss_of_tokens,
    reference_of_batch,
)
from exburn.training.objective.objective import (
    Objective,
    beside,
    check_positions,
)
from exburn.training.objective.readings import Readings, pack
from exburn.training.placement import OneDevice
from exburn.training.state import TrainState

_LONG = 2**31 - 1  # updates of a warm-up that does not end


class Steps:
    """Pure functions of (state, data), which programs are compiled of.

    Args:
        counts: Traces of each program so far; incremented here, read by users.
        custom: Steps that the model's class defines itself, if any.
        unroll: Steps of one iteration of a loop: of programs that train, of others.
        pointwise: Whether pointwise convolutions are products: ``pointwise_products``.
        joins_lookups: Whether the gradients of lookups are summed at once: ``lookups``.
        compiling: Called with a program's name before it is compiled.
        lanes: What makes of a step of one model that of many, whose states and totals
            have a leading axis; see ``exburn.tuning.lanes``. ``None`` for one model.
        stacks: How parameters of equal blocks are put together for ``train``.
        remat: As of ``compile``.
        private: ``private_gradient`` with its mechanism, where training is private.
    """

    def __init__(
        self,
        split: SplitModule,
        objective: Objective,
        optimizer: Any,
        counts: Counter[str],
        *,
        custom: CustomSteps | None = None,
        unroll: Callable[[bool], int] = lambda training: 1,
        pointwise: bool | None = None,
        joins_lookups: bool = False,
        placement: OneDevice | None = None,
        eager: bool = False,
        compiling: Callable[[str], None] | None = None,
        lanes: Any = None,
        stacks: BlockStacks | None = None,
        remat: str | None = None,
        private: Callable | None = None,
    ):
        self.split, self.objective, self.optimizer = split, objective, optimizer
        self.counts, self.custom, self.unroll = counts, custom, unroll
        self._pointwise, self._joins_lookups = pointwise, joins_lookups
        self.placement = placement or OneDevice()
        self.eager, self._compiling, self.lanes = eager, compiling, lanes
        self.stacks, self.remat, self.private = stacks, remat, private
        scores = bool(eager or private or lanes)
        self.add_up = functools.partial(_add_up, split, objective, scores)

    @contextlib.contextmanager
    def tracing(self, name: str) -> Iterator[None]:
        """Counts the trace of a program, and has JAX promote dtypes as it does.

        Losses, optax and the optimizers promote; layers were traced before.
        """
        if self.eager:
            yield
            return
        self.counts[name] += 1
        if self._compiling is not None:
            self._compiling(name)
        standard = jax.numpy_dtype_promotion("standard")
        with standard, pointwise_products(self._pointwise):
            yield

    # ------------------------------------------------------------------ one step
    def step(self, state: TrainState, batch: Any, row_mask: Any) -> TrainState:
        """One update: a pure function, fit for ``jax.vmap`` and ``jax.lax.scan``."""
        with holding(self.split.numbers, state.others):
            if own := own_steps(self.custom, "train"):
                new = own.train(state, batch)
                return self._prune(new, batches=1)
            if state.stacks is not None:
                return self._step_of_blocks(state, batch, row_mask)
            differentiate = self._gradient_of_loss()
            (_, seen), grads = differentiate(state.params, state, batch, row_mask)
            grads = self.placement.gradients(grads)
            new = self._after_batch(state, batch, row_mask, seen)
            further = {}
            if self.optimizer.weighs_batches:
                further["weight"] = self._tokens(batch, row_mask, seen)
            if self.optimizer.evaluates_loss:
                further["value_fn"] = lambda p: self.loss(p, state, batch, row_mask)[0]
            update = self.optimizer.update(
                grads, state.opt_state, state.params, **further
            )
            return self._after_update(state, new, update)

    def _step_of_blocks(
        self, state: TrainState, batch: Any, row_mask: Any
    ) -> TrainState:
        """One update of a state whose parameters of equal blocks are put together."""
        rows = state.stacks.rows

        def loss(params: Any) -> Any:
            return self.loss(rows(params), state, batch, row_mask)

        scanned = scan_blocks(loss, pays=pays)
        (_, seen), grads = jax.value_and_grad(scanned, has_aux=True)(state.params)
        separate = state.replace(params=rows(state.params))
        new = self._after_batch(separate, batch, row_mask, seen)
        update = self.optimizer.update(grads, state.opt_state, state.params)
        return self._after_update(state, new, update)

    def _gradient_of_loss(self) -> Callable:
        """``loss`` with its gradient by the parameters: ``(loss, seen), gradient``."""
        if self.private is not None:
            return functools.partial(self.private, self.loss)
        plain: Callable = self.loss
        if self.remat is not None:
            plain = remat_blocks(self._loss_in_little_memory, self.remat)
        loss = self.placement.gathering(plain)
        if self._joins_lookups and loss == self.loss:
            return value_and_grad(loss, self.placement.totals)
        return jax.value_and_grad(loss, has_aux=True)

    def _loss_in_little_memory(self, *arguments: Any) -> Any:
        with with_few_scores():
            return self.loss(*arguments)

    def _after_batch(
        self, state: TrainState, batch: Any, row_mask: Any, seen: tuple
    ) -> TrainState:
        """The state with all that a batch changes but an update.

        Args:
            batch, row_mask: The batch, and which of its rows are real.
            seen: What came with its loss.
        """
        x, y, w = batch
        loss, outputs, others, parts, masks, own = seen
        outputs = jax.lax.stop_gradient(outputs)
        count = batch_weight(self.objective, batch, row_mask, outputs, masks)
        batch_parts = y, outputs, w, masks, row_mask, count
        totals = self.objective.with_states(state.metrics, own)
        draws = random_keys.key_scope(lambda: _key_of_metrics(state.key()))
        values = self.split.reading(state.params, state.frozen, state.others)
        with draws, substituting(values):
            totals = self.objective.update(
                totals,
                loss,
                parts,
                *batch_parts,
                graded=bool(parts),
                ragged=has_padded(x),
            )
        new = state.assign(others)
        return new.replace(metrics=totals, step=state.step + 1)

    def _tokens(self, batch: Any, row_mask: Any, seen: tuple) -> Any:
        """What a batch of a group counts for; ``None``: each alike."""
        if not self.optimizer.weighs_batches:
            return None
        return batch_weight(self.objective, batch, row_mask, seen[1], seen[4])

    def _after_update(
        self, before: TrainState, new: TrainState, update: tuple
    ) -> TrainState:
        """The state after an update; if that was left out, statistics stay, too."""
        params, opt_state = update
        left_out = self.optimizer.skips(before.opt_state, opt_state)
        frozen = {n: new.frozen[n] for n in before.assigned_frozen(new)}
        new = new.assign(before.others_after(frozen | new.others, left_out))
        params = self.split.constrain(params)
        new = new.replace(params=params, opt_state=opt_state)
        return self._prune(new, new.step - before.step)

    def _prune(self, new: TrainState, batches: Any) -> TrainState:
        """The state after an update of so many batches, with its masks in force."""
        params, others = self.split.masking.advance(
            new.params, new.frozen, new.others, batches
        )
        return new.replace(params=params, others=others)

    def _group(self, state: TrainState, data: Any, items: tuple) -> TrainState:
        """One update from the mean gradient of a group of batches.

        By tokens each batch's gradient counts for its tokens.
        """

        between = functools.partial(
            _between_updates, self.split, self.optimizer.accumulate
        )
        assigned: set[str] = set()  # the others come out of the loop as they were

        def micro_step(state, item):
            with holding(self.split.numbers, state.others):
                batch, row_mask = _batch(data, item, self.placement)
                differentiate = self._gradient_of_loss()
                (_, seen), grads = differentiate(state.params, state, batch, row_mask)
                grads = self.placement.gradients(grads)
                new = self._after_batch(state, batch, row_mask, seen)
                weight = self._tokens(batch, row_mask, seen)
                sums = self.optimizer.accumulate_batch(grads, state.opt_state, weight)
                params = between(state.params, item)
            assigned.update(state.assigned_frozen(new))
            return new.replace(params=params, opt_state=sums), None

        unroll = min(self.unroll(True), len(items[2]))
        new, _ = jax.lax.scan(micro_step, state, items, unroll=unroll)
        frozen = {n: new.frozen[n] for n in assigned}
        new = new.replace(frozen=state.frozen | frozen)
        with holding(self.split.numbers, new.others):
            update = self.optimizer.update_accumulated(new.opt_state, new.params)
            return self._after_update(state, new, update)

    def loss(
        self,
        params: Any,
        state: TrainState,
        batch: Any,
        row_mask: Any,
        tables: Lookups | None = None,
        interceptors: tuple[Interceptor, ...] = (),
    ) -> Any:
        """What a step minimizes: the loss at ``params``, in a training pass.

        Returns:
            The loss, scaled as the optimizer wants it, and what came with it: the loss
            itself, the outputs (and those with spare classes), the other variables, the
            losses by name, the masks, the states of the model's own metrics.
        """
        states = self.objective.states(state.metrics)
        groups = params, state.frozen, state.others
        reference = reference_of_batch(self, groups, batch, row_mask, state.key())
        with self.objective.own.working_on(states) as own:
            options = {"key": state.key(), "row_mask": row_mask, "tables": tables}
            options["interceptors"] = interceptors
            with self.split.running(groups, training=True, **options) as (call, ctx):
                preds = self.split.call_on(batch[0], call, groups, ctx)((batch[0],), {})
            others = self.split.others_of(ctx.root, *groups)
            filled, masks = ctx.attachments(preds)
            outputs = preds, filled
            with substituting(ctx.scope):
                loss, parts, outputs = self.add_up(
                    batch, outputs, ctx, masks, row_mask, params, reference
                )
            if getattr(ctx.root, "own_compute_loss", None):  # which may assign, too
                others = self.split.others_of(ctx.root, *groups)
        scaled = one_number(loss)
        if self.optimizer.scales_loss:
            scaled = self.optimizer.scale_loss(loss, state.opt_state)
        return scaled, (loss, outputs, others, parts, masks, own)

    def eval_step(
        self, arrays: tuple, totals: Any, batch: Any, row_mask: Any, key: Any
    ) -> Any:
        """The totals after evaluating one batch."""
        x, y, w = batch
        with holding(self.split.numbers, arrays[2]):
            if custom := own_steps(self.custom, "test"):
                return custom.test(arrays, totals, batch, key)
            seen = inference_loss(self, arrays, totals, batch, row_mask, key)
            loss, out, parts, masks, own = seen
            totals = self.objective.with_states(totals, own)
            draws = random_keys.key_scope(lambda: _key_of_metrics(key))
            count = batch_weight(self.objective, batch, row_mask, out, masks)
            seen = y, out, w, masks, row_mask, count
            with draws, substituting(self.split.reading(*arrays)):
                return self.objective.update(
                    totals, loss, parts, *seen, ragged=has_padded(x)
                )

    # ------------------------------------------------------------------ chunks
    def train(self, state, totals, data, index, count):
        """The state after a chunk of batches, each of which makes an update."""

        def body(state, item, data=data, next_state=self.placement.next_state):
            batch, row_mask = _batch(data, item, self.placement, not self.private)
            new = _if_active(item, self.step(state, batch, row_mask), state)
            return next_state(new), None

        if self.lanes is not None:
            body = self._lane_body(body, data, "rows")
        with self.tracing("train"):
            items = _items(data, index, count)
            scan = self._scan_over(items, original(jax.lax.scan), training=True)
            state, _ = scan(body, state.replace(metrics=totals), items)
            return state, self.results(state.metrics)

    def try_rates(self, state, totals, rates, data, index, count):
        """The state after a chunk, and each batch's losses and metrics by itself."""

        def body(state, items_and_rate):
            item, rate = items_and_rate
            batch, row_mask = _batch(data, item, self.placement)
            opt_state = at_rate(state.opt_state, rate)
            before = state.replace(metrics=totals, opt_state=opt_state)
            after = self.step(before, batch, row_mask)
            readings = self.results(after.metrics)
            return self.placement.next_state(_if_active(item, after, before)), readings

        items = _items(data, index, count)
        scan = self._scan_over(items, original(jax.lax.scan), training=True)
        return scan(body, state.replace(metrics=totals), (items, rates))

    def train_groups(self, state, totals, data, index, count):
        """As ``train``, for whole groups of batches, each of which makes one update."""
        size = self.optimizer.accumulate

        def body(state, items, data=data, next_state=self.placement.next_state):
            new = self._group(state, data, items)
            new = _if_active(jax.tree.map(lambda v: v[0], items), new, state)
            return next_state(new), None

        if self.lanes is not None:
            body = self._lane_body(body, data, "groups")
        with self.tracing("train"):
            groups = jax.tree.map(
                lambda v: v.reshape(-1, size, *v.shape[1:]), _items(data, index, count)
            )
            state, _ = jax.lax.scan(body, state.replace(metrics=totals), groups)
            return state, self.results(state.metrics)

    def _lane_body(self, body: Callable, data: Any, rows: str) -> Callable:
        """The body of a loop over chunks of one model as that of all lanes.

        Args:
            body: ``state, None = body(state, item, data, next_state)``.
        """

        def one(state, data, item):
            return body(state, item, data, lambda state: state)[0]

        over_lanes = self._over_lanes(one, "state", "shared", rows)

        def lane_body(state, item):
            return self.placement.next_state(over_lanes(state, data, item)), None

        return lane_body

    def _over_lanes(self, function: Callable, *arguments: str) -> Callable:
        """A function of one model as that of all lanes, where there are lanes.

        Args:
            arguments: What each of its arguments is: ``"state"`` of a model, which is
                returned, ``"arrays"`` that are a model's, what is ``"shared"``, the
                ``"rows"`` of a step, or of a ``"groups"`` of steps.
        """
        if self.lanes is None:
            return function
        return self.lanes.over(function, arguments)

    def evaluate(self, arrays, totals, data, index, count, start):
        """The totals after a chunk of batches, and the means so far."""

        def one(totals, batch, row_mask, rows, key, arrays):
            return self.eval_step(arrays, totals, batch, row_mask, key)

        with self.tracing("evaluate"):
            chunk = data, index, count, start
            totals = self.over_batches(one, totals, *chunk, arrays=arrays)
            return totals, self.results(totals)

    def over_batches(self, one, totals, data, index, count, start, arrays=()):
        """The totals after all batches of a chunk.

        Args:
            one: ``totals = one(totals, batch, row_mask, rows, key, arrays)``.
        """

        def update(totals, arrays, data, item, start):
            batch, row_mask = _batch(data, item, self.placement)
            key = jax.random.fold_in(_eval_key(), start + item[2])
            rows = _count_rows(batch[0], row_mask)
            new = one(totals, batch, row_mask, rows, key, arrays)
            return _if_active(item, new, totals)

        kinds = "arrays", "arrays", "shared", "rows", "shared"
        update = self._over_lanes(update, *kinds)

        def body(totals, item):
            new = update(totals, arrays, data, item, start)
            return self.placement.totals(new), None

        items = _items(data, index, count)
        return self._scan_over(items, invariants.scan, training=False)(
            body, totals, items
        )[0]

    def predict(self, arrays, data, index, start):
        """The outputs for a chunk of batches."""

        def one(x, key):
            if own := own_steps(self.custom, "predict"):
                return own.predict(arrays, x, key)
            return self.split.forward(arrays, x, training=False, key=key)[0]

        with self.tracing("predict"):
            return self.outputs_of_batches(one, arrays, data, index, start)

    def outputs_of_batches(self, one, arrays, data, index, start):
        """What ``one(x, key)`` gives for each of a chunk's batches."""

        def body(carry, item):
            (x, _, _), _ = _batch(data, item, self.placement)
            key = jax.random.fold_in(_eval_key(), start + item[2])
            numbers = holding(self.split.numbers, arrays[2])
            with untouched_metrics(self.split.module), numbers:
                outputs = one(x, key)
            return carry, self.placement.outputs(outputs)

        items = _items(data, index, None)
        scan = self._scan_over(items, invariants.scan, training=False)
        return scan(body, None, items)[1]

    def results(self, totals: Any) -> Readings:
        """The means of losses and metrics so far."""

        def read(totals: Any) -> Readings:
            own = totals.get(LOGS)
            return pack(self.objective.results(totals) if own is None else own)

        return self.placement.totals(self._over_lanes(read, "arrays")(totals))

    def _scan_over(self, items: tuple, scan: Callable, training: bool) -> Callable:
        """What runs a body for every step: a scan, or a single call for one step."""
        length = len(items[2])
        if length == 1:
            return _run_once
        return functools.partial(scan, unroll=min(self.unroll(training), length))

    def without_counting(self) -> Steps:
        """The same functions, whose traces nobody counts or is told of."""
        steps = copy.copy(self)
        steps.counts, steps._compiling = Counter(), None
        return steps


def inference_loss(
    steps: Steps, arrays: tuple, totals: Any, batch: Any, row_mask: Any, key: Any
) -> tuple[jax.Array, Any, dict[str, Any], list[Any], Any]:
    """The loss of a pass at inference, and what came with it.

    Returns:
        The loss, the outputs (and those with spare classes), the losses by name,
        the masks, the states of the model's own metrics.
    """
    reference = reference_of_batch(steps, arrays, batch, row_mask, key)
    with steps.objective.own.working_on(steps.objective.states(totals)) as own:
        preds, _, ctx = steps.split.forward(
            arrays, batch[0], training=False, key=key, row_mask=row_mask
        )
        filled, masks = ctx.attachments(preds)
        with substituting(ctx.scope):
            loss, parts, outputs = steps.add_up(
                batch, (preds, filled), ctx, masks, row_mask, arrays[0], reference
            )
    return loss, outputs, parts, masks, own


def _add_up(
    split,
    objective,
    makes_scores,
    batch,
    outputs,
    ctx,
    masks,
    row_mask,
    params,
    reference,
):
    """The loss with everything that layers and regularizers add to it.

    Args:
        makes_scores: Whether the outputs are made, whatever the loss needs of them.
        reference: What a reference says of the tokens, if the loss reads that.

    Returns:
        The loss, the losses by name, and the outputs, with what is known of their rows
        where the loss did without them.
    """
    x, y, w = batch
    own = getattr(ctx.root, "own_compute_loss", None)
    if own is not None:  # what layers add it adds itself, or leaves out
        with forward_context.forward(ctx):
            arguments = {"x": x, "y": y, "y_pred": outputs[0], "sample_weight": w}
            return own_loss(own, ctx.training, **arguments), ctx.parts, outputs
    with random_keys.key_scope(ctx.key):  # of a loss that draws
        if has_padded(x):
            check_positions(objective, y, outputs[0], masks)
            makes_scores = True
        heads = [] if makes_scores else ctx.heads(outputs[0])
        result = None
        if likelihood_loss(objective.losses) is not None:
            arguments = batch, outputs[0], ctx, row_mask, reference
            result = loss_of_tokens(objective, *arguments)
        elif any(heads):
            arguments = outputs[0], heads, w, masks, row_mask
            result = loss_of_head(objective, y, *arguments)
        if ctx.training:
            objective.without_scores = result is not None
        if result is None:
            loss, parts = objective.loss(y, outputs, w, masks, row_mask)
        else:
            loss, parts, scored = result
            outputs = *outputs, scored
    if (equation := equation_of(objective.losses)) is not None:
        residual = _residual(equation, ctx, x)
        if parts:
            parts = {DATA_LOSS: loss, RESIDUAL_LOSS: residual}
        loss = loss + residual
    penalty = split.penalty(params)
    for extra in [*ctx.losses, *([] if penalty is None else [penalty])]:
        loss = loss + jnp.sum(jnp.asarray(extra, jnp.float32))
    return loss, parts, outputs


def _residual(equation: Residual, ctx: Any, x: Any) -> jax.Array:
    """What an equation adds to the loss.

    What layers add in its calls of the model is left out: it is a part of the pass.
    """
    added = list(ctx.losses)
    with forward_context.forward(ctx):
        value = equation.of_model(ctx.root, x)
    ctx.losses[:] = added
    return value


def _between_updates(split: SplitModule, size: int, params: Any, item: tuple) -> Any:
    """Parameters after a batch of a group: constraints hold after every batch.

    As in Keras, which matters if they move in steps, or from the first weights. The
    last batch of a group is followed by its update, and only then by them.

    Args:
        size: Batches of a group.
    """
    last = item[2] % size == size - 1
    constrained = split.constrain(params)
    changed = {n: p for n, p in constrained.items() if p is not params[n]}
    return params | {n: jnp.where(last, params[n], p) for n, p in changed.items()}


def at_rate(opt_state: Any, rate: Any) -> Any:
    """An optimizer's state whose next update has this learning rate.

    It goes past schedules and scales: as a warm-up that stays at the rate.
    """
    forced = {"warmup_from": rate, "warmup_to": rate, "warmup_steps": _LONG}

    def force(path: tuple, leaf: Any) -> Any:
        name = getattr(path[-1], "key", None) if path else None
        if name not in forced or jnp.ndim(leaf):
            return leaf
        return jnp.asarray(forced[name], leaf.dtype)

    return jax.tree_util.tree_map_with_path(force, opt_state)


def own_loss(own: Callable, training: bool, **arguments: Any) -> jax.Array:
    """The scalar of a ``compute_loss``; it need not take ``training``."""
    kinds = inspect.signature(own).parameters.values()
    if any(p.name == "training" or p.kind is p.VAR_KEYWORD for p in kinds):
        arguments["training"] = training
    return jnp.asarray(own(**arguments), jnp.float32)


def one_number(loss: jax.Array) -> jax.Array:
    """The loss, if it is one number: nothing else can be minimized."""
    if loss.ndim:
        raise ShapeError(
            "fit",
            f"what is minimized must be one number, the loss has shape {loss.shape}",
            hint="Leave out reduction='none'; a compute_loss returns ops.mean(loss).",
        )
    return loss


def _eval_key() -> jax.Array:
    """Key of layers that draw at inference, too: the same at every evaluation.

    With the number of the batch, which each ``predict`` begins to count elsewhere.
    """
    return jax.random.key(0)


def _key_of_metrics(key: jax.Array) -> jax.Array:
    """The key of what metrics draw in a step with this key."""
    return jax.random.fold_in(key, random_keys.path_hash("metrics"))


def _items(data: Any, index: Any, count: Any) -> tuple[Any, Any, jax.Array]:
    """What differs between the steps of a chunk: rows, their count, the step."""
    source = index if index is not None else _join_parts(data)
    return source, count, jnp.arange(jax.tree.leaves(source)[0].shape[0])


def _join_parts(data: Any) -> Any:
    """A chunk's batches, which may have come in parts."""
    if not isinstance(data, list):
        return data
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *data)


def _run_once(body: Callable, carry: Any, items: tuple) -> tuple[Any, Any]:
    """As ``jax.lax.scan`` over one item."""
    carry, out = body(carry, jax.tree.map(lambda v: v[0], items))
    return carry, jax.tree.map(lambda v: v[None], out)


def _batch(
    data: Any, item: tuple, placement: OneDevice, least: int | bool = 1
) -> tuple[Any, Any]:
    """The batch of one step, and which of its rows are real (``None``: all).

    Args:
        least: How many are called real, even if fewer are.
    """
    source, count, _ = item
    batch = source
    if not isinstance(source, tuple):  # row numbers into resident data
        index = placement.batch(source)
        batch = jax.tree.map(lambda v: v[index], data)
    batch = placement.batch(batch)
    if count is None:
        return batch, None
    size = jax.tree.leaves(batch)[0].shape[0]
    return batch, placement.batch(_is_real(count[0], size, least))


def batch_at(data: Any, index: Any, count: Any, at: Any, placement: OneDevice) -> Any:
    """One batch of a chunk, and which of its rows are real, in a program."""
    item = jax.tree.map(lambda v: v[at], _items(data, index, count))
    return _batch(data, item, placement)


def _is_real(count: jax.Array, rows: int, least: int | bool = 1) -> jax.Array:
    """Which rows of a batch are real.

    Args:
        count: How many of the first ones; or, ``[parts]``, of each part of the batch.
    """
    if not count.ndim:
        return jnp.arange(rows) < jnp.maximum(count, int(least))
    count = jnp.where(count.any(), count, int(least))
    return (jnp.arange(rows // len(count)) < count[:, None]).reshape(-1)


def _if_active(item: tuple, new: Any, old: Any) -> Any:
    """The new carry; the old one after a step of no rows, which fills up a chunk."""
    count = item[1]
    if count is None or len(count) < 2:
        return new
    active = count[1].any() if count[1].ndim else count[1]
    return jax.tree.map(lambda n, o: jnp.where(active, n, o), new, old)


def batch_weight(
    objective: Objective, batch: Any, row_mask: Any, outputs: tuple, masks: list
) -> Any:
    """What a batch's loss counts for in means: its rows, or its tokens."""
    x, y, w = batch
    if objective.by_tokens and isinstance(beside(outputs), LikelihoodResult):
        return beside(outputs).weight
    if objective.by_tokens:
        return objective.total_weight(y, outputs, w, masks, row_mask)
    return _count_positions(x, row_mask, masks)


def _count_positions(x: Any, row_mask: Any, masks: list[Any]) -> Any:
    """What a batch's mean loss counts for: its rows.

    If each of the outputs has one for every position of rows of unlike lengths, it
    counts for the positions: batches of long rows have more of them.
    """
    if not has_padded(x) or any(mask is None for mask in masks):
        return _count_rows(x, row_mask)
    real = masks[0] if row_mask is None else masks[0] & row_mask[:, None]
    return real.sum(dtype=jnp.float32)


def _count_rows(x: Any, row_mask: Any) -> Any:
    if row_mask is None:
        return float(jax.tree.leaves(x)[0].shape[0])
    return row_mask.sum(dtype=jnp.float32)
