"""Names of Keras that are not here."""

import traceback

import pytest

import exburn
from exburn.core.missing_names import missing


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        (exburn.layers, "TorchModuleWrapper", "rewrite the module as a Layer"),
        (exburn.layers, "TFSMLayer", "exburn.predict runs ONNX and StableHLO"),
        (exburn.optimizers, "legacy", "Keras 3 refuses to make those, too"),
    ],
)
def test_a_name_of_keras_that_is_absent_says_what_to_write(module, name, instead):
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    assert "  → " in str(caught.value) and str(caught.value).endswith(instead)
    assert caught.value.name == name


def test_a_name_that_is_like_none_has_no_hint():
    assert str(missing("exburn", "zzzz")) == ("module 'exburn' has no attribute 'zzzz'")
    with pytest.raises(AttributeError, match="no attribute 'zzzz'$"):
        exburn.zzzz  # noqa: B018


MEANT = {
    "layers.Dens": "Did you mean 'Dense'",
    "layers.dense": "Did you mean 'Dense'",
    "layers.Adam": "It is exburn.optimizers.Adam.",
    "Dense": "It is exburn.layers.Dense.",
    "optimizrs": "Did you mean 'optimizers'",
    "optimizers.Adem": "Did you mean 'Adam'",
    "optimizers.schedules.CosinDecay": "Did you mean 'CosineDecay'",
    "losses.MeanSquareError": "Did you mean 'MeanSquaredError'",
    "metrics.Acuracy": "Did you mean 'Accuracy'",
    "callbacks.EarlyStop": "Did you mean 'EarlyStopping'",
    "initializers.HeNormall": "Did you mean 'HeNormal'",
    "regularizers.L3": "Did you mean 'L2' or 'L1'",
    "constraints.MaxNrm": "Did you mean 'MaxNorm'",
    "activations.rellu": "Did you mean 'relu'",
    "ops.matmull": "Did you mean 'matmul'",
    "random.norml": "Did you mean 'normal'",
    "datasets.mnits": "Did you mean 'mnist'",
    "applications.ResNet5": "Did you mean 'ResNet50'",
    "utils.to_categoric": "Did you mean 'to_categorical'",
    "models.load_modl": "Did you mean 'load_model'",
    "saving.save_modl": "Did you mean 'save_model'",
    "config.set_flotx": "Did you mean 'set_floatx'",
    "backend.epsilo": "Did you mean 'epsilon'",
    "tuning.swep": "Did you mean 'sweep'",
    "export.ExportArchiv": "Did you mean 'ExportArchive'",
    "distribution.DeviceMsh": "Did you mean 'DeviceMesh'",
    "mixed_precision.Polcy": "Did you mean 'Policy'",
    "serving.Serve": "Did you mean 'Server'",
}


@pytest.mark.parametrize("path", MEANT)
def test_a_name_is_answered_by_the_one_that_was_meant(path):
    spaces, _, name = path.rpartition(".")
    module = exburn
    for space in filter(None, spaces.split(".")):
        module = getattr(module, space)
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    assert f"  → {MEANT[path]}" in str(caught.value)
    assert not hasattr(module, name)  # it is an ordinary AttributeError
    assert len(traceback.extract_tb(caught.value.__traceback__)) == 1  # this line
