"""Choosing weights on data, block by block: each gets what the rounded ones give."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from exburn.compression.masking import mask_of, unpack
from exburn.compression.quantization.awq import SAMPLE_ROWS, round_by_awq
from exburn.compression.quantization.blocks import Blocks, within
from exburn.compression.quantization.convert import exchange
from exburn.compression.quantization.gptq import round_by_gptq
from exburn.compression.quantization.plan import QuantizationPlan, QuantizationTarget
from exburn.compression.quantization.quantized_layers import input_rows
from exburn.core.forward_context import Interceptor
from exburn.errors import ArgumentError, DataError, DTypeError, ExBurnError
from exburn.module.copying import running_copy
from exburn.module.forward_hooks import Capture
from exburn.module.selection import layer_paths


def token_windows(config: Any) -> np.ndarray:
    """The samples of a ``GPTQConfig`` or ``AWQConfig``: int32 ``[samples, 1, length]``.

    All tokens are joined, and repeated if they are too few. The windows do not overlap
    and lie evenly in what there is; pieces that are a window long stay whole.
    """
    op, dataset = type(config).__name__, config.dataset
    if dataset is None:
        raise ArgumentError(
            "quantize",
            f"{config.mode!r} chooses weights on data, received dataset=None",
            hint=f"{op}(dataset=[…], tokenizer=…).",
        )
    if isinstance(dataset, str | bytes) or not hasattr(dataset, "__iter__"):
        raise DTypeError(
            op,
            "dataset must be an iterable of strings or of arrays of token numbers, "
            f"received {type(dataset).__name__}",
        )
    pieces = [part for item in dataset for part in _pieces(item, config.tokenizer, op)]
    tokens = np.concatenate([np.zeros(0, np.int32), *pieces])
    if not tokens.size:
        raise DataError(op, "dataset holds no tokens")
    count, length = config.num_samples, config.sequence_length
    tokens = np.resize(tokens, max(tokens.size, count * length))  # repeats them
    places = np.linspace(0, tokens.size // length - 1, count).astype(np.int64)
    rows = tokens[: tokens.size // length * length].reshape(-1, length)
    return rows[places][:, None]  # [samples, 1, length]


def _pieces(item: Any, tokenizer: Any, op: str) -> Iterator[np.ndarray]:
    """The tokens of an entry: of each string in it, or its numbers."""
    try:
        values = np.asarray(item)
    except (TypeError, ValueError) as error:  # ragged
        raise DTypeError(
            op, f"dataset holds {type(item).__name__} that is no array: {error}"
        ) from error
    if values.dtype.kind not in "USO":
        yield _numbers(values, op)
        return
    for text in values.ravel().tolist():
        text = text.decode() if isinstance(text, bytes) else text
        if not isinstance(text, str):
            raise DTypeError(
                op,
                "dataset holds strings or arrays of token numbers, received "
                f"{type(text).__name__}",
            )
        yield _numbers(np.asarray(_tokenizer(tokenizer, op)(text)), op)


def _tokenizer(tokenizer: Any, op: str) -> Any:
    tokenize = getattr(tokenizer, "tokenize", tokenizer)
    if not callable(tokenize):
        raise ArgumentError(
            op,
            "dataset holds strings, which need a tokenizer; received "
            f"tokenizer={tokenizer!r}",
            hint="Give an object with tokenize(text), or a function.",
        )
    return tokenize


def _numbers(values: np.ndarray, op: str) -> np.ndarray:
    """Token numbers as int32 ``[n]``."""
    if values.dtype.kind not in "biuf" and values.size:
        raise DTypeError(op, f"tokens are whole numbers, received {values.dtype}")
    values = values.ravel()
    with np.errstate(invalid="ignore"):  # of NaN and what int64 cannot hold
        whole = values.astype(np.int64, copy=False)
        same = (whole == values) & (abs(whole) <= np.iinfo(np.int32).max)
    if not same.all():
        raise DataError(
            op,
            "tokens are whole numbers of 32 bits, received "
            f"{values[~same][0].item()!r}",
            hint="What begins with other inputs takes quantize('int4').",
        )
    return whole.astype(np.int32)


_Step = str | Callable[[Any], Any]  # the path of a layer, or a function


@dataclasses.dataclass(frozen=True)
class CalibrationData:
    """What weights are chosen on.

    Attributes:
        tokens: int32 ``[samples, 1, length]``.
    """

    tokens: np.ndarray
    blocks: Blocks

    def check(self, model: Any) -> None:
        """Raises a ``DataError``, or a layer's own, if the tokens do not fit it."""
        steps, tables = (*self.blocks.before, *self.blocks.paths), {}
        copied = nnx.merge(*nnx.split(model))
        try:
            jax.eval_shape(
                lambda x: _flow(model, copied, x, steps, tables), self.tokens[0]
            )
        except ExBurnError:
            raise
        except (TypeError, ValueError) as error:
            raise DataError(
                "quantize",
                "the blocks cannot be called one after the other on tokens",
                {
                    "tokens": self.tokens.shape[1:],
                    "cause": str(error).partition("\n")[0],
                },
            ) from error
        low, high = self.tokens.min(), self.tokens.max()
        for name, rows in tables.items():
            if low < 0 or high >= rows:
                raise DataError(
                    "quantize",
                    f"the table of {name!r} has rows for tokens from 0 to {rows - 1}",
                    {"tokens": f"from {low} to {high}"},
                )


def calibrate(model: Any, plan: QuantizationPlan, calibration: CalibrationData) -> None:
    """Carries a plan out in place, with weights that are chosen on data."""
    blocks = calibration.blocks
    left = {target.path: target for target in plan.targets}
    size = getattr(plan.settings.config, "calibration_batch_size", 1)
    x = [
        _outputs(model, blocks.before, jnp.asarray(batches))
        for batches in _in_batches(calibration.tokens, size)
    ]
    for number, block in enumerate(blocks.paths):
        targets = [t for path, t in left.items() if within(path, block) and t.schemes]
        watched = (
            _watch(model, block, targets, x, plan.settings.config) if targets else {}
        )
        for target in targets:
            (name,) = target.schemes
            parts = _round(target, name, watched[target.path], plan.settings.config)
            exchange(left.pop(target.path), plan.settings, {name: parts})
        if number + 1 < len(blocks.paths):
            x = [_outputs(model, (block,), batches) for batches in x]
    for target in left.values():  # that only compute in another dtype
        exchange(target, plan.settings)


def _in_batches(tokens: np.ndarray, size: int) -> list[np.ndarray]:
    """Samples ``[n, 1, length]`` in batches ``[m, size, length]``, and what is left."""
    rows = tokens[:, 0]
    whole = len(rows) // size * size
    parts = rows[:whole].reshape(-1, size, rows.shape[1]), rows[None, whole:]
    return [part for part in parts if part.size]


def _round(
    target: QuantizationTarget, name: str, statistics: tuple, config: Any
) -> tuple:
    """The parts of a layer's weight, from what was found out about its inputs."""
    if not all(np.isfinite(values).all() for values in statistics):
        raise ArgumentError(
            "quantize", f"{target.path}: its inputs hold NaN or infinity on this data"
        )
    weight, scheme = np.asarray(getattr(target.layer, name)), target.schemes[name]
    mask = mask_of(target.layer, name)
    if config.mode == "awq":
        return round_by_awq(weight, scheme, *statistics, points=config.num_grid_points)
    return round_by_gptq(
        weight,
        scheme,
        *statistics,
        damping=config.hessian_damping,
        by_size=config.activation_order,
        symmetric=config.symmetric,
        per_channel=config.per_channel,
        mask=None if mask is None else np.asarray(unpack(mask.value, weight.shape)),
    )


# ------------------------------------------------------------------- on the device
def _flow(
    model: Any,
    copied: Any,
    x: Any,
    steps: tuple[_Step, ...],
    tables: dict[str, int] | None = None,
    *interceptors: Interceptor,
) -> Any:
    """What a copy's layers and functions give, one after the other.

    ``tables`` gets the rows of the tables that ``x`` itself is looked up in, by name.
    """
    layers, first = {"": copied, **layer_paths(copied)}, x
    with running_copy(model, copied, *interceptors) as ctx:
        for step in steps:
            if isinstance(step, str):
                x = layers[step]._call_arrays((x,), {})
            else:
                x = step(x)
            x = x[0] if isinstance(x, list | tuple) else x  # as Keras
        if tables is not None:
            for ids, rows, name in ctx.lookups:
                if ids is first and rows is not None:
                    tables[name] = rows
    return x


def _outputs(model: Any, steps: tuple[_Step, ...], x: Any) -> Any:
    """What the steps give for each batch, ``[batches, size, …]``."""
    if not steps:
        return x
    graph, state = nnx.split(model)

    def run(state, x):
        return lax.map(lambda one: _flow(model, nnx.merge(graph, state), one, steps), x)

    return jax.jit(run)(state, x)


def _watch(
    model: Any, block: str, targets: list[QuantizationTarget], x: list[Any], config: Any
) -> dict[str, tuple[np.ndarray, ...]]:
    """What the inputs of layers are like in a block, by path.

    For gptq ``2 XᵀX / rows``, ``[columns, columns]``; for awq the mean magnitudes,
    ``[columns]``, and some of the inputs, ``[n, columns]``, if ends are chosen on them.
    Zeros of a layer that was not called.
    """
    statistics = _Magnitudes(config.apply_clip) if config.mode == "awq" else _Products()
    graph, state = nnx.split(model)
    columns = {t.path: next(iter(t.schemes.values())).columns for t in targets}

    def one(state, total, sample):
        copied = nnx.merge(graph, state)
        layers, capture = layer_paths(copied), Capture(columns)
        _flow(model, copied, sample, (block,), None, capture)
        for path, calls in capture.calls.items():
            for args, kwargs, _ in calls:
                value = args[0] if args else next(iter(kwargs.values()))
                rows = input_rows(layers[path], value).astype(jnp.float32)
                total[path] = statistics.join(total[path], rows)
        return total

    @jax.jit
    def run(state, start, x):
        return lax.scan(lambda s, v: (one(state, dict(s), v), None), start, x)[0]

    totals = {path: statistics.start(n) for path, n in columns.items()}
    try:
        for batches in x:
            totals = run(state, totals, batches)
    except jax.errors.UnexpectedTracerError as error:
        raise ArgumentError(
            "quantize",
            "layers are called within a loop of JAX's own, which hides their inputs",
            {"block": block or model.name, "layers": ", ".join(columns)},
            hint="Choose others with filters=….",
        ) from error
    totals = jax.device_get(totals)
    return {path: statistics.finish(*total) for path, total in totals.items()}


class _Products:
    """The mean of the products of inputs with each other, twice: ``2 XᵀX / rows``."""

    def start(self, columns: int) -> tuple[jax.Array, ...]:
        return jnp.zeros((), int), jnp.zeros((columns, columns))

    def join(self, total: tuple, rows: jax.Array) -> tuple[jax.Array, ...]:
        seen, products = total
        products = products + jnp.matmul(rows.T, rows, precision="highest")
        return seen + len(rows), products

    def finish(self, seen: Any, products: Any) -> tuple[np.ndarray, ...]:
        return (2 * products / np.float32(max(seen, 1)),)


class _Magnitudes:
    """The mean magnitude of inputs, and the first of them."""

    def __init__(self, keeps_rows: bool):
        self.room = SAMPLE_ROWS if keeps_rows else 0

    def start(self, columns: int) -> tuple[jax.Array, ...]:
        sample = jnp.zeros((self.room, columns))
        return jnp.zeros((), int), jnp.zeros(columns), sample

    def join(self, total: tuple, rows: jax.Array) -> tuple[jax.Array, ...]:
        seen, size, sample = total
        first = rows[: self.room]
        places = seen + jnp.arange(len(first))
        sample = sample.at[places].set(first, mode="drop")
        return seen + len(rows), size + jnp.abs(rows).sum(0), sample

    def finish(self, seen: Any, size: Any, sample: Any) -> tuple[np.ndarray, ...]:
        return size / np.float32(max(seen, 1)), sample[:seen]
