"""What XLA is told when it compiles for a GPU, and only if it knows it."""

from typing import Any

import jax
import numpy as np
import pytest
from tests.distribution.devices import on_devices

import exburn as keras
from exburn.runtime import xla_options as module
from exburn.runtime.cost_model import Cost
from exburn.runtime.xla_options import compiler_options, convolutional, known_options

FEWER = module.FEWER_PRODUCTS
SMALL = Cost(1e9)
SOMETIMES = {FEWER, module.TRITON}
ALWAYS = {k: v for k, v in module._GPU.items() if k not in SOMETIMES}


@pytest.fixture
def knows_all(monkeypatch):
    names = {*module._CPU, *module._GPU, *module._LONG_SUMS}
    monkeypatch.setattr(module, "known_options", lambda platform: names)


@pytest.mark.parametrize(("flops", "few"), [(1e9, True), (1e12, False)])
def test_fewer_products_are_tried_for_small_models(knows_all, flops, few):
    options: Any = compiler_options(Cost(flops), "gpu")
    assert (FEWER in options) == few
    assert ALWAYS.items() <= options.items()


def test_of_one_gpu_nothing_is_scheduled_around_sums(knows_all):
    expected = [
        ("xla_gpu_redzone_padding_bytes", 1 << 20),
        ("xla_gpu_experimental_enable_fusion_autotuner", False),
        (module.LATENCIES, False),
        (module.SCHEDULER, False),
        (FEWER, 2),
    ]
    # Their order, too, is part of the key of programs on disk.
    assert list((compiler_options(SMALL, "gpu") or {}).items()) == expected
    assert compiler_options(SMALL, "gpu", devices=1) == dict(expected)


@pytest.mark.parametrize("training", [True, False])
def test_on_several_gpus_sums_are_hidden(knows_all, monkeypatch, training):
    one = compiler_options(SMALL, "gpu", training) or {}
    several = compiler_options(SMALL, "gpu", training, 2)
    assert several == one | {module.LATENCIES: True, module.SCHEDULER: True}
    monkeypatch.setenv("XLA_FLAGS", f"--{module.SCHEDULER}=false")
    assert module.SCHEDULER not in (compiler_options(SMALL, "gpu", training, 2) or {})
    assert compiler_options(SMALL, "cpu", training, 2) is None


def test_this_xla_knows_those_for_several_gpus():
    options = module._SEVERAL_GPUS | module._LONG_SUMS
    assert options.keys() <= known_options("gpu")


@pytest.mark.parametrize(
    ("flops", "megabytes", "long"),
    [
        pytest.param(7.3e9, 1.97, True, id="U-Net for diffusion"),
        pytest.param(25.5e9, 1.87, False, id="U-Net"),
        pytest.param(1.4e9, 2.84, True, id="GRUs"),
        pytest.param(45.9e9, 44.1, True, id="BERT of 6 blocks"),
        pytest.param(16e12, 498, False, id="GPT-2"),
        pytest.param(1e9, 498, False, id="more than was measured"),
    ],
)
def test_long_sums_are_sent_early_and_in_place(knows_all, flops, megabytes, long):
    cost, gradients = Cost(flops), int(megabytes * 1e6)
    sums = module._LONG_SUMS.items()
    several: Any = compiler_options(cost, "gpu", True, 2, gradients)
    assert (sums <= several.items()) == long
    for training, devices in ((True, 1), (False, 2)):
        others: Any = compiler_options(cost, "gpu", training, devices, gradients)
        assert not others.keys() & module._LONG_SUMS.keys()


@on_devices
def test_programs_of_a_mesh_know_their_gradients(monkeypatch):
    asked = []

    def noted(cost, platform, training, devices, gradients):
        asked.append((devices, gradients))

    monkeypatch.setattr("exburn.training.program_cache.compiler_options", noted)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.add(keras.layers.Dense(5, trainable=False))
    model.compile("sgd", "mse", mesh="data")
    model.fit(np.ones((8, 3)), np.ones((8, 5)), batch_size=8, verbose=0)
    assert set(asked) == {(jax.device_count(), 4 * (3 * 2 + 2))}


def test_the_users_flags_come_first(knows_all, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to=/tmp --{FEWER}=64")
    assert compiler_options(SMALL, "gpu") == ALWAYS


@pytest.mark.parametrize(
    ("share", "equations", "without"),
    [(0.01, 200, True), (0.1, 33, True), (0.2, 200, False), (0.01, 32, False)],
)
@pytest.mark.parametrize("halves", [0, 9])
def test_products_of_convolutions_are_those_of_cublas(
    knows_all, share, equations, without, halves
):
    cost = Cost(1e12, 9, equations, products=share * 1e12, halves=halves)
    assert convolutional(cost) == without
    for training in (True, False):
        options: Any = compiler_options(cost, "gpu", training)
        left_out = without and (training or not halves)
        assert options.get(module.TRITON, True) != left_out


def test_a_model_without_convolutions_has_all_of_tritons(knows_all):
    cost = Cost(1e12, equations=200)
    assert not convolutional(cost) and not convolutional(None)
    assert compiler_options(cost, "gpu") == ALWAYS


def test_of_an_unknown_model_all_are_tried(knows_all):
    assert FEWER not in (compiler_options(None, "gpu") or {})


def test_other_platforms_get_none(knows_all):
    assert compiler_options(SMALL, "tpu") is None


@pytest.mark.parametrize("cost", [None, Cost(1e9, convolutions=1)])
def test_convolutions_on_a_cpu_are_those_of_xla(cost, monkeypatch):
    assert "CONVOLUTION" not in compiler_options(cost, "cpu")[module.YNNPACK]
    assert compiler_options(SMALL, "cpu") is None
    monkeypatch.setenv("XLA_FLAGS", f"--{module.YNNPACK}=")
    assert compiler_options(cost, "cpu") == {}


def test_options_that_xla_does_not_know_are_left_out(monkeypatch):
    strange = {"xla_gpu_of_tomorrow": 1, "xla_of_old": 2}
    strange |= {module.YNNPACK: "LIBRARY_FUSION_TYPE_OF_TOMORROW"}
    monkeypatch.setattr(module, "_GPU", module._GPU | strange)
    known_options.cache_clear()
    try:
        assert not strange.keys() & (compiler_options(SMALL, "gpu") or {}).keys()
    finally:
        known_options.cache_clear()


def test_another_failure_is_not_taken_for_that(monkeypatch):
    def fails(*args, **options):
        raise jax.errors.JaxRuntimeError("INTERNAL: out of luck")

    monkeypatch.setattr(jax.stages.Lowered, "compile", fails)
    known_options.cache_clear()
    with pytest.raises(jax.errors.JaxRuntimeError, match="out of luck"):
        known_options("gpu")


@pytest.mark.usefixtures("cpu_only")
def test_programs_are_compiled_with_them(monkeypatch):
    given: list[Any] = []

    def noted(cost, platform, training, devices, gradients):
        assert (devices, gradients) == (1, 0)
        given.append((cost.flops, platform, training))
        return {"xla_llvm_disable_expensive_passes": training}

    jit, told = jax.jit, []

    def telling(fn, **options):
        told.append(options.get("compiler_options"))
        return jit(fn, **options)

    monkeypatch.setattr("exburn.training.program_cache.compiler_options", noted)
    monkeypatch.setattr("exburn.training.program.jax.jit", telling)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    model.fit(np.ones((8, 3)), np.ones((8, 2)), verbose=0)
    assert set(given) == {(2 * 8 * 3 * 2, "cpu", flag) for flag in (True, False)}
    for training in (True, False):
        assert {"xla_llvm_disable_expensive_passes": training} in told


@pytest.mark.usefixtures("cpu_only")
def test_xla_does_not_give_convolutions_away():
    def convolved(x, kernel):
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=layout
        )

    def slopes(x, kernel, dy):
        return jax.vjp(convolved, x, kernel)[1](dy)

    shapes = (32, 14, 14, 32), (3, 3, 32, 64), (32, 14, 14, 64)
    arrays = [np.ones(shape, np.float32) for shape in shapes]
    for function, args in ((convolved, arrays[:2]), (slopes, arrays)):
        program = jax.jit(function, compiler_options=compiler_options(None, "cpu"))
        assert "ynn" not in program.lower(*args).compile().as_text()
