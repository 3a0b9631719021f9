"""The function that is served, pure in weights and rows, and the weights."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from exburn.core.precision import is_float
from exburn.core.symbolic_shapes import canonical_spec, describe, spec_of
from exburn.data import ArrayDataset, ReadOptions, as_dataset, check_finite
from exburn.data.trees import in_order
from exburn.errors import (
    ArgumentError,
    DataError,
    DTypeError,
    NotBuiltError,
    ShapeError,
)
from exburn.models.arguments import check_rows
from exburn.module.building import spec_like
from exburn.module.layer import Layer
from exburn.runtime.cost_model import Cost, count
from exburn.serving.hooks import StreamHooks
from exburn.training.check import check_ids
from exburn.training.feed.plan import choose_unroll
from exburn.training.forward import lookups
from exburn.training.module import SplitModule
from exburn.training.trainer import Trainer

_ROWS = 2  # of the abstract pass: any number will do
_SHARED_BYTES = 2 << 20
_EXTRA = "/extra/"  # begins the names of arrays that are none of the model's


@dataclasses.dataclass(frozen=True)
class RowsOfModel:
    """What a function computes of a model's rows, in the place of its outputs.

    Attributes:
        model: The model, whose inputs requests have.
        program: ``program(split, groups, extra, x)``, of the model as arrays.
        extra: Arrays for it by name, which are served beside those of the model.
    """

    model: nnx.Module
    program: Callable[[SplitModule, Any, Any, Any], Any]
    extra: Mapping[str, Any]


class Computation:
    """A model, module or function as ``run(weights, rows)``.

    Args:
        model: An ExBurn model, an ``nnx.Module``, `RowsOfModel`, or a function:
            ``f(x)``, or ``f(weights, x)`` if ``weights`` are given.
        examples: For each batch key an example of the input, or ``None``: the model's
            own inputs.

    Attributes:
        source: What it was made of.
        model: The model, module or function.
        outputs: Specs of the outputs of each batch key, for some number of rows.
        traces: How often each ``(key, rows)`` was traced.
        row_bytes: Of each key, bytes of a row's inputs and outputs.
    """

    def __init__(
        self,
        model: Any,
        examples: Mapping[Hashable, Any],
        weights: Any,
        hooks: StreamHooks,
    ):
        self._rows = model if isinstance(model, RowsOfModel) else None
        self.source, model = model, self._rows.model if self._rows else model
        self.model, self.hooks = model, hooks
        self.name = getattr(model, "name", None) or getattr(
            model, "__name__", type(model).__name__
        )
        self.traces: Counter[tuple[Hashable, int]] = Counter()
        self.inputs: dict[Hashable, Inputs] = {}
        self.outputs: dict[Hashable, Any] = {}
        self._lookups: dict[Hashable, Any] = {}
        self._split: SplitModule | None = None
        self._weights = weights
        for leaf in jax.tree.leaves(weights):
            if not isinstance(leaf, np.ndarray | jax.Array):
                raise ArgumentError(
                    "Serving",
                    f"weights must be arrays, received {describe(leaf)} among them",
                )
        if isinstance(model, nnx.Module):
            if weights is not None:
                raise ArgumentError(
                    "Serving", "weights are given for functions; a module has its own"
                )
        elif not callable(model):
            raise DTypeError(
                "Serving",
                "a model, an nnx.Module or a function is needed, received "
                f"{type(model).__name__}",
            )
        for key, example in examples.items():
            self.inputs[key] = self._inputs(model, example)
        if isinstance(model, nnx.Module):
            for inputs in self.inputs.values():
                self._build(inputs)
            self._split = SplitModule(model)
        self._like = jax.tree.map(spec_like, self._current())
        self._out_trees: dict[Hashable, Any] = {}
        self._costs: dict[Hashable, Cost] = {}
        self.row_bytes: dict[Hashable, int] = {}
        for key in self.inputs:
            self._lookups[key] = self._discover(key)

    def _inputs(self, model: Any, example: Any) -> Inputs:
        host, graph = getattr(model, "host_graph", None), getattr(model, "graph", None)
        names = tuple(graph.input_names) if graph is not None else None
        if host is not None:  # the program takes a dict
            graph, names = host.program, None
            example = None if example is None else model.encode_inputs(example)
        if example is not None:
            specs = _specs(example)
            if names is None:
                return Inputs(specs)
            specs = jax.tree.leaves(in_order(specs, names))
            return Inputs(specs[0] if len(specs) == 1 else specs, names)
        if graph is None:
            raise NotBuiltError(
                "Serving",
                f"the shape of a request to {self.name!r} is not known",
                hint="Pass an example: Serving(model, example=x[:1]).",
            )
        for name, spec in zip(graph.input_names, graph.inputs, strict=True):
            if any(not isinstance(size, int) for size in spec.shape[1:]):
                raise ArgumentError(
                    "Serving",
                    f"programs are compiled for sizes that are known, but input "
                    f"{name!r} is {describe(spec)}",
                    hint="Pass an example, or one for each size that is served: "
                    "batch_keys={64: x64, 128: x128}. Of texts fix it: "
                    "TextVectorization(output_sequence_length=…).",
                )
        if host is not None:
            return Inputs(host.specs)
        specs = list(graph.inputs)
        return Inputs(specs[0] if len(specs) == 1 else specs, names)

    def _build(self, inputs: Inputs) -> None:
        """Makes the weights of a model that has none, and checks shapes."""
        if isinstance(self.model, Layer) and not self.model.built:
            specs = inputs.pack(inputs.specs(_ROWS))
            Trainer(self.model).preparer.prepare((specs, None, None), kind="predict")

    def _discover(self, key: Hashable) -> Any:
        """Traces one abstract pass: errors of shapes come now."""
        extras: dict[str, Any] = {}

        def forward(weights, values):
            outputs, extras["lookups"] = self._forward(weights, values, key)
            return outputs

        inputs = self.inputs[key]
        values = inputs.specs(_ROWS)
        trace = jax.make_jaxpr(forward, return_shape=True)
        jaxpr, outputs = trace(jax.tree.map(canonical_spec, self._like), values)
        check_rows("Serving", inputs.pack(values), outputs)
        self.outputs[key] = outputs
        self._out_trees[key] = jax.tree.structure(outputs)
        self._costs[key] = count(jaxpr)
        both = [*values, *map(spec_like, jax.tree.leaves(outputs))]
        self.row_bytes[key] = sum(v.size * v.dtype.itemsize for v in both) // _ROWS
        return extras["lookups"]

    def _forward(self, weights: Any, values: Any, key: Hashable) -> tuple[Any, Any]:
        x = self.inputs[key].pack(values)
        if self._split is None:
            args = (x,) if self._weights is None else (weights, x)
            return self.model(*args), ()
        # The key that predict() uses for its first batch.
        draw = jax.random.fold_in(jax.random.key(0), 0)
        extra: dict[str, Any] = {}
        if self._rows is not None:
            extra = {n: weights[_EXTRA + n] for n in self._rows.extra}
            weights = {n: v for n, v in weights.items() if n.removeprefix(_EXTRA) == n}
        outputs, _, ctx = self._split.forward((weights,), x, training=False, key=draw)
        found = lookups(x, ctx)
        if self._rows is not None:  # XLA leaves the pass before out
            outputs = self._rows.program(self._split, (weights,), extra, x)
        return outputs, found

    def run(self, key: Hashable, size: int) -> Callable:
        """The function that is compiled for batches of ``size`` rows."""

        def serve(weights, values, slot=None):
            self.traces[key, size] += 1
            with self.hooks.tracing(slot, size):
                outputs = self._forward(weights, values, key)[0]
            return jax.tree.leaves(outputs)

        return serve

    def run_burst(
        self, key: Hashable, size: int, batches: int, platform: str
    ) -> Callable:
        """The function that is compiled for several batches of ``size`` rows.

        They run one after the other, each as it would alone, with the same random key.
        Their rows come in a few arrays: see ``shared_rows``.
        """
        unroll = min(choose_unroll(self._costs[key], platform, training=False), batches)

        def serve(weights, parts):
            self.traces[key, size * batches] += 1

            def one(_, values):
                return None, jax.tree.leaves(self._forward(weights, values, key)[0])

            joined = [jnp.concatenate(arrays) for arrays in zip(*parts, strict=True)]
            each = [v.reshape(batches, size, *v.shape[1:]) for v in joined]
            _, outputs = jax.lax.scan(one, None, each, unroll=unroll)
            return [v.reshape(-1, *v.shape[2:]) for v in outputs]

        return serve

    def shared_rows(self, key: Hashable, size: int, batches: int) -> int:
        """Rows of a burst that come in one array.

        Several large arrays are transferred side by side, in a third of the time of one
        that holds all. Each also costs its time, so small batches share one.
        """
        shared = (n for n in range(batches, 1, -1) if batches % n == 0)
        most = _SHARED_BYTES // max(self.row_bytes[key], 1)
        return size * next((n for n in shared if n * size <= most), 1)

    def encode(self, x: Any) -> Any:
        """A request as the program takes it: with numbers for strings."""
        encode = getattr(self.model, "encode_inputs", None)
        return x if encode is None else encode(x)

    def unpack(self, key: Hashable, leaves: list[np.ndarray]) -> Any:
        """Outputs in the structure of the model's."""
        return jax.tree.unflatten(self._out_trees[key], leaves)

    def match(
        self, x: Any, key: Hashable, *, finite: bool, copy: bool
    ) -> list[np.ndarray]:
        """A request's arrays, checked against the key's inputs."""
        inputs = self.inputs[key]
        values = inputs.match(x, finite=finite, copy=copy)
        if self._lookups[key]:
            lookups = self._lookups[key]
            check_ids(inputs.pack(values), lookups, "serving", inputs.names)
        return values

    # ------------------------------------------------------------------ weights
    def _current(self) -> Any:
        """The weights as they are in the model now."""
        if self._split is None:
            return self._weights
        groups = SplitModule(self.model).read()
        arrays = {name: value for group in groups for name, value in group.items()}
        extra = {} if self._rows is None else self._rows.extra
        return arrays | {_EXTRA + name: value for name, value in extra.items()}

    def read(self, weights: Any = None) -> Any:
        """The model's weights, or the given ones, if they are such as are served."""
        weights = self._current() if weights is None else weights
        if jax.tree.structure(weights) != jax.tree.structure(self._like):
            raise ArgumentError(
                "Serving.update_weights",
                "the weights must have the names of those that are served",
                hint="A model with other layers needs another Serving.",
            )
        named = jax.tree_util.tree_leaves_with_path(weights)
        for (path, value), spec in zip(named, jax.tree.leaves(self._like), strict=True):
            if np.shape(value) != spec.shape or value.dtype != spec.dtype:
                raise ArgumentError(
                    "Serving.update_weights",
                    f"{jax.tree_util.keystr(path)} must be {describe(spec)}, "
                    f"received {describe(value)}",
                    hint="Weights of other shapes need another Serving.",
                )
        return weights


def _specs(example: Any) -> Any:
    """Specs of an example: arrays, or specs already."""
    leaves = jax.tree.leaves(example)
    if leaves and all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
        return example
    return jax.tree.map(spec_like, ArrayDataset(example, op="Serving").tree[0])


class Inputs:
    """The arrays of one kind of request, without their batch axis.

    Args:
        specs: A tree of specs with a batch axis of any size; all other sizes are fixed.
        names: Names of a model's inputs, which a request may be a dict of.

    Attributes:
        names: One name an array, for errors.
        dtypes: What the arrays are converted to.
    """

    def __init__(self, specs: Any, names: tuple[str, ...] | None = None):
        paths, self._treedef = jax.tree_util.tree_flatten_with_path(specs)
        self._named = names
        leaves = [spec for _, spec in paths]
        self._by_name = dict(zip(names, leaves, strict=True)) if names else None
        if names is not None:
            self.names = tuple(f"input {name!r}" for name in names)
        else:
            self.names = tuple(f"x{jax.tree_util.keystr(path)}" for path, _ in paths)
        self.shapes = tuple(tuple(spec.shape[1:]) for _, spec in paths)
        self.dtypes = tuple(np.dtype(canonical_spec(spec).dtype) for _, spec in paths)
        self._single = self._treedef == jax.tree.structure(0)

    def pack(self, values: Any) -> Any:
        """The tree that the program takes, from its leaves in order."""
        return jax.tree.unflatten(self._treedef, values)

    def specs(self, rows: int) -> list[jax.ShapeDtypeStruct]:
        """Specs of the leaves for a batch of so many rows."""
        return [
            jax.ShapeDtypeStruct((rows, *shape), dtype)
            for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
        ]

    def match(self, x: Any, *, finite: bool, copy: bool) -> list[np.ndarray]:
        """A request as NumPy arrays in the program's order, shapes and dtypes.

        Args:
            copy: Whether the arrays are copied, because the caller may change them.
        """
        if type(x) is np.ndarray and self._is_one(x):
            if finite:
                check_finite((x,), ("x",), op="serving")
            return [x.copy() if copy else x]
        options = ReadOptions(finite=finite, inputs=self._by_name)
        dataset = as_dataset(x, op="serving", options=options)
        if not isinstance(dataset, ArrayDataset):
            raise DTypeError(
                "serving",
                f"a request holds arrays, received {type(x).__name__}",
                hint="For many requests one after the other: serving.stream(loader).",
            )
        tree = dataset.tree[0]
        if finite:
            check_finite((tree,), ("x",), op="serving")
        leaves = self._leaves(tree)
        return [self._fit(leaf, i, copy=copy) for i, leaf in enumerate(leaves)]

    def _is_one(self, x: np.ndarray) -> bool:
        """Tells whether the array is a request as it stands, with nothing to check."""
        return (
            self._single
            and x.ndim > 0
            and len(x) > 0
            and x.shape[1:] == self.shapes[0]
            and x.dtype == self.dtypes[0]
        )

    def _leaves(self, tree: Any) -> list[Any]:
        names = self._named
        if names is not None and isinstance(tree, Mapping):
            if set(names) <= set(tree):
                return [tree[name] for name in names]
            raise self._wrong(tree)
        leaves, treedef = jax.tree.flatten(tree)
        fits = len(leaves) == len(self.names)
        if not fits or (names is None and treedef != self._treedef):
            raise self._wrong(tree)
        return leaves

    def _wrong(self, tree: Any) -> DataError:
        if isinstance(tree, Mapping):
            received = "a dict of " + ", ".join(map(repr, tree))
        else:
            received = ", ".join(describe(leaf) for leaf in jax.tree.leaves(tree))
        return DataError(
            "serving",
            f"a request must hold {', '.join(self.names)}",
            {"received": received},
            hint="Pass the arrays in the structure of the example, or by name.",
        )

    def _fit(self, leaf: Any, index: int, *, copy: bool) -> np.ndarray:
        name, shape, dtype = self.names[index], self.shapes[index], self.dtypes[index]
        value = np.asarray(leaf)
        if value.shape[1:] != shape and value.shape[1:] + (1,) == shape:
            value = value[..., None]  # Keras adds a missing last axis of size 1
        if value.shape[1:] != shape:
            spec = describe(spec_of((None, *shape), dtype))
            raise ShapeError(
                "serving",
                f"{name} must be {spec}, received {describe(leaf)}",
                hint="The first axis counts the rows of the request.",
            )
        if value.dtype != dtype:
            cuts = is_float(value.dtype) and not is_float(dtype)
            if cuts and not np.array_equal(value, np.floor(value)):
                raise DataError(
                    "serving",
                    f"{name} must hold {dtype}, received {describe(leaf)} with "
                    "fractions",
                    hint=f"Round it, or cut the fractions off: x.astype('{dtype}').",
                )
            value = value.astype(dtype)
        elif copy:
            value = value.copy()
        return value
