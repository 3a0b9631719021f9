"""Autodiff against differences, parameter by parameter."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from exburn.core.checks import check_count, check_number
from exburn.diagnostics.differences import (
    check_real,
    coarsest,
    default_epsilon,
    gradients_of,
    loss_of,
    numerical,
    on_device,
    precise,
    prepare_batch,
)
from exburn.errors import ArgumentError
from exburn.errors.boundary import api_boundary

_OTHER = {"numerical": "numerical_batch", "numerical_batch": "numerical"}


@dataclasses.dataclass(frozen=True)
class GradientRow:
    """One parameter of a `GradientCheck`.

    Attributes:
        path: Of the parameter.
        checked: Number of elements that were compared.
        corners: Number of those left out, because a corner of the loss (of a ReLU, say)
            lies within the step.
        error: Largest difference between the two gradients.
        size: Largest absolute value of the exact one.
        relative: ``error`` as a share of ``size``, rounding of the loss taken off.
    """

    path: str
    checked: int
    corners: int
    error: float
    size: float
    relative: float


@dataclasses.dataclass(frozen=True)
class GradientCheck:
    """How far autodiff and differences lie apart, parameter by parameter.

    Attributes:
        rows: One for each trained parameter.
        tolerance: What ``relative`` may be.
    """

    rows: tuple[GradientRow, ...]
    tolerance: float

    @property
    def worst(self) -> GradientRow:
        """The parameter with the largest relative error."""
        return max(self.rows, key=lambda r: np.nan_to_num(r.relative, nan=np.inf))

    @property
    def ok(self) -> bool:
        """Whether every parameter is within the tolerance."""
        return bool(self.worst.relative <= self.tolerance)

    def __str__(self) -> str:
        width = max(len(row.path) for row in self.rows)
        names = "checked  corners     error      size  relative"
        lines = [f"{'parameter':{width}}  {names}"]
        lines += [
            f"{r.path:{width}}  {r.checked:7}  {r.corners:7}  {r.error:8.1e}  "
            f"{r.size:8.1e}  {r.relative:8.1e}{' ← worst' if r is self.worst else ''}"
            for r in self.rows
        ]
        return "\n".join(lines)


@api_boundary
def check_gradients(
    model: Any,
    batch: Any,
    *,
    method: str = "numerical",
    epsilon: float | None = None,
    elements: int | None = 100,
    tolerance: float | None = None,
    seed: int = 0,
) -> GradientCheck:
    """Compares autodiff with differences, parameter by parameter.

    A layer whose ``jax.custom_vjp`` is wrong, or that cuts the gradient by accident,
    shows up by name. Elements with a corner within the step, where the two differ by
    right, are left out and counted.

    Args:
        model: A compiled model.
        batch: ``(x, y)`` or ``(x, y, sample_weight)``.
        method: ``"numerical"`` or ``"numerical_batch"``.
        epsilon: Step of the differences; `default_epsilon` by default.
        elements: How many of each parameter's elements are compared; None for all.
        tolerance: Largest relative error; 0.05, or 0.2 where 16-bit floats are used.
        seed: Of the choice of elements.

    Raises:
        UnknownNameError: An unknown method.
        NotCompiledError: ``compile`` was not called.
        ArgumentError: A number can never work, or no parameter is trained.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse", seed=0)
        >>> found = check_gradients(model, (np.ones((4, 2)), np.zeros((4, 1))))
        >>> found.ok, found.worst.path in ("dense/kernel", "dense/bias")
        (True, True)
    """
    if method == "autodiff":
        raise ArgumentError(
            "check_gradients",
            "autodiff is what is checked: method must be another one",
            hint='Use method="numerical" or method="numerical_batch".',
        )
    if elements is not None:
        elements = check_count("check_gradients", "elements", elements)
    if tolerance is not None:
        tolerance = check_number(
            "check_gradients", "tolerance", tolerance, open_low=True
        )
    seed = check_count("check_gradients", "seed", seed, 0)
    trainer, tree = prepare_batch(model, batch, "check_gradients", method)
    programs, data = trainer.preparer.programs, on_device(tree)
    state = trainer.preparer.initial_state()
    if not any(value.size for value in state.params.values()):
        raise ArgumentError(
            "check_gradients",
            "there is nothing to check: no parameter of the model is trained",
            hint='model.unfreeze("*") trains them all.',
        )
    check_real(state.params)
    exact = programs.further(
        "precise gradients", lambda: precise(gradients_of(programs))
    )(state, data)
    rng = np.random.default_rng(seed)
    chosen = {
        name: np.sort(rng.permutation(v.size)[: elements or v.size]).astype(np.int32)
        for name, v in state.params.items()
        if v.size
    }
    coarse = coarsest(state.params, model.compute_dtype)
    unit = float(jnp.finfo(coarse).eps)
    if tolerance is None:
        tolerance = 0.2 if unit > 1e-4 else 0.05
    loss = float(programs.further("loss", lambda: loss_of(programs))(state, data))
    step = default_epsilon(coarse, method)
    if epsilon is not None:
        step = check_number("check_gradients", "epsilon", epsilon, open_low=True)

    def slopes(method: str, step: float) -> dict[str, np.ndarray]:
        quotients = numerical(
            programs, state, data, method, step, model.compute_dtype, chosen=chosen
        )
        return {
            name: np.asarray(value, np.float64) for name, value in quotients.items()
        }

    noise = 8 * unit * max(abs(loss), 1.0) / step
    grads = {
        name: np.asarray(exact[name], np.float64).ravel()[indices]
        for name, indices in chosen.items()
    }
    # Where two steps give two slopes there is a corner of ReLU or max between them.
    wide, close = slopes(method, step), slopes(method, step / 4)
    allowed = {name: noise + tolerance / 5 * np.abs(c) for name, c in close.items()}
    corners = {n: np.abs(wide[n] - c) > allowed[n] for n, c in close.items()}
    check = _compare(grads, close, corners, noise, tolerance)
    if check.ok:
        return check
    # A corner at the weight itself bends both steps alike. There autodiff has the slope
    # of one side, or one between both.
    other = slopes(_OTHER[method], step / 4)
    for name, a in grads.items():
        central, right = close[name], other[name]
        if method == "numerical_batch":
            central, right = right, central
        between = np.abs(a - central) <= np.abs(right - central) + noise
        corners[name] |= between & (np.abs(a - close[name]) > allowed[name])
    return _compare(grads, close, corners, noise, tolerance)


def _compare(
    grads: dict[str, np.ndarray],
    slopes: dict[str, np.ndarray],
    corners: dict[str, np.ndarray],
    noise: float,
    tolerance: float,
) -> GradientCheck:
    """The check without the elements at corners, unless a parameter has only these."""
    rows = []
    for name, a in grads.items():
        smooth = ~corners[name] if not corners[name].all() else slice(None)
        a, c = a[smooth], slopes[name][smooth]
        error = float(np.abs(a - c).max())
        size = float(max(np.abs(a).max(), np.abs(c).max()))
        relative = max(error - noise, 0.0) / size if size else 0.0
        if not np.isfinite(error):
            relative = float("nan")
        left_out = len(grads[name]) - len(a)
        rows.append(GradientRow(name, len(a), left_out, error, size, relative))
    return GradientCheck(tuple(rows), tolerance)
