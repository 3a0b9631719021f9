"""The arguments of a run as one object that checks itself, and the data they name.

``fit``, ``evaluate`` and ``sweep`` each build a request of what they are called with;
everything behind them takes that object.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from exburn import config
from exburn.core.checks import check_count, check_optional
from exburn.data import ArrayDataset, StreamDataset
from exburn.errors import ArgumentError
from exburn.training.checkpoint.provenance import check_allowed
from exburn.training.feed.base import count_steps

Dataset = ArrayDataset | StreamDataset


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DataRequest:
    """The data of a training, and how they are cut into batches."""

    op: str = "fit"
    x: Any = None
    y: Any = None
    sample_weight: Any = None
    class_weight: Mapping[Any, float] | None = None
    validation_split: float = 0.0
    validation_data: Any = None
    validation_freq: int | list[int] = 1
    batch_size: int | None = None
    steps_per_epoch: int | None = None
    validation_batch_size: int | None = None
    validation_steps: int | None = None
    shuffle: bool | str = True
    initial_epoch: int = 0
    resident: bool | None = None

    def __post_init__(self) -> None:
        for name in ("steps_per_epoch", "validation_steps", "validation_batch_size"):
            count = check_optional(check_count, self.op, name, getattr(self, name))
            object.__setattr__(self, name, count)
        _check_validation_freq(self.op, self.validation_freq)
        if self.shuffle not in (True, False, "batch"):
            raise ArgumentError(
                self.op,
                f"shuffle must be True, False or 'batch', received {self.shuffle!r}",
            )
        if self.resident not in (None, True, False):
            raise ArgumentError(
                self.op,
                f"resident must be True, False or None, received {self.resident!r}",
            )

    def validates(self, epoch: int) -> bool:
        """Whether a validation follows an epoch, which is counted from 0."""
        if isinstance(self.validation_freq, list | tuple | set):
            return epoch + 1 in self.validation_freq
        return (epoch + 1) % self.validation_freq == 0


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FitRequest(DataRequest):
    """The arguments of ``fit``.

    Attributes:
        packing: What a history tells of documents that were packed into rows.
    """

    op: str = dataclasses.field(default="fit", init=False)
    epochs: int = 1
    verbose: int | str = "auto"
    callbacks: Any = None
    learning_rate: float | None = None
    lr_schedule: Any = None
    weight_decay: float | None = None
    clip_norm: float | None = None
    clip_value: float | None = None
    accumulate_gradients: int | None = None
    nesterov: bool | None = None
    warmup: Any = None
    accuracy: bool = False
    device: Any = None
    profile: bool = False
    resume: str | os.PathLike[str] | None = None
    run: str | os.PathLike[str] | None = None
    may_differ: Collection[str] = ()
    batch_tokens: int | None = None
    length: int | None = None
    train_on: str | None = None
    reference: Any = None
    packing: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        epochs = check_count("fit", "epochs", self.epochs, 0)
        first = check_count("fit", "initial_epoch", self.initial_epoch, 0)
        object.__setattr__(self, "epochs", min(epochs, config.max_epochs() or epochs))
        object.__setattr__(self, "initial_epoch", first)
        super().__post_init__()
        check_verbose("fit", self.verbose)
        object.__setattr__(self, "may_differ", check_allowed("fit", self.may_differ))

    @property
    def options(self) -> dict[str, Any]:
        """The options of the optimizer, which hold in this fit alone."""
        return {
            "learning_rate": self.learning_rate,
            "lr_schedule": self.lr_schedule,
            "weight_decay": self.weight_decay,
            "clip_norm": self.clip_norm,
            "clip_value": self.clip_value,
            "accumulate_gradients": self.accumulate_gradients,
            "nesterov": self.nesterov,
        }


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EvaluationRequest:
    """The arguments of ``evaluate``, and of ``predict``, beside the data."""

    op: str
    batch_size: int | None
    verbose: int | str
    steps: int | None
    callbacks: Any

    def __post_init__(self) -> None:
        steps = check_optional(check_count, self.op, "steps", self.steps)
        object.__setattr__(self, "steps", steps)
        check_verbose(self.op, self.verbose)


@dataclasses.dataclass
class FitData:
    """The data of a training, read and cut into batches.

    Attributes:
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
        """The settings that the result of a training depends on, beside the rows."""
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


def check_verbose(op: str, verbose: Any) -> Any:
    """The argument ``verbose``."""
    if verbose in ("auto", "table", 0, 1, 2):
        return verbose
    raise ArgumentError(
        op, f"verbose must be 0, 1, 2, 'auto' or 'table', received {verbose!r}"
    )


def _check_validation_freq(op: str, freq: Any) -> None:
    if isinstance(freq, int | np.integer) and not isinstance(freq, bool):
        check_count(op, "validation_freq", freq)
    elif isinstance(freq, list | tuple | set):
        for epoch in freq:
            name = f"validation_freq={freq!r}: every epoch"
            check_optional(check_count, op, name, epoch)
    else:
        raise ArgumentError(
            op,
            "validation_freq must be an integer or a list of epochs, counted from 1, "
            f"received {freq!r}",
        )
