"""Kernels on the rows that each device of a mesh has, beside their plain forms."""

import contextlib
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from tests.distribution.devices import on_devices
from tests.runtime.kernels import interpreted, rows
from tests.runtime.kernels.interpreted import close, derivatives

import exburn
from exburn import distribution, layers
from exburn.layers.recurrent.simple_rnn import SimpleRNNStep
from exburn.runtime.kernels import (
    biased_gelu,
    dispatch,
    memory_bound,
    one_pass_norm,
    recurrent_loop,
    row_softmax,
    short_attention,
)
from exburn.runtime.kernels.attention_softmax import masked_softmax
from exburn.runtime.kernels.dropout_mask import keep_mask
from exburn.runtime.sharding.current import in_force, spread_by_hand
from exburn.runtime.sharding.strategies import make_distribution

LABELS = np.arange(64).reshape(16, 4) * 70


def normal(*shape, dtype="float32"):
    values = np.random.default_rng(len(shape)).standard_normal(shape)
    return jnp.asarray(values, dtype)


def scored(scores):
    return exburn.losses.CrossEntropy()(jnp.asarray(LABELS), scores)


def scored_with_hits(scores):
    """As a step does it, which reads the scores once for both."""
    constant = jax.lax.stop_gradient(scores)
    hits = exburn.metrics.sparse_categorical_accuracy(jnp.asarray(LABELS), constant)
    return scored(scores) + hits.mean()


def recurrent(kind, mask=False):
    layer = kind(16, return_sequences=True)
    x = normal(16, 3, 8)
    seen = jnp.asarray(np.random.default_rng(1).random((16, 3)) > 0.3) if mask else None
    layer.build(x.shape)
    weights = [v.value for v in layer.trainable_variables]
    others = [v.value for v in layer.non_trainable_variables]

    def call(x, *weights):
        return layer.stateless_call([*weights], others, x, mask=seen)[0]

    return call, (x, *weights)


def normalized(x, gamma, beta):
    fits = one_pass_norm.fits(x)
    plain = one_pass_norm._plain_values
    return (
        one_pass_norm.normalize(x, gamma, beta, 1e-3)
        if fits
        else plain(x, gamma, beta, 1e-3)[0]
    )


def attended(product, bias):
    runs = short_attention.runs_kernels()
    attend = short_attention.attend if runs else short_attention.plain_attend
    return attend(product, bias, 2, 0.25)


# A function, its arguments (the first has the rows), and what two forms may differ by.
CASES = {
    "layer normalization": lambda: (
        normalized,
        (normal(64, 384, dtype="bfloat16"), normal(384), normal(384)),
        2e-2,
    ),
    "gelu": lambda: (
        biased_gelu.biased_gelu,
        (normal(16, 4, 768, dtype="bfloat16"), normal(768, dtype="bfloat16")),
        4e-2,
    ),
    "softmax": lambda: (
        lambda x: masked_softmax(x, None, "kernels"),
        (normal(16, 4, 32, 16),),
        1e-5,
    ),
    "short attention": lambda: (
        attended,
        (normal(16, 16, 96), normal(96)),
        1e-4,
    ),
    "cross-entropy": lambda: (scored, (normal(16, 4, 5_000, dtype="bfloat16"),), 2e-2),
    "cross-entropy and accuracy": lambda: (
        scored_with_hits,
        (normal(16, 4, 5_000, dtype="bfloat16"),),
        2e-2,
    ),
    "LSTM": lambda: (*recurrent(layers.LSTM), 1e-4),
    "GRU": lambda: (*recurrent(layers.GRU, mask=True), 1e-4),
}


@contextlib.contextmanager
def interpreting(backend="gpu"):
    """Has all kernels interpreted; gives a function that counts their traces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "default_backend", lambda: backend)  # loops are as there
        calls = interpreted.interpret(patch)
        others = rows.interpret(patch)
        yield lambda: len(calls) + len(others)


def of_mesh(parts):
    return distribution.DataParallel(devices=distribution.list_devices()[:parts])


@on_devices
@pytest.mark.parametrize("case", CASES)
def test_kernels_on_a_mesh_agree_with_their_plain_forms(case):
    function, (x, *others), tolerance = CASES[case]()
    every = tuple(range(1 + len(others)))

    def all_of(*args):
        if len(args) < 4:  # gradients of gradients of recurrent layers take long
            return derivatives(function, *args)

        def total(*args):
            return (function(*args) ** 2).mean()

        return function(*args), jax.grad(total, every)(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "default_backend", lambda: "gpu")
        plain = jax.jit(all_of)(x, *others)
    mesh = of_mesh(8)
    at = mesh.sharding(PartitionSpec(mesh.batch_axes))
    with interpreting() as count, in_force(mesh):
        program = jax.jit(lambda *args: all_of(*args)).trace(
            jax.device_put(x, at), *others
        )
        assert count(), "the kernel was not used"
        compiled = program.lower().compile()
        found = compiled(jax.device_put(x, at), *others)
    close(found, plain, tolerance)
    assert "all-gather" not in compiled.as_text()
    assert found[1][0].sharding.is_equivalent_to(at, x.ndim)


@on_devices
@pytest.mark.parametrize("case", ["layer normalization", "softmax"])
def test_kernels_beside_divided_features(case):
    """Rows are whole on the devices that share them, heads are divided."""
    function, (x, *others), tolerance = CASES[case]()
    mixed = make_distribution({"data": 4, "model": 2}, {".*": (None, "model")})
    spec = PartitionSpec("data", "model" if case == "softmax" else None)
    at = mixed.sharding(spec)
    plain = jax.jit(lambda *args: derivatives(function, *args))(x, *others)
    with interpreting() as count, in_force(mixed):
        program = jax.jit(lambda *args: derivatives(function, *args)).trace(
            jax.device_put(x, at), *others
        )
        assert count(), "the kernel was not used"
        compiled = program.lower().compile()
        found = compiled(jax.device_put(x, at), *others)
        assert not row_softmax.fits(normal(16, 3, 64, 16))  # three heads on two devices
    close(found, plain, tolerance)
    assert "all-gather" not in compiled.as_text()
    assert found[1][0].sharding.is_equivalent_to(at, x.ndim)


@on_devices
def test_rows_that_devices_cannot_divide_are_left_to_xla():
    even, odd = normal(16, 8, 384), normal(12, 8, 384)
    with interpreting(), in_force(of_mesh(8)):
        assert one_pass_norm.fits(even.astype("bfloat16"))
        assert not one_pass_norm.fits(odd.astype("bfloat16"))
        assert not one_pass_norm.fits(normal(16 * 8, dtype="bfloat16"))  # no rows
        assert row_softmax.fits(normal(8, 64, 16))
        assert not row_softmax.fits(normal(12, 64, 16))
        assert not row_softmax.fits(normal(8, 8, 16))  # no whole program for each
        step, w = (
            SimpleRNNStep(exburn.activations.tanh),
            {"recurrent_kernel": jnp.ones((16, 16))},
        )
        for batch, fits in ((8, True), (12, False)):
            xs, states = normal(5, batch, 16), (normal(batch, 16),)
            assert recurrent_loop.fits(step, xs, w, states) == fits


@on_devices
def test_a_trace_is_of_the_devices_that_it_is_for():
    x, weight = normal(16, 8, 384), normal(384)

    def program(x):
        return one_pass_norm.normalize(x, weight, weight, 1e-3).sum()

    with interpreting():
        for parts in (1, 8, 2, 1, 8):
            mesh = of_mesh(parts)
            with in_force(mesh):
                text = jax.jit(lambda x: program(x)).lower(x).as_text()
            local = f"tensor<{16 // parts}x8x384xf32>"
            assert local in text and ("manual" in text) == (parts > 1)


@on_devices
def test_kernels_are_compiled_for_the_rows_of_a_device():
    mesh = of_mesh(8)
    at = mesh.sharding(PartitionSpec(mesh.batch_axes))
    x = jax.ShapeDtypeStruct((65_536, 768), "bfloat16", sharding=at)
    weight = jax.ShapeDtypeStruct((768,), "float32")

    def normalized(x, weight):
        assert one_pass_norm.fits(x)
        return one_pass_norm.normalize(x, weight, weight, 1e-3)

    with pytest.MonkeyPatch.context() as patch, in_force(mesh):
        patch.setattr(one_pass_norm, "runs_kernels", lambda **_: True)
        program = jax.jit(normalized).trace(x, weight)
        text = program.lower(lowering_platforms=("cuda",)).as_text()
    (call,) = [line for line in text.splitlines() if "custom_call @__gpu" in line]
    assert "triton" in call and "(tensor<8192x96x8xbf16>," in call


@on_devices
def test_operation_by_operation_kernels_run_on_rows_too():
    x, gamma, long = normal(8, 64, 32), normal(384), normal(64, 384)
    mesh = of_mesh(8)
    at = mesh.sharding(PartitionSpec(mesh.batch_axes))
    with interpreting() as count, in_force(mesh):
        found = masked_softmax(jax.device_put(x, at), None, "kernels")
        whole = one_pass_norm.normalize(long, gamma, gamma, 1e-3)
        assert count() == 2 and found.sharding.is_equivalent_to(at, 3)
    close(found, jax.nn.softmax(x), 1e-6)
    close(whole, one_pass_norm._plain_values(long, gamma, gamma, 1e-3)[0], 1e-5)


@on_devices
def test_meshes_on_which_kernels_run():
    gpu = types.SimpleNamespace(compute_capability="9.0")
    rules = {".*kernel": (None, "model")}
    with pytest.MonkeyPatch.context() as patch:
        made = {
            "data": make_distribution("data"),
            "fsdp": make_distribution("fsdp"),
            "both": make_distribution({"data": 2, "fsdp": 4}),
            "zero": distribution.ZeRO(2),
            "tensor": make_distribution({"data": 8, "model": 1}, rules),
        }
        mixed = make_distribution({"data": 2, "model": 4}, rules)
        patch.setattr(dispatch, "chosen_platform", lambda: "gpu")
        patch.setattr(jax, "devices", lambda: [gpu])
        for name, each in made.items():
            with in_force(each):
                assert dispatch.why_not() is None, name
                assert dispatch.device_part(normal(16, 4)).shape == (2, 4), name
        with in_force(mixed):
            assert "divide more than the batch" in str(dispatch.why_not())
            assert dispatch.runs_kernels(beside_features=True)
            part = dispatch.device_part(normal(16, 8, 4), heads=1)
            assert part.shape == (8, 2, 4)
        with in_force(made["data"]), spread_by_hand():
            assert not dispatch.runs_kernels()


@on_devices
@pytest.mark.parametrize("parts", [1, 2, 8])
def test_masks_are_those_of_one_device(parts):
    mesh = of_mesh(parts)
    at = mesh.sharding(PartitionSpec(mesh.batch_axes))
    key, shape = jax.random.key(3), (16, 6, 40)
    expected = keep_mask(key, 0.3, shape)[0]

    @jax.jit
    def drop(key, x):
        keep, _ = keep_mask(key, 0.3, x.shape)
        return jax.lax.with_sharding_constraint(jnp.where(keep, x, 0), at)

    with in_force(mesh):
        compiled = drop.lower(key, jax.device_put(jnp.ones(shape), at)).compile()
        found = compiled(key, jax.device_put(jnp.ones(shape), at))
    np.testing.assert_array_equal(found > 0, expected)
    text = compiled.as_text()
    assert not any(name in text for name in ("all-gather", "all-to-all", "permute"))
    if parts > 1:  # no device makes the masks of others
        assert "[16,6,40]" not in text and "[3840]" not in text


@on_devices
@pytest.mark.parametrize("mesh", ["data", "fsdp"])
def test_training_on_a_mesh_uses_the_kernels(mesh):
    x = np.asarray(normal(20, 8, 24))
    y = np.asarray(normal(20, 8, 1))

    def history(**options):
        exburn.set_random_seed(0)
        model = exburn.Sequential(
            [
                exburn.Input((8, 24)),
                layers.Dense(384),
                layers.LayerNormalization(),
                layers.Dropout(0.3),
                layers.Dense(1),
            ]
        )
        model.compile("adam", "mse", **options)
        return model.fit(x, y, batch_size=16, epochs=3, verbose=0).history["loss"]

    alone = history()
    with interpreting("cpu") as count, pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_bound, "ELEMENTS", 1 << 40)  # so float32, too
        divided = history(mesh=mesh)
        assert count()
    np.testing.assert_allclose(divided, alone, rtol=1e-5)
