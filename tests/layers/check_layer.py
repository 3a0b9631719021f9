"""The contract that every layer keeps, as one function.

``check_layer(make, x)`` makes layers by ``make(**options)`` and calls them on arrays.
"""

import json
import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from exburn.core import forward_context, random_keys, registry
from exburn.module.layer import Layer
from exburn.module.symbolic_tensor import Symbol
from exburn.module.traversal import module_paths


def pure(layer, *, training=False, row_mask=None, **kwargs):
    """``(call, state)``: the layer as a pure function of its state, a key and inputs.

    ``call(state, key, *inputs)`` gives the outputs, the new state and the added losses.
    """
    graphdef, state = nnx.split(layer)
    leaves, treedef = jax.tree.flatten(state)

    def call(leaves, key, *inputs, rows=row_mask):
        copy = nnx.merge(graphdef, jax.tree.unflatten(treedef, leaves))
        ctx = forward_context.Context(training=training, key=key, row_mask=rows)
        ctx.paths = module_paths(copy)
        with forward_context.forward(ctx):
            outputs = copy(*inputs, **kwargs)
        return outputs, jax.tree.leaves(nnx.state(copy)), ctx.losses

    return call, leaves


def check_layer(
    make,
    *inputs,
    free=(),
    mixes_rows=False,
    random=False,
    config=True,
    half=True,
    learns=None,
    differentiable=True,
    call=None,
):
    """Checks the contract; raises AssertionError where a layer breaks it.

    Args:
        make: Makes a new layer; takes ``dtype=`` and other options of the base class.
        inputs: Arguments of the call: arrays, or lists of arrays, with a batch of 4.
        free: Axes besides the batch whose size may be unknown to the layer.
        mixes_rows: Whether a row's output depends on other rows in training.
        random: Whether training is random.
        config: Whether the layer can be described in a configuration.
        half: Whether outputs are floats in the compute dtype.
        learns: Whether one training step lowers a loss; whether it has parameters by
            default.
        differentiable: Whether gradients reach the inputs.
        call: Further keyword arguments of the call.
    """
    call = call or {}
    layer = make()
    assert isinstance(layer, Layer)
    check_shapes(make, layer, inputs, free, call)
    trained, outputs = check_jit(layer, inputs, call)
    check_rows(layer, inputs, trained, outputs, mixes_rows, random, call)
    if half:
        check_half(make, layer, inputs, outputs[0], call)
    if config:
        check_config(layer, inputs, outputs[0], call)
    if learns is None:
        learns = bool(layer.trainable_weights)
    if learns or differentiable:
        check_gradients(layer, inputs, learns, differentiable, call)


def check_shapes(make, layer, inputs, free, call):
    """Shapes inferred from symbols are those of arrays, whatever the batch."""
    unknown = (0, *free)

    def symbol(x):
        shape = tuple(None if i in unknown else d for i, d in enumerate(x.shape))
        return Symbol(shape, jnp.result_type(x))

    inferred = layer(*jax.tree.map(symbol, inputs), **call)
    assert layer.built
    assert layer.weights is not None  # asking for them fills them
    function, state = pure(layer, **call)
    for some in (inputs, jax.tree.map(lambda x: x[:1], inputs)):
        real, _, _ = jax.eval_shape(function, state, jax.random.key(0), *some)
        same_specs(inferred, real)
    if not free:
        assert all(None not in s.shape[1:] for s in jax.tree.leaves(inferred))
    alone = make()  # never saw a symbol
    with random_keys.key_scope(jax.random.key(0)):
        same_specs(inferred, alone(*inputs, **call))
    assert [w.shape for w in alone.weights] == [w.shape for w in layer.weights]


def same_specs(inferred, real):
    assert jax.tree.structure(real) == jax.tree.structure(inferred)
    for s, r in zip(jax.tree.leaves(inferred), jax.tree.leaves(real), strict=True):
        assert s.dtype == r.dtype
        pairs = zip(s.shape, r.shape, strict=True)
        assert all(a is None or a == b for a, b in pairs), (s, r.shape)


def check_jit(layer, inputs, call):
    """Compiled and eager calls agree, in outputs and in the new state."""
    key = jax.random.key(1)
    training, state = pure(layer, training=True, **call)
    inference, _ = pure(layer, training=False, **call)

    def both(*args):
        return training(*args)[:2], inference(*args)[:2]

    compiled = jax.jit(both)(state, key, *inputs)
    close(both(state, key, *inputs), compiled)
    (_, after), (_, unchanged) = compiled
    assert [v.dtype for v in after] == [v.dtype for v in state]
    close(unchanged, state)
    return compiled


def check_rows(layer, inputs, trained, outputs, mixes_rows, random, call):
    """Rows that are only padding change nothing, however wild they are."""
    padded = jax.tree.map(_pad, inputs)
    key, rows = jax.random.key(1), np.arange(6) < 4
    inference, state = pure(layer, training=False, **call)
    row_mask = jnp.asarray(rows) if mixes_rows else None
    training, _ = pure(layer, training=True, row_mask=row_mask, **call)

    def both(*args):
        return training(*args)[:2], inference(*args)[:2]

    results = jax.jit(both)(state, key, *padded)
    for (y, after), expected, is_random in zip(
        results, (trained, outputs), (random, False), strict=True
    ):
        if not is_random:  # noise has the shape of the batch
            close((jax.tree.map(lambda y: np.asarray(y)[:4], y), after), expected)


def _pad(x):
    """Two more rows, which are copies of large numbers, not of data."""
    x = np.asarray(x)
    wild = np.full((2, *x.shape[1:]), 50, x.dtype) if x.dtype.kind == "f" else x[:2]
    return np.concatenate([x, wild])


def check_gradients(layer, inputs, learns, differentiable, call):
    """Gradients are finite, and a small step against them lowers the loss."""
    function, state = pure(layer, training=True, **call)
    flat = [v for _, v in nnx.to_flat_state(nnx.state(layer))]
    learned = [isinstance(v, nnx.Param) for v in flat]
    assert sum(learned) == len(layer.trainable_weights)
    leaves, treedef = jax.tree.flatten(inputs)

    def loss(active, leaves):
        active = iter(active)
        full = [next(active) if p else v for p, v in zip(learned, state, strict=True)]
        given = jax.tree.unflatten(treedef, leaves)
        outputs, _, _ = function(full, jax.random.key(4), *given)
        return sum(
            jnp.mean((y.astype("float32") - 0.3) ** 2) for y in jax.tree.leaves(outputs)
        )

    def step(active, leaves):
        before, grads = jax.value_and_grad(loss, (0, 1) if differentiable else 0)(
            active, leaves
        )
        own = grads[0] if differentiable else grads
        rate = 0.01 * before / sum(jnp.sum(g * g) for g in own) if own else 0
        moved = [v - rate * g for v, g in zip(active, own, strict=True)]
        return before, grads, loss(moved, leaves) if learns else None

    active = [v for p, v in zip(learned, state, strict=True) if p]
    before, grads, after = jax.jit(step)(active, leaves)
    for g in jax.tree.leaves(grads):
        assert np.isfinite(np.asarray(g)).all()
    if differentiable:
        assert any(np.any(np.asarray(g)) for g in grads[1])
    if learns:
        assert after < before


def check_half(make, layer, inputs, outputs, call):
    """Mixed precision: weights stay float32, outputs are half and nearly the same."""
    policies = {"mixed_bfloat16": 0.06, "mixed_float16": 0.01}
    programs = []
    for policy in policies:
        half = make(dtype=policy)
        half.compute_output_spec(*jax.tree.map(_spec, inputs), **call)
        half.set_weights(layer.get_weights())
        assert all(w.dtype in ("float32", "int32", "uint32") for w in half.weights)
        programs.append(pure(half, **call))

    def run(key, *inputs):
        return [function(state, key, *inputs)[0] for function, state in programs]

    results = jax.jit(run)(jax.random.key(0), *inputs)
    for (policy, tolerance), result in zip(policies.items(), results, strict=True):
        for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(outputs), strict=True):
            if jnp.issubdtype(b.dtype, jnp.floating):
                assert a.dtype == policy.removeprefix("mixed_")
                a, b = np.asarray(a, "float32"), np.asarray(b)
                assert np.abs(a - b).max() < tolerance * (1 + np.abs(b).max())


def _spec(x):
    return jax.ShapeDtypeStruct(x.shape, jnp.result_type(x))


def check_config(layer, inputs, outputs, call):
    """A layer made from the JSON of its configuration is the same layer."""
    config = layer.get_config()
    copy = type(layer).from_config(json.loads(json.dumps(config)))
    assert copy.get_config() == config
    assert copy.name == layer.name
    again = registry.deserialize(json.loads(json.dumps(registry.serialize(layer))))
    assert type(again) is type(layer)
    copy(*inputs, **call)
    copy.set_weights(layer.get_weights())
    close(copy(*inputs, **call), outputs)


def close(a, b, tolerance=1e-5):
    a, b = jax.tree.leaves(a), jax.tree.leaves(b)
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert x.shape == y.shape
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)
