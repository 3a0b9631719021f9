"""Lists, tuples and dicts in attributes stay what they are; their parts are found."""

import numpy as np
import pytest

import exburn
from exburn import layers, ops
from exburn.errors import ArgumentError

X = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")


class Heads(exburn.Model):
    """Outputs in the order of a dict that is not sorted."""

    def __init__(self):
        super().__init__()
        self.heads = {"b": layers.Dense(1), "a": layers.Dense(2)}

    def call(self, x):
        return [head(x) for head in self.heads.values()]


def test_a_dict_keeps_its_order_in_compiled_programs():
    model = Heads()
    eager = model(X)
    assert [out.shape[1] for out in eager] == [1, 2]
    for mine, other in zip(eager, model.predict(X, verbose=0), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-6)
    model.compile("sgd", ["mse", "mse"])
    history = model.fit(X, [X[:, :1], X[:, :2]], batch_size=4, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    twin = exburn.models.clone_model(model)
    twin(X)
    assert [w.path for w in twin.weights] == [w.path for w in model.weights]
    assert model.weights[0].path == "heads/b/kernel"


class Filled(exburn.Model):
    """Containers that are empty, or of ``None``, until ``build``."""

    def __init__(self):
        super().__init__()
        self.table, self.row, self.places = {}, [], [None] * 2

    def build(self, input_shape):
        for key in (7, 3):  # keys of any one type
            self.table[key] = layers.Dense(4)
        self.row.append(layers.Dense(4))
        self.row += [("named", layers.Dense(2)), [layers.Dense(1)]]
        self.places[1] = self.add_weight(shape=(1,), name="scale")

    def call(self, x):
        x = sum(layer(x) for layer in self.table.values())
        first, (name, second), (last,) = self.row
        assert name == "named"
        return last(second(first(x))) * self.places[1]


def test_what_is_put_in_later_is_trained_and_saved(tmp_path):
    model = Filled()
    model.compile("adam", "mse")
    model.fit(X, X[:, :1], verbose=0)
    paths = [weight.path for weight in model.weights]
    assert paths[:3] == ["places/1", "table/7/kernel", "table/7/bias"]
    assert "row/1/1/kernel" in paths
    assert "row/2/0/bias" in paths
    assert all(np.abs(w.numpy()).sum() > 0 for w in model.weights)
    model.save(tmp_path / "m.exburn")
    with exburn.saving.custom_object_scope({"Filled": Filled}):
        loaded = exburn.load_model(tmp_path / "m.exburn")
    np.testing.assert_allclose(
        loaded.predict(X, verbose=0), model.predict(X, verbose=0), atol=1e-6
    )


def test_they_are_pythons_own():
    layer = layers.Layer()
    one, two = layers.Dense(1), layers.Dense(2)
    layer.row, layer.pair, layer.table, layer.sizes = [one], (one, two), {1: two}, [3]
    assert layer.row + [two] == [one, two]
    assert layer.pair + (3,) == (one, two, 3)
    assert layer.table | {2: one} == {1: two, 2: one}
    kinds = [type(value) for value in (layer.row, layer.pair, layer.sizes)]
    assert kinds == [list, tuple, list]
    assert isinstance(layer.table, dict)


def test_an_attribute_may_be_a_list_now_and_none_then():
    class Changes(layers.Layer):
        def __init__(self):
            super().__init__()
            self.row, self.other = [], [layers.Dense(2)]
            self.row, self.other = None, 3

        def build(self, input_shape):
            self.row = [layers.Dense(self.other)]

        def call(self, x):
            return self.row[0](x)

    model = exburn.Sequential([exburn.Input((3,)), Changes()])
    assert [w.path for w in model.weights] == [
        "changes/row/0/kernel",
        "changes/row/0/bias",
    ]
    assert model.predict(X, verbose=0).shape == (8, 3)


@pytest.mark.parametrize(
    "join",
    [
        layers.add,
        layers.Concatenate(),
        lambda outs: ops.sum(outs, axis=0),
        lambda outs: ops.stack(outs, axis=-1),
        lambda outs: outs,
    ],
    ids=["add", "concatenate", "sum", "stack", "themselves"],
)
def test_arrays_in_a_list_of_the_layer_are_a_list_of_arrays(join):
    class Collects(layers.Layer):
        def call(self, x):
            self.outs = []
            self.outs.append(x)
            self.outs.append(2 * x)
            return join(self.outs)

    layer = Collects()
    inputs = exburn.Input((3,))
    outputs = layer(inputs)
    model = exburn.Model(inputs, outputs)
    for mine, other in zip(layer(X), model.predict(X, verbose=0), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-6)


def test_a_list_of_another_class_is_a_list():
    class Stack(list):
        pass

    class Stacked(layers.Layer):
        def __init__(self):
            super().__init__()
            self.stack = Stack([layers.Dense(2)])

        def call(self, x):
            return self.stack[0](x)

    model = exburn.Sequential([exburn.Input((3,)), Stacked()])
    assert model.weights[0].path == "stacked/stack/0/kernel"
    assert model.predict(X, verbose=0).shape == (8, 2)


def test_keys_that_cannot_be_sorted_are_told():
    with pytest.raises(ArgumentError, match="keys of one type, received int, str"):
        layers.Layer().table = {1: layers.Dense(1), "a": layers.Dense(1)}


def test_an_attribute_without_arrays_may_be_set_in_a_loop():
    """A cell's call is traced within the trace of the layer around it."""

    class Cell(layers.Layer):
        state_size = 3

        def build(self, input_shape):
            self.dense = layers.Dense(3)
            self.dense.build((None, 3 + input_shape[-1]))

        def call(self, x, states):
            self.seen = x.shape[-1]
            state = self.dense(ops.concatenate([x, states[0]], -1))
            return state, [state]

    model = exburn.Sequential(
        [exburn.Input((4, 3)), layers.RNN(Cell()), layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    history = model.fit(np.stack([X] * 4, 1), X[:, :1], verbose=0)
    assert np.isfinite(history.history["loss"]).all()


def test_a_name_of_the_class_is_that_of_its_layers(tmp_path):
    @exburn.register
    class Named(layers.Dense):
        name = "mine"

    model = exburn.Sequential([exburn.Input((3,)), Named(2)])
    assert (model.layers[0].name, Named(2, name="other").name) == ("mine", "other")
    model.save(tmp_path / "m.exburn")
    assert exburn.load_model(tmp_path / "m.exburn").weights[0].path == "mine/kernel"
