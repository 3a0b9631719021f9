"""Graphs of calls: shared layers, parts, names, several inputs and outputs."""

import jax
import numpy as np

import exburn
from exburn import layers

RNG = np.random.default_rng(0)
X = RNG.standard_normal((24, 4)).astype(np.float32)


def two_headed():
    a, b = exburn.Input((4,), name="a"), exburn.Input((4,), name="b")
    shared = layers.Dense(5, activation="tanh", name="shared")
    h = layers.Concatenate()([shared(a), shared(b)])
    reg = layers.Dense(1, name="reg")(h)
    cls = layers.Dense(3, name="cls")(h * 0.5 + 1.0)
    return exburn.Model([a, b], [reg, cls])


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
