"""Averaged parameters in the model, and the statistics that belong to them."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.data import ArrayDataset, StreamDataset
from exburn.errors import ArgumentError, DataError
from exburn.layers import BatchNormalization
from exburn.module.traversal import iter_modules
from exburn.training.feed.chunking import make_feed
from exburn.training.module import Arrays
from exburn.training.prepare import Preparation
from exburn.training.program import Programs

__all__ = ["Averaging"]

_MOMENTA = ("momentum", "renorm_momentum")


class Averaging(Preparation):
    """What is done with averages in a module that is in training.

    Attributes:
        fitted: Data set, batch size and steps of the ``fit`` under way.
    """

    fitted: tuple[ArrayDataset | StreamDataset, int, int | None] | None = None
    _raw: Arrays | None = None

    def use_average(self, wanted: bool) -> None:
        """Shows the optimizer's average in the module's place, or takes it back.

        The state of a run under way keeps its parameters: what is saved or trained from
        it knows nothing of this.

        Raises:
            ArgumentError: The optimizer keeps no average.
        """
        if wanted == (self.shown is not None):
            return
        live, opt_state = self.state, self.current_opt_state()
        if not wanted:
            raw, self.shown, self._raw = self._raw, None, None
            self.split.write(live.params if live is not None else raw or {})
            return
        if opt_state is None or not self.optimizer.keeps_average:
            name = getattr(self.optimizer, "name", "no optimizer")
            raise ArgumentError(
                "averaged weights",
                f"there is no moving average of the weights: {name} keeps none"
                if opt_state is not None
                else "there is no moving average of the weights before training",
                hint="Train with use_ema=True: Adam(use_ema=True).",
            )
        raw = self.split.read()[0] if live is None else live.params
        self._raw = raw if live is None else None
        average = _copied(self.optimizer.final_params(opt_state, raw))
        self.shown = average
        self.split.write(average)

    def follow_freezing(self) -> bool:
        self.use_average(False)  # it is one of the parameters that were trained
        return super().follow_freezing()

    def keep_average(self) -> None:
        """With ``use_ema`` the averaged parameters are kept, as in Keras."""
        self.shown, state = None, self.state
        if state is not None and self.optimizer.keeps_average:
            final = self.optimizer.final_params(state.opt_state, state.params)
            self.state = state.replace(params=_copied(final))

    # ------------------------------------------------------------------ statistics
    def check_statistics(self, dataset: Any) -> None:
        """Raises if the data cannot be gone through once more for the statistics."""
        dataset = self._data(dataset)[0]
        if isinstance(dataset, StreamDataset) and not dataset.reiterable:
            raise DataError(
                "update_batch_statistics",
                f"the {dataset.name} can be read only once",
                hint="Give other data for the statistics: x=…, or data=… of the "
                "callback.",
            )

    def _data(self, dataset: Any) -> tuple[Any, Any, Any]:
        if dataset is not None:
            return dataset, None, None
        if self.fitted is None:
            raise ArgumentError(
                "update_batch_statistics",
                "there are no data: no fit is under way",
                hint="Pass x.",
            )
        return self.fitted

    @property
    def statistics(self) -> list[str]:
        """Names of the moving statistics of BatchNormalization that is not frozen."""
        found: list[str] = []
        for path, module in iter_modules(self.module):
            if isinstance(module, BatchNormalization) and module.trainable:
                found += [n for n in self.split.others if n.startswith(f"{path}/")]
        return found

    def update_statistics(
        self,
        dataset: ArrayDataset | StreamDataset | None,
        batch_size: int | None,
        steps: int | None,
    ) -> None:
        """Sets the moving statistics to the means over all batches of the data.

        Args:
            dataset: The data; those of the ``fit`` under way if ``None``.
            batch_size: Rows of a batch; that of ``fit`` if ``None``.
            steps: Batches, if not all.
        """
        names = self.statistics
        if not names:
            return
        self.check_statistics(dataset)
        data, rows, count = self._data(dataset)
        rows, steps = batch_size or rows or 32, steps or count
        feed = make_feed(self, data, rows, training=False, steps=steps)
        programs = self.programs
        program = programs.further(
            "statistics", lambda: _statistics_program(programs, tuple(names))
        )
        arrays, done = self.split.read(), 0
        totals: Any = {name: jnp.zeros_like(arrays[2][name]) for name in names}
        totals = totals, jnp.zeros((), jnp.float32)
        with (
            contextlib.closing(feed),
            contextlib.closing(feed.epoch(self.seed, 0)) as chunks,
        ):
            for chunk in chunks:
                totals = program(arrays, totals, *chunk.arguments, np.int32(done))
                done += chunk.steps
        sums, weight = totals
        self.split.write({name: sums[name] / weight for name in names})


def _statistics_program(programs: Programs, names: tuple[str, ...]) -> Any:
    """A program that adds up the statistics of a chunk's batches, by their rows."""

    def forget(copy: Any) -> None:
        for _, module in iter_modules(copy):
            if isinstance(module, BatchNormalization):
                for momentum in _MOMENTA:  # the statistics of this batch alone
                    setattr(module, momentum, 0.0)

    def run(arrays, totals, data, index, count, start):
        def one(totals, batch, row_mask, rows, key):
            _, others, _ = programs.split.forward(
                arrays,
                batch[0],
                training=True,
                key=key,
                row_mask=row_mask,
                prepare=forget,
            )
            sums, before = totals
            new = {name: sums[name] + rows * others[name] for name in names}
            return new, before + rows

        return programs.over_batches(one, totals, data, index, count, start)

    return run


@jax.jit
def _copied(arrays: Arrays) -> Arrays:
    """Arrays of their own: state is donated, and must not hold one buffer twice."""
    return jax.tree.map(jnp.copy, arrays)
