"""What `fit` logged, epoch by epoch, and its drawing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exburn.callbacks.contract.base import Callback, Logs
from exburn.callbacks.contract.figures import draw_logs
from exburn.errors import CallbackError, printable, unknown_name
from exburn.visualization import figures, page


class History(Callback):
    """Records the logs of every epoch; `fit` returns one.

    Attributes:
        history: For every logged name the list of its values. A name that is not
            logged in every epoch (`validation_freq=2`) has a shorter list, as in
            Keras; `epochs_of(name)` says to which epochs its values belong.
        epoch: The numbers of the finished epochs, counted from 0.
        params: What `fit` was called with.
        seed: The seed of the run, also where the user gave none.
        run: The folder that `fit(run=…)` wrote into.
        profile: Of `fit(profile=True)`: for every epoch the milliseconds spent on
            data, the device, the host and validation.
        data_waits: The share of each epoch that was spent waiting for data, from 0
            to 1; 0 if that was less than 0.05 s.
        privacy: Of `compile(privacy=…)`: what was spent of the rows' privacy.

    An epoch is recorded as a whole or not at all: an exception or Ctrl-C never
    leaves one name with a value more than another.

    Example:
        >>> history = History()
        >>> history.on_train_begin()
        >>> history.on_epoch_end(0, {"loss": 0.9, "val_loss": 1.0})
        >>> history.on_epoch_end(1, {"loss": 0.5, "val_loss": 0.7})
        >>> history.history
        {'loss': [0.9, 0.5], 'val_loss': [1.0, 0.7]}
        >>> history
        <History: 2 epochs of loss, val_loss>
    """

    light = True

    def __init__(self):
        self.history: dict[str, list[Any]] = {}
        self.epoch: list[int] = []
        self.seed: int | None = None
        self.run: Path | None = None
        self.profile: list[dict[str, float]] | None = None
        self.data_waits: list[float] = []
        self.privacy: Any = None
        self._epochs: dict[str, list[int]] = {}
        self._restored = False

    def on_train_begin(self, logs: Logs | None = None) -> None:
        if not self._restored:
            self.history, self.epoch, self._epochs = {}, [], {}
        self._restored = False

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        recorded = {name: len(values) for name, values in self.history.items()}
        finished = len(self.epoch)
        try:
            for name, value in (logs or {}).items():
                self.history.setdefault(name, []).append(value)
                self._epochs.setdefault(name, []).append(epoch)
            self.epoch.append(epoch)
        except BaseException:
            del self.epoch[finished:]
            for name in list(self.history):
                length = recorded.get(name, 0)
                del self.history[name][length:]
                del self._epochs.get(name, [])[length:]
                if not length:
                    del self.history[name]
            raise

    def epochs_of(self, name: str) -> list[int]:
        """Returns the epochs, counted from 0, to which a name's values belong."""
        if name not in self.history:
            raise unknown_name("log", name, self.history, op="History")
        values, epochs = self.history[name], self._epochs.get(name, [])
        return epochs if len(epochs) == len(values) else list(range(len(values)))

    def state_dict(self) -> dict[str, Any]:
        return {
            "history": {name: list(values) for name, values in self.history.items()},
            "epochs": {name: self.epochs_of(name) for name in self.history},
            "epoch": list(self.epoch),
            "seed": self.seed,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.history = {k: list(values) for k, values in state["history"].items()}
        self._epochs = {k: list(epochs) for k, epochs in state["epochs"].items()}
        self.epoch = list(state["epoch"])
        self.seed = state["seed"]
        self._restored = True

    def plot(self, metrics: str | Iterable[str] | None = None) -> Any:
        """Draws the curves: one panel per metric, training and validation together.

        Args:
            metrics: Names without `val_`; by default everything that was logged but a
                learning rate that never changed.

        Returns:
            The `matplotlib.figure.Figure`; a notebook shows it,
            `figure.savefig("history.png")` writes it.

        Raises:
            CallbackError: If no epoch has been recorded.
            UnknownNameError: For a metric that was not logged.
            MissingDependencyError: If matplotlib is not installed.

        Example:
            >>> history = History()
            >>> history.on_epoch_end(0, {"loss": 0.9, "accuracy": 0.4, "val_loss": 1.0})
            >>> [axes.get_title() for axes in history.plot().axes]
            ['loss', 'accuracy']
        """
        panels = list(dict.fromkeys(name.removeprefix("val_") for name in self.history))
        if not panels:
            raise CallbackError("History.plot", "no epoch has been recorded yet")
        if metrics is None:
            panels = [n for n in panels if not self._is_constant_rate(n)] or panels
        else:
            names = [metrics] if isinstance(metrics, str) else list(metrics)
            for name in names:
                if name not in panels:
                    raise unknown_name("metric", name, panels, op="History.plot")
            panels = names
        columns = min(3, len(panels))
        rows = -(-len(panels) // columns)
        figure = figures.new_figure("History.plot", 4.5 * columns, 3.2 * rows)
        for index, panel in enumerate(panels):
            axes = figure.add_subplot(rows, columns, index + 1)
            for name, label in ((panel, "training"), (f"val_{panel}", "validation")):
                if name in self.history:
                    epochs = [epoch + 1 for epoch in self.epochs_of(name)]
                    marker = "o" if len(epochs) < 3 else None
                    axes.plot(epochs, self.history[name], label=label, marker=marker)
            axes.set(title=panel, ylabel=panel)
            figures.count_epochs(axes, "History.plot")
            if len(axes.lines) > 1:
                axes.legend()
        return figure

    def _is_constant_rate(self, name: str) -> bool:
        return name == "learning_rate" and len(set(self.history[name])) == 1

    def _repr_html_(self) -> str:
        curves = {}
        for name, values in self.history.items():
            pairs = zip(self.epochs_of(name), values, strict=True)
            points = [(epoch + 1, float(y)) for epoch, y in pairs if _is_number(y)]
            if points:
                curves[name] = points
        count = len(self.epoch)
        facts = [f"{count} epoch{'' if count == 1 else 's'}"]
        if self.seed is not None:
            facts.append(f"seed {self.seed}")
        if self.run is not None:
            facts.append(f"run {self.run.name}")
        metrics = getattr(self.model, "metrics", None) or ()
        title = page.title("History", *facts)
        return page.fragment(title, draw_logs(curves, metrics))

    def __repr__(self) -> str:
        names = ", ".join(self.history) or "nothing"
        return printable(f"<History: {len(self.epoch)} epochs of {names}>")


def _is_number(value: Any) -> bool:
    """Tells whether a logged value is one number, which a callback's need not be."""
    real = isinstance(value, int | float | np.number) or hasattr(value, "__array__")
    return real and np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biuf"
