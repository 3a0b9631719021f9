"""Section "Imports and names" of docs/from_keras/."""

import importlib
import inspect
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from tests.from_keras.page import says

import exburn

keras = pytest.importorskip("keras")

X = np.arange(12, dtype="float32").reshape(4, 3) / 12
NAMESPACES = (
    "layers optimizers losses metrics callbacks initializers regularizers constraints "
    "activations datasets ops random"
).split()
ABSENT = {
    "layers": ["TorchModuleWrapper", "TFSMLayer"],
}


def of(library, namespace):
    return library if namespace == "." else getattr(library, namespace)


@says("`import exburn as keras` is enough")
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_namespaces_have_the_names_of_keras(namespace):
    names = {n for n in dir(of(keras, namespace)) if not n.startswith("_")}
    absent = {*ABSENT.get(namespace, []), *({"legacy"} & names)}
    assert {n for n in names if not hasattr(of(exburn, namespace), n)} <= absent


@says("never by `import layers`")
def test_a_catalogue_alone_is_a_second_module(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(exburn.__file__).parents[1]))
    monkeypatch.delitem(sys.modules, "layers", raising=False)
    assert importlib.import_module("exburn.layers") is exburn.layers
    alone = importlib.import_module("layers")
    assert alone is not exburn.layers and alone.Dense is exburn.layers.Dense
    monkeypatch.delitem(sys.modules, "layers")


@says("`exburn.register` is the decorator")
def test_classes_are_registered_with_and_without_parentheses():
    @exburn.register
    class Bare:
        pass

    @exburn.register(package="pack", name="Named")
    class Other:
        pass

    assert exburn.saving.get_registered_name(Bare) == "Custom>Bare"
    assert exburn.saving.get_registered_name(Other) == "pack>Named"
    for library in (exburn, keras):
        register = library.saving.register_keras_serializable("pack", "ByPosition")
        decorated = register(lambda x: x)
        assert library.saving.get_registered_name(decorated) == "pack>ByPosition"


@says("Not there are the layers")
def test_an_absent_name_tells_what_to_write():
    for namespace, names in ABSENT.items():
        for name in names:
            assert hasattr(of(keras, namespace), name)
            with pytest.raises(AttributeError, match=name) as caught:
                getattr(of(exburn, namespace), name)
            assert len(str(caught.value).splitlines()) > 1, "no hint"
    with pytest.raises(AttributeError, match="'zzqqxx'$"):
        _ = exburn.zzqqxx


@says("`preprocess_input` returns a new array")
def test_applications_leave_pixels_and_refuse_what_keras_ignores():
    for library, changed in ((exburn, False), (keras, True)):
        x = np.ones((2, 2, 3), "float32")
        library.applications.mobilenet.preprocess_input(x)
        assert (x[0, 0, 0] < 0) == changed
    with pytest.raises(ValueError, match="pooling"):
        exburn.applications.VGG16(weights=None, pooling="sum")
    symbol = exburn.Input((32, 32, 3))
    with pytest.raises(ValueError, match="input_shape"):
        exburn.applications.VGG16(True, None, symbol, (64, 64, 3))


@says("`keras.Function` that is called on symbols")
@pytest.mark.parametrize("library", [exburn, keras])
def test_a_function_on_symbols_has_its_layers_in_the_model(library):
    x, z = library.Input((3,)), library.Input((3,))
    function = library.Function(x, library.layers.Dense(2)(x))
    model = library.Model(z, function(z))
    assert len(model.trainable_weights) == (2 if library is exburn else 0)


@says("`name_scope` is `jax.named_scope`")
def test_a_name_scope_names_operations():
    def double(x):
        with exburn.name_scope("block"):
            return exburn.ops.multiply(x, 2)

    program = jax.jit(double).lower(1.0).as_text(debug_info=True)
    assert "block/mul" in program
    for library, path in ((exburn, "scale"), (keras, "block/scale")):
        with library.name_scope("block"):
            assert library.Variable(np.ones(2), name="scale").path == path


@says("`gptq_unpacked_column_size`")
def test_the_parameter_that_is_left_out():
    parameters = inspect.signature(keras.layers.EinsumDense).parameters
    assert "gptq_unpacked_column_size" in parameters
    options = {"gptq_unpacked_column_size": 4}
    with pytest.raises(ValueError, match="gptq_unpacked_column_size"):
        exburn.layers.EinsumDense("ab,bc->ac", 3, **options)


@says("Whatever argument Keras' constructors refuse")
@pytest.mark.parametrize(
    "make",
    [
        lambda library: library.optimizers.SGD(1),
        lambda library: library.optimizers.SGD(0.1, momentum=0),
        lambda library: library.Input(3),
        lambda library: library.layers.Reshape(-1),
        lambda library: library.layers.Dropout(0.5, noise_shape=1),
        lambda library: library.layers.Dense(3, batch_input_shape=(2, 3)),
        lambda library: library.layers.GaussianNoise(2.0),
        lambda library: library.layers.RandomGaussianBlur(sigma=2.0),
        lambda library: library.metrics.Precision(thresholds=(0.2, 0.5)),
    ],
)
def test_what_is_taken_here_alone(make):
    make(exburn)
    with pytest.raises((TypeError, ValueError)):
        make(keras)


@says("Whatever argument Keras' constructors refuse")
@pytest.mark.parametrize(
    "make",
    [
        lambda library: library.layers.Dense(2.5),
        lambda library: library.optimizers.Adam("quick"),
        lambda library: library.losses.MeanSquaredError(reduction="average"),
    ],
)
def test_what_neither_takes(make):
    for library in (exburn, keras):
        with pytest.raises((TypeError, ValueError)):
            make(library)


@says("`exburn.wrappers` needs scikit-learn")
@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # Keras' copies
def test_estimators_start_warm_and_are_silent(monkeypatch, capsys):
    pytest.importorskip("sklearn")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "sklearn.base", None)
        for name in [n for n in sys.modules if n.startswith("exburn.wrappers")]:
            patch.delitem(sys.modules, name)
        wrappers = importlib.import_module("exburn.wrappers")
        with pytest.raises(ImportError, match="scikit-learn"):
            _ = wrappers.SKLearnRegressor
    for library in (exburn, keras):
        network = library.Sequential([library.Input((3,)), library.layers.Dense(1)])
        network.compile(library.optimizers.SGD(0.1), "mse")
        warm = library.wrappers.SKLearnRegressor(network, warm_start=True)
        warm.fit(X, X[:, 0]).predict(X)
        silent = not capsys.readouterr().out
        assert silent == (warm.model_ is network) == (library is exburn)
        warm.fit(X, X[:, 0], verbose=2)
        assert "loss" in capsys.readouterr().out
        assert (warm.model_ is network) == (library is exburn)


@says('with exburn.device("gpu:1"):')
def test_a_block_on_a_device():
    for library in (exburn, keras):
        with library.device("cpu:0"):
            x = library.ops.ones(3)
        assert {device.platform for device in x.devices()} == {"cpu"}
    model = exburn.Sequential([exburn.Input((3,)), exburn.layers.Dense(1)])
    with pytest.raises(exburn.errors.ArgumentError, match="device"):
        model.compile("sgd", "mse", device="gpu:7")
    model.compile("sgd", "mse", device="cpu:0")
    model.fit(X, X[:, :1], verbose=0)
    assert {d.platform for d in model.weights[0][...].devices()} == {"cpu"}
