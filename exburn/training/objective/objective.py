"""What a model is trained for: losses, their weights, and metrics, per output."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from exburn import losses, metrics
from exburn.core.random_keys import key_scope
from exburn.errors import ArgumentError, DataError, LogitsWarning, warn
from exburn.losses.contract.base import copy_with
from exburn.losses.contract.likelihood import LikelihoodResult
from exburn.losses.residual import DATA_LOSS, RESIDUAL_LOSS, equation_of
from exburn.metrics.means import (
    counting_positions,
    counting_values,
    of_no_tokens,
    of_whole_rows,
)
from exburn.runtime.device import chosen_device
from exburn.runtime.kernels.cross_entropy import is_long, spare_after, weighing_rows
from exburn.runtime.kernels.head_loss import knowing
from exburn.training.batch_mixing import loss_mixes_rows, metric_mixes_rows
from exburn.training.check import noting
from exburn.training.objective.arguments import (
    check_divisible,
    check_metrics,
    check_scales,
    get_losses,
    loss_name,
)
from exburn.training.objective.by_output import (
    arrays_by_output,
    flatten_nested,
    is_nested,
    losses_by_output,
    metrics_by_output,
    names_of,
    nested_names,
    unused_name,
)
from exburn.training.objective.likelihood import check_alone, likelihood_loss
from exburn.training.objective.stateful_metrics import OwnMetrics

_OWN = "metrics of the model"  # key of their states among the totals
_BUILT = (  # what `build` makes
    *("terms", "meters", "output_names", "exact_rows", "own", "logged"),
    *("_form", "_stems", "_prefixes", "_built_for"),
)
_ROWS = contextlib.nullcontext()
_KEPT = 8  # fresh totals that stay on the device, for batches of several forms


class _LossMean(metrics.Mean):
    """The running mean of a loss; points to resume from name its weights so."""

    _count_key = "rows"

    def update(self, state: Any, values: Any, sample_weight: Any = None) -> Any:
        """Adds a batch's mean, which counts for its rows, or for its tokens.

        Without the guard of `Mean` for weights of zero: with it XLA rounds the product
        before the sum, and the last bit of logged losses would be another one.
        """
        return {
            "total": state["total"] + values * sample_weight,
            "rows": state["rows"] + sample_weight,
        }


_LOSS_MEAN = _LossMean("loss", "float32")


@dataclasses.dataclass
class _Term:
    output: int
    name: str
    original: losses.Loss
    place: int  # of its weight among the objective's
    probabilities: bool  # whether a softmax or sigmoid ends the output
    by_tokens: bool = False  # whether it is a mean by the weights of its values

    @property
    def loss(self) -> losses.Loss:
        """The loss as it is now: its settings may change."""
        change = getattr(self.original, "with_from_logits", None)
        loss = change(False) if change and self.probabilities else self.original
        if self.by_tokens:
            return copy_with(loss, reduction="mean_with_sample_weight")
        return loss


@dataclasses.dataclass
class _Meter:
    output: int
    name: str
    metric: metrics.Metric
    weighted: bool


class Objective:
    """The losses and metrics of ``compile``, matched to a model's outputs.

    Args:
        by_tokens: Whether the loss and the metrics are sums over the values that count,
            divided once by their weights: ``compile(accumulate="tokens")``.

    Attributes:
        exact_rows: A loss or metric reduces over rows by itself, so a padded last batch
            would change it: the last batch then runs at its own size.
        without_scores: The last training step that was traced has not all scores of
            the output.
    """

    def __init__(
        self,
        loss=None,
        loss_weights=None,
        metrics=None,
        weighted_metrics=None,
        *,
        by_tokens: bool = False,
    ):
        self.by_tokens = by_tokens
        self._loss, self._loss_weights = check_alone(get_losses(loss)), loss_weights
        self._loss_names = get_losses(loss, each=loss_name)
        check_scales(loss_weights)
        if by_tokens:
            check_divisible(self._loss)
        self._metrics, self._weighted = metrics, weighted_metrics
        check_metrics(metrics)
        check_metrics(weighted_metrics)
        self.terms: list[_Term] = []
        self._scales: list[float] = []  # the weights of the terms' losses, always here
        self.meters: list[_Meter] = []
        self.output_names: list[str] = []
        self._form: Any = None  # of the outputs, if they are nested
        self._stems: list[str] = []  # of the names of the outputs' losses in logs
        self._prefixes: list[str] = []  # of the names of their metrics
        self._op = "fit"  # that the targets were given to
        self.exact_rows = self.without_scores = False
        self.own = OwnMetrics()  # those that the model updates
        self.logged: list[str] | None = None  # if the model says what is
        self._doubted: set[int] = set()  # outputs that a warning has named
        self._built_for: Any = (None, None)
        self._fresh: dict[Any, Any] = {}  # fresh totals on the device, by what for

    # ------------------------------------------------------------------ building
    def build(
        self,
        pred_spec: Any,
        y_spec: Any,
        w_spec: Any,
        names,
        ends,
        op: str = "fit",
    ) -> None:
        """Matches losses and metrics to outputs, and checks every shape.

        Args:
            names: Output names of a functional model, or ``None``.
            ends: For each output the function that ends it (``last_functions``); or a
                function that tells, called if other shapes were built before.
        """
        self._op = op
        form = repr((pred_spec, y_spec)), repr(w_spec)
        before, last_ends = self._built_for
        if form == before and (callable(ends) or ends == last_ends):
            return
        self._built_for = None, None  # until this build succeeds
        if callable(ends):
            ends = ends()
        preds = jax.tree.leaves(pred_spec)
        self.output_names = list(names or names_of(pred_spec))
        self._form = pred_spec if is_nested(pred_spec) else None
        named = bool(names) or (isinstance(pred_spec, Mapping) and self._form is None)
        named = named and len(preds) > 1
        self._stems = self.output_names if named else [""] * len(preds)
        self._prefixes = [f"{stem}_" if stem else "" for stem in self._stems]
        if self._form is not None:
            self._stems = nested_names(pred_spec, names)
        targets = self.split_targets(y_spec)
        weights = self.split_weights(w_spec)
        self.exact_rows = equation_of(self._loss) is not None  # it may mix rows
        with key_scope(lambda: jax.random.key(0)):  # traces draw, maybe
            self.terms = self._terms(preds, targets, weights, ends)
            if self.by_tokens and len(self.terms) > 1:
                raise one_divisor(self.parts)
            self.meters = _make_meters(self, preds, targets)
        by_name = isinstance(self._loss, Mapping) and isinstance(pred_spec, Mapping)
        if by_name and self._form is None:
            order = {name: i for i, name in enumerate(self._loss)}
            self.terms.sort(key=lambda t: order[self.output_names[t.output]])
        self._built_for = form, ends

    def built_parts(self) -> dict[str, Any]:
        """What was made of the last shapes; for ``recall``."""
        return {name: vars(self)[name] for name in _BUILT}

    def may_recall(self, built: dict[str, Any]) -> bool:
        """Whether what was built still holds: metrics may have learnt other shapes."""
        then, now = built["_built_for"][0], self._built_for[0]
        same = then is not None and now is not None and then[0] == now[0]
        return same or not any(m.metric.learns_shapes for m in built["meters"])

    def recall(self, built: dict[str, Any]) -> None:
        """Goes back to what was made of other shapes."""
        vars(self).update(built)

    @property
    def loss_weights(self) -> Any:
        """Factors of ``compile``, or set since: they hold from the next batch on."""
        return self._loss_weights

    @loss_weights.setter
    def loss_weights(self, loss_weights: Any) -> None:
        check_scales(loss_weights)
        before, self._loss_weights = self._loss_weights, loss_weights
        try:
            self._weigh()
        except Exception:
            self._loss_weights = before
            raise

    def _weigh(self) -> None:
        """Sets the weights of the losses, for outputs that are known."""
        if self.output_names:
            self._scales[:] = [scale for *_, scale in self._losses()]

    def _losses(self) -> Iterator[tuple[int, Any, Any, float]]:
        """Each loss, with the number of its output before it, its label and weight."""
        return losses_by_output(
            self._flat("loss", self._loss),
            self._flat("loss", self._loss_names),
            self._flat("loss_weights", self._loss_weights),
            self.output_names,
        )

    def _terms(self, preds, targets, weights, ends) -> list[_Term]:
        terms = []
        self._weigh()
        names, taken = self.output_names, {"loss"}
        for place, (i, loss, label, _) in enumerate(self._losses()):
            if loss is None:
                continue
            if targets[i] is None:
                if any(target is not None for target in targets):
                    raise _missing_targets(self._op, names[i])
                continue
            original, end = loss, ends[i] if ends else None
            likely = end in ("softmax", "sigmoid")
            if i not in self._doubted and (doubt := _doubt(original, names[i], end)):
                self._doubted.add(i)
                warn(doubt, LogitsWarning)
            loss = _Term(i, label, original, place, likely, self.by_tokens).loss
            where, output = f"in loss {loss.name!r}", _one_of_several(names, i)
            with noting(where, targets[i], preds[i], output):
                loss.check_shapes(targets[i], preds[i])
                values = jax.eval_shape(loss.call, targets[i], preds[i])
            whole = loss.per_sample is False and loss.masks_rows
            scalar = values.ndim == 0 or loss.per_sample is False
            self.exact_rows |= scalar and not whole
            self.exact_rows |= loss_mixes_rows(loss, targets[i], preds[i])
            stem = self._stems[i]
            name = f"{stem + label if stem[-1:] in ('', '/') else stem}_loss"
            name = unused_name(name, taken)
            terms.append(_Term(i, name, original, place, likely, self.by_tokens))
            if self.by_tokens and scalar:
                raise of_no_tokens("loss", loss.name)
            if weights[i] is not None and len(weights[i].shape) > len(values.shape) > 0:
                raise _wide_weights(self._op, names[i], weights[i], values)
        return terms

    @property
    def losses(self) -> Any:
        """The losses of ``compile``, as objects."""
        return self._loss

    def with_loss(self, old: losses.Loss, new: losses.Loss) -> Objective:
        """The same, with another loss wherever one is; to be built."""
        other = copy.copy(self)
        other._loss = get_losses(self._loss, lambda one: new if one is old else one)
        other._scales, other._fresh = list(self._scales), {}
        other._built_for = None, None
        return other

    # ------------------------------------------------------------------ data
    def split_targets(self, y: Any) -> list[Any]:
        """Targets for each output, ``None`` where there are none."""
        if isinstance(y, Mapping) and likelihood_loss(self._loss) is not None:
            y = y["tokens"]  # the other columns are for the loss alone
        return self._split("y", y)

    def split_weights(self, w: Any) -> list[Any]:
        """Sample weights for each output; one array serves all of them."""
        if hasattr(w, "shape"):
            return [w] * len(self.output_names)
        return self._split("sample_weight", w)

    def _split(self, what: str, tree: Any) -> list[Any]:
        if not self.is_given:  # what compute_loss makes of them is its own affair
            tree = None
        losses = self._flat("loss", self._loss)
        tree = self._flat(what, tree)
        return arrays_by_output(self._op, what, tree, self.output_names, losses)

    def _flat(self, what: str, tree: Any) -> Any:
        """What was given for nested outputs, as a list; else as it is."""
        if self._form is None or not isinstance(tree, Mapping | list | tuple):
            return tree
        return flatten_nested(what, tree, self._form) if tree else tree

    # ------------------------------------------------------------------ computing
    def loss(self, y, outputs, w, masks, row_mask) -> tuple[jax.Array, dict[str, Any]]:
        """The weighted sum of the losses, and each of them by name.

        ``outputs`` are the model's, and for each of them the padded logits, if any.
        """
        preds, filled = jax.tree.leaves(outputs[0]), outputs[1]
        targets, weights = self.split_targets(y), self.split_weights(w)
        total, parts = jnp.zeros((), jnp.float32), {}
        for term in self.terms:
            i = term.output
            pred, classes = _seen_by(term.loss, targets[i], preds[i], filled[i])
            place = noting(f"in loss {term.loss.name!r}", targets[i], pred)
            with place, spare_after(classes):
                value = term.loss(
                    targets[i],
                    pred,
                    sample_weight=weights[i],
                    mask=masks[i],
                    row_mask=row_mask,
                ).astype(jnp.float32)
            parts[term.name] = value
            total = total + self._scales[term.place] * value
        return total, parts

    def total_weight(self, y, outputs, w, masks, row_mask) -> jax.Array:
        """The weight of a batch's loss by tokens: of all values that count in it."""
        (term,) = self.terms  # `build` refuses several
        i = term.output
        pred = jax.tree.leaves(outputs[0])[i]
        target, weight = self.split_targets(y)[i], self.split_weights(w)[i]
        return term.loss.total_weight(target, pred, weight, masks[i], row_mask)

    def init(self) -> dict[str, Any]:
        """Fresh totals."""
        state: dict[str, Any] = {n: _LOSS_MEAN.init() for n in _mean_names(self)}
        for meter in self.meters:
            state[meter.name] = meter.metric.init()
        return state | ({_OWN: self.own.init()} if self.own.names else {})

    def fresh(self) -> dict[str, Any]:
        """Fresh totals on the device, the same ones each time: none consumes them."""
        key = self._built_for, self.own, chosen_device()
        totals = self._fresh.get(key)
        # A program that failed may have deleted them.
        if totals is None or any(v.is_deleted() for v in jax.tree.leaves(totals)):
            while len(self._fresh) >= _KEPT:
                del self._fresh[next(iter(self._fresh))]
            totals = self._fresh[key] = jax.device_put(self.init())
        return totals

    def update(
        self,
        totals,
        loss,
        parts,
        y,
        outputs,
        w,
        masks,
        row_mask,
        rows,
        *,
        graded=False,
        ragged=False,
    ):
        """Totals after one batch of ``rows`` real rows.

        Args:
            graded: The gradients of these losses were computed, in the same program.
            outputs: As of `loss`, and what is known of the rows (``ScoredRows``)
                where scores were not made, or of a loss of log-probabilities.
            ragged: Whether the rows have unlike lengths: metrics of their positions
                count each of them once.
        """
        preds, filled = jax.tree.leaves(outputs[0]), outputs[1]
        totals, scored = _with_figures(dict(totals), beside(outputs))
        values = {"loss": loss, **parts}
        for name in ("loss", *self.parts):  # that of a single loss is not logged
            if name in values:
                value = _mean(values[name], row_mask)
                totals[name] = _LOSS_MEAN.update(totals[name], value, rows)
        if not self.meters:
            return totals
        targets, weights = self.split_targets(y), self.split_weights(w)
        factors: dict[int, Any] = {}
        for term in self.terms if graded else ():
            i = term.output
            pred, classes = _seen_by(term.loss, targets[i], preds[i], filled[i])
            with spare_after(classes):
                factors[i] = term.loss.row_factors(
                    targets[i], pred, weights[i], masks[i], row_mask
                )
        counted = weights
        if self.by_tokens:
            counted = _count_weights(self.terms, targets, preds, weights)
        for meter, weight in _weigh_meters(
            self.meters, counted, masks, row_mask, ragged, self.by_tokens
        ):
            i = meter.output
            pred, classes = _seen_by(meter.metric, targets[i], preds[i], filled[i])
            place = noting(f"in metric {meter.name!r}", targets[i], pred)
            counts: Any = counting_values() if self.by_tokens else _ROWS
            if ragged and masks[i] is not None and not self.by_tokens:
                counts = counting_positions()
            weighs = weighing_rows(factors.get(i))
            with place, counts, spare_after(classes), weighs, knowing(scored):
                totals[meter.name] = meter.metric.update(
                    totals[meter.name], targets[i], pred, sample_weight=weight
                )
        return totals

    def measure(self, y: Any, outputs: Any, w: Any, masks: list[Any]) -> None:
        """Updates the metrics of ``compile`` themselves with a batch."""
        preds = jax.tree.leaves(outputs)
        targets, weights = self.split_targets(y), self.split_weights(w)
        for meter, weight in _weigh_meters(self.meters, weights, masks, None):
            i = meter.output
            options = {} if weight is None else {"sample_weight": weight}
            with noting(f"in metric {meter.name!r}", targets[i], preds[i]):
                meter.metric.update_state(targets[i], preds[i], **options)

    def states(self, totals: dict[str, Any]) -> dict[str, Any]:
        """The states of the metrics that the model updates."""
        return totals.get(_OWN, {})

    def with_states(self, totals: dict[str, Any], states: Any) -> dict[str, Any]:
        """The totals with others in their place."""
        return {**totals, _OWN: states} if states else totals

    def results(self, totals) -> dict[str, jax.Array]:
        """Running means of the losses, and the metrics' values."""
        meters = {m.name: m.metric for m in self.meters}
        means = {
            name: meters.get(name, _LOSS_MEAN).compute(state)
            for name, state in totals.items()
            if name != _OWN
        }
        # One that is called "loss" takes the place of the engine's, as in Keras.
        values = means | self.own.results(self.states(totals))
        return {name: values[name] for name in values if self._logs(name)}

    @property
    def names(self) -> list[str]:
        """Names of the logs, in the order of what ``evaluate`` returns, Keras'."""
        meters = [m.name for m in self.meters]
        plain, last = ([], sorted(meters)) if any(self._prefixes) else (meters, [])
        names = ["loss", *_figures(self), *plain, *self.parts, *self.own.names, *last]
        return [name for name in dict.fromkeys(names) if self._logs(name)]

    def _logs(self, name: str) -> bool:
        return self.logged is None or name in self.logged

    @property
    def settings(self) -> dict[str, Any]:
        """What holds the numbers of losses, their weights and metrics, by name."""
        settings = {"loss": self._loss, "loss_weights": self._scales}
        return settings | {meter.name: meter.metric for meter in self.meters}

    @property
    def parts(self) -> list[str]:
        """Names of the losses, where there are several."""
        return _part_names(self)

    @property
    def is_built(self) -> bool:
        """Whether losses and metrics are matched to outputs."""
        return self._built_for[0] is not None

    @property
    def is_given(self) -> bool:
        """Whether ``compile`` was given a loss or a metric."""
        return any((self._loss, self._metrics, self._weighted))

    @property
    def has_metrics(self) -> bool:
        """Whether ``compile`` was given metrics."""
        return bool(self._metrics or self._weighted)

    @property
    def wants_targets(self) -> bool:
        return getattr(self._loss, "reads_targets", self._loss is not None)


def _part_names(objective: Objective) -> list[str]:
    equation, terms = equation_of(objective.losses), objective.terms
    if equation is not None and equation.reads_targets:
        return [DATA_LOSS, RESIDUAL_LOSS]
    return [term.name for term in terms] if len(terms) > 1 else []


def _figures(objective: Objective) -> tuple[str, ...]:
    """Names of what a loss of log-probabilities tells beside itself."""
    loss = likelihood_loss(objective.losses)
    return () if loss is None else loss.figures


def _mean_names(objective: Objective) -> tuple[str, ...]:
    """Names of what is the mean of numbers that batches have."""
    return "loss", *objective.parts, *_figures(objective)


def _with_figures(totals: dict[str, Any], scored: Any) -> tuple[dict[str, Any], Any]:
    """The totals with what such a loss tells of a batch; else what is of its rows."""
    if not isinstance(scored, LikelihoodResult):
        return totals, scored
    for name, (value, weight) in scored.figures.items():
        totals[name] = _LOSS_MEAN.update(totals[name], value, weight)
    return totals, None


def beside(outputs: tuple) -> Any:
    """What came with outputs: what is known of their rows, or a loss of them."""
    return outputs[2] if len(outputs) > 2 else None


def check_positions(objective: Objective, y: Any, outputs: Any, masks: Any) -> None:
    """Raises if a loss would count positions that are filled up."""
    preds, targets = jax.tree.leaves(outputs), objective.split_targets(y)
    for term in objective.terms:
        target, pred = targets[term.output], preds[term.output]
        if masks[term.output] is None:
            continue
        if jax.eval_shape(term.loss.call, target, pred).ndim < 2:
            raise of_whole_rows(term.loss.name)


def _make_meters(objective: Objective, preds: list, targets: list) -> list[_Meter]:
    """The metrics of ``compile``, each built for its output."""
    meters: list[_Meter] = []
    names = objective.output_names
    taken = {"loss", *objective.parts}
    for spec, weighted in ((objective._metrics, False), (objective._weighted, True)):
        spec = objective._flat("metrics", spec)
        for i, identifiers in enumerate(metrics_by_output(spec, names)):
            for identifier in identifiers:
                if targets[i] is None:
                    continue
                label = getattr(identifier, "name", None) or getattr(
                    identifier, "__name__", identifier
                )
                where, output = f"in metric {label!r}", _one_of_several(names, i)
                with noting(where, targets[i], preds[i], output):
                    metric = metrics.resolve(identifier, targets[i], preds[i])
                    metric.build(targets[i], preds[i])
                    jax.eval_shape(metric.compute, metric.init())
                objective.exact_rows |= getattr(metric, "per_sample", True) is False
                objective.exact_rows |= metric_mixes_rows(metric, targets[i], preds[i])
                if objective.by_tokens and objective.exact_rows:
                    raise of_no_tokens("metric", metric.name)
                prefix = objective._prefixes[i]
                name = prefix + metric.name
                if weighted and name in taken:
                    name = f"{prefix}weighted_{metric.name}"
                meters.append(_Meter(i, unused_name(name, taken), metric, weighted))
    return meters


def _count_weights(
    terms: list[_Term], targets: list, preds: list, weights: list
) -> list:
    """The weights of outputs, 0 where their loss leaves a value out."""
    counted = list(weights)
    for term in terms:
        i = term.output
        ignored = term.loss.ignored(targets[i], preds[i])
        if ignored is not None:
            counted[i] = _meter_weight(weights[i], ~ignored, None)
    return counted


def _one_of_several(names: Any, output: int) -> str | None:
    """The output's name, where there are others."""
    return names[output] if len(names) > 1 else None


def _weigh_meters(
    meters: list[_Meter], weights, masks, row_mask, ragged=False, by_tokens=False
) -> Iterator[tuple[_Meter, Any]]:
    """Each metric, and what weighs the rows of its output; ``None``: nothing.

    Args:
        by_tokens: Metrics without weights leave out what has none: it is not counted.
    """
    for meter in meters:
        weight = weights[meter.output]
        if not meter.weighted and weight is not None:
            weight = (weight != 0).astype(jnp.float32) if by_tokens else None
        mask, rank = masks[meter.output], meter.metric.values_rank
        if mask is not None and rank is not None and mask.ndim > max(rank, 1):
            if ragged or by_tokens:
                raise of_whole_rows(meter.name)
            mask = None  # of steps, where the metric has values of whole rows
        yield meter, _meter_weight(weight, mask, row_mask)


def one_divisor(losses: list[str]) -> ArgumentError:
    """The error of several losses, each of which would be divided by another sum."""
    return ArgumentError(
        "compile",
        "accumulate='tokens' divides one loss by its tokens, the model has "
        f"{len(losses)}: {', '.join(losses)}",
        hint="Leave out accumulate: the loss of a step is then the sum of their means.",
    )


def _missing_targets(op: str, output: str) -> DataError:
    return DataError(
        op,
        f"every output with a loss needs targets: those of {output!r} are missing",
        hint=f"Pass y[{output!r}], or compile without a loss for it.",
    )


def _wide_weights(op: str, output: str, weights: Any, values: Any) -> DataError:
    return DataError(
        op,
        f"sample_weight has rank {len(weights.shape)}, the loss of {output!r} has rank "
        f"{len(values.shape)}",
        hint="One number weighs each row: sample_weight of shape (rows,).",
    )


def _seen_by(reader: Any, target: Any, pred: Any, filled: Any) -> tuple[Any, Any]:
    """An output as a loss or metric reads it: with spare classes where it may.

    Returns:
        The array, and its number of classes if there are spare ones after them.
    """
    # Not by inheritance: a subclass may count the classes.
    may = vars(type(reader)).get("takes_spare_classes")
    if filled is None or may is None or not may(reader, target, pred):
        return pred, None
    if isinstance(reader, metrics.Metric) and not is_long(filled):
        # Else XLA puts the metric into the kernel of the loss's gradient, whose memory
        # traffic then takes half as long again.
        filled = jax.lax.optimization_barrier(filled)
    return filled, pred.shape[-1]


def _mean(value: jax.Array, row_mask: Any) -> jax.Array:
    """The mean over the real rows of a loss that keeps them apart."""
    value = jax.lax.stop_gradient(value)
    if value.ndim and row_mask is not None:
        row_mask = row_mask.reshape(-1, *[1] * (value.ndim - 1))
    return value.mean(where=row_mask) if value.ndim else value


def _meter_weight(weight, mask, row_mask):
    """Sample weights of a metric: given weights × mask × real rows."""
    for extra in (mask, row_mask):
        if extra is None:
            continue
        extra = extra.astype(jnp.float32)
        if weight is None:
            weight = extra
            continue
        rank = max(weight.ndim, extra.ndim)
        weight, extra = (
            v.reshape(v.shape + (1,) * (rank - v.ndim)) for v in (weight, extra)
        )
        weight = jnp.where(extra > 0, weight * extra, 0.0)
    return weight


def _doubt(loss: Any, output: str, end: str | None) -> str | None:
    """A warning, where a loss takes an output for logits, or not, against its end.

    A loss that finds out by itself (``with_from_logits``) is right anyhow.
    """
    logits = getattr(loss, "from_logits", None)
    if hasattr(loss, "with_from_logits"):
        return None
    if logits is True and end in ("softmax", "sigmoid"):
        return (
            f"the loss {loss.name!r} takes the output {output!r} as logits, and a "
            f"{end} makes it: probabilities are taken twice.\n"
            "  → Leave that activation out, or pass from_logits=False."
        )
    if logits is False and end == "affine":
        activation = "sigmoid" if "binary" in loss.name else "softmax"
        return (
            f"the loss {loss.name!r} takes the output {output!r} as probabilities, and "
            "its last layer has no activation: they are any numbers, which are clipped."
            f"\n  → Pass from_logits=True to the loss, or end in a {activation}."
        )
    return None
