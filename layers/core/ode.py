"""Layers whose output is the solution of a differential equation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core import forward_context
from exburn.core.checks import check_choice, check_count, check_number
from exburn.core.precision import DTypePolicy
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError, ShapeError, require, warn
from exburn.layers.contract.host import is_traced
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions
from exburn.module.stateless import bind_arrays
from exburn.module.traversal import iter_modules

_SOLVERS = {
    "tsit5": "Tsit5",
    "dopri5": "Dopri5",
    "dopri8": "Dopri8",
    "bosh3": "Bosh3",
    "heun": "Heun",
    "midpoint": "Midpoint",
    "euler": "Euler",
    "kvaerno3": "Kvaerno3",
    "kvaerno5": "Kvaerno5",
}
_IMPLICIT = ("kvaerno3", "kvaerno5")
_ADJOINTS = {
    "recursive": "RecursiveCheckpointAdjoint",
    "backsolve": "BacksolveAdjoint",
    "direct": "DirectAdjoint",
}


@register_builtin
class ODE(Layer):
    """Integrates ``dy/dt = dynamics(t, y)`` from the input, ``y(t0)``, to ``y(t1)``.

    ``dynamics`` is a layer or a model whose output has the shape of ``y``. It is called
    as its signature says: a model of two inputs as ``dynamics([t, y])``, a layer whose
    ``call`` has parameters ``t`` and ``y`` as ``dynamics(t, y)``, others as
    ``dynamics(y)``; ``t`` has the shape ``[batch, 1]``. It must be a function of these:
    random numbers, statistics that it changes and losses that it adds are refused.

    Each row has its own steps, so its result does not depend on the other rows. State,
    time and dynamics are computed in float32 at least, whatever the policy. Second
    derivatives, and those of forward mode, need ``adjoint="direct"``.

    Args:
        dynamics: The right side of the equation, kept as ``self.dynamics``.
        t1: When the integration ends; the last of ``save_at`` by default, else 1. It
            may lie before ``t0``.
        t0: When it begins.
        save_at: Times whose states are returned, in order from ``t0`` to ``t1``; if
            None, only the last state is.
        solver: ``"tsit5"``, ``"dopri5"``, ``"dopri8"``, ``"bosh3"``, ``"heun"``,
            ``"midpoint"``, ``"euler"`` (with ``step_size`` only), and for stiff
            equations ``"kvaerno3"`` and ``"kvaerno5"`` (without).
        rtol: Relative tolerance of a step.
        atol: Absolute tolerance of a step.
        step_size: A fixed step, instead of steps chosen by the tolerances.
        max_steps: Steps that a row may take. The whole result of a row that needs more
            is NaN, and so are its gradients; a call outside of programs warns of it.
        adjoint: How gradients are computed: ``"recursive"`` goes back through the steps
            with checkpoints, ``"direct"`` keeps all of them, ``"backsolve"`` solves the
            adjoint equation backward: the least memory, and gradients that are only
            near those of the steps.

    Shape:
        y: [batch, …] → [batch, …], or [batch, times, …] with ``save_at``

    Raises:
        ArgumentError: An argument has another form, or ``dynamics`` is no function of
            time and state.
        ShapeError: ``dynamics`` returns another shape than that of ``y``.
        MissingDependencyError: ``diffrax`` is not installed.

    Example:
        >>> import numpy as np
        >>> from exburn.layers import Dense
        >>> layer = ODE(Dense(2), t1=1.0, save_at=[0.0, 0.5, 1.0])
        >>> layer(np.ones((4, 2), "float32")).shape
        (4, 3, 2)

    Source: Chen et al., *Neural Ordinary Differential Equations*, 2018; the solvers
    are those of Kidger's *diffrax*.
    """

    def __init__(
        self,
        dynamics: Any,
        t1: float | None = None,
        *,
        t0: float = 0.0,
        save_at: Sequence[float] | None = None,
        solver: str = "tsit5",
        rtol: float = 1e-5,
        atol: float = 1e-6,
        step_size: float | None = None,
        max_steps: int = 4096,
        adjoint: str = "recursive",
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        if not isinstance(dynamics, Layer):
            raise ArgumentError(
                "ODE",
                f"dynamics is a layer or a model, received {type(dynamics).__name__}",
                hint="layers.Lambda(function) makes a layer of a function of y.",
            )
        if dynamics.is_model and _way(dynamics) == "two":
            raise ArgumentError(
                "ODE",
                "a model whose call takes t and y is not called on both",
                hint="Model([t, y], outputs) is, and so is a Layer with such a call.",
            )
        require("diffrax", "ODE", "diffrax integrates the equation", extra="ode")
        self.dynamics = dynamics
        self.t0 = _check_time("t0", t0)
        self.save_at = None if save_at is None else _check_times(save_at)
        if t1 is None:
            t1 = 1.0 if self.save_at is None else self.save_at[-1]
        self.t1 = _check_time("t1", t1)
        if self.t0 == self.t1:
            raise ArgumentError("ODE", f"t0 and t1 must differ, both are {self.t0}")
        self.solver = check_choice("ODE", "solver", solver, _SOLVERS)
        self.adjoint = check_choice("ODE", "adjoint", adjoint, _ADJOINTS)
        self.rtol = check_number("ODE", "rtol", rtol)
        self.atol = check_number("ODE", "atol", atol)
        self.max_steps = check_count("ODE", "max_steps", max_steps)
        self.step_size = step_size
        if step_size is not None:
            self.step_size = check_number("ODE", "step_size", step_size, open_low=True)
        self._check_steps()

    def _check_steps(self) -> None:
        sign = math.copysign(1.0, self.t1 - self.t0)
        times = [self.t0, *(self.save_at or ()), self.t1]
        steps = [(b - a) * sign for a, b in zip(times, times[1:], strict=False)]
        if min(steps) < 0 or 0 in steps[1:-1]:
            raise ArgumentError(
                "ODE",
                "the times of save_at must go from t0 to t1, each once",
                {"t0": self.t0, "save_at": self.save_at, "t1": self.t1},
            )
        if self.step_size is None:
            if self.solver == "euler":
                raise ArgumentError("ODE", 'solver "euler" needs a step_size')
            if self.rtol == self.atol == 0:
                raise ArgumentError("ODE", "one of rtol and atol must be > 0")
            return
        if self.solver in _IMPLICIT:
            raise ArgumentError(
                "ODE", f"solver {self.solver!r} chooses its steps: no step_size"
            )
        needed = math.ceil(abs(self.t1 - self.t0) / self.step_size)
        if needed > self.max_steps:
            raise ArgumentError(
                "ODE",
                f"step_size {self.step_size} needs {needed} steps from t0 to t1, "
                f"max_steps is {self.max_steps}",
            )

    def build(self, input_shape):
        if not isinstance(input_shape, tuple) or len(input_shape) < 2:
            raise ShapeError(
                self.name, f"an input [batch, …] is needed, received {input_shape}"
            )
        if self.dynamics.built:
            return
        time, way = (input_shape[0], 1), _way(self.dynamics)
        if way == "one":
            self.dynamics.build(input_shape)
        elif way == "pair":
            self.dynamics.build([time, input_shape])
        else:
            self.dynamics.build(time, input_shape)

    def call(self, inputs, training=False):
        dtype = jnp.promote_types(self.compute_dtype, jnp.float32)
        y = jnp.asarray(inputs).astype(dtype)
        ctx = forward_context.current()
        real = jnp.ones(y.shape[0], bool)
        if ctx is not None and ctx.row_mask is not None:
            real = ctx.row_mask  # rows that fill the batch up stand still
        weights = tuple(
            [v.get_value() if hasattr(v, "get_value") else v for v in variables]
            for variables in (
                self.dynamics.trainable_variables,
                self.dynamics.non_trainable_variables,
            )
        )
        solve = self._solver(training, dtype)
        solution = jax.vmap(solve, (0, 0, None))(y, real, weights)
        if not is_traced(solution):
            self._warn_of_rows(np.isnan(solution).any(tuple(range(1, solution.ndim))))
        return self.cast(solution)

    def _warn_of_rows(self, broken: np.ndarray) -> None:
        if len(rows := np.flatnonzero(broken)):
            warn(
                f"{self.name}: {len(rows)} of {len(broken)} rows, row {rows[0]} first, "
                f"need more than max_steps={self.max_steps} and are NaN\n"
                "  → Raise max_steps or the tolerances; stiff: solver='kvaerno5'."
            )

    def _solver(self, training: Any, dtype: Any) -> Any:
        """The solution for one row, a function of its first state and the weights."""
        dfx = require("diffrax", "ODE", "diffrax integrates the equation", extra="ode")
        step, control = self.step_size, dfx.ConstantStepSize()
        if step is None:
            control = dfx.PIDController(rtol=self.rtol, atol=self.atol)
        else:
            step = math.copysign(step, self.t1 - self.t0)
        save = dfx.SaveAt(t1=True)
        if self.save_at is not None:
            save = dfx.SaveAt(ts=jnp.asarray(self.save_at, dtype))

        def field(t, y, args):
            real, weights = args
            dy = self._derivative(t, y, weights, training)
            return jnp.where(real, dy.astype(y.dtype), 0)

        def solve(y, real, weights):
            solution = dfx.diffeqsolve(
                dfx.ODETerm(field),
                getattr(dfx, _SOLVERS[self.solver])(),
                t0=jnp.asarray(self.t0, dtype),
                t1=jnp.asarray(self.t1, dtype),
                dt0=step,
                y0=y,
                args=(real, weights),
                saveat=save,
                stepsize_controller=control,
                adjoint=getattr(dfx, _ADJOINTS[self.adjoint])(),
                max_steps=self.max_steps,
                throw=False,
            )
            ys = solution.ys if self.save_at is not None else solution.ys[0]
            reached = solution.result == dfx.RESULTS.successful
            # A product: the gradients of a row without a solution are NaN, too.
            return ys * jnp.where(reached, 1, jnp.nan).astype(ys.dtype)

        return solve

    def _derivative(self, t: Any, y: Any, weights: Any, training: Any) -> Any:
        """The right side for one row, by the dynamics with these weights."""
        with bind_arrays(
            self.dynamics, *weights, training=bool(training), op="ODE"
        ) as run:
            for _, part in iter_modules(run.copy):
                if hasattr(part, "_policy"):
                    part._policy = DTypePolicy(jnp.dtype(y.dtype).name)
            time = jnp.reshape(t, (1, 1)).astype(y.dtype)
            before = [v.get_value() for v, is_seed in run._rest if not is_seed]
            way = _way(self.dynamics)
            one = y[None]
            args = {"pair": ([time, one],), "two": (time, one), "one": (one,)}[way]
            kwargs = {}
            if self.dynamics._call_info.takes_training:
                kwargs["training"] = training
            dy = run.copy._call_arrays(run.copy._enter(run.ctx, args), kwargs)
            after = [v.get_value() for v, is_seed in run._rest if not is_seed]
            changed = any(a is not b for a, b in zip(before, after, strict=True))
            if run.ctx.drew or changed or run.ctx.losses:
                what = (
                    "draw random numbers"
                    if run.ctx.drew
                    else "change their weights"
                    if changed
                    else "add losses"
                )
                raise ArgumentError(
                    self.name,
                    f"the dynamics must be a function of t and y: they {what}",
                    hint="Put layers such as Dropout and BatchNormalization before or "
                    "behind the ODE.",
                )
        if not hasattr(dy, "shape") or dy.shape != one.shape:
            raise ShapeError(
                self.name,
                "the dynamics must return the shape of y",
                {"y": one.shape[1:], "returned": getattr(dy, "shape", (0, None))[1:]},
            )
        return dy[0]


def _way(dynamics: Any) -> str:
    """How the dynamics are called: on ``[t, y]``, on ``t, y``, or on ``y`` alone."""
    if dynamics.is_model and len(getattr(dynamics, "inputs", None) or ()) == 2:
        return "pair"
    return "two" if dynamics._call_info.order[:2] == ["t", "y"] else "one"


def _check_time(argument: str, value: Any) -> float:
    return check_number("ODE", argument, value, low=-math.inf)


def _check_times(values: Any) -> list[float]:
    if not isinstance(values, list | tuple | np.ndarray) or not len(values):
        raise ArgumentError("ODE", f"save_at is a list of times, received {values!r}")
    times = [_check_time("save_at", value) for value in values]
    return times
