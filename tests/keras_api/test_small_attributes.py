"""Attributes and arguments that Keras code reads, each compared with Keras'."""

import numpy as np
import pytest

import exburn

keras = pytest.importorskip("keras")
BOTH = pytest.mark.parametrize("api", [exburn, keras], ids=["exburn", "keras"])
X = np.ones((2, 4, 3), "float32")


@BOTH
def test_layers(api):
    layer = api.layers.Dense(3, dtype="mixed_bfloat16")
    assert layer.supports_jit and layer.input_dtype == "bfloat16"
    assert "inputs" in api.layers.MaxPooling1D(2).call_signature_parameters
    assert layer.symbolic_call(api.KerasTensor((None, 2))).shape == (None, 3)
    entry = api.layers.InputLayer((3,))
    assert entry.sparse is False and entry.ragged is False
    assert api.layers.MaxPooling2D().pool_mode == "max"
    recurrent = api.layers.ConvLSTM1D(2, 2, recurrent_activation="relu")
    assert recurrent.recurrent_activation.__name__ == "relu"
    assert recurrent.unit_forget_bias is True
    assert api.layers.GRU(3).single_state and not api.layers.LSTM(3).single_state
    twice = api.layers.Bidirectional(api.layers.LSTM(3, stateful=True))
    assert twice.states is None
    twice(X)
    assert [tuple(state.shape) for state in twice.states] == [(2, 3)] * 4
    clip = {"rmin": 0.5, "rmax": 2.0, "dmax": 1.0}
    renorm = api.layers.BatchNormalization(renorm=True, renorm_clipping=clip)
    assert renorm.renorm_clipping == clip
    heads = api.layers.GroupQueryAttention(4, 4, 2, kernel_initializer="ones")
    assert heads.num_repeats == 2
    assert type(heads.kernel_initializer).__name__ == "Ones"
    scale = api.layers.Normalization(mean=1.0, variance=4.0)
    assert (scale.input_mean, scale.input_variance) == (1.0, 4.0)
    assert api.layers.Normalization().input_mean is None
    spectral = api.layers.SpectralNormalization(api.layers.Dense(5))
    spectral(X)
    assert tuple(spectral.kernel_shape) == tuple(spectral.kernel.shape) == (3, 5)


@BOTH
def test_configurations_take_custom_objects(api):
    class Mine(api.layers.Layer):
        def call(self, x):
            return x

    class Slow(api.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return 0.5

        def get_config(self):
            return {}

    wrapped = api.layers.TimeDistributed(Mine())
    config = wrapped.get_config()
    made = api.layers.TimeDistributed.from_config(config, custom_objects={"Mine": Mine})
    assert isinstance(made.layer, Mine)
    known = {"Slow": Slow}
    config = api.optimizers.SGD(Slow()).get_config()
    optimizer = api.optimizers.SGD.from_config(config, custom_objects=known)
    assert float(optimizer.learning_rate) == 0.5


@BOTH
def test_symbols(api):
    x = api.KerasTensor((None, 1, 6))
    assert (x.sparse, x.ragged, x.record_history) == (False, False, True)
    assert x.ragged_rank is None and x.row_splits_dtype is None
    assert x.squeeze(1).shape == (None, 6)
    assert x.reshape(newshape=(-1, 2, 3)).shape[1:] == (2, 3)


@BOTH
def test_variables_scopes_and_bars(api):
    weight = api.Variable(np.ones(3))
    assert (weight.aggregation, weight.synchronization) == ("none", "auto")
    assert weight.overwrite_with_gradient is False
    scope = api.RematScope("list_of_layers", 7, layer_names=["a"])
    assert (scope.mode, scope.output_size_threshold) == ("list_of_layers", 7)
    assert scope.layer_names == ["a"]
    with api.StatelessScope([(weight, np.zeros(3, "float32"))]) as scope:
        assert np.asarray(scope.state_mapping[id(weight)]).tolist() == [0, 0, 0]
    assert scope.initialize_variables is True
    with pytest.raises(ValueError):
        api.utils.Progbar(3, stateful_metrics=["a"], stateless_metrics=["b"])


@BOTH
def test_a_bar_averages_the_stateless_metrics_alone(api, capsys):
    bar = api.utils.Progbar(3, verbose=2, stateless_metrics=["mean"])
    bar.update(1, [("mean", 1.0), ("last", 1.0)])
    bar.update(2, [("mean", 3.0), ("last", 3.0)], finalize=False)
    bar.update(2, [("loss", 5.0)], finalize=True)  # which stands as it is
    shown = capsys.readouterr().out
    assert "mean: 2.0000" in shown and "last: 3.0000" in shown
    assert "loss: 5.0000" in shown


@BOTH
def test_metrics(api):
    counter = api.metrics.FalsePositives()
    counter.update_state([0, 1, 1], [0.9, 0.2, 0.8])
    assert np.asarray(counter.accumulator).ravel().tolist() == [1.0]
    assert api.metrics.PrecisionAtRecall(0.25).value == 0.25
    assert api.metrics.F1Score(average="micro").axis is None
    assert api.metrics.F1Score().axis == 0


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras' variables
@BOTH
def test_optimizers(api):
    weights = [api.Variable(np.ones(3, "float32"), name="w")]
    first, second = api.optimizers.Adam(0.5), api.optimizers.Adam()
    for optimizer in (first, second):
        optimizer.build(weights)
    first.apply([np.ones(3, "float32")], weights)
    store = {}
    first.save_own_variables(store)
    second.load_own_variables(store)
    assert len(store) == len(first.variables)
    for ours, theirs in zip(first.variables, second.variables, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    scaled = api.optimizers.LossScaleOptimizer(api.optimizers.SGD())
    assert scaled.check_finite([np.ones(2), None])
    assert not scaled.check_finite([np.ones(2), np.array([1.0, np.nan])])


@BOTH
def test_callbacks(api, tmp_path):
    checkpoint = api.callbacks.OrbaxCheckpoint(str(tmp_path), max_to_keep=3)
    assert str(checkpoint.directory) == str(tmp_path) and checkpoint.max_to_keep == 3
    assert checkpoint.save_on_background and not checkpoint.save_weights_only
    checkpoint.wait_until_finished()
    logger = api.callbacks.CSVLogger(tmp_path / "log.csv")
    assert logger.keys is None
    logger.on_train_begin()
    logger.set_model(type("Model", (), {"stop_training": False}))
    logger.on_epoch_end(0, {"loss": 1.0, "acc": 0.5})
    assert list(logger.keys)[:2] == ["acc", "loss"]
    logger.on_train_end()


@BOTH
def test_a_list_of_callbacks_makes_its_history_and_bar(api, capsys):
    model = type("Model", (), {"stop_training": False})()
    loop = api.callbacks.CallbackList(
        [], True, True, model, epochs=1, steps=2, verbose=2
    )
    kinds = [type(callback).__name__ for callback in loop.callbacks]
    assert len(kinds) == 2 and isinstance(
        loop.callbacks[1], api.callbacks.ProgbarLogger
    )
    loop.on_train_begin()
    loop.on_epoch_begin(0)
    for batch in range(2):
        loop.on_train_batch_begin(batch)
        loop.on_train_batch_end(batch, {"loss": 0.5})
    loop.on_epoch_end(0, {"loss": 0.5})
    loop.on_train_end()
    shown = capsys.readouterr().out
    assert "2/2" in shown and "loss: 0.5" in shown
    assert model.history.history == {"loss": [0.5]}
    given = api.callbacks.CallbackList([loop.callbacks[1]], add_progbar=True)
    assert len(given.callbacks) == 1


@BOTH
def test_remat_is_given_its_function_by_name(api):
    import jax

    square = api.remat(f=lambda x: x**2)
    assert float(jax.grad(square)(3.0)) == 6.0
