"""Attributes that Keras' objects have, and code reads."""

import numpy as np
import pytest

import exburn as keras
from exburn.core.precision import PrecisionPolicy


def test_losses_have_their_function():
    y, p = np.eye(3, dtype=np.float32), np.full((3, 3), 1 / 3, np.float32)
    for loss in (
        keras.losses.MeanSquaredError(),
        keras.losses.CategoricalCrossentropy(),
    ):
        np.testing.assert_allclose(loss.fn(y, p).mean(), loss(y, p), rtol=1e-6)


def test_callbacks_have_their_arguments(tmp_path):
    assert keras.callbacks.CSVLogger(tmp_path / "log.csv", ";").sep == ";"
    backup = keras.callbacks.BackupAndRestore(tmp_path, double_checkpoint=True)
    assert backup.backup_dir == tmp_path and backup.double_checkpoint


@pytest.mark.parametrize(
    "policy", [PrecisionPolicy.of("mixed_bfloat16"), PrecisionPolicy(output="float16")]
)
def test_policies_come_from_their_config(policy):
    assert PrecisionPolicy.from_config(policy.get_config()) == policy
    assert keras.DTypePolicy("float16").get_config() == {"name": "float16"}
