"""The one output of a model that is asked about, its rows and their targets."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
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
from exburn.models.arguments import BATCH, check_model, part_names
from exburn.models.encoding import read_dataset
from exburn.models.inferring import predict, require_predictor
from exburn.models.network import Network
from exburn.models.output_kinds import loss_of_each, output_kinds
from exburn.models.preparing import closed_if_it_fails, fixed_batch_size
from exburn.tuning.calibration import class_labels, class_probabilities
from exburn.tuning.ensemble import Ensemble

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
    return OutputHead(
        number, names[number], len(kinds), family, kind.logits, kind.shape
    )


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


class LabelledRows:
    """Rows and their targets, as ``fit`` takes them; nothing is computed yet.

    Attributes:
        rows: How many there are.
        parts: Their inputs, as data sets.
        targets: Of each output, in the structure of ``y``; or ``None``.

    Raises:
        DataError, ShapeError: The data do not fit the model, or have weights.
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
        if len(tree) > 1 and tree[1] is not None:
            raise DataError(op, "weights of rows are not supported: each counts once")
        self.targets = tree[0]

    def outputs(self, batch_size: int) -> Any:
        """The model's outputs, in their structure."""
        parts: list[Any] = [
            predict(self._model, part, batch_size, verbose=0) for part in self.parts
        ]
        return jax.tree.map(lambda *v: np.concatenate(v), *parts)

    def call(self, function: Callable[[Any], Any]) -> np.ndarray:
        """What a function makes of the inputs, as float64."""
        parts = [function(part.tree[0]) for part in self.parts]
        return np.concatenate([np.asarray(part, np.float64) for part in parts])

    def targets_of(
        self, head: OutputHead, value_shape: tuple[Any, ...] | None = None
    ) -> np.ndarray:
        """The targets of an output: labels of classes, or values.

        Args:
            value_shape: Of the values of a row; by default that of the output.

        Raises:
            DataError, ShapeError: They are none of this output.
        """
        y, names = self.targets, part_names(self._model)[1]
        if y is None:
            raise DataError(self._op, "there are no targets", hint="Pass y beside x.")
        if isinstance(y, Mapping) and head.name in y:
            leaf = y[head.name]
        else:
            leaves = jax.tree.leaves(in_order(y, names))
            if len(leaves) not in (1, head.count):
                raise DataError(
                    self._op,
                    f"there are {len(leaves)} targets for {head.count} outputs",
                    hint="Pass those of all outputs, or of the one asked about.",
                )
            leaf = leaves[head.number if len(leaves) > 1 else 0]
        leaf = np.asarray(leaf)
        if head.has_classes:
            places = tuple(head.shape[1:-1])
            count = int(np.prod(places, dtype=int)) * self.rows
            labels = class_labels(leaf, count, head.classes, self._op)
            return labels.reshape(self.rows, *places)
        shape = head.shape[1:] if value_shape is None else value_shape
        return self._values(leaf.astype(np.float64), head, (self.rows, *shape))

    def _values(self, y: np.ndarray, head: OutputHead, shape: tuple) -> np.ndarray:
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
        check_finite_rows(y, "the target", self._op)
        return y


def check_finite_rows(values: np.ndarray, what: str, op: str) -> None:
    """Raises if a row has NaN or infinity, and names the first."""
    good = np.isfinite(values).reshape(len(values), -1).all(1)
    if not good.all():
        raise DataError(op, f"{what} of row {int(good.argmin())} is not finite")
