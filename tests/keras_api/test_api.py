"""The names and parameters of Keras' public API that ExBurn has, and has not."""

import inspect
import types

import numpy as np
import pytest

import exburn

keras = pytest.importorskip("keras")

MODULES = (
    ". activations applications applications.convnext applications.densenet "
    "applications.efficientnet applications.efficientnet_v2 "
    "applications.imagenet_utils applications.inception_resnet_v2 "
    "applications.inception_v3 applications.mobilenet applications.mobilenet_v2 "
    "applications.mobilenet_v3 applications.nasnet applications.resnet "
    "applications.resnet50 applications.resnet_v2 applications.vgg16 "
    "applications.vgg19 applications.xception callbacks config constraints datasets "
    "distillation distribution dtype_policies initializers layers legacy "
    "legacy.saving losses metrics "
    "mixed_precision models ops ops.image ops.linalg ops.nn ops.numpy optimizers "
    "optimizers.schedules preprocessing preprocessing.image preprocessing.sequence "
    "quantizers random regularizers saving tree utils utils.bounding_boxes "
    "utils.legacy visualization wrappers"
).split()

#: What is not there, each told in docs/from_keras/.
ABSENT = {
    ".": "src",
    "layers": "TFSMLayer TorchModuleWrapper",
    "optimizers": "legacy",
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


#: Defaults that are not those of Keras, by the parameter; each told in
#: docs/from_keras/, or another way of writing the same.
OTHER_DEFAULTS = {
    "compile(steps_per_execution)": "auto",
    "export(format)": None,
    "image_dataset_from_directory(format)": "numpy",
    "text_dataset_from_directory(format)": "numpy",
    "timeseries_dataset_from_array(format)": "numpy",
    "Input(sparse)": False,  # None means the same there
    "Input(ragged)": False,
    "InputLayer(sparse)": False,
    "InputLayer(ragged)": False,
    "call(training)": False,
    "argmax(keepdims)": None,
    "argmin(keepdims)": None,
    "nanargmax(keepdims)": None,
    "nanargmin(keepdims)": None,
    "add_variable(aggregation)": None,
}


def callables(module):
    """Keras' functions, classes and methods of a module, with those of ExBurn."""
    seen = set()  # methods that classes share
    for name in dir(of(keras, module)):
        theirs = getattr(of(keras, module), name)
        ours = getattr(of(exburn, module), name, None)
        if name.startswith("_") or ours is None or not callable(theirs):
            continue
        yield name, theirs, ours
        if not (inspect.isclass(theirs) and inspect.isclass(ours)):
            continue
        for method in dir(theirs):
            pair = getattr(theirs, method), getattr(ours, method, None)
            if method.startswith("_") or not callable(pair[1]) or pair in seen:
                continue
            seen.add(pair)
            yield method, *pair


def defaults(function):
    """By parameter; of a class those of its bases, too, where ``**options`` stand."""
    found = {}
    classes = reversed(function.__mro__) if inspect.isclass(function) else []
    for made in [*(vars(c).get("__init__") for c in classes), function]:
        try:
            parameters = inspect.signature(made).parameters.values()
        except (TypeError, ValueError):  # of C, or no function
            continue
        found |= {p.name: p.default for p in parameters if p.kind not in (2, 4)}
    return found


def alike(default, other):
    """Whether they mean the same: 1 is (1, 1) of a stride."""
    pair = [np.asarray(d, object).ravel().tolist() for d in (default, other)]
    if isinstance(default, tuple) and isinstance(other, tuple | int):
        return set(pair[0]) == set(pair[1])
    numbers = {type(default), type(other)} == {int, float}
    return (numbers or type(default) is type(other)) and pair[0] == pair[1]


@pytest.mark.parametrize("module", MODULES)
def test_every_default_is_that_of_keras_or_known_to_differ(module):
    differ = {}
    for name, theirs, ours in callables(module):
        has = defaults(ours)
        try:
            parameters = inspect.signature(theirs).parameters.values()
        except (TypeError, ValueError):
            continue
        for p in parameters:
            missing = p.name == "self" or p.name not in has
            if missing or p.default is p.empty or alike(p.default, has[p.name]):
                continue
            differ[f"{name}({p.name})"] = has[p.name]
    differ = {k: v for k, v in differ.items() if k != "quantize(mode)"}  # required
    assert differ == {k: v for k, v in OTHER_DEFAULTS.items() if k in differ}


@pytest.mark.parametrize(
    "module, name, instead",
    [
        ("layers", "TFSMLayer", "StableHLO"),
    ],
)
def test_an_absent_name_tells_what_to_write(module, name, instead):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'(.|\n)*{instead}"):
        getattr(of(exburn, module), name)
    with pytest.raises(AttributeError, match=r"'zzzz'$"):
        _ = of(exburn, module).zzzz
