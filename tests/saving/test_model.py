"""Models in files: what was saved comes back, and training goes on the same."""

import jax
import numpy as np
import pytest
import safetensors
from tests.saving.models import LABELS, MODELS, RNG, X, sequential

import exburn as keras
from exburn import layers
from exburn.module.traversal import iter_weights


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def paths(model):
    return [path for path, _, _ in iter_weights(model)]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back(name, tmp_path):
    make, x = MODELS[name]
    model, path = make(), tmp_path / "m.exburn"
    outputs = model.predict(x, verbose=0)
    model.save(path)
    loaded = keras.load_model(path)
    assert type(loaded) is type(model) and loaded.name == model.name
    assert paths(loaded) == paths(model)
    same(model.get_weights(), loaded.get_weights())
    same(outputs, loaded.predict(x, verbose=0))
    trained = [learns for _, _, learns in iter_weights(model)]
    assert [learns for _, _, learns in iter_weights(loaded)] == trained
    assert [layer.dtype_policy for layer in loaded.layers] == [
        layer.dtype_policy for layer in model.layers
    ]
    again = tmp_path / "again.exburn"
    loaded.save(again)
    assert again.read_bytes() == path.read_bytes()
    fresh = keras.models.model_from_json(model.to_json())
    assert [w.shape for w in fresh.weights] == [w.shape for w in model.weights]


COMPILED = {
    "names": dict(optimizer="adam", loss="sparse_categorical_crossentropy"),
    "objects": dict(
        optimizer=keras.optimizers.SGD(
            keras.optimizers.schedules.CosineDecay(0.1, 50), momentum=0.9, use_ema=True
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(),
        metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2)],
    ),
    "accumulation": dict(
        optimizer=keras.optimizers.AdamW(
            0.01, gradient_accumulation_steps=2, global_clipnorm=1.0
        ),
        loss="sparse_categorical_crossentropy",
        weighted_metrics=["accuracy"],
    ),
    "seeded": dict(optimizer="rmsprop", loss="cross_entropy", seed=5),
}


@pytest.mark.parametrize(
    "name",
    ["names", *[*COMPILED][1:]],
)
def test_training_goes_on_as_if_nothing_had_happened(name, tmp_path):
    model, path = sequential(), tmp_path / "m.exburn"
    model.compile(**COMPILED[name])
    model.fit(X, LABELS, batch_size=8, epochs=2, verbose=0)
    model.save(path)
    loaded = keras.load_model(path)
    logs = [
        m.fit(X, LABELS, batch_size=8, epochs=2, verbose=0).history
        for m in (model, loaded)
    ]
    assert logs[0] == logs[1]
    same(model.get_weights(), loaded.get_weights())
    assert loaded.optimizer.iterations == model.optimizer.iterations > 0


def test_layers_frozen_since_the_last_fit(tmp_path):
    model, path = sequential(), tmp_path / "m.exburn"
    model.compile("adam", "sparse_categorical_crossentropy")
    dense = next(layer for layer in model.layers if layer.trainable_weights)
    for trainable in (False, True):  # its slots go, and come back empty
        model.fit(X, LABELS, verbose=0)
        dense.trainable = trainable
        model.save(path)
        loaded = keras.load_model(path)
        for each in (model, loaded):
            each.fit(X, LABELS, verbose=0)
        same(model.get_weights(), loaded.get_weights())
        fresh = keras.load_model(path)
        fresh.layers[model.layers.index(dense)].trainable = not trainable
        fresh.fit(X, LABELS, verbose=0)


def test_a_learning_rate_set_between_fits_is_kept(tmp_path):
    model, path = sequential(), tmp_path / "m.exburn"
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(X, LABELS, verbose=0)
    model.optimizer.learning_rate = 0.125
    model.save(path)
    assert keras.load_model(path).optimizer.learning_rate == 0.125
    model.save(path, include_optimizer=False)
    loaded = keras.load_model(path)
    assert loaded.compiled and loaded.optimizer.iterations == 0
    assert not keras.load_model(path, compile=False).compiled


def test_text_vectorization_comes_back(tmp_path):
    prepare = layers.TextVectorization(output_mode="tf_idf")
    prepare.adapt([" ".join(f"word{i}" for i in range(400)), "word1 word2"])
    model, path = OfTexts(prepare), tmp_path / "m.exburn"
    texts = np.array(["word1 word399 other", "word7"])
    outputs = model(prepare(texts))
    model.save(path)
    loaded = keras.load_model(path)
    same(outputs, loaded(loaded.prepare(texts)))
    with safetensors.safe_open(path, "numpy") as file:
        assert {"/words/0", "/numbers/1"} <= set(file.keys())


@keras.register(package="tests")
class OfTexts(keras.Model):
    def __init__(self, prepare, **kwargs):
        super().__init__(**kwargs)
        self.prepare, self.head = prepare, layers.Dense(2)

    def call(self, x):
        return self.head(x)


def test_a_quantized_model_comes_back(tmp_path):
    model = keras.Sequential([keras.Input((64,)), layers.Dense(32), layers.Dense(8)])
    small = model.quantize("int8")
    x = RNG.random((4, 64), np.float32)
    small.save(tmp_path / "small.exburn")
    model.save(tmp_path / "m.exburn")
    same(
        keras.load_model(tmp_path / "small.exburn").predict(x, verbose=0),
        small.predict(x, verbose=0),
    )
    sizes = [(tmp_path / n).stat().st_size for n in ("small.exburn", "m.exburn")]
    assert sizes[0] < sizes[1]


def test_the_floats_of_a_policy_that_jax_shortens(tmp_path):
    file, there = tmp_path / "model.keras", [False, True]
    for at_save in there:
        for at_load in there:
            with jax.enable_x64(at_save):
                model = keras.Sequential(
                    [keras.Input((4,)), layers.Dense(2, dtype="float64")]
                )
                model.compile("adam", "mse")
                model.fit(X[:, :4], X[:, :2], verbose=0)
                model.save(file)
            with jax.enable_x64(at_load):
                again = keras.models.load_model(file)
                dtype = "float64" if at_load else "float32"
                assert again.weights[0].dtype == dtype
                for old, new in zip(
                    model.get_weights(), again.get_weights(), strict=True
                ):
                    np.testing.assert_allclose(new, old, rtol=1e-6)
                again.fit(X[:, :4], X[:, :2], verbose=0)
                assert int(again.optimizer.iterations) == 2 * int(
                    model.optimizer.iterations
                )


@pytest.mark.parametrize(
    "text, told",
    [
        ('{"class_name": "Sequential", "config": 3}', "describes no model"),
        ('{"class_name": "Functional", "config": {"layers": [3]}}', "layers"),
        ("[]", "a JSON object"),
        ("{}", "no model"),
    ],
)
def test_a_string_that_is_no_model_is_refused(text, told):
    with pytest.raises(keras.errors.ExBurnError, match=told):
        keras.models.model_from_json(text)
