"""The one output of a model that is asked about, its rows and their targets."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from exburn.core.checks import check_count
from exburn.core.symbolic_shapes import describe
from exburn.data import ArrayDataset, RaggedDataset, StreamDataset, has_packed
from exburn.data.trees import in_order
from exburn.errors import ArgumentError, DataError, ShapeError
from exburn.insight.requirements import choose_output
from exburn.losses.catalogue import as_loss
from exburn.models.arguments import BATCH, check_model, first_batch, part_names
from exburn.models.encoding import encode_dataset, read_dataset
from exburn.models.inferring import require_predictor
from exburn.models.network import Network
from exburn.models.output_kinds import loss_of_each, output_kinds
from exburn.models.preparing import (
    choose_batch_size,
    closed_if_it_fails,
    fixed_batch_size,
    guard_run,
    prepare,
)
from exburn.training.feed.chunking import FeedRequest, make_feed
from exburn.training.module import SplitModule
from exburn.training.output_collector import OutputCollector
from exburn.training.overrides import overrides
from exburn.training.program import Programs
from exburn.training.trainer import Trainer
from exburn.tuning.calibration import class_labels, class_probabilities
from exburn.tuning.ensemble import Ensemble

#: ``(split, arrays, extra, x) → [rows, …]`` of a batch, whose ``repr`` tells it apart.
RowProgram = Callable[[SplitModule, Any, Any, Any], Any]
FAMILIES = ("softmax", "sigmoid", "values")


@dataclasses.dataclass(frozen=True)
class OutputHead:
    """An output of a model, and how its numbers are read.

    Attributes:
        number: Its place among the leaves of the outputs.
        name: Its name; its number as a text where it has none.
        count: Number of the model's outputs.
        family: ``"softmax"``, ``"sigmoid"`` of one class against the rest, or
            ``"values"``.
        logits: Whether the softmax or sigmoid is still to be taken.
        shape: Of the output, rows included.
    """

    number: int
    name: str
    count: int
    family: str
    logits: bool
    shape: tuple[Any, ...]

    def check(self) -> None:
        """Raises ``ValueError`` if it is no output, but of a file that was made up."""
        sizes = all(n is None or (type(n) is int and n > 0) for n in self.shape)
        if self.family not in FAMILIES or not sizes or len(self.shape) < 2:
            raise ValueError("it describes no output")
        if not 0 <= self.number < self.count:
            raise ValueError("it names no output")

    @property
    def has_classes(self) -> bool:
        return self.family != "values"

    @property
    def classes(self) -> int:
        """The number of classes, two of a sigmoid."""
        return 2 if self.family == "sigmoid" else int(self.shape[-1])

    def of(self, outputs: Any) -> np.ndarray:
        """The output among a model's outputs, as float64."""
        return np.asarray(jax.tree.leaves(outputs)[self.number]).astype(np.float64)

    def scores(self, output: np.ndarray) -> np.ndarray:
        """Logits ``[…, classes]``: of probabilities their logarithms."""
        if self.family == "sigmoid":
            z = output if self.logits else _log(output) - _log(1 - output)
            return np.concatenate([np.zeros_like(z), z], -1)
        return output if self.logits else _log(output)

    def probabilities(self, output: np.ndarray, op: str) -> np.ndarray:
        """Probabilities ``[…, classes]``, checked."""
        if self.logits:
            return softmax(self.scores(output))
        flat = class_probabilities(output, op)
        return flat.reshape(*output.shape[:-1], flat.shape[-1])


def softmax(z: np.ndarray) -> np.ndarray:
    """Probabilities of logits, over the last axis.

    Example:
        >>> softmax(np.array([[0.0, 0.0]])).tolist()
        [[0.5, 0.5]]
    """
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _log(p: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(p, np.finfo(np.float32).tiny))


def find_head(model: Network, output: int | str | None, op: str) -> OutputHead:
    """The output that is meant; nothing is compiled.

    Raises:
        ArgumentError: The model has several outputs, of which none is named; or the
            output has a probability for each of several labels.
        NotBuiltError: The model has not been called yet.
        UnknownNameError: There is no such output.
    """
    check_model(op, model)
    if require_predictor(model).holder.placement.spans_processes:
        raise ArgumentError(op, f"{op} is for one process")
    kinds = output_kinds(model, op=op)
    names = part_names(model)[1] or [str(n) for n in range(len(kinds))]
    number = choose_output(list(names), output, op)
    kind = kinds[number]
    family = kind.family
    if family == "values" and _makes_probabilities(model, number, len(kinds)):
        family = "sigmoid" if kind.shape[-1] == 1 else "softmax"
    if family == "sigmoid" and kind.shape[-1] != 1:
        raise ArgumentError(
            op,
            f"the output {names[number]!r} has a probability for each of "
            f"{kind.shape[-1]} labels, which is not supported",
            hint="It is one class of several (softmax), or one against the rest.",
        )
    shape = tuple(n if isinstance(n, int) else None for n in kind.shape)
    return OutputHead(number, names[number], len(kinds), family, kind.logits, shape)


def _makes_probabilities(model: Network, number: int, count: int) -> bool:
    """Whether an output whose end tells nothing is of probabilities all the same."""
    if isinstance(model, Ensemble):
        return model.kinds[number] != "values"
    loss = loss_of_each(model, count)[number]
    loss = as_loss(loss) if loss is not None else None
    return getattr(loss, "from_logits", None) is not None


def rows_of_step(model: Network, batch_size: int | None, op: str) -> int:
    """Rows of a step: those that are asked for, or that the model's Input fixed."""
    if batch_size is None:
        return fixed_batch_size(model) or BATCH
    return check_count(op, "batch_size", batch_size)


@dataclasses.dataclass(frozen=True)
class ModelOutputs:
    """The program of a model's outputs as they are."""

    def __call__(self, split: Any, arrays: Any, extra: Any, x: Any) -> Any:
        key = jax.random.key(0)
        return split.forward(arrays, x, training=False, key=key)[0]


@dataclasses.dataclass(frozen=True)
class OutputMask:
    """The program of the mask of an output, which says what places of a row count.

    There is none, and nothing is returned, where nothing is masked.
    """

    number: int

    def __call__(self, split: Any, arrays: Any, extra: Any, x: Any) -> Any:
        key = jax.random.key(0)
        outputs, _, ctx = split.forward(arrays, x, training=False, key=key)
        return ctx.attachments(outputs)[1][self.number]


class LabelledRows:
    """Rows and their targets, as ``fit`` takes them; nothing is computed yet.

    Places that are masked, and rows and places of weight 0, do not count, as in losses.

    Attributes:
        rows: How many there are.
        parts: Their inputs, as data sets.
        targets: Of each output, in the structure of ``y``; or ``None``.
        weights: Of the rows, or of the places of each output; or ``None``.

    Raises:
        DataError, ShapeError: The data do not fit the model.
    """

    def __init__(self, model: Network, x: Any, y: Any, op: str):
        self._model, self._op = model, op
        dataset = read_dataset(model, x, y, op=op)
        if isinstance(dataset, StreamDataset):
            with closed_if_it_fails(dataset):
                if dataset.batches is not None and dataset.batches == sys.maxsize:
                    raise DataError(op, "the stream has no end", hint="Cut it.")
                batches = list(dataset.iterate())
            dataset.close()
            self.parts = [ArrayDataset.of((b[0], None, None)) for b in batches]
            trees = [batch[1:] for batch in batches]
            tree: Any = jax.tree.map(lambda *v: np.concatenate(v), *trees)
        else:
            if isinstance(dataset, RaggedDataset) or has_packed(dataset.tree[0]):
                raise DataError(
                    op,
                    "rows of unlike lengths, and packed ones, are not supported",
                    hint="Fill them up to one length.",
                )
            self.parts = [dataset.like((dataset.tree[0], None, None))]
            tree = dataset.tree[1:]
        self.rows = sum(part.size for part in self.parts)
        self.targets, self.weights = tree[0], tree[1] if len(tree) > 1 else None

    def chunks(self, program: RowProgram, extra: Any, batch_size: int) -> Iterator[Any]:
        """What a program gives of the rows, some at a time."""
        for part in self.parts:
            args = part, batch_size, program, extra, self._op
            yield from run_rows(self._model, *args)

    def run(self, program: RowProgram, extra: Any, batch_size: int) -> Any:
        """What a program gives of all rows."""
        chunks = self.chunks(program, extra, batch_size)
        return jax.tree.map(lambda *v: np.concatenate(v), *chunks)

    def outputs(self, batch_size: int) -> Any:
        """The model's outputs, in their structure."""
        return self.run(ModelOutputs(), (), batch_size)

    def call(self, function: Callable[[Any], Any]) -> np.ndarray:
        """What a function makes of the inputs, as float64."""
        parts = [function(part.tree[0]) for part in self.parts]
        return np.concatenate([np.asarray(part, np.float64) for part in parts])

    def read(
        self, head: OutputHead, batch_size: int, value_shape: Any = None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """The targets of an output, of rows and places that count, and which these are.

        Args:
            value_shape: Of the values of a row; by default that of the output.

        Returns:
            Labels ``[rows, …]`` of classes, or values; and ``valid_places``.

        Raises:
            DataError, ShapeError: They are none of this output.
        """
        if self.targets is None:
            raise DataError(self._op, "there are no targets", hint="Pass y beside x.")
        counts = self.valid_places(head, batch_size)
        leaf = np.asarray(self._leaf(self.targets, head))
        if head.has_classes:
            y = select(self._labels(leaf, head), counts)
            places = y.shape[: 1 if counts is not None else len(head.shape) - 1]
            labels = class_labels(y, int(np.prod(places)), head.classes, self._op)
            return labels.reshape(places), counts
        shape = head.shape[1:] if value_shape is None else value_shape
        y = select(self._values(leaf.astype(np.float64), head, shape), counts)
        check_finite_rows(y, "the target", self._op)
        return y, counts

    def valid_places(self, head: OutputHead, batch_size: int) -> np.ndarray | None:
        """Which rows, or which places ``[rows, …]`` of them, count; ``None``: all.

        Raises:
            DataError: A weight is neither 0 nor 1, or nothing counts.
        """
        counts = self._mask(head, batch_size)
        if self.weights is not None:
            own = self._weights_of(head)
            if counts is not None:
                own, counts = own.T, counts.T  # rows last, so that they are broadcast
                counts = (own & counts).T
            else:
                counts = own
        if counts is not None and not counts.any():
            raise DataError(self._op, "no row counts: all are masked, or of weight 0")
        return counts

    def _mask(self, head: OutputHead, batch_size: int) -> np.ndarray | None:
        """The mask of the output, if it has places and these can be masked."""
        if len(head.shape) < 3:
            return None
        program = OutputMask(head.number)
        split, x = prepare_rows(self._model, self.parts[0], batch_size, self._op)
        mask = jax.eval_shape(lambda g, x: program(split, g, (), x), split.peek(), x)
        if mask is None:
            return None
        return self.run(program, (), batch_size).astype(bool)

    def _weights_of(self, head: OutputHead) -> np.ndarray:
        """Which rows, or places, have the weight 1."""
        weights = np.asarray(self._leaf(self.weights, head))
        if weights.ndim > 1 and weights.shape[-1] == 1:
            weights = weights[..., 0]
        if not np.isin(weights, (0, 1)).all():
            reason = "weights of rows are 0 or 1 here: each counts once"
            raise DataError(self._op, reason)
        shape = _full_shape((self.rows, *head.shape[1:])[: weights.ndim], weights.shape)
        if weights.shape != shape:
            facts = {"weights": weights.shape, "rows": shape}
            raise ShapeError(self._op, "weights must be of rows or places", facts)
        return weights.astype(bool)

    def _leaf(self, tree: Any, head: OutputHead) -> Any:
        """What is of an output among what there is of all."""
        names = part_names(self._model)[1]
        if isinstance(tree, Mapping) and head.name in tree:
            return tree[head.name]
        leaves = jax.tree.leaves(in_order(tree, names))
        if len(leaves) not in (1, head.count):
            raise DataError(
                self._op,
                f"there are {len(leaves)} targets for {head.count} outputs",
                hint="Pass those of all outputs, or of the one asked about.",
            )
        return leaves[head.number if len(leaves) > 1 else 0]

    def _labels(self, y: np.ndarray, head: OutputHead) -> np.ndarray:
        """Labels ``[rows, …]``, or one-hot ones with one more axis."""
        axes = len(head.shape) - 1
        if y.ndim == axes + 1 and y.shape[-1] == 1:
            y = y[..., 0]
        shape = _full_shape((self.rows, *head.shape[1:-1]), y.shape)
        if y.shape not in (shape, (*shape, head.classes)):
            facts = {"labels": y.shape, "rows": shape}
            raise ShapeError(self._op, "there must be one label for each row", facts)
        return y

    def _values(self, y: np.ndarray, head: OutputHead, shape: tuple) -> np.ndarray:
        shape = _full_shape((self.rows, *shape), y.shape)
        if y.shape == (*shape, 1):
            y = y[..., 0]
        if y.shape != shape and y.ndim + 1 == len(shape) and shape[-1] == 1:
            y = y[..., None]
        if y.shape != shape:
            raise ShapeError(
                self._op,
                f"targets must be like the output {head.name!r}, of values",
                {"targets": describe(y), "values": shape},
                hint="Logits are told by the loss: compile with from_logits=True.",
            )
        return y


def _full_shape(shape: tuple, like: tuple) -> tuple:
    """A shape whose sizes that are not known are those of another."""
    return tuple(
        like[axis] if size is None and axis < len(like) else size
        for axis, size in enumerate(shape)
    )


def select(values: np.ndarray, counts: np.ndarray | None) -> np.ndarray:
    """The rows, or the places of rows, that count."""
    return values if counts is None else values[counts]


def check_finite_rows(values: np.ndarray, what: str, op: str) -> None:
    """Raises if a row has NaN or infinity, and names the first."""
    good = np.isfinite(values).reshape(len(values), -1).all(1)
    if not good.all():
        raise DataError(op, f"{what} of row {int(good.argmin())} is not finite")


def run_rows(
    model: Network, x: Any, batch_size: int, program: RowProgram, extra: Any, op: str
) -> Iterator[Any]:
    """What a program gives of the rows of ``x``, chunk by chunk, on the host.

    Args:
        extra: Arrays of any structure for it, beside those of the model.

    Raises:
        ArgumentError: The model has a ``predict_step`` of its own.
        DataError, ShapeError: The data do not fit the model.
    """
    trainer, dataset, rows = _prepare(model, x, batch_size, op)
    programs, holder = trainer.preparer.programs, trainer.holder
    digest = hashlib.sha256(repr(program).encode()).hexdigest()[:16]  # files have it
    name = f"{type(program).__name__} {digest}"
    run = programs.further(name, lambda: _over_chunk(programs, program))
    request = FeedRequest(training=False, use="predict")
    feed = make_feed(trainer.preparer, dataset, rows, request)
    collector, done = OutputCollector(None), 0
    with contextlib.closing(feed), guard_run(model, op, dataset, rows):
        for chunk in feed.epoch(holder.seed, 0):
            with holder.placement.scope():
                arrays = holder.split.read(), extra
                args = *arrays, chunk.data, chunk.index, np.int32(done)
                args, _ = holder.placement.bind(args, 2)
                outputs = holder.placement.local(run(*args))
            yield collector.rows(chunk, outputs)
            done += chunk.steps


def prepare_rows(
    model: Network, x: Any, batch_size: int, op: str
) -> tuple[SplitModule, Any]:
    """The model as arrays, and the form of a batch, of rows that will be run."""
    trainer = _prepare(model, x, batch_size, op)[0]
    return trainer.holder.split, trainer.preparer.batch_specs["predict"][0]


def _prepare(
    model: Network, x: Any, batch_size: int, op: str
) -> tuple[Trainer, Any, int]:
    if overrides(model, "predict_step"):
        raise ArgumentError(
            op,
            f"{type(model).__name__} predicts in its own predict_step, which this pass "
            "does not run",
        )
    dataset = read_dataset(model, x, op=op)
    if isinstance(dataset, ArrayDataset) and dataset.tree[1] is not None:
        dataset = dataset.like((dataset.tree[0], None, None))
    trainer = require_predictor(model)
    rows = choose_batch_size(model, op, batch_size, dataset, None)
    dataset = encode_dataset(model, dataset, op=op, batch_size=rows)
    if isinstance(dataset, RaggedDataset) or has_packed(first_batch(dataset, None)[0]):
        raise DataError(
            op,
            "rows of unlike lengths, and packed ones, are not supported",
            hint="Fill them up to one length.",
        )
    prepare(model, "predict", dataset, batch_size=rows)
    return trainer, dataset, rows


def _over_chunk(programs: Programs, program: RowProgram) -> Callable:
    """The program of a chunk's batches."""

    def run(arrays: Any, extra: Any, data: Any, index: Any, start: Any) -> Any:
        def of_batch(x: Any, key: Any) -> Any:
            return program(programs.split, arrays, extra, x)

        return programs.steps.outputs_of_batches(of_batch, arrays, data, index, start)

    return run
