"""fit, evaluate and predict: values, traces, reproducibility, and what survives."""

import jax
import numpy as np
import pytest
from tests.golden import keras

import exburn
from exburn import layers
from exburn.callbacks import Callback


def keras_twin(keras, weights, **settings):
    """The same dense model in Keras with the same weights."""
    twin = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(3),
        ]
    )
    twin.set_weights(weights)
    twin.compile(**settings)
    return twin


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("batch", [32, 203, 500])
def test_the_history_equals_keras_on_a_ragged_data_set(
    blobs, classifier, weighted, batch, golden
):
    x, y = blobs
    w = np.linspace(0.1, 2, len(x)).astype(np.float32) if weighted else None
    ours = classifier(
        exburn.optimizers.SGD(0.1, momentum=0.0), weighted_metrics=["accuracy"]
    )
    rng = np.random.default_rng(1)
    ours.set_weights(start := [rng.normal(size=w.shape) for w in ours.get_weights()])
    fit = dict(batch_size=batch, epochs=3, shuffle=False, verbose=0, sample_weight=w)
    evaluation = dict(sample_weight=w, batch_size=50, verbose=0)

    def trained():
        loss = keras().losses.SparseCategoricalCrossentropy(from_logits=True)
        twin = keras_twin(
            keras(),
            start,
            optimizer=keras().optimizers.SGD(0.1),
            loss=loss,
            metrics=["accuracy"],
            weighted_metrics=["accuracy"],
        )
        history = dict(twin.fit(x, y, **fit).history)
        weights = [np.asarray(v.value) for v in twin.weights]
        return history, weights, twin.evaluate(x, y, **evaluation)[0]

    mine = ours.fit(x, y, **fit).history
    theirs, their_weights, their_loss = golden(trained)
    np.testing.assert_allclose(mine["loss"], theirs["loss"], rtol=2e-5)
    np.testing.assert_allclose(mine["accuracy"], theirs["accuracy"], rtol=1e-5)
    weighted_name = [n for n in mine if n not in ("loss", "accuracy")]
    their_name = [n for n in theirs if n not in ("loss", "accuracy")]
    np.testing.assert_allclose(mine[weighted_name[0]], theirs[their_name[0]], rtol=1e-5)
    for a, b in zip(ours.get_weights(), their_weights, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)
    loss = ours.evaluate(x, y, **evaluation)[0]
    np.testing.assert_allclose(loss, their_loss, rtol=2e-5)


@pytest.mark.parametrize("training", [(-1,), (-1, 1)])
def test_validation_targets_may_lack_an_axis_of_one_or_have_it(training):
    seen = set()

    class Own(exburn.Sequential):
        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            seen.add(y.shape)
            return ((y.reshape(-1) - y_pred.reshape(-1)) ** 2).mean()

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    held = x, y.reshape(-1, 1) if training == (-1,) else y
    for kind in (exburn.Sequential, Own):  # a loss of the user's own would broadcast
        model = kind([exburn.Input((3,)), layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"])
        model.fit(x, y.reshape(training), validation_data=held, batch_size=8, verbose=0)
        out = model.predict(x, verbose=0)[:, 0]
        expected = ((out - y) ** 2).mean()
        (loss,) = model.history.history["val_loss"]
        assert loss == pytest.approx(expected, rel=1e-4)
    assert seen and all(len(shape) == len(training) for shape in seen)


def test_the_same_seed_gives_the_same_bytes(blobs, classifier):
    x, y = blobs
    runs = []
    for seed in (3, 3, 4):
        model = classifier(seed=seed, dropout=0.5)
        history = model.fit(x, y, epochs=2, verbose=0)
        assert history.seed == seed
        runs.append((history.history, model.get_weights()))
    assert runs[0][0] == runs[1][0] != runs[2][0]
    for a, b in zip(runs[0][1], runs[1][1], strict=True):
        np.testing.assert_array_equal(a, b)


def test_set_random_seed_makes_a_whole_script_reproducible(blobs):
    x, y = blobs

    def run():
        exburn.set_random_seed(11)
        model = exburn.Sequential([layers.Dense(4, activation="tanh"), layers.Dense(3)])
        model.compile("sgd", "cross_entropy")
        return model.fit(x, y, epochs=2, verbose=0).history

    assert run() == run()


def test_streamed_data_train_like_resident_data(blobs, classifier):
    x, y = blobs
    whole, streamed = classifier(), classifier()
    batches = [(x[i : i + 32], y[i : i + 32]) for i in range(0, len(x), 32)]

    class Loader:
        def __iter__(self):
            return iter(batches)

    a = whole.fit(x, y, epochs=3, shuffle=False, verbose=0).history
    b = streamed.fit(Loader(), epochs=3, verbose=0).history
    np.testing.assert_allclose(a["loss"], b["loss"], rtol=1e-5)
    np.testing.assert_allclose(a["accuracy"], b["accuracy"], rtol=1e-6)
    assert streamed.trace_counts["train"] == 1
    np.testing.assert_allclose(
        streamed.predict(Loader(), verbose=0), streamed.predict(x, verbose=0), atol=1e-6
    )


def test_a_frozen_layer_keeps_its_bits_and_holds_no_slots(blobs, classifier):
    x, y = blobs
    model = classifier(exburn.optimizers.AdamW(1e-2, weight_decay=0.1))
    model.fit(x, y, epochs=1, verbose=0)
    model.layers[0].trainable = False
    frozen = model.layers[0].get_weights()
    rest = model.layers[2].get_weights()
    model.fit(x, y, epochs=2, verbose=0)
    for a, b in zip(frozen, model.layers[0].get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(rest[0], model.layers[2].get_weights()[0])
    slots = jax.tree_util.tree_leaves_with_path(
        model._training_session.holder.opt_state
    )
    assert not any("dense/kernel" in str(path) for path, _ in slots)


def test_run_eagerly_gives_the_same(blobs, classifier):
    x, y = blobs
    a, b = classifier(), classifier(run_eagerly=True)
    one = a.fit(x[:40], y[:40], verbose=0).history["loss"]
    two = b.fit(x[:40], y[:40], verbose=0).history["loss"]
    np.testing.assert_allclose(one, two, rtol=1e-5)
    assert b.trace_counts.get("train", 0) == 0


def test_run_eagerly_can_be_set(blobs, classifier):
    x, y = blobs
    a, b = classifier(), classifier()
    b.run_eagerly = True
    assert b.run_eagerly and not b.jit_compile and a.jit_compile
    one = [m.fit(x[:40], y[:40], verbose=0).history["loss"] for m in (a, b)]
    np.testing.assert_allclose(*one, rtol=1e-5)
    assert b.trace_counts.get("train", 0) == 0
    b.jit_compile = True
    b.fit(x[:40], y[:40], verbose=0)
    assert b.trace_counts["train"] == 1


def test_run_eagerly_is_told_in_one_way(classifier):
    for value, eager in (
        (True, True),
        (np.bool_(True), True),
        (0, False),
        (None, False),
    ):
        model = classifier(run_eagerly=value)
        assert model.run_eagerly is eager
        model.run_eagerly = value
        assert model.run_eagerly is eager
    assert classifier(jit_compile=False).run_eagerly
    model.jit_compile = "auto"
    assert not model.run_eagerly
    for name in ("run_eagerly", "jit_compile"):
        with pytest.raises(exburn.errors.ArgumentError, match=name):
            setattr(model, name, "yes")


def test_weights_round_trip_through_a_file(blobs, classifier, tmp_path):
    x, y = blobs
    a, b = classifier(), classifier(seed=9)
    a.fit(x, y, verbose=0)
    a.save_weights(tmp_path / "w.safetensors")
    b.load_weights(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(a.predict(x, verbose=0), b.predict(x, verbose=0))
    assert [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]


def test_the_limits_of_config_cut_a_trial_short(blobs, classifier):
    x, y = blobs
    exburn.config.set_max_epochs(2)
    exburn.config.set_max_steps_per_epoch(3)
    try:
        seen = []

        class Count(Callback):
            def on_train_batch_end(self, batch, logs=None):
                seen.append(batch)

        history = classifier().fit(x, y, epochs=9, callbacks=[Count()], verbose=0)
    finally:
        exburn.config.set_max_epochs(None)
        exburn.config.set_max_steps_per_epoch(None)
    assert history.epoch == [0, 1] and seen == [0, 1, 2] * 2


def test_the_seed_of_compile_reaches_weights_that_are_made_later(blobs):
    x, _ = blobs

    def first_kernel(*start):
        model = exburn.Sequential([*start, layers.Dense(3)])
        model.compile("sgd", "mse", seed=5)
        model.predict(x, verbose=0)
        return model.get_weights()[0]

    np.testing.assert_array_equal(first_kernel(), first_kernel(exburn.Input((8,))))


def test_a_softmax_that_is_taken_away_makes_logits():
    model = exburn.Sequential(
        [exburn.Input((4,)), exburn.layers.Dense(3), exburn.layers.Softmax()]
    )
    model.compile("sgd", "cross_entropy")
    x, y = np.random.default_rng(0).standard_normal((8, 4)), np.arange(8) % 3
    before = model.evaluate(x, y, verbose=0)
    model.pop()
    assert model.evaluate(x, y, verbose=0) == pytest.approx(before, rel=1e-5)
