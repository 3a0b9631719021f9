"""Training with rounding beside masks, adapters, files and other runtimes."""

import numpy as np
import pytest

import exburn
from exburn import errors, layers
from exburn.compression.quantization.aware import all_ranges

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((128, 16)).astype(np.float32)
Y = X[:, :3].argmax(1)
IMAGES = RANDOM.standard_normal((96, 8, 8, 4)).astype(np.float32)


def make():
    model = exburn.Sequential(
        [
            exburn.Input((16,)),
            layers.Dense(32, "relu", name="hidden"),
            layers.Dense(3, "softmax", name="head"),
        ]
    )
    model.compile("adam", "cross_entropy", seed=0)
    return model


def aware(epochs=1, **options):
    model = exburn.quantize_aware(make(), "int8", **options)
    model.fit(X, Y, epochs=epochs, verbose=0)
    return model


def hidden(model):
    return model.get_layer("hidden").kernel


def zeros(model):
    return (hidden(model).numpy() == 0).reshape(4, 4, 32).sum(1)


def test_masks_hold_before_it_and_after_it(tmp_path):
    pruned = exburn.quantize_aware(exburn.prune(make(), pattern="2:4"), "int8")
    pruned.fit(X, Y, epochs=2, verbose=0)
    other = exburn.prune(aware(), pattern="2:4")
    other.fit(X, Y, epochs=1, verbose=0)
    pruned.save(tmp_path / "m.exburn")
    read = exburn.load_model(tmp_path / "m.exburn")
    read.fit(X, Y, epochs=1, verbose=0)
    for model in (pruned, other, read, pruned.quantize()):
        assert (zeros(model) >= 2).all()


def test_channels_go_before():
    with pytest.raises(errors.ArgumentError, match="changes that lie along"):
        exburn.prune(aware(), sparsity=0.5, pattern="channels")


def test_adapters_train_beside_it(tmp_path):
    model = aware()
    model.add_lora(rank=2)
    before = hidden(model).exact.numpy().copy()
    model.fit(X, Y, epochs=2, verbose=0)
    assert (hidden(model).exact.numpy() == before).all()
    model.save(tmp_path / "m.exburn")
    read = exburn.load_model(tmp_path / "m.exburn")
    wanted = model.predict(X, verbose=0)
    assert (read.predict(X, verbose=0) == wanted).all()
    model.merge_lora()
    assert (hidden(model).exact.numpy() != before).any()
    np.testing.assert_allclose(model.predict(X, verbose=0), wanted, atol=0.05)
    small = model.quantize()
    small.add_lora(rank=2)
    before = small.predict(X, verbose=0)
    small.fit(X, Y, epochs=2, verbose=0)
    assert (small.predict(X, verbose=0) != before).any()


def test_a_resumed_training_is_the_same(tmp_path):
    whole = aware(4).predict(X, verbose=0)
    model = aware(2)
    model.save(tmp_path / "m.exburn")
    for suffix in ("weights.h5", "weights.safetensors"):
        model.save_weights(tmp_path / f"m.{suffix}")
        other = exburn.quantize_aware(make(), "int8")
        other.load_weights(tmp_path / f"m.{suffix}")
        wanted = model.predict(X, verbose=0)
        assert (other.predict(X, verbose=0) == wanted).all()
    read = exburn.load_model(tmp_path / "m.exburn")
    read.fit(X, Y, initial_epoch=2, epochs=4, verbose=0)
    assert (read.predict(X, verbose=0) == whole).all()


def test_learned_ends_are_trained():
    options = {"ranges": "learned", "calibration": X, "method": "percentile"}
    model = exburn.quantize_aware(make(), "int8", percentile=95, **options)
    before = [float(found.high.numpy()) for _, _, found in all_ranges(model)]
    model.fit(X, Y, epochs=2, verbose=0)
    after = [float(found.high.numpy()) for _, _, found in all_ranges(model)]
    assert all(a != b for a, b in zip(before, after, strict=True))
    small = model.quantize()
    assert not small.trainable_weights
    np.testing.assert_allclose(
        small.predict(X, verbose=0), model.predict(X, verbose=0), atol=1e-5
    )


def convnet():
    x = exburn.Input((8, 8, 4), name="image")
    h = layers.Conv2D(8, 3, padding="same", use_bias=False)(x)
    h = layers.ReLU()(layers.BatchNormalization()(h))
    side = layers.DepthwiseConv2D(3, padding="same")(h)
    h = layers.Activation("relu")(layers.Add()([h, side]))
    h = layers.Conv2D(8, 1, activation="relu")(layers.MaxPooling2D()(h))
    h = layers.GlobalAveragePooling2D()(h)
    model = exburn.Model(x, layers.Dense(3, "softmax", name="kind")(h))
    model.compile("adam", "cross_entropy", seed=0)
    return model


def operand_kinds(data):
    """The dtypes that the operators of a LiteRT file read, operand by operand."""
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    operators, dtypes = (
        {v: k for k, v in vars(kind).items() if isinstance(v, int)}
        for kind in (schema.BuiltinOperator, schema.TensorType)
    )
    found = {}
    for graph in model.subgraphs:
        for operator in graph.operators:
            code = model.operatorCodes[operator.opcodeIndex]
            kind = operators[max(code.builtinCode, code.deprecatedBuiltinCode)]
            for place, tensor in enumerate(operator.inputs):
                if tensor >= 0:
                    one = dtypes[graph.tensors[tensor].type]
                    found.setdefault((kind, place), set()).add(one)
    return found


@pytest.mark.parametrize("bits", ["int8", "int4"])
def test_files_compute_in_integers(tmp_path, bits):
    for package in ("litert_converter", "ai_edge_litert", "onnxruntime"):
        pytest.importorskip(package)
    model = exburn.quantize_aware(convnet(), bits, activations=True)
    model.fit(IMAGES, Y[:96], batch_size=16, epochs=2, verbose=0)
    wanted = model.predict(IMAGES, verbose=0)
    for suffix in ("onnx", "tflite"):
        path = tmp_path / f"m.{suffix}"
        report = model.export(path)
        found = exburn.predict(path, IMAGES)
        assert np.abs(found - wanted).mean() < 0.02
        assert "Mul" not in report.operators and "MUL" not in report.operators
    kinds = operand_kinds(path.read_bytes())
    for product in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
        assert (kinds[product, 0], kinds[product, 1]) == ({"INT8"}, {bits.upper()})
    assert kinds["ADD", 0] == kinds["ADD", 1] == kinds["MEAN", 0] == {"INT8"}
    with pytest.raises(errors.ArgumentError, match="scales of its own"):
        model.export(path, quantize="int8", samples=IMAGES)
