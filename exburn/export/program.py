"""A model's inference as one function of arrays, traced for a runtime."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.precision import PrecisionPolicy, is_float
from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, ExBurnError, ShapeError, warn
from exburn.export.open_sizes import freest
from exburn.export.operations import Operations, inline
from exburn.export.signature import exact_spec, names_of
from exburn.module.layer import Layer
from exburn.module.traversal import iter_modules
from exburn.runtime.portable import TARGETS, portable
from exburn.training.module import SplitModule

_EXACT = PrecisionPolicy()


class ExportedProgram:
    """A model's inference: weights and inputs in, outputs out.

    Args:
        specs: Specs of its inputs, in their structure.
        target: The runtime that it is traced for: see ``portable``; ``None`` for none.
        samples: Inputs of the model that files are compared on, and calibrated by.
        declared: Dtypes of the inputs as the model declares them; by default those of
            the specs.

    Attributes:
        wide: Names of the inputs that are int64 in a file, and int32 in the program.
        groups: The weights: a tree of arrays, whose leaves are in ``weight_names``.
        exact: Whether weights and arithmetic are float32.
        input_names, output_names: A name for each leaf of inputs and outputs.
        trials: Inputs and outputs that files are compared on, once they are drawn.
    """

    wide: frozenset[str] = frozenset()

    def __init__(
        self,
        model: Any,
        specs: Any,
        target: str | None,
        samples: Any = None,
        declared: Any = None,
    ):
        self.declared = declared
        self.model, self.target, self.samples = model, target, samples
        self.trials: list[tuple[list, list]] | None = None
        self.exact = target is not None and TARGETS[target].exact
        self.specs = jax.tree.map(exact_spec, specs) if self.exact else specs
        with _without_observers(model):
            self._split = SplitModule(model)
        groups = self._split.read()
        self.groups = jax.tree.map(_exact_array, groups) if self.exact else groups
        graph = getattr(model, "graph", None)
        self._given = (
            getattr(graph, "input_names", None),
            getattr(graph, "output_names", None),
        )
        self.input_names = names_of(self.specs, "input", self._given[0])
        self._bound: int | None = None

    def infer(self, groups: Any, x: Any, key: Any = None) -> Any:
        """The model's outputs at inference, for weights and inputs.

        Layers that draw do so from a fixed key, if none is given.
        """
        outputs, _, ctx = self._split.forward(
            groups,
            x,
            training=False,
            key=jax.random.key(0) if key is None else key,
            prepare=_make_exact if self.exact else None,
        )
        bounds = [rows for _, rows, _ in ctx.lookups if rows]
        self._bound = min(bounds, default=self._bound)
        return outputs

    @functools.cached_property
    def jaxpr(self) -> Any:
        """The program's jaxpr; its arguments are weights, inputs, and a random key.

        What depends on the key is drawn anew at each call of the model.

        Raises:
            ArgumentError: It cannot be traced with sizes that are open.
        """
        with tracing_errors(self.specs):
            return self._trace()

    def _trace(self) -> Any:
        """The jaxpr, which ``jaxpr`` is from now on."""
        scope = (
            contextlib.nullcontext() if self.target is None else portable(self.target)
        )
        with scope:
            closed, shape = jax.make_jaxpr(self.entry, return_shape=True)(
                self.groups, self.specs, jax.random.key(0)
            )
        self._outputs = shape
        vars(self)["jaxpr"] = closed
        return closed

    def entry(self, groups: Any, x: Any, key: Any = None) -> Any:
        """As ``infer``, with outputs in float32 if the program is exact."""
        outputs = self.infer(groups, x, key)
        if not self.exact:
            return outputs
        return jax.tree.map(_exact_array, outputs)

    @functools.cached_property
    def operations(self) -> Operations:
        """The operations that the outputs depend on, calls within calls put in line."""
        return inline(self.jaxpr)

    @property
    def outputs(self) -> Any:
        """Specs of the outputs, in their structure."""
        _ = self.jaxpr
        return self._outputs

    @property
    def output_names(self) -> list[str]:
        names = self._given[1]
        return names_of(self.outputs, "output", names, self.input_names)

    @property
    def weight_names(self) -> list[str]:
        """The path of each leaf of ``groups``."""
        return [name for group in self.groups for name in sorted(group)]

    @property
    def weights(self) -> list[np.ndarray]:
        """The leaves of ``groups`` in host memory."""
        return [np.asarray(v) for v in jax.tree.leaves(self.groups)]

    @property
    def weight_bytes(self) -> int:
        return sum(v.size * v.dtype.itemsize for v in jax.tree.leaves(self.groups))

    @property
    def rows(self) -> int | None:
        """How many rows it takes; ``None`` for any number."""
        leaves = jax.tree.leaves(self.specs)
        first = leaves[0].shape[0] if leaves and leaves[0].shape else 1
        return first if isinstance(first, int) else None

    @property
    def is_dynamic(self) -> bool:
        """Whether a size of the inputs is open."""
        sizes = [n for spec in jax.tree.leaves(self.specs) for n in spec.shape]
        return not all(isinstance(n, int) for n in sizes)

    @property
    def id_bound(self) -> int | None:
        """The rows of the smallest table that inputs are looked up in, if any are."""
        _ = self.jaxpr
        return self._bound

    def with_specs(self, specs: Any) -> ExportedProgram:
        """The same model for inputs of other sizes, not traced yet."""
        other = copy.copy(self)
        for name in ("jaxpr", "operations"):
            vars(other).pop(name, None)
        other.specs = jax.tree.map(exact_spec, specs) if self.exact else specs
        other.trials = other._bound = None
        return other

    def with_open_sizes(self) -> ExportedProgram:
        """The program for inputs whose open sizes are as free as the model lets them.

        Raises:
            ArgumentError: It cannot be traced with sizes that are open.
        """

        def attempt(specs: Any) -> ExportedProgram:
            other = self.with_specs(specs)
            other._trace()
            return other

        with tracing_errors(self.specs):
            return freest(attempt, self.specs, self.input_names, rows=True)

    def traced_for(self, target: str | None) -> ExportedProgram:
        """The same model for another runtime."""
        return ExportedProgram(self.model, self.specs, target, self.samples)

    def descriptions(self) -> tuple[dict[str, str], dict[str, str]]:
        """What inputs and outputs are, by name."""

        def table(names: list[str], tree: Any) -> dict[str, str]:
            leaves = jax.tree.leaves(tree)
            return {n: _describe(v) for n, v in zip(names, leaves, strict=True)}

        inputs = table(self.input_names, self.specs)
        inputs |= {n: inputs[n].replace("int32", "int64", 1) for n in self.wide}
        return inputs, table(self.output_names, self.outputs)

    def reference(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """The model's own outputs, as this process computes them, in float32."""
        x = jax.tree.unflatten(jax.tree.structure(self.specs), inputs)

        def run(groups: Any, x: Any, key: Any) -> Any:  # a trace of its own
            return self.entry(groups, x, key)

        with jax.default_matmul_precision("highest"):
            outputs = jax.jit(run)(self.groups, x, jax.random.key(0))
        return [np.asarray(v) for v in jax.tree.leaves(outputs)]


@contextlib.contextmanager
def tracing_errors(specs: Any) -> Iterator[None]:
    """Says of an error in the block that an open size may be what it comes from.

    Raises:
        ArgumentError: Something was raised, and a size is open.
    """
    try:
        yield
    except Exception as error:
        sizes = [n for spec in jax.tree.leaves(specs) for n in spec.shape]
        other = isinstance(error, ExBurnError) and not isinstance(error, ShapeError)
        if other or all(isinstance(n, int) for n in sizes):
            raise
        rows = all(isinstance(n, int) or str(n) == "batch" for n in sizes)
        what = "an unknown number of rows" if rows else "sizes that are open"
        raise ArgumentError(
            "export",
            f"the model cannot be traced for {what}",
            {"cause": str(error).partition("\n")[0]},
            hint="Fix the rows: model.export(path, batch_size=32); other open sizes: "
            'model.export(path, dynamic="batch", samples=x[:8]); or both: '
            "dynamic=None.",
        ) from error


def warn_of_lookups(model: Any) -> None:
    """Says that what a model looks up on the host is no part of its program."""
    if (host := getattr(model, "host_graph", None)) is not None:
        lookups = ", ".join(map(repr, host.lookups))
        warn(
            f"{lookups} run on the host, and are not in the exported program: its "
            "inputs are those that model.encode_inputs(x) returns"
        )


def _describe(spec: Any) -> str:
    sizes = ", ".join(str(n) for n in spec.shape)
    return f"{describe(spec).partition('[')[0]}[{sizes}]"


def _is_half(dtype: Any) -> bool:
    return is_float(dtype) and jnp.dtype(dtype).itemsize == 2


def _exact_array(value: Any) -> Any:
    return value.astype(jnp.float32) if _is_half(value.dtype) else value


def _make_exact(module: Any) -> None:
    """Lets the layers of a copy of a module compute in float32."""
    for _, layer in iter_modules(module):
        if not isinstance(layer, Layer):
            continue
        policy = layer.precision
        dtypes = policy.param, policy.compute, policy.output
        if any(dtype in ("bfloat16", "float16") for dtype in dtypes):
            object.__setattr__(layer, "_policy", _EXACT)
            object.__setattr__(layer, "_given_policy", None)


@contextlib.contextmanager
def _without_observers(model: Any) -> Iterator[None]:
    """The model without the functions of ``on_output``, which stay in this process."""
    tapped = [
        (layer, layer._taps)
        for _, layer in iter_modules(model)
        if getattr(layer, "_taps", None) is not None
    ]
    for layer, _ in tapped:
        layer._taps = None
    try:
        yield
    finally:
        for layer, taps in tapped:
            layer._taps = taps
