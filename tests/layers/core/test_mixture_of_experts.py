"""Tests of ``exburn.layers.core.mixture_of_experts``."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.distribution.devices import on_devices
from tests.layers.check_layer import pure
from tests.layers.peer import data

import exburn
from exburn import layers as L
from exburn.core import forward_context
from exburn.errors import LayoutError
from exburn.layers.contract.divided_experts import Division
from exburn.layers.contract.routed_experts import (
    Form,
    exburn_routed_experts,
    route_experts,
)
from exburn.layers.contract.segments import Segments
from exburn.runtime.cost_model import count

X = data(4, 6, 8)
ROUTED = [X[..., :3], data(4, 6, 5), data(4, 6, 5, seed=1)]

CONTRACT = {
    "MixtureOfExperts": (L.MixtureOfExperts, (4, 2, 3), X, {"free": (1,)}),
    "MixtureOfExperts-all": (L.MixtureOfExperts, (3, 3, 2, "relu"), X, {}),
}

BAD_ARGUMENTS = [
    (lambda: L.MixtureOfExperts(2, 3, 4), "top_k <= experts"),
    (lambda: L.MixtureOfExperts(2, 0, 4), "top_k"),
    (lambda: L.RouterLosses(2, -1.0), "load_balancing"),
]

BAD_SHAPES = [
    (L.MixtureOfExperts(4, 2, 3), X[0], "[batch, time, width] is needed"),
    (L.RouterLosses(2), [X], "logits [batch, time, experts]"),
    (L.RouterLosses(2), [X, X, X[..., :5]], "logits [batch, time, experts]"),
]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("normalize", [True, False])
def test_shares_are_of_the_chosen_or_of_all(normalize):
    layer = L.MixtureOfExperts(5, 2, 3, normalize=normalize, return_router_logits=True)
    y, logits = layer(X)
    weights = {w.path.rpartition("/")[2]: w.numpy() for w in layer.weights}
    np.testing.assert_allclose(logits, X @ weights["router"], rtol=1e-5, atol=1e-5)
    shares = softmax(np.asarray(logits))
    shares[shares < np.sort(shares)[..., -2:-1]] = 0
    if normalize:
        shares /= shares.sum(-1, keepdims=True)
    expected = 0
    for number in range(5):
        gate, up = (X @ weights[name][number] for name in ("gate", "up"))
        inner = gate / (1 + np.exp(-gate)) * up
        expected += shares[..., number, None] * (inner @ weights["down"][number])
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def loss_of(counts):
    """The formulas, over the tokens that count, of all routers together."""
    logits = np.concatenate([v[counts] for v in ROUTED[1:]])
    shares = softmax(logits)
    chosen = (shares >= np.sort(shares)[:, -2:-1]).mean(0)
    z = (np.log(np.exp(logits).sum(-1)) ** 2).mean()
    return 0.5 * 5 * (chosen * shares.mean(0)).sum() + 0.1 * z


def test_losses_of_routers_are_their_formulas():
    layer = L.RouterLosses(2, 0.5, z=0.1)
    layer(ROUTED)
    call, leaves = pure(layer, training=True)
    y, _, losses = call(leaves, None, ROUTED)
    np.testing.assert_array_equal(y, ROUTED[0])
    np.testing.assert_allclose(losses, [loss_of(np.ones((4, 6), bool))], rtol=1e-5)
    rows = np.array([True, False, True, True])
    _, _, losses = call(leaves, None, ROUTED, rows=rows)
    counts = np.repeat(rows[:, None], 6, 1)
    np.testing.assert_allclose(losses, [loss_of(counts)], rtol=1e-5)
    assert pure(layer)[0](leaves, None, ROUTED)[2] == []


def routing_model(width=8):
    exburn.set_random_seed(1)
    inputs = exburn.Input((None,), dtype="int32")
    x = L.Embedding(11, width)(inputs)
    attention = L.GroupedQueryAttention(4, 2, 1, rotary=L.RotaryEmbedding())
    h = attention(x, x, use_causal_mask=True)
    h, logits = L.MixtureOfExperts(4, 2, 6, return_router_logits=True, name="experts")(
        h
    )
    x = L.RouterLosses(2, 1.0)([L.Add()([x, h]), logits])
    return exburn.Model(inputs, L.Dense(11)(x))


def test_what_fills_rows_up_has_no_part_in_the_losses():
    layer = L.RouterLosses(2, 0.5, z=0.1)
    layer(ROUTED)
    counts = np.arange(6)[None] < np.array([[6], [2], [3], [5]])
    inputs = [jnp.asarray(value) for value in ROUTED]
    for packed in (False, True):
        ctx = forward_context.Context(training=True)
        with forward_context.forward(ctx):
            if packed:
                ctx.segments = Segments(counts * np.array([1, 1, 1, 2, 2, 2]))
            else:
                ctx.set_mask(inputs[0], counts)
            layer(inputs)
        np.testing.assert_allclose(ctx.losses, [loss_of(counts)], rtol=1e-5)


def test_it_writes_with_a_cache_and_learns_in_few_bits_and_with_adapters():
    inputs = exburn.Input((None,), dtype="int32")
    x = L.Embedding(11, 8)(inputs)
    attention = L.GroupedQueryAttention(4, 2, 1, rotary=L.RotaryEmbedding())
    x = L.Add()([x, attention(x, x, use_causal_mask=True)])
    x = L.Add()([x, L.MixtureOfExperts(4, 2, 8, name="experts")(x)])
    model = exburn.Model(inputs, L.Dense(11)(x))
    prompts = [[1, 2, 3], [4, 5, 6, 7, 8]]
    cached = model.generate(prompts, 6, cache=True)
    for one, other in zip(cached, model.generate(prompts, 6, cache=False), strict=True):
        np.testing.assert_array_equal(one, other)
    small = model.quantize("int8")
    assert "experts" in str(small.quantization_report)
    scores = [np.asarray(m(np.array(prompts[1:]))) for m in (model, small)]
    assert 0 < np.abs(scores[0] - scores[1]).max() < 0.1
    small.add_lora(2)
    loss = exburn.losses.SparseCategoricalCrossentropy(from_logits=True)
    small.compile(exburn.optimizers.Adam(0.05), loss)
    ids = np.random.default_rng(0).integers(0, 11, (8, 6))
    losses = small.fit(ids, ids, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


@on_devices
def test_devices_route_their_own_tokens():
    ids = np.random.default_rng(0).integers(1, 11, (16, 6))
    api, results = exburn.distribution, []
    mesh = api.DeviceMesh((4, 2), ("batch", "model"), api.list_devices())
    layouts = api.LayoutMap(mesh)
    for name in ("gate", "up", "down"):  # two experts on each device
        layouts[f"experts/{name}"] = ("model", None, None)
    apart = api.ModelParallel(layout_map=layouts, batch_dim_name="batch")
    for distribution in (None, api.DataParallel(), api.FSDP(min_size=1), apart):
        api.set_distribution(distribution)
        model = routing_model()
        loss = exburn.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(exburn.optimizers.SGD(0.1), loss)
        fit = model.fit(ids, ids, epochs=3, batch_size=16, shuffle=False, verbose=0)
        results.append((fit.history["loss"], model.get_weights()))
        api.set_distribution(None)
    for losses, weights in results[1:]:
        np.testing.assert_allclose(losses, results[0][0], rtol=1e-5)
        for one, other in zip(weights, results[0][1], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@on_devices
def test_experts_that_do_not_divide_are_refused_by_name():
    model = exburn.Sequential([exburn.Input((4, 4)), L.MixtureOfExperts(6, 2, 3)])
    rules = {".*/(gate|up|down)": ("model", None, None)}
    model.compile("sgd", "mse", mesh={"data": 2, "model": 4}, layout=rules)
    with pytest.raises(LayoutError, match="axis of 6 cannot be divided evenly by 4"):
        model.fit(X[:, :4, :4], X[:, :4, :4], verbose=0)


def routed(seed, tokens=(8, 6), experts=8, top_k=2, alike=False):
    """Tokens, their experts and shares, and weights; ``alike``: all take the same."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((*tokens, 4)).astype("float32")
    scores = rng.standard_normal((*tokens, experts)).astype("float32")
    scores = scores * 0.01 + np.arange(experts)[::-1] if alike else scores
    shares, chosen = jax.lax.top_k(jax.nn.softmax(scores), top_k)
    sizes = (4, 3), (4, 3), (3, 4)
    weights = [rng.standard_normal((experts, *s)).astype("float32") for s in sizes]
    return x, chosen, shares, *weights


def test_blocks_that_few_batches_need_are_no_part_of_the_plan():
    x, chosen, shares, *weights = routed(0)

    def run(form):
        return lambda x: exburn_routed_experts(
            x, chosen, shares, *weights, activation=jax.nn.silu, form=form
        )

    few, every = (
        count(jax.make_jaxpr(run(form))(x)).flops
        for form in (Form("blocks", 2, 4), Form("blocks", 2))
    )
    assert few == 3 * 2 * (4 * 2) * 4 * 3  # four blocks of two
    assert every == 3 * 2 * (52 * 2) * 4 * 3


DIVISIONS = [  # the mesh; what divides rows, positions and experts
    ({"data": 2, "model": 4}, ("data",), (), ("model",)),
    ({"model": 2}, (), (), ("model",)),
    ({"data": 4}, ("data",), (), ("data",)),
    ({"data": 2, "model": 2}, ("data",), (), ("data", "model")),
    ({"data": 2, "context": 2}, ("data",), ("context",), ()),
    ({"data": 2, "context": 2}, ("data",), ("context",), ("context", "data")),
]
CASES = [
    *((number, "few", True) for number in range(len(DIVISIONS))),
    (0, "few", False),
    (0, "every", False),
    (0, "ragged", False),
]
FORMS = {"few": Form("blocks", 2, 4), "blocks": Form("blocks", 4)}


@on_devices
@pytest.mark.parametrize(("number", "name", "alike"), CASES)
def test_divided_experts_are_those_of_one_device(number, name, alike):
    sizes, *division = DIVISIONS[number]
    devices = np.array(jax.devices()[: math.prod(sizes.values())])
    mesh = jax.sharding.Mesh(devices.reshape([*sizes.values()]), [*sizes])
    division = Division(mesh, *division)
    form = FORMS.get(name, Form(name))
    arguments = routed(number, alike=alike)

    def loss(x, shares, weights, division=None):
        y = route_experts(
            x,
            arguments[1],
            shares,
            weights,
            jax.nn.silu,
            form,
            division,
        )
        return (y**2).sum(), y

    def run(division):
        step = jax.value_and_grad(loss, (0, 1, 2), has_aux=True)
        return jax.jit(step, static_argnums=3)(
            arguments[0], arguments[2], arguments[3:], division
        )

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4),
        run(division),
        run(None),
    )
