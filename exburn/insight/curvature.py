"""How a loss bends around a model's weights: ``model.curvature(x, y)``."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

from exburn.core.checks import check_choice, check_count, check_seed
from exburn.data import ArrayDataset
from exburn.diagnostics.differences import precise
from exburn.diagnostics.finding import prepared_aside
from exburn.errors import ArgumentError, DataError
from exburn.insight.insight import Insight
from exburn.insight.requirements import require_compiled_loss, require_trained_weights
from exburn.losses.residual import equation_of
from exburn.models.network import Network
from exburn.models.session import require_trainer
from exburn.ops.derivatives import refused_derivatives
from exburn.training.feed.chunking import FeedRequest, make_feed
from exburn.training.numbers import holding
from exburn.training.objective.likelihood import likelihood_loss
from exburn.training.program import Programs
from exburn.training.steps import batch_weight, inference_loss
from exburn.training.trainer import Trainer
from exburn.visualization.figures import new_axes

_DENSE = 64  # parameters up to which the whole Hessian is made
_TOLERANCE = 1e-6  # of an eigenvalue, relative to the largest

_KINDS = "hessian", "gauss_newton"

Arrays = dict[str, Any]


class Density(NamedTuple):
    """How many eigenvalues lie where, as a curve whose area is 1.

    Attributes:
        points: Places along the axis of eigenvalues.
        values: The density there.
    """

    points: np.ndarray
    values: np.ndarray


class Estimate(NamedTuple):
    """A mean of random samples.

    Attributes:
        value: The mean.
        error: Its standard error.
    """

    value: float
    error: float


class Curvature(Insight):
    """A matrix of second derivatives of a loss, as products with vectors.

    It is the Hessian at the model's weights, or its Gauss-Newton part.

    It keeps a copy of the weights and the rows as they were. One that was loaded has
    the numbers that were computed before it was saved.

    Args:
        parameters, rows, loss, gradient_norm, matrix: The attributes of that name.
        operator: The products; ``None`` of one that was loaded.

    Attributes:
        matrix: ``"hessian"`` or ``"gauss_newton"``.
        parameters: Number of trained numbers, the matrix's width.
        rows: Number of rows of the data.
        loss: The mean loss.
        gradient_norm: Length of its gradient: small at a minimum.
        eigenvalues: The largest that ``top`` was last asked for, or ``None``.
        trace_estimate: What ``trace`` last returned, or ``None``.
        spectrum: What ``density`` last returned, or ``None``.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse", seed=0)
        >>> x = np.array([[1.0, 0.0], [0.0, 1.0]])
        >>> model.curvature(x, x[:, :1]).parameters
        3
    """

    kind: ClassVar[str] = "curvature"

    def __init__(
        self,
        parameters: int,
        rows: int,
        loss: float,
        gradient_norm: float,
        operator: _Operator | None = None,
        matrix: str = "hessian",
    ):
        self.matrix = matrix
        self.parameters, self.rows = parameters, rows
        self.loss, self.gradient_norm = loss, gradient_norm
        self.eigenvalues: np.ndarray | None = None
        self.trace_estimate: Estimate | None = None
        self.spectrum: Density | None = None
        self._operator = operator

    def product(self, vector: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The matrix times a vector.

        Args:
            vector: An array for each trained weight, by its path and of its shape.

        Raises:
            ArgumentError: Paths or shapes are others, or the object was loaded.
        """
        operator = self._require_operator("product")
        return operator.unflatten(operator.apply(operator.flatten(vector)))

    def top(self, k: int = 1, *, vectors: bool = False, seed: int = 0) -> Any:
        """The ``k`` largest eigenvalues, the largest first.

        Args:
            vectors: Whether to return eigenvectors, too: of each eigenvalue a
                dictionary of arrays by the paths of weights, of length 1.
            seed: Of the vector that the search begins with.

        Returns:
            The eigenvalues ``[k]``, or ``(eigenvalues, eigenvectors)``.

        Raises:
            ArgumentError: ``k`` is out of range, the search does not converge, or the
                object was loaded.
        """
        op = "Curvature.top"
        operator = self._require_operator("top")
        k, seed = check_count(op, "k", k), check_seed(op, seed) or 0
        if k > self.parameters:
            raise ArgumentError(
                op, f"k is {k}, of a Hessian with {self.parameters} eigenvalues"
            )
        values, columns = largest_eigenpairs(
            operator.apply, self.parameters, k, np.random.default_rng(seed)
        )
        self.eigenvalues = values
        if not vectors:
            return values
        return values, [operator.unflatten(column) for column in columns.T]

    def trace(self, samples: int = 32, *, seed: int = 0) -> Estimate:
        """The sum of all eigenvalues, estimated from products with random signs.

        Args:
            samples: Number of products, two at least.
            seed: Of the signs.

        Returns:
            ``(value, error)``: the mean of the samples, and its standard error.

        Raises:
            ArgumentError: An argument is out of range, or the object was loaded.

        Source: M. F. Hutchinson, "A Stochastic Estimator of the Trace of the Influence
        Matrix", 1989.
        """
        op = "Curvature.trace"
        operator = self._require_operator("trace")
        samples = check_count(op, "samples", samples, 2)
        seed = check_seed(op, seed) or 0
        draws, values = np.random.default_rng(seed), []
        for _ in range(samples):
            signs = draws.choice([-1.0, 1.0], self.parameters)
            values.append(signs @ operator.apply(signs))
        error = float(np.std(values, ddof=1) / math.sqrt(samples))
        self.trace_estimate = Estimate(float(np.mean(values)), error)
        return self.trace_estimate

    def density(
        self,
        steps: int = 64,
        *,
        samples: int = 4,
        points: int = 200,
        seed: int = 0,
    ) -> Density:
        """How the eigenvalues are distributed, by stochastic Lanczos quadrature.

        Args:
            steps: Products of a sample; as many eigenvalues stand for all.
            samples: Random vectors whose spectra are averaged.
            points: Number of places at which the density is told.
            seed: Of the vectors.

        Returns:
            ``(points, values)``, whose area is 1. Each eigenvalue is drawn as a bell
            a fiftieth of the whole range wide.

        Raises:
            ArgumentError: An argument is out of range, or the object was loaded.

        Source: B. Ghorbani, S. Krishnan, Y. Xiao, "An Investigation into Neural Net
        Optimization via Hessian Eigenvalue Density", 2019.
        """
        op = "Curvature.density"
        operator = self._require_operator("density")
        counts = {"steps": steps, "samples": samples, "points": points}
        for name, value in counts.items():
            check_count(op, name, value, 2 if name == "points" else 1)
        draws = np.random.default_rng(check_seed(op, seed) or 0)
        values, weights = [], []
        for _ in range(samples):
            start = draws.standard_normal(self.parameters)
            own, shares = lanczos_quadrature(operator.apply, start, steps)
            values.append(own)
            weights.append(shares / samples)
        self.spectrum = _smooth(np.concatenate(values), np.concatenate(weights), points)
        return self.spectrum

    def text(self) -> str:
        if self.matrix == "gauss_newton":
            return (
                "The Gauss-Newton part of the second derivatives of the mean loss of "
                f"{self.rows:,} rows by {self.parameters:,} trained numbers: that of "
                "the loss by the model's outputs, as if these were linear in the "
                "weights. It has no negative eigenvalue where the loss is convex in "
                "the outputs; penalties are not in it."
            )
        return (
            f"Second derivatives of the mean loss of {self.rows:,} rows by "
            f"{self.parameters:,} trained numbers, at the weights as they were. The "
            "loss has the penalties of regularizers in it, and the pass is one at "
            "inference, without dropout. A large top eigenvalue is a sharp direction: "
            "gradient descent is stable there with rates below 2 divided by it."
        )

    def table(self) -> Table:
        table = Table(title="Curvature of the loss", title_justify="left")
        table.add_column("Number")
        table.add_column("Value", justify="right")
        table.add_row("loss", f"{self.loss:.6g}")
        table.add_row("length of the gradient", f"{self.gradient_norm:.4g}")
        if self.trace_estimate is not None:
            value, error = self.trace_estimate
            table.add_row("trace", f"{value:.4g} ± {error:.2g}")
        if self.eigenvalues is not None:
            for place, value in enumerate(self.eigenvalues, 1):
                table.add_row(f"eigenvalue {place}", f"{value:.6g}")
        return table

    def plot(self) -> Any:
        """Draws the density, or else the eigenvalues that ``top`` found.

        Returns:
            The ``matplotlib.figure.Figure``.

        Raises:
            ArgumentError: Neither ``density`` nor ``top`` was called.
            MissingDependencyError: matplotlib is not installed.
        """
        if self.eigenvalues is None and self.spectrum is None:
            raise ArgumentError(
                "Curvature.plot",
                "there are no eigenvalues yet",
                hint="Call top(k) or density().",
            )
        figure, axes = new_axes("Curvature.plot")
        if self.spectrum is not None:
            axes.semilogy(*self.spectrum)
            top = float(np.max(self.spectrum.values))
            axes.set_ylim(top * 1e-6, top * 2)  # a single one of a million is seen
            axes.set_xlabel("eigenvalue")
            axes.set_title("Density of the eigenvalues", loc="left")
            return figure
        assert self.eigenvalues is not None
        axes.plot(range(1, len(self.eigenvalues) + 1), self.eigenvalues, "o-")
        axes.set_xlabel("eigenvalue, the largest first")
        axes.set_title("Curvature of the loss", loc="left")
        return figure

    def to_content(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        counts: dict[str, Any] = {"parameters": self.parameters, "rows": self.rows}
        counts["matrix"] = self.matrix
        arrays = {"numbers": np.asarray([self.loss, self.gradient_norm])}
        if self.eigenvalues is not None:
            arrays["eigenvalues"] = self.eigenvalues
        if self.trace_estimate is not None:
            arrays["trace"] = np.asarray(self.trace_estimate)
        if self.spectrum is not None:
            arrays |= {f"density_{n}": v for n, v in self.spectrum._asdict().items()}
        return counts, arrays

    @classmethod
    def from_content(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> Self:
        op = "Curvature.load"
        parameters = check_count(op, "parameters", settings["parameters"])
        rows = check_count(op, "rows", settings["rows"])
        matrix = check_choice(op, "matrix", settings["matrix"], _KINDS)
        of_density = {f"density_{name}" for name in Density._fields}
        if set(arrays) - {"numbers", "eigenvalues", "trace", *of_density}:
            raise ValueError("it has arrays of no curvature")
        for values in arrays.values():
            if values.dtype != np.float64 or values.ndim != 1:
                raise ValueError("its arrays are no float64 numbers in a row")
        loss, gradient_norm = map(float, arrays["numbers"])
        curvature = cls(parameters, rows, loss, gradient_norm, matrix=matrix)
        if "eigenvalues" in arrays:
            curvature.eigenvalues = arrays["eigenvalues"]
            if not 1 <= len(curvature.eigenvalues) <= curvature.parameters:
                raise ValueError("it has another number of eigenvalues")
        if "trace" in arrays:
            value, error = map(float, arrays["trace"])
            curvature.trace_estimate = Estimate(value, error)
        if of_density & set(arrays):
            points, values = (arrays[f"density_{name}"] for name in Density._fields)
            if points.shape != values.shape:
                raise ValueError("its density has other places than values")
            curvature.spectrum = Density(points, values)
        return curvature

    def _require_operator(self, name: str) -> _Operator:
        if self._operator is None:
            raise ArgumentError(
                f"Curvature.{name}",
                "a curvature that was loaded has its numbers, and no model",
                hint="model.curvature(x, y)",
            )
        return self._operator


def curvature(
    self: Network,
    x: Any,
    y: Any = None,
    *,
    matrix: str = "hessian",
    sample_weight: Any = None,
    batch_size: int | None = None,
) -> Curvature:
    """Makes the Hessian of the mean loss by the trained weights, as a function.

    The loss is that of ``evaluate``: with the penalties of regularizers, in a pass at
    inference, where dropout is off and ``BatchNormalization`` uses its running
    statistics. A product with a vector goes over all rows, batch by batch, in one
    compiled program. Weights and rows are copied, and stay on the device as long as the
    object lives; the model is as it was.

    Args:
        x, y, sample_weight: Data as of ``fit``, as arrays.
        matrix: ``"hessian"``, or ``"gauss_newton"``: ``Jᵀ H J`` of the outputs'
            derivatives by the weights and the second ones of the loss by the outputs.
        batch_size: Rows of a batch; they bound the memory.

    Returns:
        The curvature: ``.top(k)``, ``.trace()``, ``.density()``, ``.product(vector)``.

    Raises:
        NotCompiledError: ``compile`` was not called.
        ArgumentError: The model trains nothing, has its own ``train_step``, weights
            that are no float32 or float64, or a layer without second derivatives, as
            an ``ODE`` without ``adjoint="direct"``; the loss is not one of the outputs
            alone, whose Gauss-Newton matrix is asked for.
        UnknownNameError: There is no such matrix.
        DataError, ShapeError, TargetError: The data do not fit the model.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> x = np.array([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        >>> curvature = model.curvature(x, np.ones((4, 1)))
        >>> curvature.top(3).round(4).tolist()
        [4.0, 2.0, 1.0]
    """
    op = "curvature"
    matrix = check_choice(op, "matrix", matrix, _KINDS)
    trainer = require_trainer(self, op)
    require_compiled_loss(self, op)
    if matrix == "gauss_newton":
        _check_outputs_alone(self, trainer)
    with prepared_aside(self, op, x, y, sample_weight, batch_size) as data:
        if not isinstance(data.dataset, ArrayDataset):
            raise DataError(
                op,
                "the rows must be arrays of one length, received a loader of batches, "
                "or rows of unlike lengths",
                hint="Take some rows of it: curvature(x[:1000], y[:1000]).",
            )
        _check_weights(trainer)
        operator = _Operator(trainer, data.dataset, data.batch_size, matrix)
    loss, gradient = operator.loss_and_gradient()
    if not math.isfinite(loss):
        raise DataError(op, f"the mean loss of the rows is {loss}")
    norm = float(np.linalg.norm(gradient))
    size, rows = operator.size, data.dataset.size
    return Curvature(size, rows, loss, norm, operator, matrix)


def _check_outputs_alone(model: Network, trainer: Trainer) -> None:
    """Raises unless the loss is a function of outputs and targets."""
    losses = trainer.preparer.objective.losses
    reasons = {
        "compute_loss": getattr(model, "own_compute_loss", None) is not None,
        "a loss that has an equation in it": equation_of(losses) is not None,
        "a loss of log-probabilities": likelihood_loss(losses) is not None,
    }
    for name, holds in reasons.items():
        if holds:
            raise ArgumentError(
                "curvature",
                f"a Gauss-Newton matrix is of a loss of outputs alone, not of {name}",
                hint="matrix='hessian' takes any loss.",
            )


def _check_weights(trainer: Trainer) -> None:
    """Raises where the Hessian is none; nothing is compiled yet."""
    require_trained_weights(trainer, "curvature")
    for path, value in trainer.holder.split.read()[0].items():
        if value.dtype not in (np.float32, np.float64):
            raise ArgumentError(
                "curvature",
                "trained weights must be float32 or float64",
                {"weight": path, "dtype": str(value.dtype)},
            )


class _Operator:
    """Products of a Hessian with flat vectors of float64, at arrays of its own."""

    def __init__(
        self, trainer: Trainer, dataset: ArrayDataset, batch_size: int, matrix: str
    ):
        holder, preparer = trainer.holder, trainer.preparer
        self._placement, programs = holder.placement, preparer.programs
        self._arrays = jax.tree.map(jnp.copy, holder.split.read())
        self._params: Arrays = self._arrays[0]
        self.size = sum(value.size for value in self._params.values())
        totals = preparer.fresh_totals("test")
        self._totals = jax.tree.map(jnp.copy, totals)
        make = hessian_product if matrix == "hessian" else gauss_newton_product
        self._program = programs.further(f"curvature_{matrix}", lambda: make(programs))
        request = FeedRequest(training=True, resident=False)
        feed = make_feed(preparer, dataset, batch_size, request)
        self._chunks: list[tuple] = []
        try:
            with self._placement.scope():
                for chunk in feed.epoch(holder.seed, 0):
                    # A feed writes to its memory again.
                    arguments = jax.tree.map(jnp.copy, chunk.arguments)
                    self._chunks.append((*arguments, len(self._chunks)))
        finally:
            feed.close()

    def apply(self, vector: np.ndarray) -> np.ndarray:
        return self._run(vector)[2]

    def loss_and_gradient(self) -> tuple[float, np.ndarray]:
        loss, gradient, _ = self._run(np.zeros(self.size))
        return loss, gradient

    def _run(self, vector: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        by_path = self._put(vector)
        weight, loss = 0.0, 0.0
        gradient, product = np.zeros(self.size), np.zeros(self.size)
        for chunk in self._chunks:
            with self._placement.scope():
                model = self._arrays, by_path, self._totals
                args, _ = self._placement.bind((*model, *chunk), 3)
                with refused_derivatives("curvature"):
                    sums = jax.device_get(self._program(*args))
            weight, loss = weight + float(sums[0]), loss + float(sums[1])
            gradient += self.flatten(sums[2])
            product += self.flatten(sums[3])
        return loss / weight, gradient / weight, product / weight

    def flatten(self, arrays: Mapping[str, Any]) -> np.ndarray:
        """Arrays by path as one vector of float64."""
        own = {path: value.shape for path, value in self._params.items()}
        shapes = {path: np.shape(value) for path, value in arrays.items()}
        if odd := own.items() ^ shapes.items():
            path = min(path for path, _ in odd)
            raise ArgumentError(
                "Curvature.product",
                "a vector has an array for each trained weight, of its shape: "
                f"{path} differs",
                {"weights": own, "received": shapes},
            )
        parts = [np.asarray(arrays[p], np.float64).ravel() for p in self._params]
        return np.concatenate(parts)

    def unflatten(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        parts, start = {}, 0
        for path, value in self._params.items():
            part = vector[start : start + value.size]
            parts[path] = part.reshape(value.shape).astype(value.dtype)
            start += value.size
        return parts

    def _put(self, vector: np.ndarray) -> Arrays:
        return {
            path: jax.device_put(part, self._params[path].sharding)
            for path, part in self.unflatten(vector).items()
        }


def hessian_product(programs: Programs) -> Callable:
    """A pure function: sums over a chunk's batches of what each counts for, and, times
    that, of losses, gradients and products of Hessians with a vector.
    """
    steps = programs.steps

    def of_batch(groups, vector, totals, batch, row_mask, key):
        params, *others = groups

        def loss(params):
            seen = inference_loss(
                steps, (params, *others), totals, batch, row_mask, key
            )
            value, outputs, _, masks, _ = seen
            parts = steps.objective, batch, row_mask, outputs, masks
            weight = jax.lax.stop_gradient(jnp.float32(batch_weight(*parts)))
            return jnp.sum(value) * weight, weight

        def gradient(params):
            (value, weight), grads = jax.value_and_grad(loss, has_aux=True)(params)
            return grads, (weight, value)

        grads, bends, sums = jax.jvp(gradient, (params,), (vector,), has_aux=True)
        return *sums, grads, bends

    return _over_batches(programs, of_batch)


def gauss_newton_product(programs: Programs) -> Callable:
    """As ``hessian_product``, of Gauss-Newton matrices in the place of Hessians."""
    steps = programs.steps

    def of_batch(groups, vector, totals, batch, row_mask, key):
        del totals
        params, *others = groups
        x, y, w = batch

        def outputs(params):
            options = {"training": False, "key": key, "row_mask": row_mask}
            values, _, ctx = steps.split.forward((params, *others), x, **options)
            return values, ctx.attachments(values)[1]

        preds, bends, masks = jax.jvp(outputs, (params,), (vector,), has_aux=True)
        _, back, _ = jax.vjp(outputs, params, has_aux=True)
        plain = preds, [None] * len(masks)
        parts = steps.objective, batch, row_mask, plain, masks
        weight = jax.lax.stop_gradient(jnp.float32(batch_weight(*parts)))

        def loss(preds):
            plain = preds, [None] * len(masks)
            value, _ = steps.objective.loss(y, plain, w, masks, row_mask)
            return jnp.sum(value) * weight

        (value, slopes), (_, turns) = jax.jvp(
            jax.value_and_grad(loss), (preds,), (bends,)
        )
        return weight, value, back(slopes)[0], back(turns)[0]

    return _over_batches(programs, of_batch)


def _over_batches(programs: Programs, of_batch: Callable) -> Callable:
    """The sums over a chunk's batches of what ``of_batch`` gives of each."""
    steps = programs.steps

    def product(arrays, vector, totals, data, index, count, start):
        params, _, others = arrays

        def one(sums, batch, row_mask, rows, key, _):
            with holding(steps.split.numbers, others):
                more = of_batch(arrays, vector, totals, batch, row_mask, key)
            return jax.tree.map(jnp.add, sums, more)

        zeros = jax.tree.map(jnp.zeros_like, params)
        sums = jnp.float32(0), jnp.float32(0), zeros, zeros
        chunk = data, index, count, start
        return steps.over_batches(one, sums, *chunk, arrays=arrays)

    return precise(product)


def lanczos_quadrature(
    apply: Callable[[np.ndarray], np.ndarray], start: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues that stand for those of a symmetric operator, as a vector sees them.

    Every new vector is made orthogonal to all before it, twice.

    Args:
        start: The vector.
        steps: Products; fewer where the vector sees fewer eigenvalues.

    Returns:
        Eigenvalues, and the share of each, whose sum is 1.

    Example:
        >>> matrix = np.diag([1.0, 1.0, 5.0, 5.0])
        >>> values, shares = lanczos_quadrature(lambda v: matrix @ v, np.ones(4), 9)
        >>> values.round(4).tolist(), shares.round(4).tolist()
        ([1.0, 5.0], [0.5, 0.5])
    """
    basis = [start / np.linalg.norm(start)]
    diagonal: list[float] = []
    beside: list[float] = []
    for _ in range(min(steps, len(start))):
        bent = np.asarray(apply(basis[-1]), np.float64)
        diagonal.append(float(basis[-1] @ bent))
        columns = np.stack(basis)
        for _ in range(2):
            bent = bent - columns.T @ (columns @ bent)
        length = float(np.linalg.norm(bent))
        if length <= _TOLERANCE * max(map(abs, [*diagonal, *beside])):
            break
        beside.append(length)
        basis.append(bent / length)
    beside = beside[: len(diagonal) - 1]
    matrix = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    values, vectors = np.linalg.eigh(matrix)
    return values, vectors[0] ** 2


def _smooth(values: np.ndarray, shares: np.ndarray, points: int) -> Density:
    """Eigenvalues with shares as a density of bells."""
    low, high = float(values.min()), float(values.max())
    width = (high - low or abs(high) or 1.0) / 50
    places = np.linspace(low - 3 * width, high + 3 * width, points)
    away = (places[:, None] - values) / width
    bells = np.exp(-0.5 * away**2) / (width * math.sqrt(2 * math.pi))
    return Density(places, bells @ shares)


def largest_eigenpairs(
    apply: Callable[[np.ndarray], np.ndarray],
    size: int,
    k: int,
    draws: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues of a symmetric operator, and their vectors in columns.

    ARPACK's restarted Lanczos method searches with one vector, which sees a multiple
    eigenvalue once: what is left beside the vectors found is searched again, until it
    has nothing larger.

    Example:
        >>> matrix = np.diag(np.r_[3.0, 3.0, np.linspace(0, 1, 98)])
        >>> draws = np.random.default_rng(0)
        >>> values, _ = largest_eigenpairs(lambda v: matrix @ v, 100, 3, draws)
        >>> values.round(4).tolist()
        [3.0, 3.0, 1.0]
    """
    if size <= max(_DENSE, 2 * k + 1):
        matrix = np.stack([apply(row) for row in np.eye(size)])
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
        return values[::-1][:k].copy(), vectors[:, ::-1][:, :k]
    values, vectors = _search(apply, size, k, draws)
    scale = float(np.abs(values).max()) or 1.0

    def beside(vector: np.ndarray) -> np.ndarray:
        inside = vectors.T @ vector
        bent = apply(vector - vectors @ inside)
        return bent - vectors @ (vectors.T @ bent) - 2 * scale * (vectors @ inside)

    for _ in range(k):
        value, vector = _search(beside, size, 1, draws)
        if value[0] <= values[-1] + 10 * _TOLERANCE * scale:
            break
        values, vectors = np.r_[values, value], np.c_[vectors, vector]
        order = np.argsort(-values, kind="stable")
        values, vectors = values[order], vectors[:, order]
        if len(values) > k:
            values, vectors = values[:k], vectors[:, :k]
    return values, vectors


def _search(
    apply: Callable, size: int, k: int, draws: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    linalg: Any = importlib.import_module("scipy.sparse.linalg")  # JAX needs SciPy
    operator = linalg.LinearOperator((size, size), matvec=apply, dtype=np.float64)
    start = draws.standard_normal(size)
    if not apply(start).any():  # no curvature at all, which ARPACK refuses
        return np.zeros(k), np.linalg.qr(draws.standard_normal((size, k)))[0]
    try:
        values, vectors = linalg.eigsh(
            operator, k, which="LA", v0=start, tol=_TOLERANCE
        )
    except linalg.ArpackError as error:
        raise ArgumentError(
            "Curvature.top",
            "the search for eigenvalues does not converge",
            {"reason": str(error).strip()},
            hint="Weights and layers of few digits make products uneven: use float32.",
        ) from error
    order = np.argsort(-values, kind="stable")
    return values[order], vectors[:, order]
