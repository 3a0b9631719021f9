"""Looking at gradients and activations while a model trains."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from exburn.callbacks.contract import Callback
from exburn.callbacks.contract.every import Every, check_every
from exburn.core.checks import check_number, check_rate
from exburn.core.printing import print_text
from exburn.errors import CallbackError
from exburn.module.selection import select_layers
from exburn.module.traversal import iter_modules

_KINDS = ("norm", "dead", "nan")


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that is wrong in a model that trains.

    Attributes:
        step: The step of the run, from 1.
        kind: ``"dead"``, ``"nan"``, ``"exploding"`` or ``"no gradient"``.
        name: ``"activations/<layer>"`` or ``"gradients/<weight>"``.
        value: The statistic that tells.
        text: A sentence.
    """

    step: int
    kind: str
    name: str
    value: float
    text: str


class Watch(Callback):
    """Looks at gradients and activations now and then, and names layers that fail.

    At a step that is due, the batch that was just trained on goes through a program of
    its own, which measures; the steps between cost nothing, and a training without this
    callback is compiled as if there were none. A failing layer is printed once:

    - a layer whose units put out 0 for all rows (a dead ReLU);
    - values that are NaN or infinite;
    - outputs that are a hundred times those of the layer before, or a gradient of a
      length that no step survives: an exploding layer;
    - a weight whose gradient is 0 everywhere.

    The statistics of outputs are the root of their mean square, the share of units
    that are 0 for all rows, and the share of values that are not finite; of gradients
    their length, and the shares of entries that are 0 or not finite.

    Args:
        gradients: Whether the gradients of trained weights are looked at.
        activations: Layers whose outputs are: names, paths, shell patterns
            (``"block*/relu"``) or layers.
        statistics: Which of ``"norm"``, ``"dead"`` and ``"nan"``.
        every: When it looks: a number of steps, ``"chunk"``, ``"epoch"``, an ``Every``.
        dead: The share of dead units from which a layer is named.
        exploding: The norm from which a gradient, or the first of the layers, is named.
        growth: How many times the norm of the layer before names a layer.
        verbose: 0 prints nothing.

    Attributes:
        history: ``{"step": …, "<name>": {"norm": …, "dead": …, "nan": …}, …}`` for each
            time that it looked.
        findings: What was wrong, each layer once for each kind: ``Finding`` objects.

    Raises:
        CallbackError: A statistic is unknown, nothing is to be looked at, or a number
            is out of range; when it looks: a layer runs inside a loop.
        UnknownNameError: When the training begins: a pattern names no layer.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> from exburn import layers
        >>> hidden = layers.Dense(8, "relu", bias_initializer="ones", name="hidden")
        >>> model = exburn.Sequential([exburn.Input((4,)), hidden, layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> _ = hidden.bias.assign(np.full(8, -1e6))
        >>> watch = Watch(activations=["hidden"], every=1)
        >>> x, y = np.ones((8, 4)), np.ones((8, 1))
        >>> _ = model.fit(x, y, verbose=0, callbacks=[watch])
        Step 1: hidden is dead: 100 % of its units put out 0 for all rows
        Step 1: hidden/kernel gets no gradient
        Step 1: hidden/bias gets no gradient
        Step 1: dense/kernel gets no gradient

    Source: ``wandb.watch``; L. Lu et al., "Dying ReLU and Initialization", 2019.
    """

    light = True

    def __init__(
        self,
        gradients: bool = True,
        activations: Iterable[Any] | str = (),
        statistics: Iterable[str] = _KINDS,
        *,
        every: int | str | Every = 100,
        dead: float = 0.9,
        exploding: float = 1e4,
        growth: float = 100.0,
        verbose: int = 1,
    ):
        self.gradients = bool(gradients)
        named = not isinstance(activations, Iterable) or isinstance(activations, str)
        self.activations = (activations,) if named else tuple(activations)
        self.statistics = tuple(statistics)
        if not self.statistics or not set(self.statistics) <= set(_KINDS):
            raise CallbackError(
                "Watch",
                f"statistics are among {', '.join(_KINDS)}",
                {"received": self.statistics},
            )
        if not (self.gradients or self.activations):
            raise CallbackError(
                "Watch",
                "there is nothing to look at",
                hint='Write Watch(gradients=True) or Watch(activations=["block*"]).',
            )
        self.every = check_every("Watch", every)
        if self.every is None:
            raise CallbackError("Watch", "every must say when it looks, received None")
        if self.every.unit == "epochs":  # the last batch of these epochs
            raise CallbackError(
                "Watch",
                "it looks within epochs: every counts steps, seconds or chunks",
                {"every": self.every},
            )
        self.dead = check_rate("Watch", "dead", dead)
        number = {"open_low": True, "error": CallbackError}
        self.exploding = check_number("Watch", "exploding", exploding, **number)
        self.growth = check_number("Watch", "growth", growth, **number)
        self.verbose = verbose
        self._restored = False
        self._reset()

    def _reset(self) -> None:
        self.history: list[dict[str, Any]] = []
        self.findings: list[Finding] = []
        self._before = self._seen = 0  # steps of the epochs before, and of this one
        self._paths: list[str] | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if not self._restored:
            self._reset()
        self._restored = False
        chosen = {}
        if self.activations:
            chosen = select_layers(self.model, self.activations, op="Watch")
        order = [path for path, _ in iter_modules(self.model)]
        self._paths = sorted(chosen, key=order.index)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._before, self._seen = self._before + self._seen, 0

    def on_chunk_end(self, step: int, logs: dict[str, Any] | None = None) -> None:
        self._seen = step

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self._seen, step = batch + 1, self._before + batch + 1
        values = self.model._measure(self._paths, self.gradients)
        order = [f"activations/{path}" for path in self._paths or ()]
        order += [name for name in values if name not in order]
        statistics = {n: {k: values[n][k] for k in self.statistics} for n in order}
        self.history.append({"step": step, **statistics})
        if logs is not None:
            logs |= {
                f"{n}/{k}": v for n, each in statistics.items() for k, v in each.items()
            }
        for finding in self._look(step, {n: values[n] for n in order}):
            self._tell(finding)

    def _look(self, step: int, values: Mapping[str, Any]) -> list[Finding]:
        """What is wrong, in the order of the layers."""
        wrong: list[Finding] = []
        before: tuple[str, float] | None = None

        def note(kind: str, name: str, value: float, text: str) -> None:
            wrong.append(Finding(step, kind, name, value, text))

        for name, each in values.items():
            part, _, path = name.partition("/")
            norm, dead, broken = each["norm"], each["dead"], each["nan"]
            outputs = part == "activations"
            if "nan" in self.statistics and broken > 0:
                what = "its outputs are" if outputs else "its gradient is"
                text = f"{path}: {100 * broken:.0f} % of {what} not finite"
                note("nan", name, broken, text)
            if "dead" in self.statistics and outputs and dead >= self.dead:
                share = f"{100 * dead:.0f} % of its units"
                text = f"{path} is dead: {share} put out 0 for all rows"
                note("dead", name, dead, text)
            if "dead" in self.statistics and not outputs and dead == 1:
                note("no gradient", name, 1.0, f"{path} gets no gradient")
            if "norm" in self.statistics and broken == 0:
                if outputs:
                    if text := self._explodes(path, norm, before):
                        note("exploding", name, norm, text)
                    before = path, norm
                elif norm > self.exploding:
                    text = f"{path} explodes: its gradient has length {norm:.3g}"
                    note("exploding", name, norm, text)
        return wrong

    def _explodes(
        self, path: str, norm: float, before: tuple[str, float] | None
    ) -> str | None:
        if before is None or before[1] == 0:
            if norm > self.exploding:
                return f"{path} explodes: its outputs have norm {norm:.3g}"
            return None
        times = norm / before[1]
        if not math.isfinite(times) or times < self.growth:
            return None
        return (
            f"{path} explodes: its outputs have norm {norm:.3g}, {times:,.0f} times "
            f"that of {before[0]}"
        )

    def _tell(self, finding: Finding) -> None:
        reported = {(each.kind, each.name) for each in self.findings}
        if (finding.kind, finding.name) in reported:
            return
        self.findings.append(finding)
        if self.verbose and self.writes:
            print_text(f"Step {finding.step}: {finding.text}")

    def state_dict(self) -> dict[str, Any]:
        return {
            "history": [dict(entry) for entry in self.history],
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "steps": [self._before, self._seen],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.history = [dict(entry) for entry in state["history"]]
        self.findings = [Finding(**finding) for finding in state["findings"]]
        self._before, self._seen = state["steps"]
        self._restored = True
