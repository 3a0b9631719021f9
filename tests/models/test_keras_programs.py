"""What ordinary Keras programs rely on; each of these was once wrong."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError

ROWS = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)


class Batches(exburn.utils.PyDataset):
    """Two rows of the batch's number; notes which were asked for."""

    def __init__(self):
        super().__init__()
        self.order = []

    def __len__(self):
        return 7

    def __getitem__(self, index):
        self.order.append(index)
        return np.full((2, 1), index, np.float32), np.ones((2, 1), np.float32)


def line():
    layer = layers.Dense(1, kernel_initializer="ones")
    model = exburn.Sequential([exburn.Input((1,)), layer])
    model.compile(exburn.optimizers.SGD(0.0), "mse")
    return model


def test_a_py_dataset_keeps_its_order_unless_training_shuffles_it():
    model, data = line(), Batches()
    expected = np.repeat(np.arange(7.0), 2)
    np.testing.assert_array_equal(model.predict(data, verbose=0)[:, 0], expected)
    data.order.clear()
    model.fit(data, shuffle=False, epochs=2, verbose=0, validation_data=Batches())
    assert data.order == [*range(7), *range(7)]
    data.order.clear()
    model.fit(data, epochs=2, verbose=0)
    assert sorted(data.order) == sorted([*range(7), *range(7)]) != data.order


def test_batch_sizes_that_the_model_or_the_steps_fix():
    model = exburn.Sequential(
        [exburn.Input(batch_shape=(3, 4, 2)), layers.LSTM(2, stateful=True)]
    )
    model.compile("sgd", "mse")
    x = np.ones((9, 4, 2), np.float32)
    model.fit(x, np.ones((9, 2)), verbose=0)
    assert model.predict(x, verbose=0).shape == (9, 2)
    with pytest.raises(ArgumentError, match="batch_size must be 3"):
        model.predict(x, batch_size=4, verbose=0)
    history = line().fit(ROWS[:, :1], ROWS[:, :1], steps_per_epoch=2, verbose=0)
    assert history.params["batch_size"] == 10


def test_only_outputs_with_a_loss_need_targets():
    inputs = exburn.Input((3,))
    hidden = layers.Dense(2, name="hidden")(inputs)
    model = exburn.Model(inputs, [layers.Dense(1, name="out")(hidden), hidden])
    model.compile("sgd", loss=["mse", None])
    history = model.fit(ROWS, ROWS[:, :1], verbose=0).history
    assert list(history) == ["loss"]  # not out_loss as well: it is the same


def test_weights_may_be_a_column_and_weighted_metrics_say_so():
    model = line()
    model.compile("sgd", "mse", metrics=["mae"], weighted_metrics=["mae"])
    weights = np.arange(20.0)
    logs = [
        model.evaluate(
            ROWS[:, :1], ROWS[:, 1:2], sample_weight=w, verbose=0, return_dict=True
        )
        for w in (weights, weights[:, None])
    ]
    assert logs[0] == logs[1] and list(logs[0]) == ["loss", "mae", "weighted_mae"]


def test_layers_are_in_keras_order():
    a, b = exburn.Input((3,), name="a"), exburn.Input((3,), name="b")
    late = layers.Dense(2, name="late")(b)
    early = layers.Dense(2, name="second")(layers.Dense(2, name="first")(a))
    model = exburn.Model([a, b], layers.Add(name="add")([early, late]))
    names = [layer.name for layer in model.layers]
    assert names == ["a", "first", "b", "second", "late", "add"]
    owners = [w.path.split("/")[0] for w in model.weights[::2]]
    assert owners == ["first", "second", "late"]


def test_int64_inputs_do_not_warn(tmp_path):
    model = exburn.Sequential(
        [exburn.Input((2,), dtype="int64"), layers.Embedding(5, 2)]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = np.ones((1, 2), "int64")
        assert model(x).shape == (1, 2, 2)
        model.info()
        model.export(tmp_path / "model.stablehlo")
        with exburn.serving.Serving(model, batch_size=1) as serving:
            assert serving(x).shape == (1, 2, 2)
            with pytest.raises(exburn.errors.DTypeError):
                serving(x << 40)


def test_strings_that_a_reader_yields_are_adapted_to(tmp_path):
    for kind in ("a", "b"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "1.txt").write_text(f"text {kind}")
    data = exburn.utils.text_dataset_from_directory(tmp_path, verbose=False)
    vectorize = layers.TextVectorization()
    vectorize.adapt(data.map(lambda x, y: x))
    assert sorted(vectorize.get_vocabulary()[2:]) == ["a", "b", "text"]


def test_a_call_without_an_argument_names_it():
    with pytest.raises(ArgumentError, match="must be called with 'value'"):
        layers.MultiHeadAttention(2, 4)(np.ones((1, 3, 4)))


def test_names_that_keras_scripts_import():
    assert exburn.preprocessing.sequence.pad_sequences([[1], [2, 3]]).shape == (2, 2)
    model = exburn.Sequential([exburn.Input((3,)), layers.Dense(1)])
    listed = exburn.callbacks.CallbackList([], model=model, add_history=True, epochs=3)
    listed.on_train_begin()
    listed.on_epoch_end(0, {"loss": 1.0})
    assert listed.history.history == {"loss": [1.0]} and listed.params["epochs"] == 3
    assert model.history is listed.history
    weight = exburn.Variable(np.ones(2))
    assert weight.assign_sub([1.0, 0.0]).numpy().tolist() == [0.0, 1.0]


def test_what_is_set_on_a_layer_stays_in_copies_and_files(tmp_path):
    """Keras writes configurations from what layers have now."""
    model = exburn.Sequential(
        [
            exburn.Input((3,)),
            layers.Dense(4, "relu"),
            layers.Dropout(0.5),
            layers.Dense(2, activation="softmax", name="last"),
        ]
    )
    x = np.ones((2, 3), np.float32)
    before = model.predict(x, verbose=0)
    model.layers[-1].activation = None
    model.layers[1].rate = 0.25
    logits = model.predict(x, verbose=0)
    np.testing.assert_allclose(exburn.ops.softmax(logits), before, rtol=1e-5)
    model.save(tmp_path / "model.exburn")
    loaded = exburn.models.load_model(tmp_path / "model.exburn")
    clone = exburn.models.clone_model(model)
    clone.set_weights(model.get_weights())
    for made in (loaded, clone):
        np.testing.assert_array_equal(made.predict(x, verbose=0), logits)
        assert made.layers[1].rate == 0.25
    assert model.layers[0].get_config()["activation"] == "relu"
    model.layers[-1].activation = "relu"
    np.testing.assert_array_equal(model.predict(x, verbose=0), exburn.ops.relu(logits))


def test_what_a_layer_sets_while_it_is_made_is_no_change():
    class Twice(layers.Dense):
        def __init__(self, units, activation=None, **kwargs):
            super().__init__(units, activation, **kwargs)
            inner = self.activation
            self.activation = lambda x: 2 * inner(x)

        def build(self, input_shape):
            super().build(input_shape)
            self.use_bias = True

    layer = Twice(2, "relu", use_bias=True)
    layer(np.ones((1, 2)))
    config = layer.get_config()
    assert (config["activation"], config["use_bias"]) == ("relu", True)


def test_both_directions_have_cells_of_their_own_after_loading(tmp_path):
    model = exburn.Sequential(
        [exburn.Input((4, 3)), layers.Bidirectional(layers.RNN(layers.LSTMCell(2)))]
    )
    x = np.random.default_rng(0).normal(size=(2, 4, 3)).astype("float32")
    model.save(tmp_path / "model.exburn")
    loaded = exburn.models.load_model(tmp_path / "model.exburn")
    again = exburn.models.model_from_json(model.to_json())
    assert len(again.weights) == len(model.weights) == 6
    for made in (loaded, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(
            made.predict(x, verbose=0), model.predict(x, verbose=0)
        )


def test_metrics_may_be_an_empty_list_for_several_outputs():
    x = exburn.Input((2,))
    model = exburn.Model(
        x, [layers.Dense(1, name="a")(x), layers.Dense(1, name="b")(x)]
    )
    model.compile("sgd", "mse", metrics=[], weighted_metrics=[])
    y = np.ones((4, 1))
    results = model.evaluate(np.ones((4, 2)), [y, y], verbose=0, return_dict=True)
    assert list(results) == ["loss", "a_loss", "b_loss"]
