"""``method="laplace"``: a Gaussian around the weights of the last layer."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

from exburn import activations
from exburn.core import forward_context
from exburn.core.checks import check_choice, check_count, check_number, check_seed
from exburn.core.forward_context import Interceptor
from exburn.errors import ArgumentError, DataError
from exburn.insight.explanations.scores import ShapedCall, survey
from exburn.insight.uncertainty.bond import ModelBond
from exburn.insight.uncertainty.laplace_posterior import (
    STRUCTURES,
    LikelihoodCurvature,
    Posterior,
    fit_posterior,
)
from exburn.insight.uncertainty.outputs import (
    LabelledRows,
    OutputHead,
    check_finite_rows,
    find_head,
)
from exburn.insight.uncertainty.passes import Pass, prepare_rows, run_rows
from exburn.insight.uncertainty.posterior import (
    OP,
    PosteriorPredictor,
    check_noise,
    check_samples,
    require_gaussian,
)
from exburn.insight.uncertainty.prediction import Forecast
from exburn.insight.uncertainty.report import mean_loss
from exburn.layers import Dense
from exburn.models.network import Network
from exburn.training.module import SplitModule
from exburn.training.program import Programs
from exburn.visualization.figures import new_axes

LINKS = ("probit", "monte_carlo")
_PRECISIONS = tuple(10.0 ** (n / 2) for n in range(-6, 15))  # by validation
_NUMBERS = 1 << 24  # that are made of some rows at once
_MOST = 8192  # weights of a full posterior, whose covariance takes 256 MiB then


@dataclasses.dataclass(frozen=True)
class LastLayer:
    """A ``Dense`` layer whose products are an output of the model, or its logits.

    Attributes:
        path: Of the layer.
        weights: ``[width, classes]`` in float32: the kernel, and the bias as its last
            row, where there is one.
        has_bias: Whether there is.
    """

    path: str
    weights: np.ndarray
    has_bias: bool

    @property
    def program_name(self) -> str:
        """What tells its program from those of others."""
        return f"features of {self.path}" + (" and 1" if self.has_bias else "")

    def make_features(self, programs: Programs) -> Pass:
        """What goes into the layer: ``[rows, …, width]``, with 1 for the bias."""

        def features(arrays: Any, extra: Any, x: Any, key: Any) -> Any:
            tap = _Tap(self.path)
            programs.split.forward(
                arrays, x, training=False, key=key, interceptors=(tap,)
            )
            values = tap.inputs.astype(jnp.float32)
            if self.has_bias:
                values = jnp.concatenate([values, jnp.ones_like(values[..., :1])], -1)
            return values

        return features


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class LaplacePredictor(PosteriorPredictor):
    """A model whose last layer's weights are normal around those that were trained.

    Attributes:
        layer: The last layer.
        posterior: Of its weights.
        link: How probabilities are made of normal logits: ``"probit"``, by a formula,
            or ``"monte_carlo"``, as the mean of samples.
        samples, seed: Of ``"monte_carlo"``.
        rows: Number of rows that it was fitted to.
    """

    kind: ClassVar[str] = "laplace predictor"

    layer: LastLayer
    posterior: Posterior
    link: str
    samples: int
    seed: int
    rows: int

    @property
    def method(self) -> str:
        return "laplace"

    def _forecast(self, rows: LabelledRows, batch_size: int, op: str) -> Forecast:
        pairs = self.posterior.structure == "full" or self.link == "monte_carlo"
        some = self.model_of(op), self.layer, pairs, rows, batch_size, op
        forecast = self.of_features(features_of(*some))
        check_finite_rows(forecast.mean, "the output", op)
        return forecast

    def of_features(self, chunks: Iterable[np.ndarray]) -> Forecast:
        """The forecast of rows by what goes into the last layer, chunk by chunk."""
        means, spreads, done = [], [], 0
        for features in chunks:
            flat = features.reshape(-1, features.shape[-1])
            outputs = flat @ self.layer.weights
            if self.head.has_classes:
                mean, spread = _probabilities(self, flat, outputs, done)
            else:
                variance = self.posterior.output_variance(flat, outputs)[0]
                mean, spread = outputs, np.sqrt(variance + self.noise)
            done += len(flat)
            for whole, part in ((means, mean), (spreads, spread)):
                values = np.asarray(part, np.float64)
                whole.append(values.reshape(*features.shape[:-1], values.shape[-1]))
        return Forecast(np.concatenate(means), np.concatenate(spreads))

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
        table = Table(title="Laplace's approximation", title_justify="left")
        table.add_column("Number")
        table.add_column("Value", justify="right")
        posterior = self.posterior
        table.add_row("weights", f"{self.layer.weights.size:,}")
        table.add_row("rows", f"{self.rows:,}")
        table.add_row("prior precision", f"{posterior.prior_precision:.4g}")
        if not self.head.has_classes:
            table.add_row("noise variance", f"{self.noise:.4g}")
        table.add_row("log marginal likelihood", f"{posterior.evidence:.6g}")
        return table

    def plot(self) -> Any:
        """Draws the standard deviations of the weights, the smallest first.

        Returns:
            The ``matplotlib.figure.Figure``.

        Raises:
            MissingDependencyError: matplotlib is not installed.
        """
        figure, axes = new_axes("LaplacePredictor.plot", 4.6, 3.6)
        prior = self.posterior.prior_precision**-0.5
        axes.plot(np.sort(self.posterior.deviations.ravel()), label="posterior")
        axes.axhline(prior, linestyle="--", color="0.4", label="prior")
        axes.set(xlabel="weight", ylabel="standard deviation", yscale="log")
        axes.legend()
        return figure

    def own_content(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        names = ("link", "samples", "seed", "rows", "noise")
        settings = {name: getattr(self, name) for name in names}
        posterior, layer = self.posterior, self.layer
        settings |= {"layer": layer.path, "has_bias": layer.has_bias}
        settings |= {"structure": posterior.structure}
        settings |= {"prior_precision": posterior.prior_precision}
        settings |= {"evidence": posterior.evidence}
        arrays = {"weights": layer.weights, "variances": posterior.variances}
        arrays |= {f"basis_{n}": basis for n, basis in enumerate(posterior.bases)}
        return settings, arrays

    @classmethod
    def from_own(
        cls,
        common: Mapping[str, Any],
        settings: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
    ) -> Self:
        op, head = "LaplacePredictor.load", common["head"]
        weights, variances = arrays["weights"], arrays["variances"]
        path, has_bias = settings["layer"], settings["has_bias"]
        prior = settings["prior_precision"]
        if not isinstance(path, str) or type(has_bias) is not bool:
            raise ValueError("it names no layer")
        if weights.ndim != 2 or weights.dtype != np.float32:
            raise ValueError("it has no weights of a last layer")
        structure = check_choice(op, "structure", settings["structure"], STRUCTURES)
        bases = tuple(arrays[f"basis_{n}"] for n in range(len(arrays) - 2))
        posterior = Posterior(
            structure,
            check_number(op, "prior_precision", prior, 0, open_low=True),
            check_number(op, "noise", settings["noise"], 0) or 1.0,
            float(settings["evidence"]),
            variances,
            bases,
        )
        posterior.check(weights.shape)
        return cls(
            **common,
            noise=0.0 if head.has_classes else posterior.noise,
            layer=LastLayer(path, weights, has_bias),
            posterior=posterior,
            link=check_choice(op, "link", settings["link"], LINKS),
            samples=check_samples(op, settings["samples"]),
            seed=check_seed(op, settings["seed"]) or 0,
            rows=check_count(op, "rows", settings["rows"]),
        )


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
    batch_size: int = 32,
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
        batch_size: Rows of a step.

    Source: E. Daxberger et al., "Laplace Redux: Effortless Bayesian Deep Learning",
    2021; D. J. C. MacKay, "The Evidence Framework Applied to Classification Networks",
    1992.
    """
    structure = check_choice(OP, "structure", structure, STRUCTURES)
    link = check_choice(OP, "link", link, LINKS)
    samples, seed = check_samples(OP, samples), check_seed(OP, seed) or 0
    batch_size = check_count(OP, "batch_size", batch_size)
    if prior_precision is not None:
        prior_precision = check_number(
            OP, "prior_precision", prior_precision, 0, open_low=True
        )
    others = _read_validation(model, validation_data, prior_precision)
    head = find_head(model, output, OP)
    noise = check_noise(noise, head)
    require_gaussian(model, head)
    rows = LabelledRows(model, x, y, OP)
    targets = rows.targets_of(head)
    answers = None if others is None else others.targets_of(head)
    split, spec = prepare_rows(model, rows.parts[0], batch_size, OP)
    layer = find_last_layer(split, spec, head, OP)
    if structure == "full" and layer.weights.size > _MOST:
        raise ArgumentError(
            OP,
            f"the covariance of {layer.weights.size:,} weights is too large as a whole",
            hint='structure="kronecker" has two small factors.',
        )
    bond, curvature = ModelBond(model), LikelihoodCurvature(structure)
    pairs = structure == "full" or link == "monte_carlo"
    some, done = (model, layer, pairs), 0
    flat = _flat(targets, head)
    for features in features_of(*some, rows, batch_size, OP):
        features = features.reshape(-1, features.shape[-1])
        check_finite_rows(features, "what goes into the last layer", OP)
        own = flat[done : done + len(features)]
        curvature.add(features, features @ layer.weights, own, head.family)
        done += len(features)

    def fit(prior_precision: float | None) -> LaplacePredictor:
        about = head.family, prior_precision, noise
        posterior = fit_posterior(curvature, layer.weights, *about)
        return LaplacePredictor(
            head=head,
            digest=bond.digest,
            bond=bond,
            noise=0.0 if head.has_classes else posterior.noise,
            layer=layer,
            posterior=posterior,
            link=link,
            samples=samples,
            seed=seed,
            rows=rows.rows,
        )

    if others is None or answers is None:
        return fit(prior_precision)
    chunks = list(features_of(*some, others, batch_size, OP))

    def loss(predictor: LaplacePredictor) -> float:
        mean, spread, _ = predictor.of_features(chunks)
        return mean_loss(mean, None if head.has_classes else spread, answers)

    return min(map(fit, _PRECISIONS), key=loss)


def _read_validation(
    model: Network, data: Any, prior_precision: float | None
) -> LabelledRows | None:
    """The rows whose likelihood chooses the prior, if there are any."""
    if data is None:
        return None
    if prior_precision is not None:
        raise ArgumentError(OP, "validation_data chooses prior_precision: pass one")
    if not (isinstance(data, tuple | list) and len(data) == 2):
        raise ArgumentError(
            OP, "validation_data must be (x, y)", {"received": type(data)}
        )
    return LabelledRows(model, data[0], data[1], f"{OP} (validation data)")


def _flat(targets: np.ndarray, head: OutputHead) -> np.ndarray:
    """Labels ``[rows]``, or values ``[rows, classes]``, of all positions."""
    return targets.reshape(-1, *(() if head.has_classes else targets.shape[-1:]))


def features_of(
    model: Network,
    layer: LastLayer,
    pairs: bool,
    rows: LabelledRows,
    batch_size: int,
    op: str,
) -> Iterator[np.ndarray]:
    """What goes into the last layer, ``[rows, …, width]``, some rows at a time.

    They are so few that what is computed of each fits the memory together.

    Args:
        pairs: Whether that has a number for each pair of weights and classes.
    """
    width, classes = layer.weights.shape
    numbers = classes**2 * width if pairs else classes + width
    for part in rows.parts:
        program = layer.program_name, layer.make_features
        for chunk in run_rows(model, part, batch_size, *program, (), op):
            if chunk.shape[-1] != width:
                raise ArgumentError(op, f"the weights are not of {layer.path!r}")
            size = max(_NUMBERS // (numbers * math.prod(chunk.shape[1:-1])), 1)
            for start in range(0, len(chunk), size):
                yield chunk[start : start + size]


def _probabilities(
    predictor: LaplacePredictor, features: Any, outputs: Any, start: int
) -> tuple[Any, Any]:
    """Mean probabilities ``[rows, classes]`` and their standard deviations.

    Args:
        start: The number of the first row, which its samples depend on.
    """
    posterior, binary = predictor.posterior, predictor.head.family == "sigmoid"
    if predictor.link == "probit":
        p = jax.nn.sigmoid(outputs) if binary else jax.nn.softmax(outputs)
        variance, product = posterior.output_variance(features, p)
        if binary:  # as the softmax of 0 and the logit
            zeros = np.zeros_like(outputs)
            outputs, variance, product = (
                np.concatenate([zeros, v], -1) for v in (outputs, variance, product)
            )
        return _by_probit(outputs, variance, product)
    covariance = posterior.output_covariance(features)
    if binary:
        outputs = np.concatenate([np.zeros_like(outputs), outputs], -1)
        covariance = jnp.pad(covariance, ((0, 0), (1, 0), (1, 0)))
    key = jax.random.key(predictor.seed)
    return _by_samples(outputs, covariance, key, start, predictor.samples)


@jax.jit
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


@functools.partial(jax.jit, static_argnums=4)
@jax.default_matmul_precision("highest")
def _by_samples(
    mean: Any, covariance: Any, key: Any, start: Any, samples: int
) -> tuple[Any, Any]:
    """Moments of the softmax of normal logits."""
    values, basis = jnp.linalg.eigh(covariance)
    root = basis * jnp.sqrt(jnp.maximum(values, 0))[:, None, :]  # [rows, k, k]
    rows, classes = start + jnp.arange(len(mean)), mean.shape[1:]
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, rows)

    def add(number: Any, sums: tuple) -> tuple:
        own = jax.vmap(jax.random.fold_in, (0, None))(keys, number)
        draws = jax.vmap(lambda k: jax.random.normal(k, classes))(own)
        p = jax.nn.softmax(mean + jnp.einsum("nki,ni->nk", root, draws))
        return sums[0] + p, sums[1] + p**2

    zeros = jnp.zeros_like(mean)
    first, second = jax.lax.fori_loop(0, samples, add, (zeros, zeros))
    p = first / samples
    return p, jnp.sqrt(jnp.maximum(second / samples - p**2, 0))


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


def find_last_layer(split: SplitModule, x: Any, head: OutputHead, op: str) -> LastLayer:
    """The layer of an output, in a pass over inputs of these shapes.

    Raises:
        ArgumentError: The output is not the product of one ``Dense`` layer.
    """
    calls = survey(split, x)[0].calls
    paths = [call.path for call in calls]
    for call in reversed(calls):
        once = call.shape is not None and paths.count(call.path) == 1
        if (
            isinstance(call.layer, Dense)
            and once
            and _ends_in(split, x, head, call, op)
        ):
            return _read(split, call.path, op)
    raise ArgumentError(
        op,
        f"the output {head.name!r} is not the product of one Dense layer, whose "
        "weights 'laplace' takes for uncertain",
        hint='method="swag" takes all weights, whatever the layers.',
    )


def _ends_in(
    split: SplitModule, x: Any, head: OutputHead, call: ShapedCall, op: str
) -> bool:
    """Whether the output is the layer's product, or its softmax or sigmoid.

    The pass is run on random numbers, with others in the place of what the layer
    returns.

    Raises:
        DataError: It is, and some of its places are masked.
    """
    masks: list[Any] = []

    def run(stand_in: Any, groups: Any, x: Any) -> Any:
        key, taps = jax.random.key(0), (_Tap(call.path, stand_in),)
        outputs, _, ctx = split.forward(
            groups, x, training=False, key=key, interceptors=taps
        )
        output = jax.tree.leaves(outputs)[head.number]
        masks.append(ctx.mask_of(output))
        return output

    draws = np.random.default_rng(0)
    product = draws.normal(size=call.shape).astype(np.float32)
    x = jax.tree.map(lambda spec: _inputs_like(spec, draws), x)
    output = np.asarray(jax.jit(run)(product, split.read(), x), np.float32)
    end = {"softmax": activations.softmax, "sigmoid": activations.sigmoid}
    function = activations.linear
    if head.has_classes and not head.logits:
        function = end[head.family]
    fits = call.layer.activation in (activations.linear, function)
    if not fits or output.shape != product.shape:
        return False
    if call.layer.activation is activations.linear:
        product = np.asarray(function(product))
    same = np.allclose(output, product, atol=0.02)
    if same and len(head.shape) > 2 and masks[-1] is not None:
        raise DataError(
            op,
            f"places of the output {head.name!r} are masked, which 'laplace' would "
            "take for rows",
            hint="Cut the rows to one length, without a mask.",
        )
    return same


def _inputs_like(spec: Any, draws: np.random.Generator) -> Any:
    """Random numbers; of integers, which may be indices, zeros."""
    if jnp.issubdtype(spec.dtype, jnp.floating):
        return jnp.asarray(draws.normal(size=spec.shape), spec.dtype)
    return jnp.zeros(spec.shape, spec.dtype)


def _read(split: SplitModule, path: str, op: str) -> LastLayer:
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
        return LastLayer(path, kernel, False)
    bias = np.asarray(own["bias"], np.float32)
    return LastLayer(path, np.concatenate([kernel, bias[None]]), True)
