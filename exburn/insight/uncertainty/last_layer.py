"""The linear layer at the end of a model, and the features that go into it."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn import activations
from exburn.core import forward_context
from exburn.core.forward_context import Interceptor
from exburn.errors import ArgumentError
from exburn.insight.explanations.scores import cut_probabilities, survey
from exburn.insight.uncertainty.outputs import OutputHead
from exburn.insight.uncertainty.passes import Pass
from exburn.layers import Dense
from exburn.training.module import SplitModule
from exburn.training.program import Programs

_FORMS = {"convert_element_type", "reshape", "squeeze", "copy"}  # of the same numbers


@dataclasses.dataclass(frozen=True)
class LastLayer:
    """A ``Dense`` layer whose products are an output of the model, or its logits.

    Attributes:
        path: Of the layer.
        weights: ``[width, classes]`` in float32: the kernel, and the bias as its last
            row, where there is one.
        has_bias: Whether there is.
    """

    path: str
    weights: np.ndarray
    has_bias: bool

    @property
    def program_name(self) -> str:
        """What tells its program from those of others."""
        return f"features of {self.path}"

    def make_features(self, programs: Programs) -> Pass:
        """What goes into the layer: ``[rows, …, width]``, with 1 for the bias."""

        def features(arrays: Any, extra: Any, x: Any, key: Any) -> Any:
            tap = _Tap(self.path)
            programs.split.forward(
                arrays, x, training=False, key=key, interceptors=(tap,)
            )
            values = tap.inputs.astype(jnp.float32)
            if self.has_bias:
                values = jnp.concatenate([values, jnp.ones_like(values[..., :1])], -1)
            return values

        return features


class _Tap(Interceptor):
    """Keeps what goes into a layer, and puts an array in the place of its outputs."""

    keeps_arrays = True

    def __init__(self, path: str, stand_in: Any = None):
        self._path, self._stand_in = path, stand_in
        self.inputs: Any = None

    def __call__(self, layer: Any, call: Any, args: tuple, kwargs: dict) -> Any:
        outputs, ctx = call(*args, **kwargs), forward_context.current()
        assert ctx is not None
        if ctx.builds is None and ctx.path_of(layer) == self._path:
            self.inputs = args[0]
            if self._stand_in is not None:
                outputs = self._stand_in.astype(outputs.dtype)
        return outputs


def find_last_layer(split: SplitModule, x: Any, head: OutputHead, op: str) -> LastLayer:
    """The layer of an output, in a pass over inputs of these shapes.

    Raises:
        ArgumentError: The output is not the product of one ``Dense`` layer.
    """
    calls = survey(split, x)[0].calls
    paths = [call.path for call in calls]
    for call in reversed(calls):
        layer, once = call.layer, paths.count(call.path) == 1
        if isinstance(layer, Dense) and once and call.shape is not None:
            if _ends_in(split, x, head, layer, call.path, call.shape):
                return _read(split, call.path, op)
    raise ArgumentError(
        op,
        f"the output {head.name!r} is not the product of one Dense layer, whose "
        "weights 'laplace' takes for uncertain",
        hint='method="swag" takes all weights, whatever the layers.',
    )


def _ends_in(
    split: SplitModule, x: Any, head: OutputHead, layer: Any, path: str, shape: tuple
) -> bool:
    """Whether the output, or what goes into its softmax, is the layer's product."""

    def run(stand_in: Any, groups: Any, x: Any) -> Any:
        key, taps = jax.random.key(0), (_Tap(path, stand_in),)
        return split.forward(groups, x, training=False, key=key, interceptors=taps)[0]

    stand_in = jax.ShapeDtypeStruct(shape, jnp.float32)
    code = jax.make_jaxpr(run)(stand_in, split.peek(), x).jaxpr
    linear = layer.activation is activations.linear
    end = code.outvars[head.number]
    if not head.has_classes or head.logits:
        return linear and _origin(code, end) is code.invars[0]
    if linear:
        variable, kind = cut_probabilities(code, head.number)
        return kind == head.family and _origin(code, variable) is code.invars[0]
    own = {"softmax": activations.softmax, "sigmoid": activations.sigmoid}
    whole = layer.activation is own[head.family]
    return whole and _origin(code, end) is code.invars[0]


def _origin(code: Any, variable: Any) -> Any:
    """The variable whose numbers another has, in some form."""
    producers = {id(var): eqn for eqn in code.eqns for var in eqn.outvars}
    while (eqn := producers.get(id(variable))) and eqn.primitive.name in _FORMS:
        variable = eqn.invars[0]
    return variable


def _read(split: SplitModule, path: str, op: str) -> LastLayer:
    params, frozen, others = split.read()
    arrays = params | frozen | others
    own = {
        n.rpartition("/")[2]: v for n, v in arrays.items() if n.startswith(f"{path}/")
    }
    if "kernel" not in own or set(own) - {"kernel", "bias"}:
        raise ArgumentError(
            op,
            f"the layer {path!r} has an adapter, or weights in few bits",
            {"weights": ", ".join(own)},
            hint="Merge an adapter first: model.merge_lora().",
        )
    kernel = np.asarray(own["kernel"], np.float32)
    if "bias" not in own:
        return LastLayer(path, kernel, False)
    bias = np.asarray(own["bias"], np.float32)
    return LastLayer(path, np.concatenate([kernel, bias[None]]), True)
