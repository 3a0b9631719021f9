"""The data of a training: read, split, checked, and a model made ready for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from exburn import config
from exburn.data import ArrayDataset, StreamDataset, split, with_targets_like
from exburn.errors import ArgumentError, locate
from exburn.models.arguments import (
    check_ends,
    check_enough,
    check_repeats,
    first_batch,
    part_names,
    warn_of_end,
)
from exburn.models.encoding import encode_dataset, read_dataset, read_validation
from exburn.models.network import Network
from exburn.models.preparing import (
    choose_batch_size,
    closed_if_it_fails,
    fixed_batch_size,
    prepare,
)
from exburn.models.session import require_trainer
from exburn.models.weighting import check_known_classes, class_weights
from exburn.training.requests import DataRequest, Dataset, FitData


def read_fit_data(model: Network, request: DataRequest) -> FitData:
    """Reads the data of a training, and checks all that needs no weights."""
    op, steps = request.op, request.steps_per_epoch
    require_trainer(model, op)
    dataset = read_dataset(model, request.x, request.y, request.sample_weight, op=op)
    if request.resident and not isinstance(dataset, ArrayDataset):
        raise ArgumentError(
            op,
            "only arrays can stay on the device, received a loader of batches",
            hint="Leave out resident=True, or give arrays.",
        )
    dataset, validation = _with_validation(model, request, dataset)
    validation_rows = request.validation_batch_size
    if validation is not None:
        asked = validation_rows or request.batch_size, validation
        validation_rows = choose_batch_size(model, op, *asked, request.validation_steps)
        warn_of_end(request.validation_steps, validation, validation_rows)
    batch_size = choose_batch_size(model, op, request.batch_size, dataset, steps)
    check_enough("steps_per_epoch", steps, dataset, batch_size)
    data = FitData(
        op=op,
        dataset=dataset,
        validation=validation,
        batch_size=batch_size,
        validation_batch_size=validation_rows,
        steps=steps,
        validation_steps=request.validation_steps,
        shuffle=request.shuffle,
        class_weight=request.class_weight,
        sources=(dataset, validation),
    )
    encode_for(model, data, request.initial_epoch)
    if (limit := config.max_steps_per_epoch()) is not None:
        data.steps = limit if data.known_steps is None else min(data.known_steps, limit)
    check_ends(op, "steps_per_epoch", data.steps, data.dataset)
    check_ends(op, "validation_steps", data.validation_steps, data.validation)
    return data


def _with_validation(
    model: Network, request: DataRequest, dataset: Dataset
) -> tuple[Dataset, Dataset | None]:
    """The rows that are trained on, and those of the validation."""
    if request.validation_data is None:
        if request.validation_split:
            return split(dataset, request.validation_split)
        return dataset, None
    if request.validation_data is request.x:
        steps = request.steps_per_epoch
        whole = steps is None or request.validation_steps is None
        check_repeats(dataset, whole=whole, steps=steps)
    op = f"{request.op} (validation data)"
    return dataset, read_validation(model, request.validation_data, op=op)


def encode_for(model: Network, data: FitData, initial_epoch: int = 0) -> None:
    """Makes of the sources what a model's program takes, with the rows weighted."""
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


def prepare_for_fit(model: Network, data: FitData) -> Any:
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


@contextlib.contextmanager
def _noting(what: str) -> Iterator[None]:
    """Errors of the block say where they come from."""
    try:
        yield
    except Exception as error:
        locate(error, what)
        raise
