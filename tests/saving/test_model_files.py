"""Models in files: what was saved comes back, and training goes on the same."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors
from flax import nnx

import exburn as keras
from exburn import layers, ops
from exburn.errors import ArgumentError, ModelFormatError, NotBuiltError
from exburn.traversal import iter_weights


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """Compiling tiny programs well takes longer than running them."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


RNG = np.random.default_rng(0)
X = RNG.random((32, 8), np.float32)
LABELS = RNG.integers(0, 3, 32)
IDS = RNG.integers(0, 20, (6, 5))
SERIES = RNG.random((6, 5, 4), np.float32)
IMAGES = RNG.random((3, 8, 8, 3), np.float32)


@keras.register(package="tests")
class Block(keras.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.inner = layers.Dense(units)
        self.norm = layers.LayerNormalization()

    def call(self, x):
        return self.norm(self.inner(x))


@keras.register(package="tests")
def doubled(x):
    return 2 * x


@keras.register(package="tests")
class Net(keras.Model):
    def __init__(self, units, depth=2, **kwargs):
        super().__init__(**kwargs)
        self.blocks = [Block(units) for _ in range(depth)]
        self.drop = layers.Dropout(0.2)
        self.head = layers.Dense(3)

    def call(self, x, training=False):
        for block in self.blocks:
            x = block(x)
        return self.head(self.drop(x, training=training))


@keras.register(package="tests")
class KerasStyle(keras.Layer):
    """With a get_config and from_config as Keras' guides write them."""

    def __init__(self, inner, factor=1.0, **kwargs):
        super().__init__(**kwargs)
        self.inner, self.factor = inner, factor

    def call(self, x):
        return self.inner(x) * self.factor

    def get_config(self):
        config = super().get_config()
        inner = keras.saving.serialize_keras_object(self.inner)
        config.update({"inner": inner, "factor": self.factor})
        return config

    @classmethod
    def from_config(cls, config):
        inner = keras.saving.deserialize_keras_object(config.pop("inner"))
        return cls(inner, **config)


@keras.register(package="tests")
class Functional(keras.Model):
    """A subclass that makes its own graph."""

    def __init__(self, units, **kwargs):
        x = keras.Input((8,))
        super().__init__(x, layers.Dense(units)(x), **kwargs)
        self.units = units


@keras.register(package="tests")
class OfNnx(keras.Layer):
    def __init__(self, size, **kwargs):
        super().__init__(**kwargs)
        self.linear = nnx.Linear(8, size, rngs=nnx.Rngs(0))

    def call(self, x):
        return self.linear(x)


def sequential():
    return keras.Sequential(
        [
            keras.Input((8,)),
            layers.Dense(6, activation="relu", kernel_regularizer="l2"),
            layers.BatchNormalization(),
            layers.Dropout(0.3),
            layers.Dense(3, activation="softmax"),
        ]
    )


def late():
    model = keras.Sequential([layers.Dense(4), layers.Dense(2)])
    model(X)
    return model


def functional():
    a, b = keras.Input((8,), name="a"), keras.Input((8,), name="b")
    shared = layers.Dense(4, name="shared")
    inner = keras.Sequential(
        [keras.Input((4,)), layers.Dense(5), layers.LayerNormalization()], name="inner"
    )
    h = layers.concatenate([inner(shared(a)), inner(shared(b))])
    h = ops.tanh(h * 2 + 1)[:, :6]
    h = keras.fn(doubled)(h)
    return keras.Model(
        {"a": a, "b": b},
        {"x": layers.Dense(1, name="x")(h), "y": layers.Dense(2, name="y")(h)},
    )


def shared_between_models():
    encode = layers.Dense(4, name="encode")
    x = keras.Input((8,))
    first = keras.Model(x, layers.Dense(2)(encode(x)), name="first")
    x = keras.Input((8,))
    second = keras.Model(x, encode(x), name="second")
    x = keras.Input((8,))
    return keras.Model(x, [first(x), second(x), second(x * 2)])


def subclass():
    model = Net(5, depth=3)
    model(X)
    return model


def in_functional(layer, x=X, dtype=None):
    symbol = keras.Input(x.shape[1:], dtype=dtype)
    return keras.Model(symbol, layer(symbol))


def frozen():
    model = sequential()
    model.freeze("dense")
    return model


def normalized():
    layer = layers.Normalization()
    layer.adapt(X)
    return keras.Sequential([keras.Input((8,)), layer, layers.Dense(2)])


def mixed():
    first = layers.Dense(4, dtype="mixed_bfloat16")
    return keras.Sequential(
        [keras.Input((8,)), first, layers.Dense(4, dtype="bfloat16")]
    )


def attention():
    x = keras.Input((5, 4))
    return keras.Model(x, layers.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True))


def constant():
    values = np.arange(400.0).reshape(8, 50)
    return keras.Sequential(
        [keras.Input((8,)), layers.Dense(50, kernel_initializer=values)]
    )


MODELS = {
    "sequential": (sequential, X),
    "sequential from data": (late, X),
    "functional": (functional, {"a": X, "b": X}),
    "layers shared between models": (shared_between_models, X),
    "subclass": (subclass, X),
    "Keras' from_config": (lambda: in_functional(KerasStyle(layers.Dense(2), 3.0)), X),
    "a subclass with a graph": (lambda: Functional(3), X),
    "nnx in a layer": (lambda: in_functional(OfNnx(3)), X),
    "a registered function": (lambda: in_functional(layers.Lambda(doubled)), X),
    "jax.nn": (lambda: in_functional(layers.Dense(2, activation=jax.nn.mish)), X),
    "frozen": (frozen, X),
    "normalization": (normalized, X),
    "mixed precision": (mixed, X),
    "attention": (attention, SERIES),
    "an array in a config": (constant, X),
    "recurrent": (
        lambda: keras.Sequential(
            [
                keras.Input((5,)),
                layers.Embedding(20, 4, mask_zero=True),
                layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
                layers.RNN([layers.GRUCell(2), layers.SimpleRNNCell(3)]),
            ]
        ),
        IDS,
    ),
    "convolutions": (
        lambda: keras.Sequential(
            [
                keras.Input((8, 8, 3)),
                layers.RandomFlip(),
                layers.SeparableConv2D(4, 3),
                layers.GroupNormalization(2),
                layers.SpectralNormalization(layers.Conv2D(2, 3)),
                layers.GlobalAveragePooling2D(),
            ]
        ),
        IMAGES,
    ),
}


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def paths(model):
    return [path for path, _, _ in iter_weights(model)]


QUICK = {
    "sequential",
    "functional",
    "layers shared between models",
    "subclass",
    "frozen",
}
PARAMS = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
    for name in MODELS
]


@pytest.mark.parametrize("name", PARAMS)
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
    ["names", *(pytest.param(n, marks=pytest.mark.slow) for n in [*COMPILED][1:])],
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


def test_every_setting_of_compile_comes_back(tmp_path):
    path, data = tmp_path / "m.exburn", (np.ones((32, 4)), np.ones((32, 2)))
    model = keras.Sequential([keras.Input((4,)), layers.Dense(2)], dtype="float16")
    model.compile(
        "sgd",
        "mse",
        warmup=(3, 0.0, 0.2),
        device="cpu",
        auto_scale_loss=False,
        check_numerics=False,
        steps_per_execution=2,
        seed=5,
    )
    model.save(path)
    again = keras.load_model(path)
    config = again.get_compile_config()
    assert config == model.get_compile_config()
    warmup = {"target": 0.2, "steps": None, "epochs": 3, "initial": 0.0, "verbose": 0}
    assert config["warmup"] == warmup
    assert (config["device"], config["auto_scale_loss"]) == ("cpu:0", False)
    for one in (model, again):
        one.fit(*data, batch_size=16, verbose=0)  # the rate rises from nought
    assert all(map(np.array_equal, model.get_weights(), again.get_weights()))
    other = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    with pytest.warns(UserWarning, match="device 'tpu:3', which is not here"):
        other.compile_from_config(config | {"device": "tpu:3"})
    assert other.get_compile_config()["device"] is None
    old = {k: v for k, v in config.items() if k not in ("warmup", "device")}
    other.compile_from_config(old)  # of a file that was written before
    assert other.get_compile_config()["warmup"] is None


def test_losses_and_metrics_of_each_output(tmp_path):
    model, path = functional(), tmp_path / "m.exburn"
    model.compile(
        "sgd",
        {"x": "mse", "y": keras.losses.Huber(2.0)},
        loss_weights={"x": 0.5, "y": 2.0},
        metrics={"x": ["mae"], "y": [keras.metrics.RootMeanSquaredError()]},
    )
    data = {"a": X, "b": X}, {"x": X[:, :1], "y": X[:, :2]}
    model.fit(*data, verbose=0)
    model.save(path)
    loaded = keras.load_model(path)
    both = [m.evaluate(*data, verbose=0, return_dict=True) for m in (model, loaded)]
    assert both[0] == both[1]
    assert set(both[0]) > {"x_mae", "y_root_mean_squared_error"}


def named_loss(y_true, y_pred):
    return jnp.mean(jnp.abs(y_true - y_pred), axis=-1)


class OwnLoss(keras.Loss):
    def call(self, y_true, y_pred):
        return jnp.mean(jnp.square(y_true - y_pred), axis=-1)


@pytest.mark.parametrize("loss", [named_loss, OwnLoss()], ids=["function", "class"])
def test_custom_objects_of_compile(loss, tmp_path):
    model, path = in_functional(layers.Dense(8)), tmp_path / "m.exburn"
    model.compile("sgd", loss, metrics=[named_loss])
    model.fit(X, X, verbose=0)
    model.save(path)
    with pytest.raises(ModelFormatError, match="custom_objects"):
        keras.load_model(path)
    objects = {"named_loss": named_loss, "OwnLoss": OwnLoss}
    loaded = keras.load_model(path, custom_objects=objects)
    assert loaded.evaluate(X, X, verbose=0) == model.evaluate(X, X, verbose=0)
    assert keras.load_model(path, compile=False).predict(X, verbose=0).shape == (32, 8)
    with keras.saving.custom_object_scope(objects):
        assert keras.load_model(path).compiled


class Unregistered(keras.Layer):
    def call(self, x):
        return x


def test_a_class_is_found_by_registration_or_custom_objects(tmp_path):
    path = tmp_path / "m.exburn"
    in_functional(Unregistered()).save(path)
    with pytest.raises(ModelFormatError) as info:
        keras.load_model(path)
    assert str(info.value).replace(str(tmp_path), "") == (
        "load_model: the model in the file cannot be made\n"
        "  file: /m.exburn\n"
        "  cause: UnknownNameError: get: unknown class 'Unregistered'\n"
        "  → Register it before loading (@exburn.register), or pass "
        "custom_objects={'name': class or function}."
    )
    model = keras.load_model(path, custom_objects={"Unregistered": Unregistered})
    assert type(model.layers[-1]) is Unregistered


# ---------------------------------------------------------------------- refusals
def tripled(x):
    return 3 * x


def closure(factor):
    def scaled(x):
        return x * factor

    return scaled


def with_loss(loss):
    model = in_functional(layers.Dense(8))
    model.compile("sgd", loss)
    return model


UNSAVABLE = {
    "a lambda layer": lambda: in_functional(layers.Lambda(lambda x: x)),
    "a closure": lambda: in_functional(layers.Lambda(closure(2))),
    "an unregistered function": lambda: in_functional(layers.Lambda(tripled)),
    "an activation": lambda: in_functional(layers.Dense(2, activation=lambda x: x)),
    "an operation": lambda: in_functional(keras.fn(closure(3))),
    "a function in a stack": lambda: keras.Sequential([keras.Input((8,)), closure(2)]),
    "an initializer": lambda: in_functional(
        layers.Dense(2, kernel_initializer=lambda shape, dtype: np.zeros(shape, dtype))
    ),
    "an nnx module": lambda: keras.Sequential(
        [keras.Input((8,)), nnx.Linear(8, 2, rngs=nnx.Rngs(0))]
    ),
    "a loss lambda": lambda: with_loss(lambda y, p: jnp.mean((y - p) ** 2)),
    "a loss closure": lambda: with_loss(closure_loss()),
}


def closure_loss():
    def inner(y_true, y_pred):
        return jnp.mean(jnp.square(y_true - y_pred), axis=-1)

    return inner


@pytest.mark.parametrize("name", UNSAVABLE)
def test_what_has_no_name_is_refused_before_anything_is_written(name, tmp_path):
    model = UNSAVABLE[name]()
    with pytest.raises(ArgumentError) as info:
        model.save(tmp_path / "m.exburn")
    assert "egister" in str(info.value)
    assert list(tmp_path.iterdir()) == []


def test_refusals(tmp_path):
    model, path = sequential(), tmp_path / "m.exburn"
    with pytest.raises(NotBuiltError):
        keras.Sequential([layers.Dense(2)]).save(path)
    with pytest.raises(ArgumentError, match="no HDF5"):
        model.save(tmp_path / "m.h5")
    with pytest.raises(ArgumentError, match="does not exist"):
        model.save(tmp_path / "no" / "m.exburn")
    with pytest.raises(ArgumentError, match="5GB"):
        model.save(path, max_shard_size="many")
    model.save(path)
    with pytest.raises(ArgumentError, match="overwrite=False"):
        model.save(path, overwrite=False)
    with pytest.raises(ArgumentError, match="no unsafe mode"):
        keras.load_model(path, safe_mode=False)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        keras.load_model(tmp_path / "other.exburn")
    model.save_weights(path)
    with pytest.raises(ModelFormatError, match="no model"):
        keras.load_model(path)


def test_more_parts_than_a_reader_accepts_are_refused_at_save_already(
    tmp_path, monkeypatch
):
    model = keras.Sequential([keras.Input((4,)), *(layers.ReLU() for _ in range(5))])
    model.save(tmp_path / "m.exburn")
    monkeypatch.setattr("exburn.saving.model._MAX_CLASSES", (5, 0))  # six with itself
    with pytest.raises(ModelFormatError, match="too many layers"):
        keras.load_model(tmp_path / "m.exburn")
    with pytest.raises(ArgumentError, match="more parts than a file may describe"):
        model.save(tmp_path / "other.exburn")
    assert [path.name for path in tmp_path.iterdir()] == ["m.exburn"]


@pytest.mark.parametrize("path", [None, 3, b"x", "", ".", "a\0b"])
def test_what_is_no_path_is_told(path):
    model = sequential()
    for call in (model.save, model.save_weights, model.load_weights, keras.load_model):
        with pytest.raises(ArgumentError, match="path of a file is needed"):
            call(path)


def test_a_size_that_only_an_attack_has_is_refused_at_save_already(tmp_path):
    long = keras.Input((2**23, 1))
    model = keras.Model(long, layers.GlobalMaxPooling1D()(long))
    with pytest.raises(ValueError, match="none of its weights has"):
        model.save(tmp_path / "m.exburn")


# ---------------------------------------------------------------------- the file
def test_the_file_is_a_safetensors_file_under_any_suffix(tmp_path):
    model = sequential()
    for name in ("m.exburn", "m.keras", "m.safetensors", "m"):
        model.save(tmp_path / name)
    assert {p.name for p in tmp_path.iterdir()} == {
        "m.exburn",
        "m.keras",
        "m.safetensors",
    }
    same(keras.load_model(tmp_path / "m").get_weights(), model.get_weights())
    same(keras.load_model(tmp_path / "m.keras").get_weights(), model.get_weights())
    with safetensors.safe_open(tmp_path / "m.keras", "numpy") as file:
        assert set(file.keys()) == set(paths(model))
        about = json.loads(file.metadata()["model"])
        assert about["model"]["class_name"] == "Sequential"
        same(file.get_tensor("dense/kernel"), model.get_weights()[0])


@keras.register(package="tests")
class OfWords(keras.Model):
    """Keeps the layer that makes numbers of its texts beside the network."""

    def __init__(self, prepare, **kwargs):
        super().__init__(**kwargs)
        self.prepare = prepare
        self.embed = layers.Embedding(prepare.vocabulary_size(), 2)

    def call(self, ids):
        return self.embed(ids)


def test_long_vocabularies_are_kept_beside_the_weights(tmp_path):
    prepare = layers.StringLookup(vocabulary=[f"wort{i}ü" for i in range(5000)])
    model, path = OfWords(prepare), tmp_path / "m.exburn"
    texts = np.array([["wort7ü", "nothing"]])
    outputs = model(prepare(texts))
    model.save(path)
    loaded = keras.load_model(path)
    assert loaded.prepare.get_vocabulary() == prepare.get_vocabulary()
    same(outputs, loaded(loaded.prepare(texts)))
    with safetensors.safe_open(path, "numpy") as file:
        assert len(file.metadata()["model"]) < 5000
        assert "/words/0" in file.keys()


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


def test_saving_in_a_callback_saves_the_weights_of_that_moment(tmp_path):
    model, path = sequential(), tmp_path / "m.exburn"
    model.compile("adam", "sparse_categorical_crossentropy", seed=3)

    class Save(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 0:
                self.model.save(path)
                self.kept = self.model.get_weights()

    callback = Save()
    model.fit(X, LABELS, epochs=2, verbose=0, callbacks=[callback], batch_size=8)
    loaded = keras.load_model(path)
    same(loaded.get_weights(), callback.kept)
    assert loaded.optimizer.iterations == 4
