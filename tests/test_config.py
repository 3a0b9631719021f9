"""``exburn.config``: settings, and what reads them."""

import jax
import numpy as np
import pytest

import exburn
from exburn import config, errors, mixed_precision
from exburn.layers import Dense


def test_floatx_reaches_ops_random_and_layers():
    config.set_floatx("bfloat16")
    assert config.floatx() == "bfloat16"
    assert exburn.ops.zeros(2).dtype == exburn.random.normal((2,)).dtype == "bfloat16"
    assert Dense(1).compute_dtype == "bfloat16"


def test_a_chosen_policy_outlasts_floatx():
    mixed_precision.set_global_policy("mixed_bfloat16")
    config.set_floatx("float16")
    assert mixed_precision.global_policy().name == "mixed_bfloat16"
    layer = Dense(1)
    assert (layer.compute_dtype, layer.variable_dtype) == ("bfloat16", "float32")
    assert mixed_precision.Policy("mixed_float16").variable_dtype == "float32"


def test_epsilon_reaches_ops():
    config.set_epsilon(0.25)
    worst = exburn.ops.binary_crossentropy([1.0], [0.0])
    assert float(worst[0]) == pytest.approx(np.log(4))


def test_image_data_format_reaches_ops():
    config.set_image_data_format("channels_first")
    image = np.ones((1, 3, 8, 6), "float32")
    assert exburn.ops.max_pool(image, 2).shape == (1, 3, 4, 3)
    assert exburn.ops.image.resize(image, (2, 5)).shape == (1, 3, 2, 5)


def test_switches():
    for name in ("interactive_logging", "traceback_filtering", "flash_attention"):
        for verb, value in (("disable", False), ("enable", True)):
            getattr(config, f"{verb}_{name}")()
            assert getattr(config, f"is_{name}_enabled")() is value
    config.disable_traceback_filtering()
    assert jax.config.jax_traceback_filtering == "off"
    config.set_max_epochs(3)
    config.set_max_steps_per_epoch(2)
    assert (config.max_epochs(), config.max_steps_per_epoch()) == (3, 2)
    config.set_max_epochs(None)
    assert config.max_epochs() is None
    config.set_backend("jax")
    assert config.backend() == "jax" and config.is_nnx_enabled()


REFUSALS = [
    (lambda: config.set_floatx("int32"), errors.ExBurnError),
    (lambda: config.set_epsilon(0), errors.ExBurnError),
    (lambda: config.set_image_data_format("channels"), errors.ExBurnError),
    (lambda: config.set_max_epochs(0), errors.ExBurnError),
    (lambda: config.set_max_steps_per_epoch(1.5), errors.ExBurnError),
    (lambda: config.set_backend("torch"), errors.ExBurnError),
    (lambda: config.set_dtype_policy("mixed_float4"), errors.ExBurnError),
    (config.enable_unsafe_deserialization, errors.ExBurnError),
]
