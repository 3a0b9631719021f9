"""``method="laplace"``: a Gaussian around the weights of the last layer."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

from exburn import activations
from exburn.core import forward_context
from exburn.core.checks import check_choice, check_count, check_number, check_seed
from exburn.core.forward_context import Interceptor
from exburn.errors import ArgumentError
from exburn.insight.explanations.scores import ShapedCall, survey
from exburn.insight.uncertainty.bond import ModelBond
from exburn.insight.uncertainty.laplace_posterior import (
    STRUCTURES,
    LikelihoodCurvature,
    Posterior,
    fit_posterior,
    output_variance,
)
from exburn.insight.uncertainty.outputs import (
    LabelledRows,
    OutputHead,
    check_finite_rows,
    find_head,
    prepare_rows,
    rows_of_step,
    select,
)
from exburn.insight.uncertainty.posterior import (
    OP,
    PosteriorPredictor,
    check_noise,
    check_samples,
    require_gaussian,
)
from exburn.insight.uncertainty.report import mean_loss, table_of_numbers
from exburn.layers import Dense
from exburn.models.network import Network
from exburn.training.module import SplitModule
from exburn.visualization.figures import new_axes

LINKS = ("probit", "monte_carlo")
_PRECISIONS = tuple(10.0 ** (n / 2) for n in range(-6, 15))  # by validation
_NUMBERS = 1 << 24  # that are made of some places at once
_MOST = 8192  # weights of a full posterior, whose covariance takes 256 MiB then


@dataclasses.dataclass(frozen=True)
class LastLayer:
    """The program of what goes into a ``Dense`` layer, ``[rows, …, width]``.

    Its products are an output of the model, or its logits.

    Attributes:
        path: Of the layer.
        has_bias: Whether a last 1 is there for its bias.
    """

    path: str
    has_bias: bool

    def __call__(self, split: SplitModule, arrays: Any, extra: Any, x: Any) -> Any:
        tap, key = _Tap(self.path), jax.random.key(0)
        split.forward(arrays, x, training=False, key=key, interceptors=(tap,))
        values = tap.inputs.astype(jnp.float32)
        if self.has_bias:
            values = jnp.concatenate([values, jnp.ones_like(values[..., :1])], -1)
        return values


@dataclasses.dataclass(frozen=True)
class LastLayerMoments:
    """The program of the mean and the deviation of what a last layer makes of rows."""

    layer: LastLayer
    head: OutputHead
    link: str

    def __call__(self, split: SplitModule, arrays: Any, extra: Any, x: Any) -> Any:
        return self.of(self.layer(split, arrays, extra, x), extra)

    def of(self, features: Any, extra: Any) -> tuple[Any, Any]:
        """The same, by what goes into the layer."""
        width, classes = extra["weights"].shape
        if features.shape[-1] != width:
            raise ArgumentError(OP, f"the weights are not of {self.layer.path!r}")
        flat = features.reshape(-1, width)

        def row(features: Any) -> Any:
            return tuple(part[0] for part in self._of_rows(features[None], extra))

        size = max(_NUMBERS // (width * classes), 1)
        if len(flat) <= size:
            parts = self._of_rows(flat, extra)
        else:
            parts = jax.lax.map(row, flat, batch_size=size)
        mean, deviation = (p.reshape(*features.shape[:-1], -1) for p in parts)
        return mean, deviation

    @jax.default_matmul_precision("highest")
    def _of_rows(self, features: Any, extra: Any) -> tuple[Any, Any]:
        outputs, binary = features @ extra["weights"], self.head.family == "sigmoid"
        if "draws" in extra:
            return _by_samples(features, outputs, extra["draws"])
        p = jax.nn.sigmoid(outputs) if binary else jax.nn.softmax(outputs)
        variance, product = output_variance(extra, features, p)
        if not self.head.has_classes:
            return outputs, jnp.sqrt(variance)
        return _by_probit(*map(_pair, (outputs, variance, product)))


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class LaplacePredictor(PosteriorPredictor):
    """A model whose last layer's weights are normal around those that were trained.

    Attributes:
        layer: The last layer.
        weights: ``[width, classes]`` in float32: its kernel, and the bias as its last
            row, where there is one.
        posterior: Of its weights.
        link: How probabilities are made of normal logits: ``"probit"``, by a formula,
            or ``"monte_carlo"``, as the mean of samples.
        samples, seed: Of ``"monte_carlo"``.
        rows: Number of rows that it was fitted to.
    """

    kind: ClassVar[str] = "laplace predictor"

    layer: LastLayer
    weights: np.ndarray
    posterior: Posterior
    link: str
    samples: int
    seed: int
    rows: int

    @property
    def method(self) -> str:
        return "laplace"

    @property
    def program(self) -> LastLayerMoments:
        return LastLayerMoments(self.layer, self.head, self.link)

    @functools.cached_property
    def extra(self) -> dict[str, Any]:
        extra = {"weights": self.weights, **self.posterior.arrays}
        if self.head.has_classes and self.link == "monte_carlo":
            draws = self.posterior.draw(self.samples, self.seed)
            extra = {"weights": self.weights, "draws": draws}
        return {name: jnp.asarray(array) for name, array in extra.items()}

    def text(self) -> str:
        form = {
            "kronecker": "the product of two Kronecker factors",
            "full": "whole",
            "diagonal": "diagonal, as if weights were independent",
        }[self.posterior.structure]
        noise = f", and noise of variance {self.noise:.4g}" if self.noise else ""
        return (
            f"The weights of {self.layer.path!r} are normal around those that were "
            f"trained, by the curvature of the likelihood of {self.rows:,} rows; its "
            f"matrix is {form}. All other weights are taken for certain. The prior's "
            f"precision is {self.posterior.prior_precision:.4g}{noise}."
        )

    def table(self) -> Table:
        numbers = {
            "weights": self.weights.size,
            "rows": self.rows,
            "prior precision": self.posterior.prior_precision,
            "noise variance": self.noise or None,
            "log marginal likelihood": self.posterior.evidence,
        }
        return table_of_numbers("Laplace's approximation", numbers)

    def plot(self) -> Any:
        """Draws the standard deviations of the weights, the smallest first."""
        figure, axes = new_axes("LaplacePredictor.plot", 4.6, 3.6)
        prior = self.posterior.prior_precision**-0.5
        axes.plot(np.sort(self.posterior.deviations.ravel()), label="posterior")
        axes.axhline(prior, linestyle="--", color="0.4", label="prior")
        axes.set(xlabel="weight", ylabel="standard deviation", yscale="log")
        axes.legend()
        return figure

    def check(self) -> None:
        check_choice("load", "link", self.link, LINKS)
        check_samples("load", self.samples)
        check_seed("load", self.seed)
        check_count("load", "rows", self.rows)
        check_number("load", "noise", self.noise, 0)
        if self.weights.ndim != 2 or self.weights.dtype != np.float32:
            raise ValueError("it has no weights of a last layer")
        self.posterior.check(self.weights.shape)


def laplace(
    model: Network,
    x: Any,
    y: Any = None,
    *,
    structure: str = "kronecker",
    prior_precision: float | None = None,
    validation_data: Any = None,
    noise: float | None = None,
    link: str = "probit",
    samples: int = 100,
    seed: int = 0,
    output: int | str | None = None,
    batch_size: int | None = None,
) -> LaplacePredictor:
    """``method="laplace"``: the last layer's weights as a normal distribution.

    The model is trained already, and stays as it is: one pass over the rows is all. The
    covariance is the inverse of the generalized Gauss-Newton matrix of the rows'
    likelihood, and of a normal prior around 0.

    Args:
        x, y: The rows that the model was trained on.
        structure: Of the matrix: ``"kronecker"``, ``"full"`` or ``"diagonal"``.
        prior_precision: 1 / variance of the prior of each weight; the marginal
            likelihood of the rows chooses it by default.
        validation_data: ``(x, y)``, rows that the model was not trained on: their
            likelihood chooses it instead.
        noise: The variance of values around their mean; by the marginal likelihood.
        link: ``"probit"``, MacKay's formula for the mean of a softmax of normal logits,
            or ``"monte_carlo"``, the mean over samples of logits.
        samples, seed: Of ``"monte_carlo"``.
        output: The name or number of an output, of a model with several.
        batch_size: Rows of a step; 32 by default.

    Source: E. Daxberger et al., "Laplace Redux: Effortless Bayesian Deep Learning",
    2021; D. J. C. MacKay, "The Evidence Framework Applied to Classification Networks",
    1992.
    """
    structure = check_choice(OP, "structure", structure, STRUCTURES)
    link = check_choice(OP, "link", link, LINKS)
    samples, seed = check_samples(OP, samples), check_seed(OP, seed) or 0
    if prior_precision is not None:
        prior_precision = check_number(
            OP, "prior_precision", prior_precision, 0, open_low=True
        )
    others = _read_validation(model, validation_data, prior_precision)
    head = find_head(model, output, OP)
    batch_size = rows_of_step(model, batch_size, OP)
    noise = check_noise(noise, head)
    require_gaussian(model, head)
    rows = LabelledRows(model, x, y, OP)
    targets, counts = rows.read(head, batch_size)
    answers, places = others.read(head, batch_size) if others else (None, None)
    split, spec = prepare_rows(model, rows.parts[0], batch_size, OP)
    layer, weights = find_last_layer(split, spec, head, OP)
    _check_size(weights, structure, samples if link == "monte_carlo" else 0)
    bond, curvature, done = ModelBond(model), LikelihoodCurvature(structure), 0
    for features in _features(layer, rows, counts, batch_size):
        own = _flat(targets)[done : done + len(features)]
        curvature.add(features, features @ weights, own, head.family)
        done += len(features)

    def fit(prior_precision: float | None) -> LaplacePredictor:
        about = head.family, prior_precision, noise
        posterior = fit_posterior(curvature, weights, *about)
        return LaplacePredictor(
            head=head,
            digest=bond.digest,
            bond=bond,
            noise=0.0 if head.has_classes else posterior.noise,
            layer=layer,
            weights=weights,
            posterior=posterior,
            link=link,
            samples=samples,
            seed=seed,
            rows=rows.rows,
        )

    if others is None or answers is None:
        return fit(prior_precision)
    chunks = list(_features(layer, others, places, batch_size))
    moments = jax.jit(LastLayerMoments(layer, head, link).of)

    def loss(predictor: LaplacePredictor) -> float:
        each = [moments(chunk, predictor.extra) for chunk in chunks]
        outputs = tuple(map(np.concatenate, zip(*each, strict=True)))
        mean, spread, _ = predictor._of_outputs(outputs, OP)
        return mean_loss(mean, None if head.has_classes else spread, _flat(answers))

    return min(map(fit, _PRECISIONS), key=loss)


def _check_size(weights: np.ndarray, structure: str, samples: int) -> None:
    """Raises ``ArgumentError`` if covariances or samples need too much memory."""
    if structure == "full" and weights.size > _MOST:
        raise ArgumentError(
            OP,
            f"the covariance of {weights.size:,} weights is too large as a whole",
            hint='structure="kronecker" has two small factors.',
        )
    if weights.size * samples > _MOST**2:
        raise ArgumentError(
            OP,
            f"{samples:,} samples of {weights.size:,} weights are too large together",
            hint='link="probit" needs no samples.',
        )


def _read_validation(
    model: Network, data: Any, prior_precision: float | None
) -> LabelledRows | None:
    """The rows whose likelihood chooses the prior, if there are any."""
    if data is None:
        return None
    if prior_precision is not None:
        raise ArgumentError(OP, "validation_data chooses prior_precision: pass one")
    if not (isinstance(data, tuple | list) and len(data) == 2):
        facts = {"received": type(data)}
        raise ArgumentError(OP, "validation_data must be (x, y)", facts)
    return LabelledRows(model, data[0], data[1], f"{OP} (validation data)")


def _flat(targets: np.ndarray) -> np.ndarray:
    """Labels ``[places]``, or values ``[places, classes]``, of all places."""
    is_labels = targets.dtype == np.int64
    return targets.reshape(-1, *(() if is_labels else targets.shape[-1:]))


def _features(
    layer: LastLayer, rows: LabelledRows, counts: Any, batch_size: int
) -> Iterator[np.ndarray]:
    """What goes into the last layer at places that count, ``[places, width]``."""
    row = 0
    for chunk in rows.chunks(layer, (), batch_size):
        own = select(chunk, None if counts is None else counts[row : row + len(chunk)])
        row += len(chunk)
        check_finite_rows(own, "what goes into the last layer", OP)
        yield own.reshape(-1, own.shape[-1])


def _pair(values: Any) -> Any:
    """Of one class against the rest: that of the rest, 0, before its own."""
    if values.shape[-1] > 1:
        return values
    return jnp.concatenate([jnp.zeros_like(values), values], -1)


def _by_probit(mean: Any, variance: Any, product: Any) -> tuple[Any, Any]:
    """MacKay's formula; deviations are by the derivative of the softmax.

    Args:
        product: Of the covariance and the softmax of ``mean``.
    """
    p = jax.nn.softmax(mean / jnp.sqrt(1 + jnp.pi / 8 * variance))
    middle = jax.nn.softmax(mean)
    whole = jnp.sum(middle * product, -1, keepdims=True)
    spread = middle * jnp.sqrt(jnp.maximum(variance - 2 * product + whole, 0))
    return p, jnp.minimum(spread, jnp.sqrt(p * (1 - p)))  # no number in [0, 1] has more


def _by_samples(features: Any, mean: Any, draws: Any) -> tuple[Any, Any]:
    """Moments of probabilities over samples of the weights, alike for all rows."""

    def add(sums: tuple, draw: Any) -> tuple:
        p = jax.nn.softmax(_pair(mean + features @ draw))
        return (sums[0] + p, sums[1] + p**2), None

    zeros = jnp.zeros_like(_pair(mean))
    sums, _ = jax.lax.scan(add, (zeros, zeros), draws)
    p, square = (total / len(draws) for total in sums)
    return p, jnp.sqrt(jnp.maximum(square - p**2, 0))


# ---------------------------------------------------------------------- the layer
class _Tap(Interceptor):
    """Keeps what goes into a layer, and puts an array in the place of its outputs."""

    keeps_arrays = True

    def __init__(self, path: str, stand_in: Any = None):
        self._path, self._stand_in = path, stand_in
        self.inputs: Any = None

    def __call__(self, layer: Any, call: Any, args: tuple, kwargs: dict) -> Any:
        outputs, ctx = call(*args, **kwargs), forward_context.current()
        assert ctx is not None
        if ctx.builds is None and ctx.path_of(layer) == self._path:
            self.inputs = args[0]
            if self._stand_in is not None:
                outputs = self._stand_in.astype(outputs.dtype)
        return outputs


def find_last_layer(
    split: SplitModule, x: Any, head: OutputHead, op: str
) -> tuple[LastLayer, np.ndarray]:
    """The layer of an output, and its weights, in a pass over inputs of these shapes.

    Raises:
        ArgumentError: The output is not the product of one ``Dense`` layer.
    """
    calls = survey(split, x)[0].calls
    paths = [call.path for call in calls]
    for call in reversed(calls):
        once = call.shape is not None and paths.count(call.path) == 1
        if isinstance(call.layer, Dense) and once and _ends_in(split, x, head, call):
            return _read(split, call.path, op)
    raise ArgumentError(
        op,
        f"the output {head.name!r} is not the product of one Dense layer, whose "
        "weights 'laplace' takes for uncertain",
        hint='method="swag" takes all weights, whatever the layers.',
    )


def _ends_in(split: SplitModule, x: Any, head: OutputHead, call: ShapedCall) -> bool:
    """Whether the output is the layer's product, or its softmax or sigmoid.

    The pass is run on random numbers, with others in the place of what the layer
    returns.
    """

    def run(stand_in: Any, groups: Any, x: Any) -> Any:
        key, taps = jax.random.key(0), (_Tap(call.path, stand_in),)
        outputs = split.forward(groups, x, training=False, key=key, interceptors=taps)
        return jax.tree.leaves(outputs[0])[head.number]

    function = activations.linear
    if head.has_classes and not head.logits:
        function = getattr(activations, head.family)
    draws = np.random.default_rng(0)
    product = draws.normal(size=call.shape).astype(np.float32)
    x = jax.tree.map(lambda spec: _inputs_like(spec, draws), x)
    output = np.asarray(jax.jit(run)(product, split.read(), x), np.float32)
    fits = call.layer.activation in (activations.linear, function)
    if not fits or output.shape != product.shape:
        return False
    if call.layer.activation is activations.linear:
        product = np.asarray(function(product))
    return np.allclose(output, product, atol=0.02)


def _inputs_like(spec: Any, draws: np.random.Generator) -> Any:
    """Random numbers; of integers, which may be indices, zeros."""
    if jnp.issubdtype(spec.dtype, jnp.floating):
        return jnp.asarray(draws.normal(size=spec.shape), spec.dtype)
    return jnp.zeros(spec.shape, spec.dtype)


def _read(split: SplitModule, path: str, op: str) -> tuple[LastLayer, np.ndarray]:
    params, frozen, others = split.read()
    arrays = params | frozen | others
    own = {
        n.rpartition("/")[2]: v for n, v in arrays.items() if n.startswith(f"{path}/")
    }
    if "kernel" not in own or set(own) - {"kernel", "bias"}:
        raise ArgumentError(
            op,
            f"the layer {path!r} has an adapter, or weights in few bits",
            {"weights": ", ".join(own)},
            hint="Merge an adapter first: model.merge_lora().",
        )
    kernel = np.asarray(own["kernel"], np.float32)
    if "bias" not in own:
        return LastLayer(path, False), kernel
    bias = np.asarray(own["bias"], np.float32)
    return LastLayer(path, True), np.concatenate([kernel, bias[None]])
