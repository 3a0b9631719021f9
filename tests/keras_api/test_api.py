"""The names and parameters of Keras' public API that ExBurn has, and has not."""

import inspect
import types

import pytest

import exburn

keras = pytest.importorskip("keras")

MODULES = (
    ". activations callbacks config constraints datasets distillation dtype_policies "
    "initializers layers legacy legacy.saving losses metrics mixed_precision models "
    "ops ops.image ops.linalg ops.nn ops.numpy optimizers optimizers.schedules "
    "preprocessing preprocessing.image preprocessing.sequence quantizers random "
    "regularizers saving tree utils utils.legacy visualization wrappers"
).split()

#: What is not there, each told in docs/from_keras.md.
ABSENT = {
    ".": "applications distribution src",
    "layers": "ContrastLimitedAdaptiveHistogramEqualization "
    "MaxNumBoundingBoxes MelSpectrogram STFTSpectrogram TFSMLayer TorchModuleWrapper",
    "optimizers": "legacy",
    "quantizers": "AWQConfig GPTQConfig",
    "utils": "bounding_boxes",
}

#: Parameters that are left out, or have another name.
OTHERWISE = {
    "layers.EinsumDense": "gptq_unpacked_column_size",
}


def of(root, module):
    for part in module.strip(".").split("."):
        root = getattr(root, part) if part else root
    return root


@pytest.mark.parametrize("module", MODULES)
def test_every_name_is_there_or_known_to_be_absent(module):
    names = {name for name in dir(of(keras, module)) if not name.startswith("_")}
    own, absent = of(exburn, module), set(ABSENT.get(module, "").split())
    assert {name for name in names if not hasattr(own, name)} == absent & names
    assert not [name for name in absent if hasattr(own, name)]


def parameters(function):
    """Names of the parameters; those that ``**options`` stand for are the bases'."""
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    names = {
        n for n, p in found.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    if inspect.isclass(function):
        for base in function.__mro__:
            if "__init__" in vars(base):
                names |= set(inspect.signature(base.__init__).parameters)
    return names


@pytest.mark.parametrize("module", MODULES)
def test_every_parameter_is_there_or_known_to_be_absent(module):
    for name in dir(of(keras, module)):
        theirs = getattr(of(keras, module), name)
        ours = getattr(of(exburn, module), name, None)
        if name.startswith("_") or ours is None or isinstance(theirs, types.ModuleType):
            continue
        try:
            wanted = inspect.signature(theirs).parameters.values()
        except (TypeError, ValueError):
            continue
        wanted = {p.name for p in wanted if p.kind not in (2, 4)}
        has = parameters(ours)
        if has is None:
            continue
        left_out = OTHERWISE.get(f"{module.strip('.')}.{name}", "").split()
        assert wanted - has == set(left_out), f"{module}.{name}"


@pytest.mark.parametrize(
    "module, name, instead",
    [
        (".", "applications", "load_weights"),
        (".", "distribution", "compile"),
        ("layers", "TFSMLayer", "StableHLO"),
        ("quantizers", "GPTQConfig", r"model\.quantize"),
    ],
)
def test_an_absent_name_tells_what_to_write(module, name, instead):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'(.|\n)*{instead}"):
        getattr(of(exburn, module), name)
    with pytest.raises(AttributeError, match=r"'nothing'$"):
        _ = of(exburn, module).nothing
