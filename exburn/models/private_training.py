"""Private training: what ``compile(privacy=…)`` refuses, and what a fit has spent."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from exburn.callbacks.contract import Callback
from exburn.core.digests import describe_value
from exburn.data import ArrayDataset, RaggedDataset, has_packed
from exburn.errors import ArgumentError, FileFormatError
from exburn.layers import BatchNormalization
from exburn.module.traversal import iter_modules
from exburn.runtime.sharding.strategies import DataParallel
from exburn.training.privacy.accounting import Privacy, Spending
from exburn.training.privacy.clipping import Mechanism

if TYPE_CHECKING:
    from exburn.models.network import Network
    from exburn.training.checkpoint.resume import Resume
    from exburn.training.requests import FitData, FitRequest

_EARLIER = "privacy.earlier"  # the entry of a checkpoint with what was spent before
_TURNS = (
    "Give batch_size all rows of an update: they are taken in turns that fit in memory."
)
_INSTEAD = {
    "accumulate_gradients": _TURNS,
    "an optimizer that accumulates gradients": _TURNS,
    "accumulate='tokens'": "accumulate='means' takes means over each row's tokens.",
}


@dataclasses.dataclass(frozen=True)
class PrivacySpent:
    """What the trainings of a model may have said of any row of their data.

    Attributes:
        epsilon, delta: The guarantee so far.
        clip: Largest norm of a row's gradient.
        steps: Steps so far.
        spending: With which noise, rate and number of steps, training by training.
        norms: How the norm of each weight's gradient was computed by the last training
            of this object, by the weight's path: ``"ghost"`` or ``"rows"``.
    """

    epsilon: float
    delta: float
    clip: float
    steps: int
    spending: tuple[Spending, ...]
    norms: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)


def check_private_model(
    model: Any, privacy: Any, optimizer: Any, refused: Mapping[str, bool]
) -> None:
    """Raises unless all of what ``compile`` was given can be private.

    Args:
        refused: Whether each of other options was given, by what it is called.
    """
    if not isinstance(privacy, Privacy):
        raise ArgumentError(
            "compile",
            f"privacy must be an exburn.Privacy, received {privacy!r}",
            hint="exburn.Privacy(epsilon=3, delta=1e-5, clip=1.0)",
        )
    for name, asked in refused.items():
        if asked:
            raise _refusal("compile", name)
    _check_optimizer("compile", optimizer)
    _check_layers("compile", model)


def check_private_fit(model: Any, request: FitRequest, data: FitData) -> None:
    """Raises if a fit cannot be private; the model is prepared, nothing compiled."""
    run = model._training_session
    if run.privacy is None:
        return
    dataset, preparer = data.dataset, run.preparer
    if not isinstance(dataset, ArrayDataset) or isinstance(dataset, RaggedDataset):
        raise ArgumentError(
            "fit",
            "with privacy= rows are drawn at random of all rows, which must be arrays "
            f"of rows of one length, received {type(dataset).__name__}",
            hint="Give arrays; fill up rows of unlike lengths.",
        )
    if data.batch_size > dataset.size:
        raise ArgumentError(
            "fit",
            f"batch_size must be at most the number of rows with privacy=, received "
            f"{data.batch_size} for {dataset.size} rows",
        )
    group = request.accumulate_gradients
    refused = {
        "packed rows": has_packed(dataset.tree[0]),
        f"shuffle={data.shuffle!r}": data.shuffle is not True,
        "batch_tokens": request.batch_tokens is not None,
        "accumulate_gradients": group is not None and group != 1,
        "a mesh that divides more than rows": _divides_more(run.distribution_in_force),
        "run_eagerly": preparer.eager,
        "a loss or a metric that compares rows": preparer.objective.exact_rows,
        "a metric that the model updates itself": bool(preparer.objective.own.names),
        "accumulate='tokens'": preparer.objective.by_tokens,
    }
    for name, asked in refused.items():
        if asked:
            raise _refusal("fit", name)
    _check_optimizer("fit", preparer.holder.optimizer)
    _check_layers("fit", model)


class PrivateFit:
    """The mechanism of one ``fit``, and the steps that it takes.

    Attributes:
        options: What the result of the fit depends on, beside other settings.
    """

    def __init__(
        self, model: Any, request: FitRequest, data: FitData, resume: Resume | None
    ):
        self._run = run = model._training_session
        self.options: dict[str, Any] = {}
        if run.privacy is None:
            return
        privacy, per_epoch = run.privacy, data.known_steps
        # `check_private_fit` has refused other data, whose steps would not be known.
        assert isinstance(data.dataset, ArrayDataset) and per_epoch is not None
        first = request.initial_epoch
        steps = max(request.epochs - first, 0) * per_epoch
        size = data.dataset.size
        self._rate, self._earlier = data.batch_size / size, list(run.spent)
        self._done, self._begun = 0, run.holder.step
        if resume is not None:
            saved = resume.saved.run["provenance"].get(_EARLIER)
            self._earlier = _beginning_of(run.spent, saved)
            self._done = (resume.epoch - first) * per_epoch + resume.batch
            self._begun = int(resume.saved.arrays["state/step"])
        self._noise = privacy.noise_for(self._rate, steps, self._earlier)
        self.options = {
            "privacy.epsilon": privacy.epsilon,
            "privacy.delta": privacy.delta,
            "privacy.clip": privacy.clip,
            "privacy.accountant": privacy.accountant,
            "privacy.noise": self._noise,
            "privacy.rate": self._rate,
            "privacy.initial_epoch": first,
            _EARLIER: _text_of(self._earlier),
        }
        run.preparer.program_cache.mechanism = Mechanism(
            privacy.clip, self._noise, float(data.batch_size), privacy.norms
        )

    def begin(self) -> None:
        """Counts from now on: the state is the one that the fit begins with."""
        if self.options:
            self._run.private_fit = self

    def tally(self) -> list[Spending]:
        """What was spent until now."""
        holder = self._run.holder
        step = int(holder.step if holder.state is None else holder.state.step)
        steps = max(self._done + step - self._begun, 0)
        return [*self._earlier, Spending(self._noise, self._rate, steps)]

    def end(self) -> None:
        """Keeps the steps that were taken, whatever ended the fit."""
        if not self.options:
            return
        run = self._run
        run.preparer.program_cache.mechanism = None
        if run.private_fit is self:
            run.spent, run.private_fit = self.tally(), None


class EpsilonLog(Callback):
    """Logs what private training has spent by the end of each epoch, as ``epsilon``."""

    light = True

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        spent = privacy_spent(self.model)
        if logs is not None and spent is not None:
            logs["epsilon"] = spent.epsilon


def privacy_spent(model: Network) -> PrivacySpent | None:
    """What a model's private trainings have spent; ``None`` if it has none."""
    run = model._training_session
    if (privacy := run.privacy) is None:
        return None
    spending = spending_of(run)
    steps = sum(one.steps for one in spending)
    epsilon = privacy.epsilon_of(spending)
    totals = epsilon, privacy.delta, privacy.clip, steps, tuple(spending)
    return PrivacySpent(*totals, norms=dict(run.preparer.program_cache.norms))


def spending_of(run: Any) -> list[Spending]:
    """What was spent on a model's weights, also while a ``fit`` is under way.

    Args:
        run: The model's ``_training_session``.
    """
    return run.spent if run.private_fit is None else run.private_fit.tally()


def privacy_config(privacy: Privacy | None) -> dict[str, Any] | None:
    """The arguments of a ``Privacy``, JSON-able."""
    return None if privacy is None else dataclasses.asdict(privacy)


def privacy_from_config(config: Mapping[str, Any]) -> Privacy:
    """The ``Privacy`` of a file."""
    try:
        spent = tuple(Spending(**one) for one in config["spent"])
        return Privacy(**{**config, "spent": spent})
    except (TypeError, KeyError, ArgumentError) as error:
        raise FileFormatError(
            "load_model", f"its privacy is damaged: {error}"
        ) from error


def _refusal(op: str, what: str) -> ArgumentError:
    return ArgumentError(
        op,
        f"{what} cannot be combined with privacy=: DP-SGD draws rows at random, and "
        "clips the gradient of each row by itself",
        hint=_INSTEAD.get(what, f"Leave out {what}, or privacy=."),
    )


def _divides_more(distribution: Any) -> bool:
    """Whether more than the rows of a batch is divided, or processes divide them."""
    if distribution is None:
        return False
    plain = isinstance(distribution, DataParallel) and not distribution.divides_weights
    return not plain or distribution.spans_processes


def _check_optimizer(op: str, optimizer: Any) -> None:
    reasons = {
        "an optimizer that accumulates gradients": optimizer.accumulate > 1,
        "an optimizer that evaluates the loss again": optimizer.evaluates_loss,
        "an optimizer that scales the loss (float16)": optimizer.scales_loss,
    }
    for name, holds in reasons.items():
        if holds:
            raise _refusal(op, name)


def _check_layers(op: str, model: Any) -> None:
    for path, layer in iter_modules(model):
        if isinstance(layer, BatchNormalization) and layer.trainable:
            raise ArgumentError(
                op,
                f"with privacy= the layer {path!r} cannot be trained: "
                "BatchNormalization mixes the rows of a batch",
                hint="Use GroupNormalization or LayerNormalization, or freeze it.",
            )


def _text_of(spending: list[Spending]) -> str:
    return "; ".join(f"{s.noise!r} × {s.rate!r} × {s.steps}" for s in spending)


def _beginning_of(spent: list[Spending], saved: Any) -> list[Spending]:
    """What was spent before the run in a file began, as far as this model knows."""
    for count in range(len(spent) + 1):
        if describe_value(_text_of(spent[:count])) == saved:
            return spent[:count]
    return list(spent)
