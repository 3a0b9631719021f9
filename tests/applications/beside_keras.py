"""An application beside Keras' own: names, numbers of weights, files and outputs."""

import gc
import warnings

import jax
import numpy as np

from exburn import applications

SETTINGS = {"classes": 10, "weights": None}
FAST = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}


def fill(model, rng):
    """Weights of any size: those of a fresh batch normalization would tell nothing."""
    made = []
    for weight in model.weights:
        path, shape = weight.path, tuple(weight.shape)
        if path.endswith("count"):
            value = np.zeros(shape)
        elif path.endswith("variance"):
            value = rng.uniform(0.5, 1.5, shape)
        elif path.endswith("gamma") or "scale" in path:
            value = rng.uniform(0.8, 1.2, shape)
        elif len(shape) < 2:
            value = rng.normal(0, 0.1, shape)
        else:
            fan_in = np.prod(shape[:-1]) if "depthwise" not in path else 9
            value = rng.normal(0, fan_in**-0.5, shape)
        made.append(value.astype(str(weight.dtype)))
    model.set_weights(made)
    return made


def output(keras_model, x):
    """What a model of Keras' predicts, compiled without XLA's optimizations."""
    weights = [w.value for w in keras_model.trainable_variables]
    rest = [w.value for w in keras_model.non_trainable_variables]

    def run(weights, rest, x):
        return keras_model.stateless_call(weights, rest, x, training=False)[0]

    compiled = jax.jit(run).lower(weights, rest, x).compile(compiler_options=FAST)
    return np.asarray(compiled(weights, rest, x))


def check(name, size, folder, suffixes=(".weights.h5",), **settings):
    """The application with weights of Keras' making equals Keras'."""
    import keras

    # pytest forgets these after the test
    warnings.filterwarnings("ignore", "__array__ implementation")
    warnings.filterwarnings("ignore", "You are saving your model as an HDF5")
    keras.utils.clear_session()
    settings = {"input_shape": (size, size, 3), **SETTINGS, **settings}
    theirs = getattr(keras.applications, name)(**settings)
    rng = np.random.default_rng(0)
    fill(theirs, rng)
    x = rng.uniform(0, 255, (2, size, size, 3)).astype("float32")
    if getattr(applications, name).__module__.rpartition(".")[2] not in PREPARED:
        x = x / 127.5 - 1
    expected = output(theirs, x)
    files = [folder / f"weights{suffix}" for suffix in suffixes]
    for file in files:
        weights_only = file.name.endswith(".weights.h5")
        (theirs.save_weights if weights_only else theirs.save)(file)
    names = [layer.name for layer in theirs.layers]
    shapes = [tuple(weight.shape) for weight in theirs.weights]
    count = theirs.count_params()
    del theirs
    gc.collect()

    ours = getattr(applications, name)(**{**settings, "weights": files[0]})
    assert [layer.name for layer in ours.layers] == names
    assert [tuple(weight.shape) for weight in ours.weights] == shapes
    assert ours.count_params() == count
    pixels = rng.integers(0, 256, (2, size, size, 3)).astype("float32")
    prepared = ours.preprocess(pixels)
    if settings.get("include_preprocessing", True):
        family = getattr(applications, name).__module__.rpartition(".")[2]
        family = name.lower() if family == "vgg" else family
        wanted = getattr(keras.applications, family).preprocess_input(pixels.copy())
        np.testing.assert_allclose(prepared, wanted, atol=1e-4)
    else:  # in the range that the layers left out would make of it
        assert -3 < prepared.min() < 0 < prepared.max() < 3
    errors = []
    for number, file in enumerate(files):
        if number:
            ours.set_weights([np.zeros(shape, "float32") for shape in shapes])
            ours.load_weights(file)
        errors.append(float(np.abs(ours.predict(x, verbose=0) - expected).max()))
        file.unlink()
    assert max(errors) <= 1e-5, errors
    assert expected.std() > 1e-3  # the weights count
    return errors


def check_training(name, size):
    """Random weights take a step of training."""
    model = getattr(applications, name)(input_shape=(size, size, 3), **SETTINGS)
    model.compile("sgd", "sparse_categorical_crossentropy")
    before = [np.asarray(weight) for weight in model.trainable_weights[:2]]
    x = np.random.default_rng(0).normal(size=(4, size, size, 3)).astype("float32")
    loss = model.fit(x, np.arange(4), batch_size=4, verbose=0).history["loss"]
    assert np.isfinite(loss).all()
    after = [np.asarray(weight) for weight in model.trainable_weights[:2]]
    assert any((a != b).any() for a, b in zip(before, after, strict=True))


PREPARED = {"efficientnet", "efficientnet_v2", "mobilenet_v3", "convnext"}
