"""Predictions as means over samples of a model's weights, or over those of dropout."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

from exburn.core import forward_context
from exburn.core.checks import (
    check_choice,
    check_count,
    check_number,
    check_seed,
    is_known,
)
from exburn.core.forward_context import Interceptor
from exburn.errors import ArgumentError, ShapeError
from exburn.insight.uncertainty.bond import ModelBond
from exburn.insight.uncertainty.outputs import (
    LabelledRows,
    OutputHead,
    RowProgram,
    check_finite_rows,
    find_head,
    rows_of_step,
    select,
)
from exburn.insight.uncertainty.posterior import (
    OP,
    PosteriorPredictor,
    check_noise,
    check_samples,
    noise_of,
    require_gaussian,
)
from exburn.insight.uncertainty.report import table_of_numbers
from exburn.layers import RNN, AlphaDropout, Attention, Dropout, GaussianDropout
from exburn.layers.contract.projected_attention import ProjectedAttention
from exburn.layers.contract.recurrent_cell import RecurrentCell
from exburn.layers.convolution.conv import Convolution
from exburn.models.network import Network
from exburn.module.building import inspect_call
from exburn.module.traversal import iter_modules
from exburn.training.module import SplitModule
from exburn.tuning.result import SweepResult
from exburn.visualization.figures import new_axes

#: What samples of each way are.
WAYS = {
    "swag": "drawn from a normal distribution fitted to the weights along a training "
    "(SWAG), each with batch statistics of its own",
    "dropout": "thinned by dropout at random; all else is as at inference",
    "ensemble": "the members of an ensemble, trained each by itself",
}

_SAMPLES = "samples/"  # begins the names of arrays of a program
_LAYERS = (Dropout, AlphaDropout, GaussianDropout)
_WITH_RATES = (Attention, ProjectedAttention, RecurrentCell)
_RATES = ("rate", "dropout", "recurrent_dropout")


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class SampledPredictor(PosteriorPredictor):
    """A model with samples of its weights, run side by side in one program.

    Attributes:
        way: ``"swag"``, ``"dropout"`` or ``"ensemble"``.
        samples: Their number.
        seed: Of dropout's masks.
        weights: ``[samples, …]`` by the names of weights, those that differ between
            samples; nothing for dropout.
    """

    kind: ClassVar[str] = "sampled predictor"

    way: str
    samples: int
    seed: int
    weights: dict[str, np.ndarray]

    @property
    def method(self) -> str:
        return self.way

    @property
    def program(self) -> RowProgram:
        one_by_one = bool(self.weights) and _prefers_one(self.model_of(self.method))
        width = 1 if one_by_one else self.samples
        return SampleMoments(self.head, self.samples, width, self.way == "dropout")

    @functools.cached_property
    def extra(self) -> dict[str, Any]:
        """The samples, where programs take them."""
        weights = {_SAMPLES + n: jnp.asarray(v) for n, v in self.weights.items()}
        return {"seed": jnp.uint32(self.seed), **weights}

    def text(self) -> str:
        noise = ""
        if not self.head.has_classes:
            noise = f" Observations have noise of variance {self.noise:.4g}."
        return (
            f"A prediction is the mean of {self.samples} passes with weights that are "
            f"{WAYS[self.way]}; its spread is how far these differ.{noise}"
        )

    def table(self) -> Table:
        numbers = {
            "samples": self.samples,
            "numbers that differ": sum(v[0].size for v in self.weights.values()),
            "noise variance": None if self.head.has_classes else self.noise,
        }
        return table_of_numbers(f"Samples of weights ({self.way})", numbers)

    def plot(self) -> Any:
        """Draws how far weights differ between samples, beside their mean size.

        Raises:
            ArgumentError: Dropout draws masks, and no weights.
        """
        if not self.weights:
            raise ArgumentError(
                "SampledPredictor.plot", "dropout's samples have the same weights"
            )
        figure, axes = new_axes("SampledPredictor.plot", 4.6, 3.6)
        parts = [value.astype(np.float64) for value in self.weights.values()]
        axes.barh(range(len(parts)), [float(v.std(0).mean()) for v in parts])
        axes.set_yticks(range(len(parts)), list(self.weights), fontsize=6)
        axes.set(xlabel="mean standard deviation between samples")
        return figure

    def check(self) -> None:
        check_choice("load", "way", self.way, WAYS)
        check_samples("load", self.samples)
        check_seed("load", self.seed)
        check_number("load", "noise", self.noise, 0)
        if bool(self.weights) == (self.way == "dropout"):
            raise ValueError("it has weights of another method")
        if any(v.ndim < 1 or len(v) != self.samples for v in self.weights.values()):
            raise ValueError("its weights are of another number of samples")


def make_sampled(
    model: Network,
    head: OutputHead,
    rows: LabelledRows | None,
    noise: float | None,
    batch_size: int,
    **fields: Any,
) -> SampledPredictor:
    """The predictor of samples, with the noise that rows have beside it.

    Args:
        rows: ``None`` where there is nothing to find.
        noise: The variance of observations of values; found if ``None``.
        **fields: ``way``, ``samples``, ``seed`` and ``weights``.
    """
    bond = ModelBond(model)
    common = {"head": head, "digest": bond.digest, "bond": bond}
    predictor = SampledPredictor(**common, noise=noise or 0.0, **fields)
    if head.has_classes or noise is not None:
        return predictor
    assert rows is not None
    targets, counts = rows.read(head, batch_size)
    moments = rows.run(predictor.program, predictor.extra, batch_size)
    mean, deviation = (select(part.astype(np.float64), counts) for part in moments)
    check_finite_rows(mean, "the output", OP)
    noise = noise_of(mean - targets, deviation**2)
    return dataclasses.replace(predictor, noise=noise)


def read_rows(
    model: Network, head: OutputHead, x: Any, y: Any, noise: Any, batch_size: int
) -> LabelledRows | None:
    """Rows, of which values need some to find their noise by.

    Raises:
        ArgumentError: The output is values, and there are neither rows nor noise.
        DataError, ShapeError: The rows do not fit the model.
    """
    finds_noise = not head.has_classes and noise is None
    if finds_noise:
        require_gaussian(model, head)
    if x is None and not finds_noise:
        return None
    if x is None:
        raise ArgumentError(
            OP,
            f"intervals of the values {head.name!r} need the noise of observations",
            hint="Pass rows that the model was not trained on, x and y, or noise=….",
        )
    rows = LabelledRows(model, x, y, OP)
    if finds_noise or rows.targets is not None:
        rows.read(head, batch_size)
    return rows


def _prefers_one(model: Network) -> bool:
    """Whether samples run one after another: convolutions with weights of their own
    take several times as long side by side on a CPU.
    """
    convolves = any(isinstance(m, Convolution) for _, m in iter_modules(model))
    return convolves and jax.default_backend() == "cpu"


@dataclasses.dataclass(frozen=True)
class SampleMoments:
    """The program of the mean and the deviation of a model's outputs over samples.

    Attributes:
        samples: Their number, of which ``width`` run at once.
        drops: Whether dropout is on. A sample drops the same units of each row, so that
            a row has the same answer in any batch.
    """

    head: OutputHead
    samples: int
    width: int
    drops: bool

    def __call__(self, split: SplitModule, arrays: Any, extra: Any, x: Any) -> Any:
        weights = {n.removeprefix(_SAMPLES): v for n, v in extra.items()}
        seed = weights.pop("seed")
        forms = {n: (v.shape, v.dtype) for group in arrays for n, v in group.items()}
        if any(forms.get(n) != (v.shape[1:], v.dtype) for n, v in weights.items()):
            raise ArgumentError(OP, "the samples are of the weights of another model")

        def one(item: Any) -> Any:
            own, number = item
            key = jax.random.fold_in(jax.random.key(seed), number)
            groups = tuple(
                {name: own.get(name, value) for name, value in group.items()}
                for group in arrays
            )

            def run(x: Any) -> Any:
                taps = (DropoutOn(),) if self.drops else ()
                outputs = split.forward(
                    groups, x, training=False, key=key, interceptors=taps
                )[0]
                return _as_mean(jax.tree.leaves(outputs)[self.head.number], self.head)

            if not self.drops:
                return run(x)
            rows = jax.tree.map(lambda v: v[:, None], x)
            return jax.vmap(run)(rows)[:, 0]

        items = weights, jnp.arange(self.samples)
        each = jax.lax.map(one, items, batch_size=self.width)
        return each.mean(0), each.std(0)


def _as_mean(output: Any, head: OutputHead) -> Any:
    """What of a pass is averaged, in float32: probabilities of classes, or values."""
    output = output.astype(jnp.float32)
    if head.family == "sigmoid":
        p = jax.nn.sigmoid(output) if head.logits else output
        return jnp.concatenate([1 - p, p], -1)
    return jax.nn.softmax(output) if head.logits else output


def dropout(
    model: Network,
    x: Any = None,
    y: Any = None,
    *,
    samples: int = 50,
    noise: float | None = None,
    seed: int = 0,
    output: int | str | None = None,
    batch_size: int | None = None,
) -> SampledPredictor:
    """``method="dropout"``: the mean of passes in which dropout is on.

    All else is as at inference: ``BatchNormalization`` uses its running statistics.

    Args:
        x, y: Rows that the model was not trained on, by which the noise of values is
            found; classes need none.
        samples: Number of passes.
        noise: The variance of values around their mean.
        seed: Of the masks, which are those of each row alike.
        output: The name or number of an output, of a model with several.
        batch_size: Rows of a step; 32 by default.

    Source: Y. Gal and Z. Ghahramani, "Dropout as a Bayesian Approximation", 2016.
    """
    samples, seed = check_samples(OP, samples, 2), check_seed(OP, seed) or 0
    head = find_head(model, output, OP)
    batch_size = rows_of_step(model, batch_size, OP)
    noise = check_noise(noise, head)
    if not any(drops(layer) for _, layer in iter_modules(model)):
        raise ArgumentError(
            OP,
            f"{model.name!r} has no dropout, so that all passes are alike",
            hint='method="laplace" needs none.',
        )
    rows = read_rows(model, head, x, y, noise, batch_size)
    fields = {"way": "dropout", "samples": samples, "seed": seed, "weights": {}}
    return make_sampled(model, head, rows, noise, batch_size, **fields)


class DropoutOn(Interceptor):
    """Has the layers that drop run as in training."""

    def __call__(self, layer: Any, call: Any, args: tuple, kwargs: dict) -> Any:
        ctx = forward_context.current()
        assert ctx is not None
        if "training" in kwargs and drops(layer):
            kwargs = kwargs | {"training": True}
            ctx.training = True  # for its own parts; the caller puts it back
        return call(*args, **kwargs)


def drops(layer: Any) -> bool:
    """Whether a layer drops anything in training.

    Example:
        >>> import exburn
        >>> drops(exburn.layers.Dropout(0.5)), drops(exburn.layers.Dense(2))
        (True, False)
    """
    if isinstance(layer, RNN):  # its cells may be called inside a loop
        return any(drops(part) for path, part in iter_modules(layer) if path)
    if not isinstance(layer, _LAYERS + _WITH_RATES):
        return False
    return not all(is_known(getattr(layer, name, 0), 0) for name in _RATES)


def ensemble(
    model: Network,
    x: Any = None,
    y: Any = None,
    *,
    members: Sequence[Network] | SweepResult | None = None,
    top: int = 5,
    noise: float | None = None,
    output: int | str | None = None,
    batch_size: int | None = None,
) -> SampledPredictor:
    """``method="ensemble"``: the mean of models trained from different seeds.

    Members are run side by side, in one program. Their weights are copied.

    Args:
        x, y: Rows that no member was trained on, by which the noise of values is found;
            classes need none.
        members: Models with the layers and shapes of this one, of which it may be one;
            or what ``exburn.tuning.sweep`` returned.
        top: How many of a sweep's lanes, the best first.
        noise: The variance of values around their mean.
        output: The name or number of an output, of a model with several.
        batch_size: Rows of a step; 32 by default.

    Source: B. Lakshminarayanan et al., "Simple and Scalable Predictive Uncertainty
    Estimation using Deep Ensembles", 2017.
    """
    head = find_head(model, output, OP)
    batch_size = rows_of_step(model, batch_size, OP)
    noise = check_noise(noise, head)
    if isinstance(members, SweepResult):
        members = members.models(check_count(OP, "top", top, 2))
    if not isinstance(members, Sequence) or not all(
        isinstance(member, Network) for member in members
    ):
        raise ArgumentError(
            OP,
            "members must be a list of models, or the result of a sweep",
            {"received": type(members)},
            hint="model.uncertainty(method='ensemble', members=[model, other])",
        )
    if len(members) < 2:
        raise ArgumentError(
            OP, f"an ensemble has two members at least, received {len(members)}"
        )
    own, each = SplitModule(model), [SplitModule(member) for member in members]
    for number, split in enumerate(each):
        _check_alike(own, split, number)
    read = [_arrays(split) for split in each]
    weights = {name: np.stack([arrays[name] for arrays in read]) for name in read[0]}
    rows = read_rows(model, head, x, y, noise, batch_size)
    fields = {"way": "ensemble", "samples": len(each), "seed": 0, "weights": weights}
    return make_sampled(model, head, rows, noise, batch_size, **fields)


def _arrays(split: SplitModule) -> dict[str, np.ndarray]:
    """All arrays of a model by their names, on the host."""
    params, frozen, others = split.read()
    return {n: np.asarray(v) for n, v in (params | frozen | others).items()}


def _check_alike(own: SplitModule, other: SplitModule, number: int) -> None:
    """Raises ``ShapeError`` if a member has not the model's weights and program."""
    shapes, others = (
        {n: (v.shape, str(v.dtype)) for group in split.peek() for n, v in group.items()}
        for split in (own, other)
    )
    pairs = ((v, other.constants[n]) for n, v in own.constants.items())
    if shapes != others:
        odd = next(n for n in shapes | others if shapes.get(n) != others.get(n))
        facts = {"weight": odd, "model": shapes.get(odd), "member": others.get(odd)}
    elif _program(own) != _program(other):
        facts = {"difference": "an option of a layer, or the order of layers"}
    elif not all(np.array_equal(*pair) for pair in pairs):
        facts = {"difference": "arrays that are attributes of layers"}
    else:
        return
    raise ShapeError(
        OP,
        f"member {number} must be the model, but for the numbers of its weights",
        facts,
        hint="exburn.tuning.Ensemble(members) is a model of unlike members.",
    )


def _program(split: SplitModule) -> str:
    """The model's computation as text, without the numbers of its weights."""
    traced = inspect_call(split.module)
    return "" if traced is None else str(traced[0])
