"""The gradient of each row's loss, as it is or projected onto fewer numbers."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.data import StreamDataset
from exburn.errors import DataError, OutOfMemoryError
from exburn.insight.influence.products import Part, RowFeatures
from exburn.insight.progress import PatientBar
from exburn.runtime.failures import is_exhausted
from exburn.training.memory import free_bytes
from exburn.training.numbers import holding
from exburn.training.program import Programs
from exburn.training.steps import inference_loss
from exburn.training.trainer import Trainer

_BLOCK = 1 << 22  # entries of the random matrix that are there at once
_MOST_ROWS = 256  # of a chunk


class RowGradients:
    """Gradients of the rows of data sets, by one program.

    Args:
        trainer: A trainer whose model is prepared for the data.
        projection: Numbers that stand for the gradient of a row.
        seed: Of the projection.
        rows: Rows of a chunk; chosen by the memory if ``None``.
        most: Rows that a chunk has at most, where the memory chooses.
        apart: Whether the gradient of each weight is projected by itself.

    Attributes:
        parts: Of a row's features: of the whole gradient, or of each weight's.
        entries: Numbers of a row's gradient.
    """

    def __init__(
        self,
        trainer: Trainer,
        projection: int,
        seed: int,
        rows: int | None = None,
        most: int | None = None,
        apart: bool = False,
    ):
        holder, preparer = trainer.holder, trainer.preparer
        self._placement, programs = holder.placement, preparer.programs
        self._arrays = holder.split.read()
        self._totals, self._seed = preparer.fresh_totals("test"), seed
        params = self._arrays[0].values()
        sizes = [v.size * (1 + jnp.iscomplexobj(v)) for v in params]
        self.entries = sum(sizes)
        self.parts = [
            Part(min(projection, size), size)
            for size in (sizes if apart else [self.entries])
        ]
        dims = None if self.entries <= projection else projection
        self._program = programs.further(
            f"influence_{dims}_{apart}",
            lambda: gradients_of_rows(programs, dims, apart),
        )
        by_memory = _rows_in_memory(self.entries, self._placement)
        self._rows = rows or min(by_memory, most or by_memory)
        self._exact_rows = rows is not None
        self._orders: dict[str, int] = {}  # of streams' rows, as they came first

    def take_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Takes gradients at these weights from now on; the model keeps its own."""

        def put(name: str, own: Any) -> Any:
            value = np.asarray(weights[name]).astype(own.dtype)
            return jax.device_put(value, own.sharding if own.committed else None)

        self._arrays = tuple(
            {n: put(n, v) if n in weights else v for n, v in group.items()}
            for group in self._arrays
        )

    def of(self, dataset: Any, op: str) -> RowFeatures:
        """The features of all rows.

        Raises:
            DataError: The gradient of a row is not finite, or a stream gives other rows
                than before.
            OutOfMemoryError: The gradient of one row does not fit the device.
        """
        total = None if isinstance(dataset, StreamDataset) else dataset.size
        features: list[np.ndarray] = []
        squares: list[np.ndarray] = []
        rows, order, bar = 0, 0, PatientBar(total, "row")
        for batch in _batches(dataset, self._rows):
            if total is None:
                for leaf in jax.tree.leaves(batch):
                    content: Any = np.ascontiguousarray(leaf).view(np.uint8)
                    order = zlib.crc32(content, order)
            for some, norms in self._of_batch(batch):
                finite = np.isfinite(some).all(1) & np.isfinite(norms)
                if not finite.all():
                    row = rows + int(np.argmin(finite))
                    raise DataError(op, f"the gradient of row {row} is not finite")
                features.append(some)
                squares.append(norms)
                rows += len(norms)
            bar.update(rows)
        if self._orders.setdefault(op, order) != order:
            raise DataError(
                op,
                "the loader gives its rows in another order each time, and the scores "
                "of several checkpoints are of the same rows",
                hint="shuffle=False, or take the rows as arrays.",
            )
        return RowFeatures(np.concatenate(features), np.concatenate(squares))

    def _of_batch(self, batch: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The results of a batch, in chunks of which the last is filled up."""
        size, start = jax.tree.leaves(batch)[0].shape[0], 0
        while start < size:
            width = self._placement.width(min(self._rows, size))
            index = np.minimum(np.arange(start, start + width), size - 1)
            chunk = jax.tree.map(lambda v, index=index: v[index], batch)
            try:
                features, squares = self._run(chunk)
            except Exception as error:
                if not is_exhausted(error) or self._exact_rows:
                    raise
                if width <= self._placement.width(1):
                    raise OutOfMemoryError(
                        "influence",
                        f"the gradient of one row, of {self.entries:,} numbers, does "
                        "not fit the device",
                        hint="Frozen layers have no gradients: model.freeze(…).",
                    ) from error
                self._rows = max(width // 2, 1)
                continue
            count = min(width, size - start)
            yield features[:count], squares[:count]
            start += count

    def _run(self, chunk: Any) -> tuple[np.ndarray, np.ndarray]:
        with self._placement.scope():
            arguments = self._arrays, chunk, self._totals, np.uint32(self._seed)
            arguments, _ = self._placement.bind(arguments, 1)
            features, squares = self._program(*arguments)
        return np.asarray(features), np.asarray(squares)


def gradients_of_rows(
    programs: Programs, dims: int | None, apart: bool = False
) -> Callable:
    """A pure function of arrays, rows, totals and a seed.

    Each row is a batch of its own, in a pass at inference. Penalties of regularizers,
    which are alike for all rows, are left out.

    Args:
        dims: Numbers onto which gradients are projected; ``None``: they are whole.
        apart: Whether those of each weight are, where they are more.
    """
    steps, split = programs.steps, programs.split
    adds_penalty = getattr(split.module, "own_compute_loss", None) is None

    def row_loss(params: Any, row: Any, frozen: Any, others: Any, totals: Any):
        batch = jax.tree.map(lambda v: v[None], row)
        arrays, key = (params, frozen, others), jax.random.key(0)
        loss = inference_loss(steps, arrays, totals, batch, None, key)[0]
        penalty = split.penalty(params) if adds_penalty else None
        loss = loss if penalty is None else loss - penalty
        return jnp.sum(loss)  # of one row, also where nothing reduces it

    def gradients(arrays: Any, rows: Any, totals: Any, seed: Any):
        params, frozen, others = arrays
        with holding(split.numbers, others):
            rows = steps.placement.batch(rows)
            over_rows = jax.vmap(jax.grad(row_loss), (None, 0, None, None, None))
            by_name = over_rows(params, rows, frozen, others, totals)
        parts = [as_real_rows(by_name[name]) for name in params]
        squares = sum(jnp.sum(part**2, axis=1) for part in parts)
        if dims is None:
            return jnp.concatenate(parts, axis=1), squares
        key = jax.random.key(seed)
        keys = [jax.random.fold_in(key, number) for number in range(len(parts))]
        if not apart:
            return sum(map(project, parts, keys, itertools.repeat(dims))), squares
        shorter = [
            part if part.shape[1] <= dims else project(part, key, dims)
            for part, key in zip(parts, keys, strict=True)
        ]
        return jnp.concatenate(shorter, axis=1), squares

    return gradients


def as_real_rows(gradient: jax.Array) -> jax.Array:
    """Gradients ``[rows, …]`` as float32 ``[rows, n]``; complex ones as two numbers."""
    flat = gradient.reshape(len(gradient), -1)
    if jnp.iscomplexobj(flat):
        flat = jnp.concatenate([flat.real, flat.imag], axis=1)
    return flat.astype(jnp.float32)


def project(rows: jax.Array, key: jax.Array, dims: int) -> jax.Array:
    """Products of rows ``[n, entries]`` with a random matrix of signs, ``[n, dims]``.

    Products of two projected rows are on average those of the rows; their error is
    about ``1 / sqrt(dims)`` of the product of the norms. The matrix is made block by
    block, and is the same for the same key.

    Source: D. Achlioptas, "Database-friendly random projections", 2003.

    Example:
        >>> rows = jax.random.normal(jax.random.key(0), (2, 5000))
        >>> projected = project(rows, jax.random.key(1), 2048)
        >>> bool(abs((projected[0] ** 2).sum() / (rows[0] ** 2).sum() - 1) < 0.1)
        True
    """
    entries, words = rows.shape[1], -(-dims // 32)
    size = max(min(_BLOCK // dims, entries), 1)
    shifts = jnp.arange(32, dtype=jnp.uint32)

    def product(block: jax.Array, number: Any) -> jax.Array:
        own = jax.random.fold_in(key, number)
        bits = jax.random.bits(own, (block.shape[1], words), jnp.uint32)
        ones = (bits[:, :, None] >> shifts) & 1  # [size, words, 32]
        signs = ones.reshape(len(bits), -1)[:, :dims].astype(jnp.float32) * 2 - 1
        return block @ signs

    def add(number: Any, total: jax.Array) -> jax.Array:
        block = jax.lax.dynamic_slice_in_dim(rows, number * size, size, axis=1)
        return total + product(block, number)

    blocks, rest = divmod(entries, size)
    total = jnp.zeros((len(rows), dims), jnp.float32)
    total = jax.lax.fori_loop(0, blocks, add, total)
    if rest:
        total = total + product(rows[:, entries - rest :], blocks)
    return total / np.sqrt(dims)


def _rows_in_memory(entries: int, placement: Any) -> int:
    """Rows whose gradients take an eighth of the free memory; of a CPU's 256 MiB."""
    available = free_bytes(placement.local_devices) // 8
    if jax.default_backend() == "cpu":  # what fits the caches is as quick
        available = min(available, 256 << 20)
    # Gradients stand there twice: as the loss gives them, and as float32.
    return int(np.clip(available // (8 * entries), 1, _MOST_ROWS))


def _batches(dataset: Any, rows: int) -> Iterator[Any]:
    """The rows of a data set in order, as batches on the host."""
    if isinstance(dataset, StreamDataset):
        yield from dataset.iterate()
        return
    size = max(rows, 1024)
    for start in range(0, dataset.size, size):
        yield dataset.take(slice(start, start + size))
