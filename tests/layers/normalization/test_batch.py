"""Tests of ``exburn.layers.normalization.batch``."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.distribution.devices import on_devices
from tests.golden import keras
from tests.layers.beside_keras import FLAT as FLAT_BESIDE_KERAS
from tests.layers.beside_keras import IMAGE as IMAGE_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE, compare, run, run_peer
from tests.layers.check_layer import pure
from tests.layers.inputs import FLAT, IMAGE
from tests.layers.noise_and_masks import KEY, X, rng

from exburn import distribution
from exburn import layers as L
from exburn.layers.normalization.batch import _normalize
from exburn.runtime.sharding.current import in_force
from exburn.training.module import SplitModule

CONTRACT = {
    "BatchNormalization": (L.BatchNormalization, (), IMAGE, {"mixes_rows": True}),
    "BatchNormalization-renorm": (
        partial(L.BatchNormalization, renorm=True, renorm_clipping={"rmax": 3.0}),
        (1, 0.9),
        FLAT,
        {"mixes_rows": True},
    ),
}

BAD_ARGUMENTS = [
    (lambda: L.BatchNormalization(renorm_clipping={"rmax": 1, "rmin": 2}), "rmin <="),
]

NORMS = [
    ({}, IMAGE_BESIDE_KERAS, None),
    ({"axis": 1, "momentum": 0.8, "epsilon": 0.1}, IMAGE_BESIDE_KERAS, None),
    ({"center": False, "scale": False}, FLAT_BESIDE_KERAS, None),
    ({"momentum": 0.5}, SEQUENCE, np.arange(18).reshape(2, 9) % 4 != 0),
    ({"renorm": True}, FLAT_BESIDE_KERAS, None),
    (
        {"renorm": True, "renorm_clipping": {"rmin": 0.9, "rmax": 1.1, "dmax": 0.2}}
        | {"renorm_momentum": 0.7, "momentum": 0.6},
        IMAGE_BESIDE_KERAS,
        None,
    ),
]


def test_batch_statistics_are_exact_far_from_zero():
    x = (rng.normal(size=(256, 3)) * 0.1 + 5000).astype("float32")
    layer = L.BatchNormalization(momentum=0.0, epsilon=0.0)
    y = np.asarray(layer(x, training=True))
    exact = x.astype("float64")
    np.testing.assert_allclose(layer.moving_variance.numpy(), exact.var(0), rtol=1e-3)
    np.testing.assert_allclose(
        y, (exact - exact.mean(0)) / exact.std(0), rtol=1e-2, atol=1e-2
    )


def test_batch_normalization_keeps_gradients_exact_far_from_zero():
    x = rng.normal(size=(64, 5, 3)).astype("float32") + 1000
    slope = rng.normal(size=x.shape).astype("float32")
    layer = L.BatchNormalization()
    layer(x)
    split = SplitModule(layer)
    params, *rest = split.read()

    def loss(params):
        return (split.forward((params, *rest), x, training=True)[0] * slope).sum()

    grads = jax.grad(loss)(params)
    exact = x.astype("float64")
    unit = (exact - exact.mean((0, 1))) / np.sqrt(exact.var((0, 1)) + 1e-3)
    np.testing.assert_allclose(grads["gamma"], (unit * slope).sum((0, 1)), rtol=1e-5)


def test_padding_rows_may_be_nan():
    layer = L.BatchNormalization()
    layer(X)
    padded = np.concatenate([X, np.full((2, 6), np.nan, "float32")])
    rows = jnp.arange(6) < 4
    function, state = pure(layer, training=True)

    def loss(leaves, x, rows):
        y, after, _ = function(leaves, KEY, x, rows=rows)
        return jnp.sum(jnp.where(jnp.arange(len(y)) < 4, y.T, 0) ** 3), after

    grad = jax.grad(loss, (0, 1), has_aux=True)
    expected, after = grad(state, X, None)
    result, padded_after = grad(state, padded, rows)
    for a, b in zip(padded_after + result[0], after + expected[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(result[1][:4], expected[1], rtol=1e-5, atol=1e-5)


def test_padding_rows_may_be_nan_beside_masked_steps():
    x = rng.normal(size=(3, 5, 2)).astype("float32")
    mask = np.arange(15).reshape(3, 5) % 4 != 0
    layer = L.BatchNormalization()
    layer(x)

    def grad(x, mask, rows):
        function, state = pure(layer, training=True, mask=mask)

        def loss(leaves, x):
            y, after, _ = function(leaves, KEY, x, rows=rows)
            return jnp.sum(y[:3] ** 3), (y[:3], after)

        return jax.grad(loss, (0, 1), has_aux=True)(state, x)

    expected, (y, after) = grad(x, mask, None)
    padded = np.concatenate([x, np.full((2, 5, 2), np.nan, "float32")])
    mask = np.concatenate([mask, np.ones((2, 5), bool)])
    result, (padded_y, padded_after) = grad(padded, mask, jnp.arange(5) < 3)
    for a, b in zip(padded_after + result[0], after + expected[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(padded_y, y, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(result[1][:3], expected[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("masked", "selections"), [(False, 1), (True, 2)])
def test_padding_is_taken_out_in_one_pass_over_the_batch(masked, selections):
    # Each further one was an eighth of a step of dense layers on a processor.
    x = jnp.ones((7, 5, 3))
    rows, steps = jnp.arange(7)[:, None, None] < 4, jnp.ones((7, 5, 1), bool)
    one = jnp.ones(3)

    def normalize(x):
        steps_or_none = steps if masked else None
        options = (None, 2, 1e-3, (None, None, None))
        return _normalize.__wrapped__(x, rows, steps_or_none, one, one, *options)[0]

    text = str(jax.make_jaxpr(normalize)(x))
    assert len(re.findall(r"f32\[7,5,3\] = jit\[\s*name=_where", text)) == selections


def test_statistics_stay_in_float32():
    layer = L.BatchNormalization(dtype="bfloat16")
    layer(X)
    assert {w.name: str(w.dtype) for w in layer.weights} == {
        "gamma": "bfloat16",
        "beta": "bfloat16",
        "moving_mean": "float32",
        "moving_variance": "float32",
    }


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("options", "x", "mask"), NORMS)
def test_batch_normalization(options, x, mask, training, golden):
    layer = L.BatchNormalization(**options)
    layer(x)
    rng = np.random.default_rng(0)
    weights = [rng.uniform(0.5, 2, w.shape).astype("float32") for w in layer.weights]
    layer.set_weights(weights)
    kwargs = {} if mask is None else {"mask": mask}

    def of_keras():
        peer = keras.layers.BatchNormalization(**options)
        peer.build(x.shape)
        peer.set_weights(weights)
        names = [w.name for w in peer.weights]
        return names, run_peer(peer, x, training, **kwargs)

    names, theirs = golden(of_keras)
    assert [w.name for w in layer.weights] == names
    ours = run(layer, x, training, **kwargs)
    compare(ours, theirs)
    start = layer.non_trainable_weights
    changed = [np.any(a != w) for a, w in zip(ours[3], start, strict=True)]
    assert all(changed) if training else not any(changed)


def test_frozen_batch_normalization_is_in_inference_mode(golden):
    options = {"momentum": 0.5, "trainable": False}
    layer, x = L.BatchNormalization(**options), IMAGE_BESIDE_KERAS
    peer = lambda: keras.layers.BatchNormalization(**options)  # noqa: E731
    theirs = golden(lambda: peer()(x, training=True))
    np.testing.assert_allclose(layer(x, training=True), theirs, rtol=1e-6)
    assert layer.trainable_weights == []
    np.testing.assert_array_equal(layer.moving_mean.numpy(), 0)


@on_devices
@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("axis", [-1, 1])
def test_devices_find_the_statistics_of_the_whole_batch_by_one_message(axis, offset):
    values = np.random.default_rng(0).standard_normal((32, 3, 4, 6))
    scale = np.arange(1, 1 + values.shape[axis]).reshape(
        [-1 if a == axis % 4 else 1 for a in range(4)]
    )
    x = (values * scale + offset).astype("float32")
    x[:4] += 5  # the parts of the devices differ
    layer = L.BatchNormalization(axis=axis, momentum=0.5)
    layer.build(x.shape)
    weights = [np.asarray(v.value) + 0.3 for v in layer.trainable_variables]
    others = [np.asarray(v.value) for v in layer.non_trainable_variables]

    def forward(x, weights):
        return layer.stateless_call(weights, others, x, training=True)

    def all_of(x, weights):
        (y, new), pull = jax.vjp(forward, x, weights)
        zeros = jax.tree.map(jnp.zeros_like, new)
        return y, new, pull((jnp.cos(y), zeros))

    alone = jax.jit(all_of)(x, weights)
    mesh = distribution.DataParallel()
    placed = jax.device_put(x, mesh.sharding(jax.sharding.PartitionSpec("batch")))
    with in_force(mesh):
        found = jax.jit(lambda x, w: all_of(x, w))(placed, weights)
        program = jax.jit(lambda x, w: forward(x, w)[0]).lower(placed, weights)
    for a, b in zip(*map(jax.tree.leaves, (found, alone)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    mean = x.astype("float64").mean(tuple({0, 1, 2, 3} - {axis % 4}))
    np.testing.assert_allclose(found[1][0], mean / 2, rtol=1e-6, atol=1e-6)
    text = program.compile().as_text()
    assert len(re.findall(r" (all-gather|all-reduce)(-start)?\(", text)) == 1
