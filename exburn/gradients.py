"""Single steps to look into: gradients, by calculus or by differences, and their time.

Example:
    >>> import numpy as np
    >>> import exburn
    >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
    >>> model.compile("adam", "cross_entropy", seed=0)
    >>> batch = np.ones((8, 4), np.float32), np.zeros(8, np.int32)
    >>> sorted(exburn.compute_gradients(model, batch))
    ['dense/bias', 'dense/kernel']
    >>> exburn.check_gradients(model, batch).ok
    True
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.dataset import ArrayDataset, as_dataset
from exburn.errors import ArgumentError, DataError, unknown_name
from exburn.flops import count
from exburn.training.memory import free_bytes
from exburn.training.program import Programs
from exburn.training.state import TrainState
from exburn.training.trainer import Trainer

__all__ = [
    "GradientCheck",
    "check_gradients",
    "compute_gradients",
    "default_epsilon",
    "profile_step",
    "train_step",
]

METHODS = ("autodiff", "numerical", "numerical_batch")
_LARGEST_CHUNK = 1024
# On a CPU what fits the caches wins: 16 copies of a 10 K model take a third of the time
# of 1,024, and a tenth where memory is shared.
_CPU_CHUNK_BYTES = 2 << 20


def train_step(
    model: Any,
    batch: Any,
    *,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    weight_decay: float | None = None,
    method: str = "autodiff",
    epsilon: float | None = None,
) -> tuple[float, Any]:
    """One update of a compiled model on one batch.

    Args:
        model: A compiled model; it is updated in place.
        batch: ``(x, y)`` or ``(x, y, sample_weight)``.
        clip_norm: Largest norm of all gradients together, in this step.
        clip_value: Largest absolute value of a gradient's element, in this step.
        weight_decay: ``gradient += weight_decay * parameter`` after clipping.
        method: Of `compute_gradients`.
        epsilon: Step of the numerical methods.

    Returns:
        ``(loss, model)``: the loss of the batch before the update; NaN if the model's
        own ``train_step`` logs none.

    Raises:
        NotCompiledError: ``compile`` was not called.
        DataError, ShapeError, TargetError: The batch does not fit the model.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((1,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse", seed=0)
        >>> batch = np.ones((4, 1)), np.zeros((4, 1))
        >>> first, model = train_step(model, batch)
        >>> second, model = train_step(model, batch)
        >>> second < first
        True

    Source: ExBurn (Elixir), ``ExBurn.Training.train_step``.
    """
    with model.options(
        clip_norm=clip_norm, clip_value=clip_value, weight_decay=weight_decay
    ):
        trainer, tree = _prepared(model, batch, "train_step", method)
        if method == "autodiff":
            logs = trainer.run_batch(tree, train=True, fresh=True)
            return logs.get("loss", float("nan")), model
        programs, data = trainer.programs, _on_device(tree)
        state = trainer.initial_state()
        grads = _numerical(
            programs, state, data, method, epsilon, model.compute_dtype, scaled=True
        )
        apply = programs.further("apply_gradients", lambda: _apply(programs))
        loss, state = apply(state, data, grads)
        trainer.adopt(state)
        trainer.step += 1
        return float(loss), model


def compute_gradients(
    model: Any,
    batch: Any,
    *,
    method: str = "autodiff",
    epsilon: float | None = None,
) -> dict[str, jax.Array]:
    """Gradients of the training loss on one batch; nothing is updated.

    ``"autodiff"`` is exact. ``"numerical"`` takes central differences,
    :math:`(L(w + ε) − L(w − ε)) / 2ε`, at two losses a scalar parameter, and
    ``"numerical_batch"`` one-sided ones, :math:`(L(w + ε) − L(w)) / ε`, at one. Many
    parameters are moved at once, in chunks that fit the device's free memory. Dropout
    draws the same masks in all of them.

    Args:
        model: A compiled model.
        batch: ``(x, y)`` or ``(x, y, sample_weight)``.
        method: ``"autodiff"``, ``"numerical"`` or ``"numerical_batch"``.
        epsilon: Step of the numerical methods; `default_epsilon` by default.

    Returns:
        A gradient for every trained parameter, by its path.

    Raises:
        NotCompiledError: ``compile`` was not called.
        UnknownNameError: An unknown method.
        ArgumentError: ``epsilon`` is not positive.
        DataError, ShapeError, TargetError: The batch does not fit the model.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse", seed=0)
        >>> batch = np.ones((4, 2)), np.zeros((4, 1))
        >>> exact = compute_gradients(model, batch)["dense/kernel"]
        >>> close = compute_gradients(model, batch, method="numerical")["dense/kernel"]
        >>> bool(np.allclose(exact, close, atol=1e-3))
        True

    Source: ExBurn (Elixir), ``ExBurn.Training.compute_gradients``, whose ``:autodiff``
    falls back to differences; here it is autodiff.
    """
    trainer, tree = _prepared(model, batch, "compute_gradients", method)
    programs, data = trainer.programs, _on_device(tree)
    state = trainer.initial_state()
    if method == "autodiff":
        return _gradients(programs, state, data)
    return _numerical(programs, state, data, method, epsilon, model.compute_dtype)


def default_epsilon(dtype: Any, method: str = "numerical") -> float:
    """The step at which rounding and truncation errors of a difference balance.

    :math:`\\sqrt[3]{u}` for central and :math:`\\sqrt{u}` for one-sided differences,
    with the dtype's resolution :math:`u`: 4.9e-3 and 3.5e-4 in float32. ExBurn's 1e-5
    loses half of the digits there.

    Example:
        >>> round(default_epsilon("float32"), 5), round(default_epsilon("bfloat16"), 3)
        (0.00492, 0.198)

    Source: W. H. Press et al., *Numerical Recipes*, §5.7.
    """
    resolution = float(jnp.finfo(jnp.dtype(dtype)).eps)
    return resolution ** (1 / 3 if method == "numerical" else 1 / 2)


# ----------------------------------------------------------------------- the check
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
    trainer, tree = _prepared(model, batch, "check_gradients", method)
    programs, data = trainer.programs, _on_device(tree)
    state = trainer.initial_state()
    exact = _gradients(programs, state, data)
    rng = np.random.default_rng(seed)
    chosen = {
        name: np.sort(rng.permutation(g.size)[: elements or g.size]).astype(np.int32)
        for name, g in exact.items()
    }
    coarse = _coarse(state.params, model.compute_dtype)
    unit = float(jnp.finfo(coarse).eps)
    if tolerance is None:
        tolerance = 0.2 if unit > 1e-4 else 0.05
    loss = float(programs.further("loss", lambda: _loss(programs))(state, data))
    step = default_epsilon(coarse, method) if epsilon is None else epsilon
    # Where two steps give two slopes there is a corner of ReLU or max between them.
    wide, close = (
        _numerical(
            programs, state, data, method, size, model.compute_dtype, chosen=chosen
        )
        for size in (step, step / 4)
    )
    noise = 8 * unit * max(abs(loss), 1.0) / step
    rows = []
    for name, indices in chosen.items():
        a = np.asarray(exact[name], np.float64).ravel()[indices]
        b, c = (np.asarray(found[name], np.float64) for found in (wide, close))
        bend = np.abs(b - c) > noise + tolerance / 5 * np.abs(c)
        if bend.all():
            bend[:] = False
        a, c, kept = a[~bend], c[~bend], int((~bend).sum())
        error = float(np.abs(a - c).max())
        size = float(max(np.abs(a).max(), np.abs(c).max()))
        relative = max(error - noise, 0.0) / size if size else 0.0
        if not np.isfinite(error):
            relative = float("nan")
        corners = len(indices) - kept
        rows.append(GradientRow(name, kept, corners, error, size, relative))
    return GradientCheck(tuple(rows), tolerance)


# --------------------------------------------------------------------- the timing
def profile_step(
    model: Any, batch: Any, *, warmup: int = 3, runs: int = 10
) -> dict[str, float]:
    """Times the parts of a training step on the device; the model is not changed.

    Each part is a compiled program of its own, and its time the median over the runs,
    so the parts may add up to more than ``total_ms``: the real step, in which XLA
    fuses them. For the time that data and host take, see ``fit(profile=True)``.

    Args:
        model: A compiled model.
        batch: ``(x, y)`` or ``(x, y, sample_weight)``.
        warmup: Runs before the clock starts.
        runs: Timed runs.

    Returns:
        ``forward_ms`` (outputs and loss), ``backward_ms``, ``optimizer_ms`` (clipping
        and weight decay included), ``total_ms``, and the ``loss``.

    Raises:
        ArgumentError: ``runs`` is below 1 or ``warmup`` negative.
        NotCompiledError: ``compile`` was not called.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> times = profile_step(model, (np.ones((4, 2)), np.zeros((4, 1))), runs=2)
        >>> sorted(times)
        ['backward_ms', 'forward_ms', 'loss', 'optimizer_ms', 'total_ms']

    Source: ExBurn (Elixir), ``ExBurn.Training.profile_step``.
    """
    if runs < 1 or warmup < 0:
        raise ArgumentError(
            "profile_step",
            f"runs must be ≥ 1 and warmup ≥ 0, received {runs} and {warmup}",
        )
    trainer, tree = _prepared(model, batch, "profile_step", "autodiff")
    programs, data = trainer.programs, _on_device(tree)
    state = trainer.initial_state()
    forward = programs.further("loss", lambda: _loss(programs))
    both = programs.further("gradients", lambda: _autodiff(programs))
    update = programs.further("update", lambda: programs.optimizer.update)
    grads = both(state, data)
    chunk = jax.tree.map(lambda v: v[None], data)
    held = [jax.tree.map(jnp.copy, state)]  # each step consumes the one it is given

    def step():
        held[0], done = programs.train(held[0], chunk, None, None)
        return done

    parts: dict[str, Callable[[], Any]] = {
        "forward": lambda: forward(state, data),
        "gradient": lambda: both(state, data),
        "optimizer": lambda: update(grads, state.opt_state, state.params),
        "total": step,
    }
    times: dict[str, list[float]] = {name: [] for name in parts}
    for i in range(warmup + runs):
        for name, run in parts.items():  # by turns, so that all see the same machine
            start = time.perf_counter()
            jax.block_until_ready(run())
            if i >= warmup:
                times[name].append(1e3 * (time.perf_counter() - start))
    found = {name: statistics.median(values) for name, values in times.items()}
    return {
        "forward_ms": found["forward"],
        "backward_ms": max(found["gradient"] - found["forward"], 0.0),
        "optimizer_ms": found["optimizer"],
        "total_ms": found["total"],
        "loss": float(forward(state, data)),
    }


# ------------------------------------------------------------------- the programs
def _prepared(model: Any, batch: Any, op: str, method: str) -> tuple[Trainer, Any]:
    """The model's trainer, ready for the batch, and the batch, checked."""
    if method not in METHODS:
        raise unknown_name("method", method, METHODS, op=op)
    parts = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
    if not 1 <= len(parts) <= 3:
        raise DataError(
            op,
            f"a batch is (x, y) or (x, y, sample_weight), received {len(parts)} parts",
        )
    dataset = as_dataset(*parts, op=op)
    if not isinstance(dataset, ArrayDataset):
        raise DataError(
            op,
            "one batch of arrays is needed, received a loader",
            hint="Pass one of its batches: next(iter(loader)).",
        )
    trainer = model._trainer(op)
    own = callable(getattr(model, "train_step", None))
    if own and not (op == "train_step" and method == "autodiff"):
        raise ArgumentError(
            op,
            f"{type(model).__name__} computes its gradients in its own train_step",
            hint="Use train_step(model, batch), or jax.grad on stateless_call.",
        )
    model._prepare(op, dataset, train=True)
    return trainer, dataset.tree


def _on_device(tree: Any) -> Any:
    return jax.tree.map(jax.device_put, tree)


def _loss(programs: Programs, scaled: bool = False) -> Callable:
    def loss(state: TrainState, batch: Any) -> jax.Array:
        value, (plain, *_) = programs.loss(state.params, state, batch, None)
        return value if scaled else plain

    return loss


def _autodiff(programs: Programs) -> Callable:
    def gradients(state: TrainState, batch: Any) -> dict[str, jax.Array]:
        def loss(params):
            return programs.loss(params, state, batch, None)[1][0]

        return jax.grad(loss)(state.params)

    return gradients


def _gradients(programs: Programs, state: TrainState, data: Any) -> dict[str, Any]:
    """By calculus, in the order of the parameters: JAX sorts dictionaries by name."""
    found = programs.further("gradients", lambda: _autodiff(programs))(state, data)
    return {path: found[path] for path in state.params}


def _apply(programs: Programs) -> Callable:
    """One update from given gradients, everything else as in a training step."""

    def apply(state: TrainState, batch: Any, grads: Any) -> tuple[jax.Array, Any]:
        _, (loss, _, others, _, _) = programs.loss(state.params, state, batch, None)
        params, opt_state = programs.optimizer.update(
            grads, state.opt_state, state.params
        )
        return loss, state.replace(
            params=programs.split.constrain(params), others=others, opt_state=opt_state
        )

    return apply


def _coarse(params: dict[str, Any], compute: Any) -> Any:
    """The dtype with the fewest digits among the parameters' and the compute dtype."""
    dtypes = [jnp.dtype(compute), *(p.dtype for p in params.values())]
    return max(dtypes, key=lambda d: float(jnp.finfo(d).eps))


def _numerical(
    programs: Programs,
    state: TrainState,
    data: Any,
    method: str,
    epsilon: float | None,
    compute: Any,
    *,
    scaled: bool = False,
    chosen: dict[str, np.ndarray] | None = None,
) -> dict[str, jax.Array]:
    """Differences for all elements of every parameter, or for the chosen ones."""
    if epsilon is None:
        epsilon = default_epsilon(_coarse(state.params, compute), method)
    if not epsilon > 0:
        raise ArgumentError(
            "compute_gradients", f"epsilon must be positive, received {epsilon}"
        )
    name = "scaled_loss" if scaled else "loss"
    loss = programs.further(name, lambda: _loss(programs, scaled))
    jaxpr = jax.make_jaxpr(_loss(programs, scaled))(state, data)
    activations = 4 * count(jaxpr).elements
    start = loss(state, data)
    budget = free_bytes() // 8
    if jax.default_backend() == "cpu":
        budget = min(budget, _CPU_CHUNK_BYTES)
    grads = {}
    for path, value in state.params.items():
        rows = np.arange(value.size, dtype=np.int32) if chosen is None else chosen[path]
        room = max(1, int(budget // (activations + 2 * value.nbytes)))
        chunk = min(2 ** (room.bit_length() - 1), _LARGEST_CHUNK, len(rows))
        kind = f"{method} {path} {chunk}{' scaled' if scaled else ''}"
        program = programs.further(
            kind, lambda p=path, c=chunk: _differences(programs, p, c, method, scaled)
        )
        flat = value.ravel()
        found = program(state, data, start, flat + epsilon, flat - epsilon, rows)
        grads[path] = found.reshape(value.shape) if chosen is None else found
    return grads


def _differences(
    programs: Programs, path: str, chunk: int, method: str, scaled: bool
) -> Callable:
    """Difference quotients for some elements of one parameter, ``chunk`` at a time.

    The moved values come in as arrays of the parameter's dtype, and the quotient
    divides by the distance between them: what was really moved, after rounding.
    """
    loss = _loss(programs, scaled)

    def differences(state, data, start, high, low, rows):
        value = state.params[path]
        flat = value.ravel()

        def at(row, moved):
            new = flat.at[row].set(moved[row]).reshape(value.shape)
            params = {**state.params, path: new}
            return loss(state.replace(params=params), data)

        def one(row):
            if method == "numerical":
                rise, end = at(row, high) - at(row, low), low
            else:
                rise, end = at(row, high) - start, flat
            run = high[row].astype(jnp.float32) - end[row].astype(jnp.float32)
            return rise / run

        return jax.lax.map(one, rows, batch_size=chunk)

    return differences
