"""A model's scores as a function of its inputs, or of what tables make of these."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp

from exburn.core import forward_context
from exburn.core.forward_context import Interceptor
from exburn.layers import Embedding
from exburn.layers.contract.projected_attention import ProjectedAttention
from exburn.layers.convolution.conv import Convolution
from exburn.training.forward import last_functions
from exburn.training.module import SplitModule

_COPIES = {"convert_element_type", "copy"}


@dataclasses.dataclass(frozen=True)
class ShapedCall:
    """One call of a layer in a pass: its path, and the shape that it returns."""

    path: str
    layer: Any
    shape: tuple[int, ...] | None


class CallSurvey(Interceptor):
    """Notes the calls of a pass, and which inputs tables of embeddings look up.

    Attributes:
        calls: A ``ShapedCall`` for each call, in the order in which they end.
        lookups: For each input that is looked up the paths of the tables.
        outputs: Where each of the model's outputs is in their structure.
        attention: Shapes of the weights of attention layers, by path.
    """

    keeps_arrays = True

    def __init__(self, inputs: list[Any]):
        self._inputs = inputs
        self.calls: list[ShapedCall] = []
        self.lookups: dict[int, list[str]] = {}
        self.outputs: list[tuple] = []
        self.attention: dict[str, tuple[int, ...]] = {}

    @property
    def convolutions(self) -> list[ShapedCall]:
        """The calls of convolutions."""
        return [call for call in self.calls if isinstance(call.layer, Convolution)]

    def __call__(self, layer: Any, call: Any, args: tuple, kwargs: dict) -> Any:
        outputs, ctx = call(*args, **kwargs), forward_context.current()
        assert ctx is not None
        if ctx.builds is None:  # else only shapes are asked for
            path, shape = ctx.path_of(layer), getattr(outputs, "shape", None)
            self.calls.append(ShapedCall(path, layer, shape))
            if (place := looked_up(layer, self._inputs, args, ctx)) is not None:
                self.lookups.setdefault(place, []).append(path)
        return outputs


class Replacement(Interceptor):
    """Puts arrays in the place of what tables return, and moves one layer's outputs.

    Args:
        inputs: The leaves of the inputs.
        tables: The arrays, by the number of the input that is looked up; ``None`` for
            those that are only kept.
        layer, shift: The path of a layer, and what is added to its outputs.

    Attributes:
        rows: The tables' rows, by the number of the input.
        output: What the layer returned, with the shift.
    """

    keeps_arrays = True

    def __init__(
        self, inputs: list[Any], tables: Mapping[int, Any], layer: str, shift: Any
    ):
        self._inputs, self._tables = inputs, tables
        self._layer, self._shift = layer, shift
        self.rows: dict[int, Any] = {}
        self.output: Any = None

    def __call__(self, layer: Any, call: Any, args: tuple, kwargs: dict) -> Any:
        outputs, ctx = call(*args, **kwargs), forward_context.current()
        assert ctx is not None
        if ctx.builds is not None:
            return outputs
        before = outputs
        place = looked_up(layer, self._inputs, args, ctx)
        if place is not None and place in self._tables:
            if (rows := self._tables[place]) is not None:
                outputs = rows.astype(outputs.dtype)
            self.rows[place] = outputs
        if self._layer and ctx.path_of(layer) == self._layer:
            if self._shift is not None:
                outputs = outputs + self._shift.astype(outputs.dtype)
            self.output = outputs
        if outputs is not before:
            ctx.follow(outputs, before)
        return outputs


class AttentionWeights(Interceptor):
    """Keeps the weights of all attention layers, as means over heads.

    Attributes:
        weights: ``[rows, targets, sources]`` of each, in the order of the calls.
        paths: The layers' paths.
    """

    keeps_arrays = True

    def __init__(self):
        self.weights: list[Any] = []
        self.paths: list[str] = []

    def __call__(self, layer: Any, call: Any, args: tuple, kwargs: dict) -> Any:
        ctx = forward_context.current()
        assert ctx is not None
        if ctx.builds is not None or not isinstance(layer, ProjectedAttention):
            return call(*args, **kwargs)
        pair = kwargs.get("return_attention_scores", False)
        outputs, weights = call(*args, **kwargs | {"return_attention_scores": True})
        self.paths.append(ctx.path_of(layer))
        self.weights.append(weights.astype(jnp.float32).mean(1))
        return (outputs, weights) if pair else outputs


def looked_up(layer: Any, inputs: list[Any], args: tuple, ctx: Any) -> int | None:
    """The number of the input that a table is asked for; ``None`` for other calls."""
    if not isinstance(layer, Embedding) or not args:
        return None
    source = ctx.source_of(args[0])
    return next((i for i, value in enumerate(inputs) if value is source), None)


def survey(
    split: SplitModule, x: Any, *, attends: bool = False
) -> tuple[CallSurvey, Any]:
    """The calls of a pass over inputs of these shapes, and its program.

    Args:
        attends: Whether the weights of attention layers are noted.
    """
    notes: list[CallSurvey] = []

    def run(groups: Any, x: Any) -> Any:
        notes.append(CallSurvey(jax.tree.leaves(x)))
        taps: tuple[Interceptor, ...] = (notes[-1],)
        if attends:
            taps = (*taps, flow := AttentionWeights())
        key = jax.random.key(0)
        outputs = split.forward(groups, x, training=False, key=key, interceptors=taps)[
            0
        ]
        if attends:
            shapes = [weights.shape for weights in flow.weights]
            notes[-1].attention = dict(zip(flow.paths, shapes, strict=True))
        pairs = jax.tree_util.tree_flatten_with_path(outputs)[0]
        notes[-1].outputs = [path for path, _ in pairs]
        return outputs

    code = jax.make_jaxpr(run)(split.peek(), x)
    return notes[-1], code.jaxpr


@dataclasses.dataclass(frozen=True)
class Scorer:
    """The scores of one output of a model, in programs of JAX.

    They are what goes into a last softmax or sigmoid, where the output ends in one;
    else the output itself.

    Attributes:
        output: The number of the output.
        tables: Numbers of the inputs that stand for the rows of a table.
        layer: The path of the layer whose outputs are kept, or "".
        channels: The axis of the layer's channels.
        attends: Whether the weights of attention layers are kept.
    """

    split: SplitModule
    output: int
    tables: tuple[int, ...]
    layer: str = ""
    channels: int = -1
    attends: bool = False

    def __call__(
        self, groups: Any, x: Any, features: Mapping[str, Any], shift: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        """Scores, and the rest of a pass by name.

        Args:
            features: Values by the number of the input, as text: they stand for the
                input, or for what a table returns for it.
            shift: What is added to the layer's outputs.

        Returns:
            The scores [rows, …], and ``outputs``, ``rows`` of the tables by number as
            text, ``layer``: the outputs of the layer, ``attention``: the weights of
            attention layers.
        """

        def forward(groups: Any, x: Any, features: Any, shift: Any) -> Any:
            leaves, treedef = jax.tree.flatten(x)
            tables: dict[int, Any] = dict.fromkeys(self.tables)
            for name, value in features.items():
                if int(name) in tables:
                    tables[int(name)] = value
                else:
                    leaves[int(name)] = value
            x = jax.tree.unflatten(treedef, leaves)
            tap, flow = Replacement(leaves, tables, self.layer, shift), None
            taps: tuple[Interceptor, ...] = (tap,)
            if self.attends:
                flow = AttentionWeights()
                taps = (tap, flow)
            key = jax.random.key(0)
            outputs = self.split.forward(
                groups, x, training=False, key=key, interceptors=taps
            )[0]
            rows = {str(place): value for place, value in tap.rows.items()}
            parts = {"outputs": outputs, "rows": rows, "layer": tap.output}
            parts["attention"] = () if flow is None else tuple(flow.weights)
            return jax.tree.leaves(outputs)[self.output], parts

        args = groups, x, features, shift
        code, shapes = jax.make_jaxpr(forward, return_shape=True)(*args)
        first, *others = code.jaxpr.outvars
        score, _ = cut_probabilities(code.jaxpr)
        outvars = [first if score is None else score, *others]
        cut = jax.extend.core.ClosedJaxpr(
            code.jaxpr.replace(outvars=outvars), code.consts
        )
        flat = jax.extend.core.jaxpr_as_fun(cut)(*jax.tree.leaves(args))
        scores, parts = jax.tree.unflatten(jax.tree.structure(shapes), flat)
        return scores.astype(jnp.promote_types(scores.dtype, jnp.float32)), parts

    @property
    def name(self) -> str:
        """What tells its programs from those of others."""
        return f"{self.output} {self.tables} {self.layer} {self.attends}"


def cut_probabilities(jaxpr: Any, output: int = 0) -> tuple[Any, str]:
    """What goes into the softmax or sigmoid at the end of an output of a program.

    Returns:
        The variable, and ``"softmax"`` or ``"sigmoid"``; ``(None, "outputs")`` where
        the output does not end so.

    Example:
        >>> code = jax.make_jaxpr(lambda x: jax.nn.sigmoid(2 * x))(1.0)
        >>> variable, kind = cut_probabilities(code.jaxpr)
        >>> kind, variable is code.jaxpr.eqns[0].outvars[0]
        ('sigmoid', True)
    """
    kind, end = last_functions(jaxpr)[output], jaxpr.outvars[output]
    if kind in ("softmax", "sigmoid"):
        variable = _argument(jaxpr, end)
        if variable is not None and variable.aval.shape == end.aval.shape:
            return variable, kind
    return None, "outputs"


def _argument(jaxpr: Any, variable: Any) -> Any:
    """The variable that the last function of a program is computed from."""
    producers = {id(var): eqn for eqn in jaxpr.eqns for var in eqn.outvars}

    def trail(var: Any) -> tuple[Any, Any]:
        while (eqn := producers.get(id(var))) and eqn.primitive.name in _COPIES:
            var = eqn.invars[0]
        return var, eqn

    variable, eqn = trail(variable)
    if eqn is None:
        return None
    for name in ("jaxpr", "call_jaxpr"):
        if name in eqn.params:
            inner = getattr(eqn.params[name], "jaxpr", eqn.params[name])
            outcome = inner.outvars[eqn.outvars.index(variable)]
            within = _argument(inner, outcome)
            places = [i for i, var in enumerate(inner.invars) if var is within]
            return eqn.invars[places[0]] if places else None
    if eqn.primitive.name == "logistic":
        return eqn.invars[0]
    if eqn.primitive.name != "div":
        return None
    quotient = trail(eqn.invars[0])[1]
    exponent = None if quotient is None else trail(quotient.invars[0])[1]
    shifted = exponent is not None and exponent.primitive.name == "sub"
    return exponent.invars[0] if exponent is not None and shifted else None
