"""A cross-entropy without its scores beside the plain form: values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from tests.distribution.devices import on_devices

from exburn import config
from exburn.losses import sparse_categorical_crossentropy
from exburn.runtime.kernels import cross_entropy_gpu, head_loss
from exburn.runtime.kernels.head_loss import (
    Head,
    RowChunks,
    head_cross_entropy,
    head_log_probabilities,
)
from exburn.runtime.sharding.current import in_force
from exburn.runtime.sharding.layouts import LayoutMap
from exburn.runtime.sharding.mesh import DeviceMesh
from exburn.runtime.sharding.strategies import ModelParallel
from exburn.training.placement import _is_kept

RNG = np.random.default_rng(0)


def case(rows, width, classes, *, turned=False, bias=True, dtype="float32"):
    shape = (classes, width) if turned else (width, classes)
    arrays = [RNG.normal(size=s) for s in ((rows, width), shape, (classes,))]
    x, kernel, b = (jnp.asarray(v, dtype) for v in arrays)
    labels = jnp.asarray(RNG.integers(0, classes, rows))
    factors = jnp.asarray(RNG.random(rows), jnp.float32)
    return Head(x, kernel, b if bias else None, turned=turned), labels, factors


def plain(head, labels, factors, smoothing=0.0):
    scores = head.x @ (head.kernel.T if head.turned else head.kernel)
    scores = scores if head.bias is None else scores + head.bias
    if head.soft_cap is not None:
        scores = jnp.tanh(scores / head.soft_cap) * head.soft_cap
    losses = sparse_categorical_crossentropy(
        labels, scores, from_logits=True, label_smoothing=smoothing
    )
    return jnp.sum(factors * losses), scores


def fused(head, labels, factors, smoothing=0.0, live=None, **plan):
    scored, carrier = head_cross_entropy(
        head, labels, factors, live, smoothing=smoothing, plan=RowChunks(**plan)
    )
    return jnp.sum(factors * scored.losses) + carrier, scored


def both(head, *args, smoothing=0.0, **options):
    """Value, gradients and ranks of both forms."""
    arrays = [v for v in (head.x, head.kernel, head.bias) if v is not None]

    def differentiate(function, *further, **kwargs):
        def loss(arrays):
            new = Head(*arrays, *[None] * (3 - len(arrays)), *head[3:])
            return function(new, *args, smoothing, *further, **kwargs)

        return jax.jit(jax.value_and_grad(loss, has_aux=True))(arrays)

    return differentiate(plain), differentiate(fused, **options)


@pytest.mark.parametrize(
    ("rows", "chunk", "turned", "bias", "cap", "smoothing"),
    [
        (1, 8, False, True, None, 0.0),
        (1, 8, True, False, 2.0, 0.2),
        (7, 3, False, True, None, 0.0),
        (7, 3, True, False, None, 0.2),
        (7, 3, False, False, 2.0, 0.2),
        (12, 4, True, True, 2.0, 0.0),
        (12, 4, False, False, None, 0.0),
        (12, 12, True, True, None, 0.2),
    ],
)
def test_same_as_the_plain_form(rows, chunk, turned, bias, cap, smoothing):
    head, *args = case(rows, 5, 13, turned=turned, bias=bias)
    head = head._replace(soft_cap=cap)
    (value, scores), slopes = (
        results := both(
            head, *args, smoothing=smoothing, chunk=chunk, first=True, higher=True
        )
    )[0]
    (other, scored), others = results[1]
    assert float(value) == pytest.approx(float(other), rel=1e-6)
    for a, b in zip(others, slopes, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * np.abs(b).max())
    own = np.take_along_axis(scores, args[0][:, None], 1)
    np.testing.assert_array_equal(scored.first, scores.argmax(1) == args[0])
    np.testing.assert_array_equal(scored.higher, (scores > own).sum(1))


@pytest.mark.parametrize("count", [0, 1, 5, 9])
def test_rows_that_count_nothing_may_hold_anything(count):
    head, labels, factors = case(9, 4, 11)
    live = jnp.asarray(RNG.permutation(np.arange(9) < count))
    factors = jnp.where(live, factors, 0)
    broken = jnp.where(live[:, None], head.x, jnp.nan)
    (value, _), slopes = both(head, labels, factors)[0]
    for sorts in (True, False):
        new = head._replace(x=broken)
        (other, _), others = both(
            new, labels, factors, live=live, sorts=sorts, chunk=2
        )[1]
        assert float(value) == pytest.approx(float(other), rel=1e-6)
        for a, b in zip(others, slopes, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("chunk", [3, 9])
def test_gradients_of_gradients(chunk):
    head, labels, factors = case(9, 4, 11)

    def curvature(function, **plan):
        def slope(x):
            new = head._replace(x=x)
            return function(new, labels, factors, **plan)[0]

        return jax.grad(lambda x: jnp.sum(jax.grad(slope)(x) ** 2))(head.x)

    np.testing.assert_allclose(
        curvature(fused, chunk=chunk), curvature(plain), rtol=1e-4, atol=1e-5
    )


def test_under_vmap_remat_and_scan():
    head, labels, factors = case(9, 4, 11)

    def slopes(function, **plan):
        def loss(x):
            return function(head._replace(x=x), labels, factors, **plan)[0]

        many = jax.vmap(jax.grad(loss))(jnp.stack([head.x, 2 * head.x]))
        again = jax.grad(jax.checkpoint(loss))(head.x)
        loop = jax.lax.scan(lambda c, x: (c, jax.grad(loss)(x)), 0, head.x[None])[1]
        return many, again, loop

    for a, b in zip(slopes(fused, chunk=4), slopes(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("policy", [None, _is_kept], ids=["all", "fsdp"])
def test_a_pass_that_is_computed_again_keeps_no_copies_of_the_weights(policy):
    """What is kept for the pass backward has no gradient of weights for each chunk."""
    head, labels, factors = case(64, 4, 1_000)

    def loss(kernel):
        new = head._replace(x=head.x * kernel[0, 0], kernel=kernel)
        return fused(new, labels, factors, chunk=4)[0]

    again = jax.grad(jax.checkpoint(loss, policy=policy))
    analysis = jax.jit(again).lower(head.kernel).compile().memory_analysis()
    assert analysis.temp_size_in_bytes < 16 * head.kernel.nbytes / 2
    np.testing.assert_allclose(
        again(head.kernel), jax.grad(loss)(head.kernel), rtol=1e-5, atol=1e-6
    )


def test_only_what_is_trained_has_a_gradient():
    head, labels, factors = case(9, 4, 11)

    def products(function, at):
        program = jax.make_jaxpr(jax.grad(function))(at)
        return str(program).count("dot_general")

    def by(name):
        return lambda v: fused(head._replace(**{name: v}), labels, factors, chunk=3)[0]

    assert products(by("x"), head.x) == 2
    assert products(by("kernel"), head.kernel) == 2
    value = jax.make_jaxpr(lambda x: by("x")(x))(head.x)
    assert str(value).count("dot_general") == 1


@pytest.mark.parametrize(("dtype", "rtol"), [("bfloat16", 2e-2), ("float16", 5e-3)])
def test_narrow_numbers_are_summed_in_float32(dtype, rtol):
    head, labels, _ = case(64, 8, 50, dtype=dtype)
    factors = jnp.full(64, 1e-6, jnp.float32)  # no float16 times a small share
    wide = Head(*(v.astype(jnp.float32) for v in head[:3]))
    (value, _), slopes = both(wide, labels, factors)[0]

    def loss(arrays):
        value, _ = fused(Head(*arrays), labels, factors, chunk=16)
        return 2.0**15 * value

    others = jax.grad(loss)(list(head[:3]))
    for a, b in zip(others, slopes, strict=True):
        assert a.dtype == dtype
        wanted = 2.0**15 * np.asarray(b)
        close = {"rtol": rtol, "atol": rtol * np.abs(wanted).max()}
        np.testing.assert_allclose(a.astype(jnp.float32), wanted, **close)


def test_a_label_that_is_no_class_gives_nan():
    head, labels, factors = case(4, 3, 7)
    scored = fused(head, labels.at[1].set(7).at[2].set(-1), factors, first=True)[1]
    assert np.isnan(scored.losses).tolist() == [False, True, True, False]
    assert not scored.first[1] and not scored.first[2]


def test_no_array_has_all_scores():
    head, labels, factors = case(256, 8, 4_096)

    def loss(x):
        return fused(head._replace(x=x), labels, factors, chunk=32)[0]

    analysis = jax.jit(jax.grad(loss)).lower(head.x).compile().memory_analysis()
    assert analysis.temp_size_in_bytes < 256 * 4_096 * 4 / 2


def test_spare_columns_are_no_classes(monkeypatch):
    """A GPU's kernel is filled up to whole tiles, also behind a soft cap."""
    head, *args = case(9, 4, 130, turned=True)
    head = head._replace(soft_cap=1.5)
    (value, _), slopes = both(head, *args, smoothing=0.1)[0]
    monkeypatch.setattr(head_loss, "_platform", lambda: "gpu")
    (other, _), others = both(head, *args, smoothing=0.1, chunk=4)[1]
    assert float(value) == pytest.approx(float(other), rel=1e-6)
    for a, b in zip(others, slopes, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_when_it_runs(monkeypatch):
    few, many = (
        Head(*(jax.ShapeDtypeStruct(s, "float32") for s in ((n, 4), (4, 2_048))))
        for n in (1_024, 4_096)
    )
    monkeypatch.setattr(head_loss, "_platform", lambda: "cpu")
    assert head_loss.fits(many) and not head_loss.fits(few)
    assert not head_loss.fits(many._replace(x=jax.ShapeDtypeStruct((4_096, 4), "f2")))
    config.disable_head_loss()
    try:
        assert not head_loss.fits(many)
    finally:
        config.enable_head_loss()
    monkeypatch.setattr(head_loss, "_platform", lambda: "gpu")
    assert not head_loss.fits(many)


@on_devices
def test_each_device_has_its_rows():
    from exburn.runtime.sharding import current
    from exburn.runtime.sharding.strategies import make_distribution

    head, labels, factors = case(16, 4, 11)
    (value, _), slopes = both(head, labels, factors)[0]
    with current.in_force(make_distribution({"data": 8}, None)):
        (other, _), others = both(head, labels, factors, chunk=1)[1]
    assert float(value) == pytest.approx(float(other), rel=1e-6)
    for a, b in zip(others, slopes, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_kernel_may_read_the_scores(monkeypatch):
    """Triton's, here interpreted: the gradient comes with the losses."""
    calls = []

    def options(warps, stages=2):
        calls.append(warps)
        return {"interpret": True}

    monkeypatch.setattr(cross_entropy_gpu, "options", options)
    monkeypatch.setattr(head_loss, "runs_kernels", lambda **_: True)
    head, labels, factors = case(12, 4, 1_024, turned=True, dtype="bfloat16")

    def slopes(**plan):
        def loss(arrays):
            new = head._replace(x=arrays[0], kernel=arrays[1])
            value, scored = fused(new, labels, factors, chunk=4, first=True, **plan)
            return value, scored

        arrays = head.x, head.kernel
        return jax.jit(jax.value_and_grad(loss, has_aux=True))(arrays)

    (value, scored), others = slopes()
    assert not calls
    (once, same), grads = slopes(once=True)
    assert calls
    assert float(once) == pytest.approx(float(value), rel=1e-2)
    np.testing.assert_array_equal(same.first, scored.first)
    for a, b in zip(grads, others, strict=True):
        a, b = (np.asarray(v, np.float32) for v in (a, b))
        np.testing.assert_allclose(a, b, rtol=5e-2, atol=2e-2 * np.abs(b).max())


@pytest.mark.parametrize(("turned", "cap"), [(False, None), (True, 4.0)])
def test_log_probabilities_and_entropies_are_those_of_the_scores(turned, cap):
    rng = np.random.default_rng(2)
    x = jnp.array(rng.normal(size=(3, 50, 8)), jnp.float32)
    kernel = jnp.array(rng.normal(size=(1100, 8)), jnp.float32)
    bias = jnp.array(rng.normal(size=1100), jnp.float32)
    labels = jnp.array(rng.integers(0, 1100, (3, 50)))
    live = jnp.array(rng.random((3, 50)) < 0.7)
    slope = jnp.array(rng.normal(size=(3, 50)), jnp.float32)

    def plain(x, kernel):
        scores = x @ kernel.T + bias
        scores = scores if cap is None else cap * jnp.tanh(scores / cap)
        likely = jax.nn.log_softmax(scores)
        own = jnp.take_along_axis(likely, labels[..., None], -1)[..., 0]
        entropy = -jnp.sum(jnp.exp(likely) * likely, -1)
        return jnp.where(live, own, 0), jnp.where(live, entropy, 0)

    def of_head(x, kernel):
        head = Head(x, kernel if turned else kernel.T, bias, cap, turned)
        return head_log_probabilities(head, labels, live, entropy=True)

    for ours, theirs in zip(of_head(x, kernel), plain(x, kernel), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)

    def total(way):
        return lambda *args: jnp.sum(jnp.square(way(*args)[0]) * slope)

    ours, theirs = (jax.grad(total(way), (0, 1))(x, kernel) for way in (of_head, plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-3), ours, theirs)


@pytest.mark.parametrize(
    ("turned", "bias", "cap"), [(False, True, None), (True, False, 2.0)]
)
def test_log_probabilities_have_any_gradient(turned, bias, cap, monkeypatch):
    monkeypatch.setattr(head_loss, "CHUNK", {"cpu": 1})
    monkeypatch.setattr(head_loss, "ROWS", (8, 8))
    head, labels, _ = case(20, 5, 13, turned=turned, bias=bias)
    live = jnp.arange(20) % 3 > 0
    arrays = [v for v in (head.x, head.kernel, head.bias) if v is not None]

    def value(form, arrays):
        new = Head(*arrays, *[None] * (3 - len(arrays)), cap, turned)
        likely = form(new)
        return jnp.log1p(jnp.exp(-likely.sum())) + jnp.tanh(likely).sum(), likely

    def plain_form(head):
        scores = plain(head, labels, jnp.ones(20))[1]
        return jnp.where(live, jax.nn.log_softmax(scores)[jnp.arange(20), labels], 0)

    def chunks(head):
        return head_log_probabilities(head, labels, live)[0]

    def again(head):  # computed again for the gradient
        def form(x, kernel):
            return chunks(head._replace(x=x, kernel=kernel))

        return jax.checkpoint(form)(head.x, head.kernel)

    results = [
        jax.jit(jax.value_and_grad(lambda a, f=form: value(f, a), has_aux=True))(arrays)
        for form in (plain_form, chunks, again)
    ]
    for other in results[1:]:
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-6),
            results[0],
            other,
        )
    frozen = jax.grad(lambda x: value(chunks, [x, *arrays[1:]])[0])(arrays[0])
    np.testing.assert_allclose(frozen, results[0][1][0], rtol=2e-5, atol=2e-6)


def test_log_probabilities_under_vmap():
    head, labels, _ = case(6, 5, 13)
    xs = jnp.stack([head.x, head.x * 2])

    def one(x):
        return head_log_probabilities(head._replace(x=x), labels)[0]

    each = jnp.stack([one(x) for x in xs])
    np.testing.assert_allclose(jax.vmap(one)(xs), each, rtol=1e-6)


def divided(parts):
    """A distribution of eight devices, of which so many divide the classes."""
    mesh = DeviceMesh((8 // parts, parts), ["batch", "model"])
    layout = LayoutMap(mesh)
    layout["head/kernel"] = (None, "model")
    return ModelParallel(layout_map=layout)


@on_devices
@pytest.mark.parametrize("parts", [2, 8])
@pytest.mark.parametrize(
    ("turned", "bias", "cap", "smoothing"),
    [(False, True, None, 0.0), (True, False, 2.0, 0.2)],
)
def test_classes_that_devices_divide(parts, turned, bias, cap, smoothing):
    head, labels, factors = case(24, 5, 16, turned=turned, bias=bias)
    head = head._replace(soft_cap=cap)
    labels = labels.at[3].set(16)  # no class
    factors = factors.at[3].set(0)
    live = jnp.arange(24) % 4 != 3
    options = {"smoothing": smoothing, "first": True, "higher": True, "chunk": 2}
    with in_force(divided(parts)):
        alone, spread = both(head, labels, factors, **options)
        (_, scored), slopes = spread
        sums = both(
            head._replace(x=head.x.at[3].set(jnp.nan)),
            *(labels.clip(max=15), jnp.where(live, factors, 0)),
            **options,
            live=live,
            sorts=True,
        )[1]
    (_, scores), others = alone
    assert np.isnan(scored.losses[3]) and np.isnan(scored.losses).sum() == 1
    for a, b in zip(slopes, others, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    rows = np.arange(24) != 3
    own = np.take_along_axis(scores, labels[:, None].clip(max=15), 1)
    first, higher = scores.argmax(1) == labels, (scores > own).sum(1)
    np.testing.assert_array_equal(scored.first[rows], first[rows])
    np.testing.assert_array_equal(scored.higher[rows], higher[rows])
    counted = jnp.where(live, factors, 0)
    expected = both(head, labels.clip(max=15), counted, smoothing=smoothing)[0]
    assert float(sums[0][0]) == pytest.approx(float(expected[0][0]), rel=1e-6)
    for a, b in zip(sums[1], expected[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@on_devices
def test_log_probabilities_where_devices_divide_the_classes():
    head, labels, factors = case(16, 4, 12)

    def read(kernel):
        new = head._replace(kernel=kernel)
        likely, entropy = head_log_probabilities(new, labels, factors > 0.3, True)
        return jnp.sum(likely**2), (likely, entropy)

    run = jax.value_and_grad(read, has_aux=True)
    alone = run(head.kernel)
    with in_force(divided(4)):
        for ours, theirs in zip(
            *map(jax.tree.leaves, (run(head.kernel), alone)), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@on_devices
def test_gradients_of_gradients_where_devices_divide_the_classes():
    head, labels, factors = case(16, 4, 12)

    def curvature(function, **plan):
        def slope(x):
            return function(head._replace(x=x), labels, factors, **plan)[0]

        return jax.grad(lambda x: jnp.sum(jax.grad(slope)(x) ** 2))(head.x)

    with in_force(divided(2)):
        np.testing.assert_allclose(
            curvature(fused, chunk=3), curvature(plain), rtol=1e-4, atol=1e-5
        )


@on_devices
def test_divided_classes_need_no_memory_for_all_scores():
    rows, classes = 2_048, 8_192
    head, labels, factors = case(rows, 16, classes, bias=False)

    def needs(function, **plan):
        distribution = divided(4)
        mesh = distribution.mesh
        kernel = NamedSharding(mesh, PartitionSpec(None, "model"))
        by_rows = NamedSharding(mesh, PartitionSpec("batch"))

        def loss(x, kernel, labels, factors):
            new = head._replace(x=x, kernel=kernel)
            return function(new, labels, factors, **plan)[0]

        with in_force(distribution):
            step = jax.jit(
                jax.grad(loss, (0, 1)),
                in_shardings=(by_rows, kernel, by_rows, by_rows),
                out_shardings=(by_rows, kernel),
            )
            compiled = step.lower(head.x, head.kernel, labels, factors).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    all_scores = rows // 2 * classes // 4 * 4  # bytes of a device's part
    assert needs(plain) > all_scores > 4 * needs(fused, chunk=64)


def test_a_frozen_head_has_few_scores_at_a_time_where_memory_counts(monkeypatch):
    monkeypatch.setattr(head_loss, "_platform", lambda: "gpu")
    monkeypatch.setattr(head_loss, "FEW", 8 * 1024)
    head = Head(jnp.ones((512, 4)), jnp.ones((4, 1024)))
    labels, sizes, chunk = jnp.zeros(512, jnp.int32), [], head_loss._chunk

    def note(static, weights, numbers, x, *rest, **options):
        sizes.append(len(x))
        return chunk(static, weights, numbers, x, *rest, **options)

    monkeypatch.setattr(head_loss, "_chunk", note)

    def loss(x, kernel):
        return head_cross_entropy(Head(x, kernel), labels, jnp.ones(512))[1]

    assert not head_loss.fits(head)
    with head_loss.with_few_scores():
        assert head_loss.fits(head)
        frozen = jax.grad(loss)(head.x, head.kernel)
        assert set(sizes) == {head_loss._TILE}
        sizes.clear()
        whole = jax.grad(loss, (0, 1))(head.x, head.kernel)[0]
        assert set(sizes) == {512}
    np.testing.assert_allclose(frozen, whole, atol=1e-6)
