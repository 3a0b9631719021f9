"""Rules of embeddings, attention and recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from exburn.compression.channels.units import (
    ELSEWHERE,
    Channels,
    LayerCall,
    Units,
    check_activation,
    ids_of,
    lies_elsewhere,
    make_units,
)
from exburn.layers import MultiHeadAttention


def embedding(units: Units, call: LayerCall) -> Any:
    """Each entry of the vectors is a unit."""
    return make_units(units, call, "output_dim", "embeddings", 1, call.rank - 1)


def position_embedding(units: Units, call: LayerCall) -> Any:
    """Vectors as wide as the tensor whose positions they are of."""
    if lies_elsewhere(call.one, call.rank - 1):
        return ELSEWHERE
    units.lie(f"{call.path}/embeddings", 1, ids_of(call.one))
    return call.one


def attention(units: Units, call: LayerCall) -> Any:
    """Takes the units of its inputs, and puts out those of its query.

    Its heads are units of its own; of grouped heads, a head of keys and values with all
    of its queries.
    """
    layer, path, tensors = call.layer, call.path, call.tensors
    if not layer._is_own:
        return "computes attention in a way of its own"
    if layer.query_norm is not None or layer.key_norm is not None:
        return "normalizes the heads of its query or key"
    query, value = tensors["query"], tensors["value"]
    key = tensors.get("key", value)
    for one in (query, key, value):
        if one is not None and one.axis != one.rank - 1:
            return ELSEWHERE
    heads, key_heads, _, _ = layer._heads
    grouped = not isinstance(layer, MultiHeadAttention)
    option = "num_key_value_heads" if grouped else "num_heads"
    kernel = np.asarray(layer.attention_output.kernel)  # [heads, size, *out]
    own = units.make(path, option, kernel.reshape(key_heads, -1), 0)
    every = np.repeat(own, heads // key_heads)
    if grouped:
        units.sizes[path, "num_query_heads"] = every, None
    for part, one, ids in (
        ("query", query, every),
        ("gate", query, every),
        ("key", key, own),
        ("value", value, own),
    ):
        if getattr(layer, part) is not None:
            units.lie(f"{path}/{part}/kernel", 0, ids_of(one))
            units.lie(f"{path}/{part}/kernel", 1, ids)
            if layer.use_bias:
                units.lie(f"{path}/{part}/bias", 0, ids)
    units.lie(f"{path}/attention_output/kernel", 0, every)
    values = np.abs(np.asarray(layer.value.kernel))
    units.scale(own, values.mean(axis=(0, 2)))
    mask = call.shape_of("attention_mask")
    if len(call.out) > 1 or (mask is not None and len(mask) > 3):
        units.fix(own)  # scores are put out, or masks given, for each head
    if layer._output_sizes is not None:
        return None
    units.lie(f"{path}/attention_output/kernel", 2, ids_of(query))
    if layer.use_output_bias:
        units.lie(f"{path}/attention_output/bias", 0, ids_of(query))
    return [query, *[None] * (len(call.out) - 1)]


def dot_attention(units: Units, call: LayerCall) -> Any:
    """Sums over the units of query and key, and puts out those of the value."""
    query, value = call.inputs[:2]
    key = call.inputs[2] if call.names[2:3] == call.names[:1] else value
    for one in (query, key, value):
        if one is not None and one.axis != one.rank - 1:
            return ELSEWHERE
    if query is not None and key is not None:
        units.tie(query.ids, key.ids)
    else:
        for one in (query, key):
            if one is not None:
                units.fix(one.ids)
    scale = getattr(call.layer, "scale", None)
    if getattr(scale, "ndim", 0) == 1:  # of additive attention
        units.lie(f"{call.path}/scale", 0, ids_of(query))
    return [value, *[None] * (len(call.out) - 1)]


def recurrent(units: Units, call: LayerCall) -> Any:
    """Each number of the state is a unit, once for each gate of the cell."""
    layer, cell, path = call.layer, call.of("cell"), f"{call.path}/cell"
    if layer.stateful:
        return "carries its states from batch to batch"
    if call.one is not None and call.one.axis != call.one.rank - 1:
        return ELSEWHERE
    kernel = np.asarray(cell.layer.kernel)
    gates = kernel.shape[1] // layer.units
    kernel = kernel.reshape(-1, gates, layer.units)
    ids = units.make(call.path, "units", kernel, 2)
    wide = np.tile(ids, gates)
    units.lie(f"{path}/kernel", 0, ids_of(call.one))
    units.lie(f"{path}/kernel", 1, wide)
    units.lie(f"{path}/recurrent_kernel", 0, ids)
    units.lie(f"{path}/recurrent_kernel", 1, wide)
    if cell.layer.bias is not None:
        units.lie(f"{path}/bias", cell.layer.bias.ndim - 1, wide)
    for name in ("activation", "recurrent_activation"):
        check_activation(units, cell, ids, name)
    for state, name in zip(call.inputs, call.names, strict=True):
        if name != "initial_state":
            continue
        if state is None:
            units.fix(ids)
        else:
            units.tie(ids, state.ids)
    return [Channels(ids, len(shape) - 1, len(shape)) for shape in call.out]


def bidirectional(units: Units, call: LayerCall) -> Any:
    """Two recurrent layers, whose outputs lie behind or over each other."""
    layer, states = call.layer, call.out[1:]
    if layer.merge_mode is None:
        return "puts out two tensors"
    if "initial_state" in call.names:
        return "is given states"
    half = len(states) // 2
    results = []
    for part, own in (
        ("forward_layer", states[:half]),
        ("backward_layer", states[half:]),
    ):
        result = recurrent(units, call.of(part, out=[call.out[0], *own]))
        if isinstance(result, str):
            return result
        results.append(result)
    (one, *first), (two, *second) = results
    if layer.merge_mode == "concat":
        both = np.concatenate([one.ids, two.ids])
        one = Channels(both, one.axis, one.rank)
    else:
        units.tie(one.ids, two.ids)
    return [one, *first, *second]
