"""``evaluate`` and ``predict``: Keras' signatures in front of the Trainer."""

from __future__ import annotations

from typing import Any, Literal, overload

from exburn.callbacks.contract import CallbackList
from exburn.data import ArrayDataset
from exburn.models.arguments import check_ends, logs_as, warn_of_end
from exburn.models.encoding import encode_dataset, read_dataset
from exburn.models.network import Network
from exburn.models.packing import PackedRequest
from exburn.models.preparing import (
    choose_batch_size,
    closed_if_it_fails,
    exits,
    guard_run,
    make_callback_list,
    prepare,
)
from exburn.models.results import Outputs, Scores
from exburn.models.session import require_trainer
from exburn.training.objective.likelihood import likelihood_loss
from exburn.training.requests import Dataset, EvaluationRequest
from exburn.training.trainer import Trainer


@overload
def evaluate(
    self: Network,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    verbose: int | str = "auto",
    sample_weight: Any = None,
    steps: int | None = None,
    callbacks: Any = None,
    *,
    return_dict: Literal[True],
    batch_tokens: int | None = None,
    length: int | None = None,
    train_on: str | None = None,
    reference: Network | None = None,
) -> dict[str, Any]: ...
@overload
def evaluate(
    self: Network,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    verbose: int | str = "auto",
    sample_weight: Any = None,
    steps: int | None = None,
    callbacks: Any = None,
    return_dict: Literal[False] = False,
    *,
    batch_tokens: int | None = None,
    length: int | None = None,
    train_on: str | None = None,
    reference: Network | None = None,
) -> Scores: ...
@overload
def evaluate(
    self: Network,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    verbose: int | str = "auto",
    sample_weight: Any = None,
    steps: int | None = None,
    callbacks: Any = None,
    *,
    return_dict: bool,
    batch_tokens: int | None = None,
    length: int | None = None,
    train_on: str | None = None,
    reference: Network | None = None,
) -> Any: ...
def evaluate(
    self: Network,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    verbose: int | str = "auto",
    sample_weight: Any = None,
    steps: int | None = None,
    callbacks: Any = None,
    return_dict: bool = False,
    *,
    batch_tokens: int | None = None,
    length: int | None = None,
    train_on: str | None = None,
    reference: Network | None = None,
) -> Any:
    """Loss and metrics on data: a float, a list in order, or a dict.

    Args:
        x: Inputs: an array, a list or dict of them, a table, or a stream of batches, as
            of ``fit``.
        y: Targets; none where ``x`` holds them.
        batch_size: Rows a batch; 32 by default. Streams have their own.
        verbose: 0 silent, 1 live, 2 one line, ``"auto"``.
        sample_weight: A weight for each row, or for each entry of the targets.
        steps: Batches at most; all by default.
        callbacks: Callbacks, or functions.
        return_dict: Whether a dict by name is returned, instead of numbers in order.
        batch_tokens, length, train_on, reference: Of chats and documents, as of
            ``fit``.

    Raises:
        NotCompiledError: ``compile`` was not called.
        DataError, ShapeError, TargetError: The data do not fit the model.
    """
    trainer = require_trainer(self, "evaluate")
    refused = {"y": y, "sample_weight": sample_weight, "batch_size": batch_size}
    packed = PackedRequest(
        "evaluate",
        x,
        batch_tokens,
        length,
        train_on,
        refused,
        verbose,
        likelihood_loss(trainer.preparer.objective.losses),
        reference,
    )
    if packed.is_packed:
        x, batch_size = packed.stream(self)
    request = EvaluationRequest(
        op="evaluate",
        batch_size=batch_size,
        verbose=verbose,
        steps=steps,
        callbacks=callbacks,
    )
    dataset = read_dataset(self, x, y, sample_weight, op="evaluate")
    dataset, rows, listed = _prepare(self, request, dataset)
    with guard_run(self, "evaluate", dataset, rows), exits(listed):
        logs = trainer.evaluate(
            dataset,
            batch_size=rows,
            steps=request.steps,
            callbacks=listed,
            owner=self,
        )
    return logs_as(logs, return_dict)


def predict(
    self: Network,
    x: Any,
    batch_size: int | None = None,
    verbose: int | str = "auto",
    steps: int | None = None,
    callbacks: Any = None,
) -> Outputs:
    """Outputs for every row, as NumPy arrays in the structure of the outputs.

    Works without ``compile``.

    Args:
        x: Inputs: an array, a list or dict of them, a table, or a stream of batches, as
            of ``fit``.
        batch_size: Rows a batch; 32 by default. Streams have their own.
        verbose: 0 silent, 1 live, 2 one line, ``"auto"``.
        steps: Batches at most; all by default.
        callbacks: Callbacks, or functions.

    Raises:
        DataError, ShapeError: The data do not fit the model.
    """
    request = EvaluationRequest(
        op="predict",
        batch_size=batch_size,
        verbose=verbose,
        steps=steps,
        callbacks=callbacks,
    )
    dataset = read_dataset(self, x, op="predict")
    if isinstance(dataset, ArrayDataset) and dataset.tree[1] is not None:
        dataset = dataset.like((dataset.tree[0], None, None))
    trainer = require_predictor(self)
    dataset, rows, listed = _prepare(self, request, dataset)
    with guard_run(self, "predict", dataset, rows), exits(listed):
        return trainer.predict(
            dataset,
            batch_size=rows,
            steps=request.steps,
            callbacks=listed,
            owner=self,
        )


def _prepare(
    model: Network, request: EvaluationRequest, dataset: Dataset
) -> tuple[Dataset, int, CallbackList]:
    """The data for the model's program, rows of a step, and the callbacks."""
    op, steps = request.op, request.steps
    rows = choose_batch_size(model, op, request.batch_size, dataset, steps)
    check_ends(op, "steps", steps, dataset)
    warn_of_end(steps, dataset, rows)
    user = CallbackList(request.callbacks)
    with closed_if_it_fails(dataset):
        dataset = encode_dataset(model, dataset, op=op, batch_size=rows)
        prepare(model, op, dataset, batch_size=rows)
    verbose = request.verbose
    return dataset, rows, make_callback_list(model, user, verbose, dataset, rows, steps)


def require_predictor(model: Network) -> Trainer:
    """The trainer; one that only predicts, if the model is not compiled."""
    run = model._training_session
    if run.trainer is None:
        run.trainer = Trainer(model)
    return run.trainer
