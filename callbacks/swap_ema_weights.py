"""Evaluating, and saving, the moving average of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exburn.callbacks.contract import Callback
from exburn.callbacks.contract.every import Every, Occasions, check_every
from exburn.errors import CallbackError


class SwapEMAWeights(Callback):
    """Puts the optimizer's average in the weights' place while they are looked at.

    The optimizer must keep one (``use_ema=True``). Validation, ``evaluate`` and
    ``predict`` then see the average, and training goes on with the weights as they
    were. When ``fit`` ends the average stays in the model, as always with ``use_ema``.

    Args:
        swap_on_epoch: Whether the average is also in the model from the end of an epoch
            to the beginning of the next, for callbacks further on in the list, such as
            ModelCheckpoint.
        every: In which epochs of ``fit`` the average is looked at: 5, or an ``Every``
            of epochs; in all by default.

    Raises:
        CallbackError: At the beginning of ``fit``, if the optimizer keeps no average;
            ``every`` counts something else than epochs.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        >>> model.compile(exburn.optimizers.SGD(0.1, use_ema=True), "mse")
        >>> x, y = np.ones((4, 2)), np.ones((4, 1))
        >>> history = model.fit(x, y, validation_data=(x, y), verbose=0,
        ...                     callbacks=[SwapEMAWeights()])

    Source: B. T. Polyak and A. B. Juditsky, "Acceleration of Stochastic Approximation
    by Averaging", 1992.
    """

    light = True  # it goes past the model's own arrays

    def __init__(
        self,
        swap_on_epoch: bool = False,
        *,
        every: int | str | Every | None = None,
    ):
        self.swap_on_epoch = bool(swap_on_epoch)
        # Not the attribute `every`, by which hooks are left out: the weights come back
        # at the beginning of the next epoch, whatever that is.
        chosen = check_every("SwapEMAWeights", every, "epochs")
        self._filter = None if chosen is None else Occasions(chosen)
        self._until_epoch, self._looks = False, True

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        optimizer = self.model.optimizer
        if not optimizer.keeps_average:
            raise CallbackError(
                "SwapEMAWeights",
                "the optimizer keeps no moving average of the weights",
                {"optimizer": optimizer},
                hint="Make it with use_ema=True: Adam(use_ema=True).",
            )
        self._until_epoch = False
        if self._filter is not None:
            self._filter.begin_run()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._looks = self._filter is None or self._filter.in_epoch(epoch)
        if self._until_epoch:
            self._until_epoch = False
            self.model._use_average(False)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self._filter is not None and self._looks:
            self._filter.pass_once()
        if self.swap_on_epoch and self._looks:
            self._until_epoch = True
            self.model._use_average(True)

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._look(True)

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        self._look(False)

    def on_predict_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._look(True)

    def on_predict_end(self, logs: dict[str, Any] | None = None) -> None:
        self._look(False)

    def on_exit(self, error: BaseException | None = None) -> None:
        self._until_epoch, self._looks = False, True
        if error is not None and self.model.compiled:
            self.model._use_average(False)

    def _look(self, averaged: bool) -> None:
        if not self._until_epoch and self._looks:
            self.model._use_average(averaged)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._until_epoch = False
