"""The data of a training: read, split, checked, and a model made ready for them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from exburn import config
from exburn.data import ArrayDataset, StreamDataset, split, with_targets_like
from exburn.errors import ArgumentError, locate
from exburn.models.arguments import (
    check_ends,
    check_enough,
    check_repeats,
    first_batch,
    part_names,
    positive,
    warn_of_end,
)
from exburn.models.encoding import encode_dataset, read_dataset, read_validation
from exburn.models.preparing import (
    choose_batch_size,
    closed_if_it_fails,
    fixed_batch_size,
    prepare,
)
from exburn.models.training_settings import require_trainer
from exburn.models.weighting import check_known_classes, class_weights
from exburn.training.feed.base import count_steps

if TYPE_CHECKING:
    from exburn.models.model import Model

Dataset = ArrayDataset | StreamDataset


@dataclasses.dataclass
class FitData:
    """What a model is trained and validated on.

    Attributes:
        op: The operation that errors name: ``"fit"``.
        dataset, validation: The data.
        batch_size, validation_batch_size: Rows of a step.
        steps, validation_steps: Steps of an epoch and of a validation, if not all.
        shuffle: As of ``fit``.
        class_weight: As of ``fit``; the rows are weighted already.
        sources: Both data sets as they were given, before they are encoded and
            weighted.
    """

    op: str
    dataset: Dataset
    validation: Dataset | None
    batch_size: int
    validation_batch_size: int | None
    steps: int | None
    validation_steps: int | None
    shuffle: bool | str
    class_weight: Mapping[Any, float] | None
    sources: tuple[Dataset, Dataset | None]

    @property
    def is_read_once(self) -> bool:
        """Whether the data, or those of the validation, are a generator's."""
        both = self.dataset, self.validation
        return not all(getattr(one, "reiterable", True) for one in both)

    def options(self) -> dict[str, Any]:
        """What the result of a training on them depends on, beside the rows."""
        own = {
            "class_weight": self.class_weight,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "steps_per_epoch": self.steps,
        }
        if self.validation is None:
            return own
        return own | {
            "validation_data.batch_size": self.validation_batch_size,
            "validation_data.steps": self.validation_steps,
        }

    @property
    def known_steps(self) -> int | None:
        """Steps of an epoch, as far as they are known before it runs."""
        return count_steps(self.dataset, self.batch_size, self.steps)


def read_fit_data(
    model: Model,
    x: Any,
    y: Any,
    sample_weight: Any,
    *,
    batch_size: int | None,
    validation_split: float,
    validation_data: Any,
    shuffle: bool | str,
    class_weight: Mapping[Any, float] | None,
    steps_per_epoch: int | None,
    validation_steps: int | None,
    validation_batch_size: int | None,
    initial_epoch: int = 0,
    resident: bool | None = None,
    op: str = "fit",
) -> FitData:
    """Reads what ``fit`` is given, and checks all that does not need the model built.

    Args:
        model: A compiled model.
        op: The operation that errors name.
        **others: As of ``fit``.
    """
    require_trainer(model, op)
    if shuffle not in (True, False, "batch"):
        raise ArgumentError(
            op, f"shuffle must be True, False or 'batch', received {shuffle!r}"
        )
    if resident not in (None, True, False):
        raise ArgumentError(
            op, f"resident must be True, False or None, received {resident!r}"
        )
    dataset = read_dataset(model, x, y, sample_weight, op=op)
    if resident and not isinstance(dataset, ArrayDataset):
        raise ArgumentError(
            op,
            "only arrays can stay on the device, received a loader of batches",
            hint="Leave out resident=True, or give arrays.",
        )
    held_out = f"{op} (validation data)"
    validation = None
    if validation_data is not None:
        whole = steps_per_epoch is None or validation_steps is None
        if validation_data is x:
            check_repeats(dataset, whole=whole, steps=steps_per_epoch)
        validation = read_validation(model, validation_data, op=held_out)
    elif validation_split:
        dataset, validation = split(dataset, validation_split)
    if validation is not None:
        rows = validation_batch_size or batch_size
        validation_batch_size = choose_batch_size(
            model, op, rows, validation, validation_steps
        )
        warn_of_end(validation_steps, validation, validation_batch_size)
    batch_size = choose_batch_size(model, op, batch_size, dataset, steps_per_epoch)
    check_enough("steps_per_epoch", steps_per_epoch, dataset, batch_size)
    data = FitData(
        op,
        dataset,
        validation,
        batch_size,
        validation_batch_size,
        steps_per_epoch,
        validation_steps,
        shuffle,
        class_weight,
        (dataset, validation),
    )
    encode_for(model, data, initial_epoch)
    if (limit := config.max_steps_per_epoch()) is not None:
        data.steps = limit if data.known_steps is None else min(data.known_steps, limit)
    check_ends(op, "steps_per_epoch", data.steps, data.dataset)
    check_ends(op, "validation_steps", validation_steps, data.validation)
    return data


def encode_for(model: Model, data: FitData, initial_epoch: int = 0) -> None:
    """Makes of the sources what a model's program takes, with the rows weighted.

    Args:
        model: The model, whose lookups run on the host.
        data: The data of a training; ``dataset`` and ``validation`` are set.
        initial_epoch: As of ``fit``.
    """
    op, (dataset, validation) = data.op, data.sources
    with closed_if_it_fails(dataset, validation):
        dataset = encode_dataset(
            model, dataset, op=op, batch_size=data.batch_size, shuffle=data.shuffle
        )
        if validation is not None:
            validation = encode_dataset(
                model,
                validation,
                op=f"{op} (validation data)",
                batch_size=data.validation_batch_size or data.batch_size,
            )
    if isinstance(dataset, StreamDataset):
        holder = require_trainer(model, op).holder
        dataset.first_epoch = initial_epoch
        dataset.earlier = holder.epochs_before(initial_epoch)
    if data.class_weight is not None:
        dataset = class_weights(dataset, data.class_weight, op)
    data.dataset, data.validation = dataset, validation


def prepare_for_fit(model: Model, data: FitData) -> Any:
    """Builds and checks a model for the data; nothing is compiled.

    Returns:
        Specs of the outputs; the validation data have their targets' form from now on.
    """
    trainer, op = require_trainer(model, data.op), data.op
    batch_size = data.batch_size
    if data.validation is not None:
        # As they will be read.
        seed = trainer.holder.seed if data.shuffle else None
        first = first_batch(data.dataset, seed, fixed_batch_size(model), batch_size)
        with _noting("in the validation data"):
            names = part_names(model)[1]
            data.validation = with_targets_like(data.validation, first[1], names)
            with closed_if_it_fails(data.dataset, data.validation):
                prepare(
                    model,
                    f"{op} (validation data)",
                    data.validation,
                    like=first,
                    batch_size=data.validation_batch_size or batch_size,
                )
    with closed_if_it_fails(data.dataset, data.validation):
        outputs = prepare(
            model,
            op,
            data.dataset,
            train=True,
            shuffle=data.shuffle,
            batch_size=batch_size,
        )
        if data.class_weight is not None:
            check_known_classes(op, data.class_weight, outputs)
    return outputs


def check_step_counts(
    op: str, steps_per_epoch: Any, validation_steps: Any, validation_batch_size: Any
) -> tuple[int | None, int | None, int | None]:
    """The three numbers, each of which is positive or ``None``."""
    return (
        positive(op, "steps_per_epoch", steps_per_epoch, None),
        positive(op, "validation_steps", validation_steps, None),
        positive(op, "validation_batch_size", validation_batch_size, None),
    )


@contextlib.contextmanager
def _noting(what: str) -> Iterator[None]:
    """Errors of the block say where they come from."""
    try:
        yield
    except Exception as error:
        locate(error, what)
        raise
