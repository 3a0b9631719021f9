"""fit, evaluate and predict: values, traces, reproducibility, and what survives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.callbacks import Callback


def keras_twin(model, **settings):
    """The same dense model in Keras with the same weights."""
    import keras

    twin = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(3),
        ]
    )
    twin.set_weights(model.get_weights())
    twin.compile(**settings)
    return twin


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("batch", [32, 203, 500])
def test_the_history_equals_keras_on_a_ragged_data_set(
    blobs, classifier, weighted, batch
):
    import keras

    x, y = blobs
    w = np.linspace(0.1, 2, len(x)).astype(np.float32) if weighted else None
    ours = classifier(
        exburn.optimizers.SGD(0.1, momentum=0.0), weighted_metrics=["accuracy"]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    twin = keras_twin(
        ours,
        optimizer=keras.optimizers.SGD(0.1),
        loss=loss,
        metrics=["accuracy"],
        weighted_metrics=["accuracy"],
    )
    fit = dict(batch_size=batch, epochs=3, shuffle=False, verbose=0, sample_weight=w)
    mine, theirs = ours.fit(x, y, **fit).history, twin.fit(x, y, **fit).history
    np.testing.assert_allclose(mine["loss"], theirs["loss"], rtol=2e-5)
    np.testing.assert_allclose(mine["accuracy"], theirs["accuracy"], rtol=1e-5)
    weighted_name = [n for n in mine if n not in ("loss", "accuracy")]
    their_name = [n for n in theirs if n not in ("loss", "accuracy")]
    np.testing.assert_allclose(mine[weighted_name[0]], theirs[their_name[0]], rtol=1e-5)
    theirs = [np.asarray(v.value) for v in twin.weights]
    for a, b in zip(ours.get_weights(), theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)
    np.testing.assert_allclose(
        ours.evaluate(x, y, sample_weight=w, batch_size=50, verbose=0)[0],
        twin.evaluate(x, y, sample_weight=w, batch_size=50, verbose=0)[0],
        rtol=2e-5,
    )


def test_class_weights_equal_the_sample_weights_they_stand_for(blobs, classifier):
    x, y = blobs
    table = {0: 0.5, 1: 2.0, 2: 1.0}
    rows = np.array([table[int(c)] for c in y], np.float32)
    a, b = classifier(), classifier()
    given = {0.0: 0.5, np.int64(1): 2.0, 2: 1.0, -1: 9.0}  # no row is of class -1
    one = a.fit(x, y, class_weight=given, epochs=2, verbose=0).history
    two = b.fit(x, y, sample_weight=rows, epochs=2, verbose=0).history
    assert one == two


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


def test_one_trace_per_program(blobs, classifier):
    x, y = blobs
    model = classifier()
    model.fit(x, y, epochs=3, validation_split=0.2, verbose=0)
    assert model.trace_counts["train"] == 1
    assert model.trace_counts["evaluate"] == 1
    model.fit(x, y, epochs=2, validation_split=0.2, verbose=0)
    assert model.trace_counts["train"] == 1


def test_evaluate_and_predict_on_many_sizes_compile_a_handful(blobs, classifier):
    x, y = blobs
    model = classifier()
    whole = model.predict(x, verbose=0)
    for n in range(1, 51):
        loss, accuracy = model.evaluate(x[:n], y[:n], verbose=0)
        out = model.predict(x[:n], verbose=0)
        assert out.shape == (n, 3)
        np.testing.assert_allclose(out, whole[:n], rtol=1e-5, atol=1e-6)
        assert accuracy == pytest.approx((out.argmax(-1) == y[:n]).mean())
        normaliser = np.log(np.exp(out).sum(-1))
        expected = (normaliser - out[np.arange(n), y[:n]]).mean()
        assert loss == pytest.approx(expected, rel=1e-5)
    assert model.trace_counts["evaluate"] <= 8
    assert model.trace_counts["predict"] <= 8


def test_the_learning_rate_changes_without_a_new_trace(blobs, classifier):
    x, y = blobs
    model = classifier()

    class Halve(Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.model.optimizer.learning_rate = 0.01 / (epoch + 1)

    model.fit(x, y, epochs=3, callbacks=[Halve()], verbose=0)
    assert float(model.optimizer.learning_rate) == pytest.approx(0.01 / 3)
    model.optimizer.learning_rate = 0.0
    before = model.get_weights()
    model.fit(x, y, epochs=1, verbose=0)
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert model.trace_counts["train"] == 1


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


def test_chunks_change_nothing(blobs, classifier):
    """Single steps, chunks that divide the epoch, chunks that do not: all equal."""
    x, y = blobs
    results = []
    for steps in (1, 3, 4, 100):
        model = classifier(dropout=0.3, steps_per_execution=steps)
        history = model.fit(x, y, batch_size=16, epochs=2, verbose=0).history
        results.append((history, model.get_weights()))
    for history, weights in results[1:]:
        np.testing.assert_allclose(history["loss"], results[0][0]["loss"], rtol=1e-5)
        for a, b in zip(weights, results[0][1], strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)


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


def test_batch_hooks_run_after_every_step_in_order(blobs, classifier):
    x, y = blobs
    seen = []

    class Watch(Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append((batch, logs["loss"]))

    model = classifier()
    model.fit(x, y, epochs=2, callbacks=[Watch()], verbose=0)
    assert [b for b, _ in seen] == list(range(7)) * 2
    assert len({loss for _, loss in seen}) == 14


def test_every_n_steps(blobs, classifier):
    x, y = blobs
    seen = []

    class Watch(Callback):
        every = 3

        def on_train_batch_end(self, batch, logs=None):
            seen.append(batch)

    classifier().fit(x, y, epochs=1, callbacks=[Watch()], verbose=0)
    assert seen == [2, 5]


def test_train_on_batch_equals_one_step_of_fit(blobs, classifier):
    x, y = blobs
    a, b = classifier(), classifier()
    a.fit(x[:20], y[:20], batch_size=20, epochs=1, shuffle=False, verbose=0)
    logs = b.train_on_batch(x[:20], y[:20], return_dict=True)
    assert logs["loss"] == pytest.approx(a.history.history["loss"][0], rel=1e-6)
    for one, two in zip(a.get_weights(), b.get_weights(), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)
    assert b.test_on_batch(x[:5], y[:5], return_dict=True)["loss"] > 0
    assert b.predict_on_batch(x[:5]).shape == (5, 3)


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
        model._run.value.trainer.holder.opt_state
    )
    assert not any("dense/kernel" in str(path) for path, _ in slots)


def test_batch_statistics_leave_padding_out(blobs):
    """BatchNormalization on a ragged batch equals the same rows without padding."""
    x, y = blobs
    results = []
    for rows in (203, 11):

        def make():
            model = exburn.Sequential(
                [exburn.Input((8,)), layers.BatchNormalization(), layers.Dense(3)]
            )
            model.compile(exburn.optimizers.SGD(0.1), "cross_entropy", seed=0)
            return model

        padded, alone = make(), make()
        data = x[-rows:], y[-rows:]
        padded.train_on_batch(*data)  # padded to a power of two
        alone.fit(*data, batch_size=rows, shuffle=False, verbose=0)
        for a, b in zip(padded.get_weights(), alone.get_weights(), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-6)
        results.append(rows)
    assert results == [203, 11]


def test_a_scalar_loss_sees_the_last_batch_at_its_own_size(blobs, classifier):
    x, y = blobs
    onehot = np.eye(3, dtype=np.float32)[y]

    def scalar(y_true, y_pred):
        return jnp.mean(jnp.square(y_true - y_pred))

    a = classifier(loss=scalar, metrics=[])
    b = classifier(loss="mse", metrics=[])
    one = a.fit(x, onehot, epochs=2, verbose=0).history["loss"]
    two = b.fit(x, onehot, epochs=2, verbose=0).history["loss"]
    np.testing.assert_allclose(one, two, rtol=1e-5)


def test_a_loss_that_keeps_rows_apart_is_measured_but_not_minimized(blobs, classifier):
    x, y = blobs[0][:50], blobs[1][:50]
    loss = exburn.losses.SparseCategoricalCrossentropy
    model, apart = classifier(loss=loss()), classifier(loss=loss(reduction="none"))
    np.testing.assert_allclose(
        apart.evaluate(x, y, verbose=0), model.evaluate(x, y, verbose=0), rtol=1e-5
    )
    np.testing.assert_allclose(
        apart.test_on_batch(x, y), model.test_on_batch(x, y), rtol=1e-5
    )
    with pytest.raises(exburn.errors.ShapeError, match="must be one number"):
        apart.fit(x, y, verbose=0)
    with pytest.raises(exburn.errors.ShapeError, match="must be one number"):
        apart.train_on_batch(x, y)


def test_validation_steps_go_through_all_rows_unless_a_batch_size_is_given(blobs):
    import keras

    def losses(library, **sizes):
        x = library.Input((blobs[0].shape[1],))
        model = library.Model(x, library.layers.Dense(3, activation="softmax")(x))
        model.set_weights([np.eye(*w.shape) if w.ndim > 1 else w for w in weights])
        sgd = library.optimizers.SGD(0.0, momentum=0.0)
        model.compile(sgd, "sparse_categorical_crossentropy")
        held = {"validation_data": blobs, "validation_steps": 2}
        return model.fit(*blobs, **held, **sizes, verbose=0).history["val_loss"]

    weights = [np.empty((blobs[0].shape[1], 3)), np.zeros(3)]
    for sizes in ({}, {"batch_size": 8}, {"validation_batch_size": 16}):
        ours, theirs = losses(exburn, **sizes), losses(keras, **sizes)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    assert losses(exburn) != losses(exburn, batch_size=8)


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


def test_more_steps_than_arrays_have_batches_are_told():
    model = exburn.Sequential([exburn.Input((3,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((10, 3), "float32"), np.ones((10, 1), "float32")
    with pytest.warns(UserWarning, match="the arrays ended after 3 of 5 steps"):
        model.evaluate(x, y, batch_size=4, steps=5, verbose=0)
    with pytest.warns(UserWarning, match="the arrays ended after 3 of 5 steps"):
        assert len(model.predict(x, batch_size=4, steps=5, verbose=0)) == 10
    with pytest.warns(UserWarning, match="the arrays ended after 2 of 9 steps"):
        model.fit(
            x,
            y,
            validation_data=(x, y),
            validation_batch_size=5,
            validation_steps=9,
            verbose=0,
        )
