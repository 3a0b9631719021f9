"""A Gaussian around the weights of a linear layer, by the curvature and a prior."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

STRUCTURES = ("kronecker", "full", "diagonal")
_REACH = 18.0  # of logarithms: how far a maximum is looked for around a first guess
_TINY = 1e-30
_NUMBERS = 1 << 24  # that are made of some rows at once


@dataclasses.dataclass
class LikelihoodCurvature:
    """Second derivatives of a negative log likelihood by a linear layer's weights.

    It is the generalized Gauss-Newton matrix, summed over rows: of rows ``φ`` with a
    last entry 1 for the bias, and of outputs ``f`` whose second derivatives are ``Λ``,
    the sum of ``φφᵀ ⊗ Λ``. Values have ``Λ = I``: their noise comes in later.

    Attributes:
        structure: ``"full"``: that matrix; ``"kronecker"``: the product of the mean of
            ``φφᵀ`` and the sum of ``Λ``; ``"diagonal"``: its diagonal alone.
        sums: The sums, as float64.
        rows: Their number.
        fit: The log likelihood of classes; of values the sum of squared errors.
    """

    structure: str
    sums: tuple[np.ndarray, ...] = ()
    rows: int = 0
    fit: float = 0.0

    def add(self, features: Any, outputs: Any, targets: Any, family: str) -> None:
        """Takes in some rows.

        Args:
            features: ``[rows, width]``.
            outputs: ``[rows, classes]``: logits, or values.
            targets: ``[rows]`` labels, or ``[rows, classes]`` values.
        """
        numbers = features.shape[1] * outputs.shape[1] ** 2
        size = max(_NUMBERS // numbers, 1) if self.structure == "full" else _NUMBERS
        for start in range(0, len(features), size):
            some = (v[start : start + size] for v in (features, outputs, targets))
            parts = _sums(*some, self.structure, family)
            fit, *sums = (np.asarray(part, np.float64) for part in parts)
            pairs = zip(self.sums or [0.0] * len(sums), sums, strict=True)
            self.sums = tuple(a + b for a, b in pairs)
            self.fit += float(fit)
        self.rows += len(features)

    @functools.cached_property
    def eigenvalues(self) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """The eigenvalues, once all rows are in it, and the bases they belong to."""
        if self.structure == "diagonal":
            return np.maximum(self.sums[0], 0), ()
        if self.structure == "full":
            size = math.prod(self.sums[0].shape[:2])
            values, basis = np.linalg.eigh(self.sums[0].reshape(size, size))
            return np.maximum(values, 0), (basis,)
        inside, basis = np.linalg.eigh(self.sums[0] / self.rows)
        outside, other = np.linalg.eigh(self.sums[1])
        inside, outside = np.maximum(inside, 0), np.maximum(outside, 0)
        return np.outer(inside, outside), (basis, other)


@functools.partial(jax.jit, static_argnums=(3, 4))
@jax.default_matmul_precision("highest")
def _sums(
    features: Any, outputs: Any, targets: Any, structure: str, family: str
) -> tuple[Any, ...]:
    """What some rows add to the fit of a `LikelihoodCurvature`, and to its sums."""
    if family == "softmax":
        logs = jax.nn.log_softmax(outputs)
        fit = jnp.take_along_axis(logs, targets[:, None], -1).sum()
    elif family == "sigmoid":
        fit = -jax.nn.softplus(outputs[:, 0] * (1 - 2 * targets)).sum()
    else:
        fit = jnp.sum((outputs - targets) ** 2)
    if structure == "full":
        bends = _bends(outputs, family)  # [rows, classes, classes]
        return fit, jnp.einsum("ni,nkl,nj->ikjl", features, bends, features)
    p = jax.nn.sigmoid(outputs) if family == "sigmoid" else jax.nn.softmax(outputs)
    own = jnp.ones_like(p) if family == "values" else p * (1 - p)
    if structure == "diagonal":
        return fit, features.T**2 @ own
    total = jnp.diag(own.sum(0))
    if family == "softmax":
        total = jnp.diag(p.sum(0)) - p.T @ p
    return fit, features.T @ features, total


def _bends(outputs: Any, family: str) -> Any:
    """Second derivatives of the negative log likelihood by outputs, for each row."""
    if family == "values":
        classes = outputs.shape[-1]
        return jnp.broadcast_to(jnp.eye(classes), (len(outputs), classes, classes))
    if family == "sigmoid":
        p = jax.nn.sigmoid(outputs)
        return (p * (1 - p))[..., None]
    p = jax.nn.softmax(outputs)
    return p[:, :, None] * jnp.eye(p.shape[-1]) - p[:, :, None] * p[:, None, :]


@dataclasses.dataclass(frozen=True)
class Posterior:
    """A Gaussian around a linear layer's weights ``[width, classes]``.

    Attributes:
        structure: As of `LikelihoodCurvature`.
        prior_precision: Of the weights, whose prior has the mean 0.
        noise: The variance of the observations of values; 1 for classes.
        evidence: The logarithm of the marginal likelihood of the rows.
        arrays: ``"covariance"`` of all weights where it is full, ``[width, classes,
            width, classes]``; else ``"variances"`` ``[width, classes]``, which for
            Kronecker factors are along their eigenvectors ``"inside"``, ``"outside"``.
    """

    structure: str
    prior_precision: float
    noise: float
    evidence: float
    arrays: dict[str, np.ndarray]

    @property
    def deviations(self) -> np.ndarray:
        """The standard deviation of each weight, ``[width, classes]``."""
        if self.structure == "full":
            return np.sqrt(np.einsum("ikik->ik", self.arrays["covariance"]))
        variances = self.arrays["variances"]
        if self.structure == "diagonal":
            return np.sqrt(variances)
        inside, outside = self.arrays["inside"], self.arrays["outside"]
        return np.sqrt(inside**2 @ variances @ (outside**2).T)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raises ``ValueError`` if it is not of a layer with weights of this shape."""
        if self.structure not in STRUCTURES:
            raise ValueError("its structure is nothing known")
        if not (self.prior_precision > 0 and self.noise > 0):
            raise ValueError("its prior or its noise is not positive")
        width, classes = shape
        forms: dict[str, tuple] = {"variances": shape}
        if self.structure == "full":
            forms = {"covariance": shape + shape}
        elif self.structure == "kronecker":
            forms |= {"inside": (width, width), "outside": (classes, classes)}
        if {name: array.shape for name, array in self.arrays.items()} != forms:
            raise ValueError("its variances are of another layer")
        parts = self.arrays.values()
        if not all(a.dtype == np.float32 and np.isfinite(a).all() for a in parts):
            raise ValueError("its variances are no finite numbers")
        if (self.arrays.get("variances", np.zeros(1)) < 0).any():
            raise ValueError("its variances are negative")

    def draw(self, samples: int, seed: int) -> np.ndarray:
        """Samples ``[samples, width, classes]`` of how far weights are off their mean.

        Example:
            >>> variances = {"variances": np.full((2, 3), 4, np.float32)}
            >>> posterior = Posterior("diagonal", 1.0, 1.0, 0.0, variances)
            >>> posterior.draw(10_000, 0).std().round(1)
            np.float32(2.0)
        """
        shape = self.deviations.shape
        key = jax.random.key(seed)
        draws = np.asarray(jax.random.normal(key, (samples, *shape), np.float32))
        if self.structure == "full":
            size = math.prod(shape)
            covariance = self.arrays["covariance"].reshape(size, size)
            values, basis = np.linalg.eigh(covariance)
            root = basis * np.sqrt(np.maximum(values, 0))
            return (draws.reshape(samples, size) @ root.T).reshape(draws.shape)
        draws = draws * np.sqrt(self.arrays["variances"])
        if self.structure == "diagonal":
            return draws
        return self.arrays["inside"] @ draws @ self.arrays["outside"].T


@jax.default_matmul_precision("highest")
def output_variance(arrays: Any, features: Any, vectors: Any) -> tuple[Any, Any]:
    """The variances of a linear layer's outputs, and their covariance times vectors.

    Args:
        arrays: Of a `Posterior`.
        features: ``[rows, width]``, with an entry 1 for the bias.
        vectors: ``[rows, classes]``.

    Returns:
        ``[rows, classes]`` both.
    """
    if "covariance" in arrays:
        whole = arrays["covariance"]
        own = jnp.einsum(
            "ni,ikj,nj->nk", features, jnp.einsum("ikjk->ikj", whole), features
        )
        return own, jnp.einsum("ni,ikjl,nj,nl->nk", features, whole, features, vectors)
    if "inside" not in arrays:
        own = features**2 @ arrays["variances"]
        return own, own * vectors
    outside = arrays["outside"]
    own = (features @ arrays["inside"]) ** 2 @ arrays["variances"]  # in its basis
    return own @ outside.T**2, (own * (vectors @ outside)) @ outside.T


def fit_posterior(
    curvature: LikelihoodCurvature,
    weights: np.ndarray,
    family: str,
    prior_precision: float | None = None,
    noise: float | None = None,
) -> Posterior:
    """The posterior whose prior, and noise, the rows make most likely.

    Args:
        weights: ``[width, classes]``, the mean.
        prior_precision, noise: Chosen by the marginal likelihood where ``None``.

    Example:
        >>> curvature = LikelihoodCurvature("diagonal")
        >>> features = np.ones((4, 1), np.float32)
        >>> values = np.array([[1.0], [3.0], [1.0], [3.0]], np.float32)
        >>> curvature.add(features, 0 * values + 2, values, "values")
        >>> posterior = fit_posterior(curvature, np.array([[2.0]]), "values", 1.0, 1.0)
        >>> round(float(posterior.arrays["variances"][0, 0]), 4)
        0.2

    Source: D. J. C. MacKay, "Bayesian Interpolation", 1992; E. Daxberger et al.,
    "Laplace Redux", 2021.
    """
    weights = weights.astype(np.float64)
    values, vectors = curvature.eigenvalues
    length, has_noise = float((weights**2).sum()), family == "values"
    outputs = curvature.rows * weights.shape[1]

    def evidence(log_prior: float, log_noise: float) -> float:
        prior, variance = math.exp(log_prior), math.exp(log_noise)
        fit = curvature.fit
        if has_noise:
            fit = -0.5 * (
                outputs * (math.log(2 * math.pi) + log_noise) + fit / variance
            )
        volume = np.log1p(values / (variance * prior)).sum()
        return fit - 0.5 * float(volume + prior * length)

    numbers = [prior_precision, noise if has_noise else 1.0]
    fixed = [None if v is None else math.log(v) for v in numbers]
    guesses = [weights.size / max(length, _TINY)]
    guesses.append(max(curvature.fit / outputs, _TINY) if has_noise else 1.0)
    logs = _maximum(evidence, fixed, [math.log(v) for v in guesses])
    prior, variance = math.exp(logs[0]), math.exp(logs[1])
    spread = 1 / (values / variance + prior)  # of the posterior, in its basis
    if curvature.structure == "full":
        covariance = (vectors[0] * spread) @ vectors[0].T
        arrays = {"covariance": covariance.reshape(*weights.shape, *weights.shape)}
    else:
        bases = zip(("inside", "outside"), vectors, strict=False)
        arrays = {"variances": spread, **dict(bases)}
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    facts = prior, variance, evidence(*logs)
    return Posterior(curvature.structure, *facts, arrays)


def _maximum(
    function: Callable[..., float], logs: list[float | None], guesses: list[float]
) -> list[float]:
    """The arguments of a function at its maximum, of which some are fixed.

    Args:
        guesses: Around which those that are ``None`` are looked for.
    """
    free = [place for place, value in enumerate(logs) if value is None]
    start = np.array([guesses[place] for place in free])

    def fill(values: Any) -> list[float]:
        found = iter(values)
        return [float(next(found)) if value is None else value for value in logs]

    if not free:
        return fill([])
    best = scipy.optimize.minimize(
        lambda values: -function(*fill(values)),
        start,
        method="Nelder-Mead",
        bounds=[(value - _REACH, value + _REACH) for value in start],
        options={"xatol": 1e-6, "fatol": 1e-9, "maxiter": 2000},
    )
    return fill(best.x)
