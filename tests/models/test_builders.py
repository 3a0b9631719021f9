"""Sequential, functional and subclassed models; accessors; configurations."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import exburn
from exburn import layers
from exburn.errors import ExBurnError, ShapeError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((24, 4)).astype(np.float32)


def two_headed():
    a, b = exburn.Input((4,), name="a"), exburn.Input((4,), name="b")
    shared = layers.Dense(5, activation="tanh", name="shared")
    h = layers.Concatenate()([shared(a), shared(b)])
    reg = layers.Dense(1, name="reg")(h)
    cls = layers.Dense(3, name="cls")(h * 0.5 + 1.0)
    return exburn.Model([a, b], [reg, cls])


def test_a_sequential_with_input_is_built_at_once():
    model = exburn.Sequential(
        [exburn.Input((784,)), layers.Dense(256), layers.Dense(10)]
    )
    assert model.built and model.count_params() == 203_530
    assert model.input_shape == (None, 784) and model.output_shape == (None, 10)
    assert [layer.name for layer in model.layers] == ["dense", "dense_1"]


def test_a_sequential_without_input_is_built_by_the_first_data():
    model = exburn.Sequential([layers.Dense(3), layers.Dense(2)])
    assert not model.built
    with pytest.raises(ExBurnError):
        model.count_params()
    assert model.predict(X, verbose=0).shape == (24, 2)
    assert model.count_params() == 23


def test_sizes_of_the_first_data_bind_no_others(tmp_path):
    model = exburn.Sequential([layers.Embedding(9, 8), layers.GRU(4), layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones((8, 5), int), np.ones((8, 1)), verbose=0)
    longer = np.arange(14).reshape(2, 7) % 9
    expected = model.predict(longer, verbose=0)
    assert (model.input_shape, model.output_shape) == ((None, 5), (None, 1))
    model.save(tmp_path / "m.keras")
    for same in (
        exburn.models.load_model(tmp_path / "m.keras"),
        pickle.loads(pickle.dumps(model)),
        model.clone(),
    ):
        np.testing.assert_allclose(same.predict(longer, verbose=0), expected, 1e-6)
    again = exburn.models.clone_model(
        model, clone_function=lambda layer: layer.from_config(layer.get_config())
    )
    assert again(longer).shape == (2, 1)
    declared = exburn.Sequential([exburn.Input((5,), dtype="int32"), *model.layers])
    with pytest.raises(ShapeError, match="must be int32"):
        declared(longer)
    with pytest.raises(ShapeError, match="as many axes as"):
        model.predict(longer[0], verbose=0)


def test_a_sequential_inside_is_called_at_two_scales():
    class Pyramid(layers.Layer):
        def __init__(self):
            super().__init__()
            self.part = exburn.Sequential([layers.Conv2D(3, 3), layers.LeakyReLU()])

        def call(self, x):
            big, small = self.part(x), self.part(x[:, ::2, ::2])
            return jnp.mean(big, (1, 2)) + jnp.mean(small, (1, 2))

    model = exburn.Sequential([Pyramid()])
    assert model(np.ones((1, 16, 16, 3))).shape == (1, 3)
    assert model.predict(np.ones((1, 12, 10, 3)), verbose=0).shape == (1, 3)


@pytest.mark.parametrize(
    ("stack", "shape", "other"),
    [
        ([layers.Conv1D, layers.Flatten, layers.Dense], (8, 2), (9, 2)),
        ([layers.Dense], (4,), (5,)),
        ([lambda _: layers.EinsumDense("abc,bd->acd", (None, 3))], (4, 2), (5, 2)),
        ([lambda n: layers.ConvLSTM1D(n, 2)], (3, 4, 1), (3, 5, 1)),
    ],
)
def test_sizes_that_weights_depend_on_bind(stack, shape, other):
    args = {layers.Conv1D: (3, 2), layers.Flatten: ()}
    model = exburn.Sequential([make(*args.get(make, (3,))) for make in stack])
    model.predict(np.ones((2, *shape)), verbose=0)
    for call in (model, lambda x: model.predict(x, verbose=0)):
        with pytest.raises(ShapeError, match="needs size"):
            call(np.ones((2, *other)))


def test_input_shape_of_the_first_layer_builds_too():
    model = exburn.Sequential([layers.Dense(3, input_shape=(4,)), layers.Dense(2)])
    assert model.built and model.count_params() == 23


def test_add_and_pop():
    model = exburn.Sequential()
    model.add(exburn.Input((4,)))
    model.add(layers.Dense(8))
    kernel = model.layers[0].kernel.numpy()
    model.add(layers.Dense(2))
    np.testing.assert_array_equal(kernel, model.layers[0].kernel.numpy())
    assert model.predict(X, verbose=0).shape == (24, 2)
    assert model.pop().units == 2
    assert model.predict(X, verbose=0).shape == (24, 8)


def test_equal_models_have_equal_names_and_weights():
    exburn.set_random_seed(1)
    first = exburn.Sequential([exburn.Input((4,)), layers.Dense(3), layers.Dense(2)])
    second = exburn.Sequential([exburn.Input((4,)), layers.Dense(3), layers.Dense(2)])
    for a, b in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(
        first.get_weights()[0][:2, :2], first.get_weights()[2][:2, :2]
    )


def test_several_inputs_and_outputs_by_list_and_by_name():
    model = two_headed()
    data = [X, X[::-1].copy()]
    by_list = model.predict(data, verbose=0)
    by_name = model.predict({"b": data[1], "a": data[0]}, verbose=0)
    assert isinstance(by_list, list) and [v.shape for v in by_list] == [
        (24, 1),
        (24, 3),
    ]
    for a, b in zip(by_list, by_name, strict=True):
        np.testing.assert_array_equal(a, b)
    model.compile(
        "adam",
        loss={"reg": "mse", "cls": "cross_entropy"},
        loss_weights={"reg": 0.5, "cls": 2.0},
        metrics={"cls": ["accuracy"]},
    )
    y = {"reg": np.ones((24, 1), np.float32), "cls": np.arange(24) % 3}
    logs = model.fit(data, y, epochs=2, verbose=0).history
    assert list(logs) == ["loss", "reg_loss", "cls_loss", "cls_accuracy"]
    total = 0.5 * np.array(logs["reg_loss"]) + 2 * np.array(logs["cls_loss"])
    np.testing.assert_allclose(logs["loss"], total, rtol=1e-5)
    again = model.fit(data, [y["reg"], y["cls"]], verbose=0).history
    assert again["loss"][0] < logs["loss"][0]


def test_dicts_of_inputs_and_outputs_keep_their_keys():
    a, b = exburn.Input((4,)), exburn.Input((4,))
    out = layers.Add()([layers.Dense(2)(a), layers.Dense(2)(b)])
    model = exburn.Model({"left": a, "right": b}, {"sum": out, "left": a})
    result = model.predict({"right": X, "left": X}, verbose=0)
    assert set(result) == {"sum", "left"}
    np.testing.assert_array_equal(result["left"], X)


def test_a_shared_layer_has_one_set_of_weights():
    model = two_headed()
    names = [p for p, _, _ in exburn.module.traversal.iter_weights(model)]
    assert sum(name.startswith("shared/") for name in names) == 2


def test_part_of_a_model_is_a_model():
    model = two_headed()
    part = exburn.Model(model.input, model.get_layer("shared").output)
    out = part.predict([X, X], verbose=0)
    expected = np.tanh(X @ part.get_layer("shared").kernel.numpy())
    np.testing.assert_allclose(out, expected, atol=1e-5)
    model.get_layer("shared").kernel.assign(np.zeros((4, 5)))
    assert not part.predict([X, X], verbose=0).any()


def test_models_nest_as_layers():
    inner = exburn.Sequential([layers.Dense(6, activation="relu"), layers.Dense(3)])
    x = exburn.Input((4,))
    model = exburn.Model(x, layers.Dense(1)(inner(x)))
    assert model.count_params() == inner.count_params() + 4
    model.compile("adam", "mse")
    before = inner.get_weights()[0].copy()
    model.fit(X, np.ones((24, 1)), verbose=0)
    assert not np.array_equal(before, inner.get_weights()[0])


def test_arithmetic_indexing_and_functions_on_symbols():
    x = exburn.Input((4,))
    y = (2.0 - x) / 3.0 + x[:, :1] ** 2 - abs(x) * (x > 0)
    y = np.concatenate([y, np.tanh(x)], axis=-1)
    y = exburn.fn(jax.nn.softplus)(y) @ np.ones((8, 2), np.float32)
    model = exburn.Model(x, y)
    expected = (2.0 - X) / 3.0 + X[:, :1] ** 2 - abs(X) * (X > 0)
    expected = np.concatenate([expected, np.tanh(X)], axis=-1)
    expected = np.logaddexp(expected, 0) @ np.ones((8, 2))
    np.testing.assert_allclose(model.predict(X, verbose=0), expected, rtol=1e-5)


def test_unknown_sizes_besides_the_batch():
    x = exburn.Input((None, 4))
    model = exburn.Model(x, layers.GlobalAveragePooling1D()(layers.Dense(3)(x)))
    for length in (2, 7):
        data = RNG.standard_normal((5, length, 4)).astype(np.float32)
        assert model.predict(data, verbose=0).shape == (5, 3)


class Net(exburn.Model):
    def __init__(self, depth=2):
        super().__init__()
        self.blocks = [layers.Dense(6, activation="relu") for _ in range(depth)]
        self.extra = []
        self.extra.append(layers.Dense(5))
        self.table = {"out": layers.Dense(3)}
        self.drop = layers.Dropout(0.5)

    def call(self, x, training=False):
        for block in self.blocks:
            x = block(x)
        return self.table["out"](self.drop(self.extra[0](x), training=training))


def test_a_subclass_with_lists_and_dicts_of_layers():
    model = Net()
    model.compile("adam", "cross_entropy", metrics=["accuracy"])
    model.fit(X, np.arange(24) % 3, epochs=2, verbose=0)
    assert model.count_params() == (4 * 6 + 6) + (6 * 6 + 6) + (6 * 5 + 5) + (5 * 3 + 3)
    names = [layer.name for layer in model.layers]
    assert names == ["dense", "dense_1", "dense_2", "dense_3", "dropout"]
    once, twice = model(X, training=True), model(X, training=True)
    assert not np.allclose(once, twice)
    np.testing.assert_array_equal(model(X), model(X))


def test_a_subclass_layer_gets_keras_shapes():
    seen = []

    class Scale(layers.Layer):
        def __init__(self, power, **kwargs):
            super().__init__(**kwargs)
            self.power = power

        def build(self, input_shape):
            seen.append(input_shape)
            self.scale = self.add_weight(
                shape=(input_shape[-1],), initializer="ones", trainable=True
            )

        def call(self, inputs):
            return inputs**self.power * self.scale

        def get_config(self):
            return {**super().get_config(), "power": self.power}

    model = exburn.Sequential([exburn.Input((4,)), Scale(2, name="sq")])
    assert seen[0] == (None, 4)
    np.testing.assert_allclose(model.predict(X, verbose=0), X**2, rtol=1e-6)
    config = model.layers[0].get_config()
    assert config["power"] == 2 and config["name"] == "sq"
    assert Scale.from_config(config).power == 2


def test_an_nnx_module_in_a_functional_model():
    x = exburn.Input((4,))
    linear = nnx.Linear(4, 3, rngs=nnx.Rngs(0))
    model = exburn.Model(x, layers.ModuleLayer(linear)(x))
    np.testing.assert_allclose(model.predict(X, verbose=0), linear(X), atol=1e-6)


def test_accessors():
    model = two_headed()
    assert model.input_names == ["a", "b"] and model.output_names == ["reg", "cls"]
    assert model.input_shape == [(None, 4), (None, 4)]
    assert model.output_shape == [(None, 1), (None, 3)]
    assert len(model.weights) == len(model.trainable_weights) == 6
    assert model.non_trainable_weights == []
    assert model.get_layer(index=-1).name == "cls"
    assert [type(layer).__name__ for layer in model.layers][:2] == ["InputLayer"] * 2
    weights = [w + 1 for w in model.get_weights()]
    model.set_weights(weights)
    for a, b in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(a, b)
    dense = model.get_layer("reg")
    assert dense.trainable and dense.count_params() == 11
    assert dense.input_shape == (None, 10) and dense.output_shape == (None, 1)
    assert [w.name for w in dense.weights] == ["kernel", "bias"]


def test_a_subclass_called_on_symbols_is_part_of_another_model():
    one = Net()
    assert not hasattr(one, "input")
    one(exburn.Input((4,)))
    assert one.output_shape == (None, 3) and one.inputs == [one.input]
    model = exburn.Model(one.input, layers.Softmax()(one.output))
    np.testing.assert_allclose(model(X), jax.nn.softmax(one(X)), rtol=1e-5)
    assert one in model.layers


def test_trainable_of_a_model_reaches_every_layer():
    model = two_headed()
    model.trainable = False
    assert model.trainable_weights == [] and len(model.non_trainable_weights) == 6
    model.trainable = True
    assert len(model.trainable_weights) == 6


@pytest.mark.parametrize("make", [two_headed, lambda: exburn.Sequential(
    [exburn.Input((4,)), layers.Dense(3), layers.BatchNormalization()]
)])  # fmt: skip
def test_config_and_clone(make):
    model = make()
    again = type(model).from_config(model.get_config())
    assert again.get_config() == model.get_config()
    copy = model.clone()
    data = [X] * len(model.inputs)
    data = data[0] if len(data) == 1 else data
    ours, theirs = (jax.tree.leaves(m.predict(data, verbose=0)) for m in (model, copy))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)
    copy.set_weights([np.zeros_like(w) for w in copy.get_weights()])
    assert any(w.any() for w in model.get_weights())


def test_a_built_model_is_called_on_arrays_and_inside_jit():
    model = two_headed()
    eager = model([X, X])
    graphdef, state = nnx.split(model)
    jitted = jax.jit(lambda state, x: nnx.merge(graphdef, state)([x, x]))(state, X)
    for a, b in zip(eager, jitted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_random_layers_inside_jit_need_a_key():
    model = exburn.Sequential([exburn.Input((4,)), layers.Dropout(0.5)])
    with pytest.raises(ExBurnError, match="key_scope"):
        jax.jit(lambda x: model(x, training=True))(X)

    @jax.jit
    def draw(x, key):
        with exburn.key_scope(key):
            return model(x, training=True)

    a, b = draw(X, jax.random.key(0)), draw(X, jax.random.key(1))
    assert not np.allclose(a, b)
    np.testing.assert_array_equal(a, draw(X, jax.random.key(0)))


def test_masks_travel_from_embedding_to_loss():
    """Padded steps count neither in the loss nor in the metric."""
    tokens = np.array([[1, 2, 0, 0], [3, 0, 0, 0], [1, 2, 3, 4]])
    targets = np.array([[1, 0, 1, 1], [1, 1, 1, 1], [0, 1, 0, 1]])
    model = exburn.Sequential(
        [
            exburn.Input((4,), dtype="int32"),
            layers.Embedding(5, 6, mask_zero=True),
            layers.Dense(2),
        ]
    )
    model.compile("sgd", "cross_entropy", metrics=["accuracy"])
    loss, accuracy = model.evaluate(tokens, targets, verbose=0)
    logits = model.predict(tokens, verbose=0)
    keep = tokens != 0
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1)
    assert loss == pytest.approx(-float(picked[..., 0][keep].mean()), rel=1e-5)
    hits = (logits.argmax(-1) == targets)[keep].mean()
    assert accuracy == pytest.approx(hits, rel=1e-6)


@pytest.mark.parametrize("added", [True, False])
def test_an_input_layer_starts_a_stack(added):
    start = layers.InputLayer(shape=[4])
    model = exburn.Sequential([] if added else [start, layers.Dense(2)])
    if added:
        model.add(start)
        model.add(layers.Dense(2))
    assert model.output_shape == (None, 2)


def test_inputs_are_what_was_asked_for():
    """Of the dtype; a last axis of size 1 that is one too many is dropped."""
    half, whole = exburn.Input((2,), dtype="float16"), exburn.Input((2,), dtype="int32")
    model = exburn.Model((half, whole), (half + 2, whole + 2))
    ones = np.ones((3, 2), "float32")
    for outputs in (model((ones, ones)), model.predict((ones, ones), verbose=0)):
        assert [str(y.dtype) for y in outputs] == ["float16", "int32"]
    x = exburn.Input((3,))
    model = exburn.Model(x, layers.Dense(2)(x))
    data = np.random.default_rng(0).standard_normal((4, 3)).astype("float32")
    np.testing.assert_array_equal(model(data[..., None]), model(data))
    np.testing.assert_array_equal(
        model.predict(data[..., None], verbose=0), model.predict(data, verbose=0)
    )
