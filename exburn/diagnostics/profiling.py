"""How long each layer of a model takes: ``model.profile(x, y)``."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

from exburn.core import forward_context
from exburn.core.checks import check_number
from exburn.core.forward_context import Interceptor
from exburn.core.printing import Plain, page_text, time_text
from exburn.data import ArrayDataset
from exburn.diagnostics.finding import prepared_aside
from exburn.models.network import Network
from exburn.models.planning import with_rows
from exburn.models.session import require_trainer
from exburn.module.building import spec_like
from exburn.module.remat import arrays_of
from exburn.module.traversal import iter_modules, own_weights
from exburn.training.module import SplitModule
from exburn.training.trials import time_step
from exburn.visualization.figures import draw_bars, new_figure

_RUNS = 5  # of each program, at least


@dataclasses.dataclass(frozen=True)
class LayerTime:
    """What one layer takes of a step.

    Attributes:
        path: Its path in the model.
        kind: Its class.
        calls: How often a step calls it.
        forward, backward: Seconds of all its calls, run by themselves.
        parameters: Number of its weights' entries.
    """

    path: str
    kind: str
    calls: int
    forward: float
    backward: float
    parameters: int

    @property
    def seconds(self) -> float:
        return self.forward + self.backward


@dataclasses.dataclass(frozen=True, repr=False)
class Profile:
    """The time of a training step, and of each layer by itself.

    Attributes:
        batch_size: Rows of the step.
        step: Seconds of a whole step: what is compiled together is often quicker than
            the sum of the layers, and loss, metrics and the optimizer come on top.
        layers: ``LayerTime`` objects, in the order in which the model calls them.
    """

    batch_size: int
    step: float
    layers: list[LayerTime]

    @property
    def slowest(self) -> LayerTime:
        """The layer that takes longest."""
        return max(self.layers, key=lambda layer: layer.seconds)

    def plot(self) -> Any:
        """Draws a bar for each layer, forward and backward.

        Returns:
            The ``matplotlib.figure.Figure``.

        Raises:
            MissingDependencyError: matplotlib is not installed.
        """
        figure = new_figure("Profile.plot", 7, 1.2 + 0.28 * len(self.layers))
        axes = figure.add_subplot()
        names = [f"{layer.path}  ({layer.kind})" for layer in self.layers]
        forward = [1e3 * layer.forward for layer in self.layers]
        backward = [1e3 * layer.backward for layer in self.layers]
        draw_bars(axes, names, {"forward": forward, "backward": backward})
        axes.set_xlabel("milliseconds")
        axes.set_title(
            f"A step of {self.batch_size:,} rows takes {time_text(self.step)}",
            loc="left",
        )
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
        axes.legend()
        return figure

    def __rich__(self) -> Plain:
        title = f"A step of {self.batch_size:,} rows takes {time_text(self.step)}"
        table = Table(title=title, title_justify="left")
        table.add_column("Layer", overflow="fold")
        table.add_column("Class")
        for name in ("Forward", "Backward", "Share", "Params"):
            table.add_column(name, justify="right")
        whole = sum(layer.seconds for layer in self.layers) or 1.0
        for layer in self.layers:
            table.add_row(
                layer.path + (f" × {layer.calls}" if layer.calls > 1 else ""),
                layer.kind,
                time_text(layer.forward),
                time_text(layer.backward),
                f"{layer.seconds / whole:.0%}",
                f"{layer.parameters:,}",
            )
        return Plain(table)

    def __str__(self) -> str:
        return page_text(self, 100)

    __repr__ = __str__


def profile(
    self: Network,
    x: Any,
    y: Any = None,
    *,
    batch_size: int | None = None,
    sample_weight: Any = None,
    seconds: float = 0.05,
) -> Profile:
    """Measures a training step, and each layer of it by itself, forward and backward.

    Layers are those directly in the model, and in models inside it. Each is compiled
    alone, and run on inputs of the shapes that it has in the model. The model is as it
    was afterwards.

    Args:
        x, y, sample_weight: Data as of ``fit``.
        batch_size: Rows of the step, as of ``fit``.
        seconds: How long each layer is measured, about.

    Returns:
        The times: ``.layers``, ``.slowest``, ``.plot()``; printed, it is a table.

    Raises:
        NotCompiledError: ``compile`` was not called.
        ArgumentError: ``seconds`` is out of range.
        DataError, ShapeError, TargetError: The data do not fit the model.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> from exburn import layers
        >>> model = exburn.Sequential(
        ...     [exburn.Input((8,)), layers.Dense(256, "relu"), layers.Dense(1)]
        ... )
        >>> model.compile("sgd", "mse")
        >>> profile = model.profile(np.ones((32, 8)), np.ones((32, 1)))
        >>> [layer.path for layer in profile.layers]
        ['dense', 'dense_1']
        >>> all(layer.forward > 0 for layer in profile.layers)
        True
    """
    op = "profile"
    trainer = require_trainer(self, op)
    seconds = check_number(op, "seconds", seconds, open_low=True)
    with prepared_aside(self, op, x, y, sample_weight, batch_size) as data:
        rows, split = data.batch_size, trainer.holder.split
        dataset = data.dataset
        arrays = isinstance(dataset, ArrayDataset)
        batch = dataset.tree if arrays else dataset.peek(None)
        specs = with_rows(trainer.preparer.batch_specs["train"], rows)
        step = time_step(trainer, batch, rows, seconds)
        layers = [
            _time_layer(split, path, layer, calls, seconds)
            for path, layer, calls in _calls(split, specs[0])
        ]
    return Profile(rows, step.seconds or 0.0, layers)


class _NoteCalls(Interceptor):
    """Notes ``(specs, rebuild)`` of each call: ``args, kwargs = rebuild(arrays)``."""

    def __init__(self, calls: dict[str, list]):
        self.calls = calls

    def __call__(self, layer: Any, call: Callable, args: tuple, kwargs: dict) -> Any:
        ctx: Any = forward_context.current()
        arrays, rebuild = arrays_of((args, dict(kwargs)))
        specs = list(map(spec_like, arrays))
        self.calls.setdefault(ctx.path_of(layer), []).append((specs, rebuild))
        return call(*args, **kwargs)


def _calls(split: SplitModule, x: Any) -> list[tuple[str, Any, list]]:
    """The layers that a pass calls, but for models and what is inside of layers."""
    calls: dict[str, list] = {}

    def forward(groups, x):
        key = jax.random.key(0)
        with split.running(groups, training=True, key=key) as (call, ctx):
            ctx.interceptors += (_NoteCalls(calls),)
            return call((x,), {})

    jax.eval_shape(forward, split.peek(), x)
    modules = dict(iter_modules(split.module))
    calls_of_layers = []
    for path, noted in calls.items():
        layer = modules.get(path)
        if layer is None or _is_model(layer):
            continue
        parts = path.split("/")
        above = ("/".join(parts[:n]) for n in range(1, len(parts)))
        if all(_is_model(modules[p]) for p in above if p in calls and p in modules):
            calls_of_layers.append((path, layer, noted))
    return calls_of_layers


def _is_model(layer: Any) -> bool:
    return bool(getattr(layer, "is_model", False))


def _time_layer(
    split: SplitModule, path: str, layer: Any, calls: list, seconds: float
) -> LayerTime:
    params, frozen, others = split.read()
    own = {n: v for n, v in params.items() if n.startswith(f"{path}/")}
    rest = {n: v for n, v in params.items() if n not in own}
    rebuilds = [rebuild for _, rebuild in calls]

    def forward(own, arrays, rest, frozen, others):
        groups = ({**rest, **own}, frozen, others)
        with split.running(groups, training=True, key=jax.random.key(0)) as (_, ctx):
            part: Any = next(m for p, m in iter_modules(ctx.root) if p == path)
            outputs = []
            for leaves, rebuild in zip(arrays, rebuilds, strict=True):
                args, kwargs = rebuild(leaves)
                outputs.append(part._call_arrays(args, kwargs))
        return outputs

    def loss(own, floats, arrays, rest, frozen, others):
        whole = [
            [f if f is not None else a for f, a in zip(fs, group, strict=True)]
            for fs, group in zip(floats, arrays, strict=True)
        ]
        outputs = forward(own, whole, rest, frozen, others)
        leaves = [v for v in jax.tree.leaves(outputs) if _is_float(v)]
        return sum((v.astype(jnp.float32) ** 2).sum() for v in leaves)

    arrays = [[_example(spec) for spec in specs] for specs, _ in calls]
    floats = [[a if _is_float(a) else None for a in group] for group in arrays]
    groups = rest, frozen, others
    alone = _seconds(jax.jit(forward), seconds, own, arrays, *groups)
    both = alone
    trains = own or any(a is not None for group in floats for a in group)
    if trains:
        gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))
        both = _seconds(gradient, seconds, own, floats, arrays, *groups)
    sizes = [v.get_raw_value() for _, v in own_weights(layer)]
    inside = {n: v for n, v in (params | frozen).items() if n.startswith(f"{path}/")}
    entries = sum(v.size for v in inside.values()) or sum(v.size for v in sizes)
    kind = type(layer).__name__
    return LayerTime(path, kind, len(calls), alone, max(both - alone, 0.0), entries)


def _is_float(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jnp.floating)


def _example(spec: Any) -> Any:
    """An array of a shape: random where it may be, as zeros could be quicker."""
    if _is_float(spec):
        values = np.random.default_rng(0).standard_normal(spec.shape, np.float32)
        return jnp.asarray(values, spec.dtype)
    return jnp.zeros(spec.shape, spec.dtype)


def _seconds(program: Callable, seconds: float, *args: Any) -> float:
    """The shortest of some runs, after one that compiles."""
    jax.block_until_ready(program(*args))
    best, runs, start = float("inf"), 0, time.perf_counter()
    while runs < _RUNS or time.perf_counter() - start < seconds:
        before = time.perf_counter()
        jax.block_until_ready(program(*args))
        best, runs = min(best, time.perf_counter() - before), runs + 1
    return best
