"""``import keras`` that means ExBurn."""

import os
import subprocess
import sys
import textwrap

import jax.numpy as jnp
import pytest

import exburn
from exburn.errors import ArgumentError
from exburn.utils import keras_alias, keras_private

PROGRAM = """
    import sys
    import helper  # beside the script

    import keras, keras.layers as L
    from keras import *
    from keras.api import layers as api_layers
    from keras.src.backend import get_keras_mask
    from keras.src.layers.core.dense import Dense
    from keras.src.losses.losses import LossFunctionWrapper
    from keras.src.ops import numpy as knp
    import exburn

    assert Dense is L.Dense is layers.Dense is api_layers.Dense is exburn.layers.Dense
    assert keras.src.utils.tracking.no_automatic_dependency_tracking(helper) is helper
    assert knp.einsum is exburn.ops.einsum and keras.version().startswith("3.")
    assert keras.config.backend() == keras.src.backend.backend() == "jax"
    assert "Dense" in dir(L) and not hasattr(L, "NoSuchLayer")
    try:
        from keras.layers import Nothing
    except ImportError as error:
        assert "Nothing" in str(error)
    try:
        keras.src.saving.nothing()
    except TypeError as error:
        assert "keras.src.saving.nothing" in str(error)
    try:
        import keras.no_such_part
    except ModuleNotFoundError:
        pass
    model = Sequential([Input((2,)), L.Dense(1)])
    model.compile("sgd", LossFunctionWrapper(keras.losses.mean_squared_error))
    model.fit(*helper.data(), verbose=0)
    print(sys.argv[1:], type(model).__module__)
"""
HELPER = """
    import keras

    def data():
        return keras.ops.ones((4, 2)), keras.ops.zeros((4, 1))
"""


def run(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "exburn.as_keras", *arguments],
        cwd=cwd,
        env={k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"},
        capture_output=True,
        text=True,
    )


def test_a_program_written_for_keras_runs_and_is_told_what_is_missing(tmp_path):
    (tmp_path / "script.py").write_text(textwrap.dedent(PROGRAM))
    (tmp_path / "helper.py").write_text(textwrap.dedent(HELPER))
    done = run("script.py", "--epochs", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0].startswith("['--epochs', '3'] exburn.")
    missing = done.stderr.split("Asked for, and not in ExBurn:")[1].split()
    assert missing == [
        "keras.layers.NoSuchLayer",
        "keras.layers.Nothing",
        "keras.src.saving.nothing",
        "keras.no_such_part",
    ]
    module = run("-m", "helper", cwd=tmp_path)
    assert module.returncode == 0, module.stderr


PRIVATE = """
import exburn

alias = exburn.as_keras()
from keras.src import backend
from keras.src.api_export import keras_export
from keras.src.backend.common import global_state
from keras.src.backend.jax.random import jax_draw_seed
from keras.src.trainers.data_adapters.data_adapter_utils import (
    unpack_x_y_sample_weight,
)
from keras.src.utils import tf_utils
from keras.src.utils.argument_validation import standardize_tuple
from keras.src.utils.backend_utils import in_tf_graph
from keras.src.utils.image_utils import smart_resize
from keras.src.utils.naming import auto_name

assert in_tf_graph() is False and standardize_tuple(2, 2, "size") == (2, 2)
assert jax_draw_seed(3).shape == () and auto_name("a") == "a"
assert unpack_x_y_sample_weight((1, 2)) == (1, 2, None)
assert backend.convert_to_tensor([1.0]).shape == (1,)
global_state.set_global_attribute("seen", True)
assert global_state.get_global_attribute("seen")
assert smart_resize(exburn.ops.ones((4, 6, 3)), (2, 2)).shape == (2, 2, 3)
assert keras_export("keras.mine")(len) is len
"""


def test_private_names_of_keras_that_need_no_tensorflow(tmp_path):
    (tmp_path / "script.py").write_text(PRIVATE)
    done = run("script.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    missing = done.stderr.split("Asked for, and not in ExBurn:")[1].split()
    assert missing == ["keras.src.utils.tf_utils"]  # a module, of which nothing is here


def test_without_a_program_its_usage_is_shown(capsys):
    assert keras_alias.run_as_keras(exburn, []) == 2
    assert keras_alias.run_as_keras(exburn, ["--help"]) == 0
    streams = capsys.readouterr()
    assert streams.out == streams.err and "SCRIPT | -m MODULE" in streams.out


def test_it_is_refused_once_keras_itself_is_there():
    pytest.importorskip("keras")
    with pytest.raises(ArgumentError, match="imported already"):
        exburn.as_keras()
    assert not any(isinstance(f, keras_alias._Finder) for f in sys.meta_path)


def test_masks_go_with_arrays_by_keras_private_functions():
    mask = jnp.array([[True, False, True]])

    class Passes(exburn.layers.Layer):
        def call(self, x):
            y = x + 1
            assert keras_private.get_keras_mask(y) is None
            keras_private.set_keras_mask(y, keras_private.get_keras_mask(x))
            return y

    x = jnp.ones((1, 3, 2))
    keras_private.set_keras_mask(x, mask)
    assert keras_private.get_keras_mask(Passes()(x)) is mask


def test_layers_within_a_layer_are_listed_by_keras_private_name():
    inner = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])

    class Outer(exburn.layers.Layer):
        def __init__(self):
            super().__init__()
            self.parts = [inner, exburn.layers.ReLU()]

    outer = Outer()
    dense, relu = inner.layers[0], outer.parts[1]
    assert list(outer._flatten_layers()) == [outer, inner, dense, relu]
    assert list(outer._flatten_layers(False, recursive=False)) == [inner, relu]
