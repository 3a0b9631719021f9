"""What can only go wrong while a program runs, or in other people's code."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from tests.errors.bench import LABELS, X, classifier, features, regressor, untrained

import exburn
from exburn import layers, metrics
from exburn.callbacks import Callback, EarlyStopping, LambdaCallback
from exburn.errors import CallbackError, DataError, ShapeError, TargetError


class Trouble(RuntimeError):
    """An exception that is not ExBurn's."""


def notes(caught):
    """What says where it happened: notes of a user's exceptions, else the text."""
    if isinstance(caught.value, Trouble):  # a user's text is as it was
        assert str(caught.value) == "no such luck"
        return "\n".join(caught.value.__notes__)
    assert not hasattr(caught.value, "__notes__")
    return str(caught.value)


def check_alive(model, **data):
    """The model predicts finite values, trains on, and has a consistent history."""
    lengths = {len(values) for values in model.history.history.values()}
    assert lengths <= {len(model.history.epoch)}
    assert np.isfinite(model.predict(X, verbose=0)).all()
    history = model.fit(X, data.get("y", LABELS), epochs=1, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


# ---------------------------------------------------------------------- foreign code
def test_a_loss_function_that_raises_keeps_its_exception_and_is_named():
    def crooked(y_true, y_pred):
        raise Trouble("no such luck")

    model = classifier(crooked)
    with pytest.raises(Trouble) as caught:
        model.fit(X, LABELS, verbose=0)
    note = "in loss 'crooked', which received int32[12], float32[12, 3]"
    assert note in notes(caught) and notes(caught).count("in loss") == 1
    assert model.trace_counts == {}
    assert np.isfinite(model.predict(X, verbose=0)).all()


def test_a_loss_that_does_not_fit_the_shapes_is_named():
    def crooked(y_true, y_pred):
        return jnp.matmul(y_true, y_pred)

    model = classifier(crooked)
    with pytest.raises(TypeError) as caught:
        model.fit(X, features(5, 12)[:, :12].T[:, :4], verbose=0)
    place = "in loss 'crooked', which received float32[12, 4], float32[12, 3]"
    assert notes(caught).startswith(place)
    assert model.trace_counts == {}


def test_a_metric_function_that_raises_keeps_its_exception_and_is_named():
    def crooked(y_true, y_pred):
        raise Trouble("no such luck")

    model = classifier(metrics=["accuracy", crooked])
    with pytest.raises(Trouble) as caught:
        model.fit(X, LABELS, verbose=0)
    note = "in metric 'crooked', which received int32[12], float32[12, 3]"
    assert note in notes(caught) and notes(caught).count("in metric") == 1
    assert model.trace_counts == {}
    assert np.isfinite(model.predict(X, verbose=0)).all()


@pytest.mark.parametrize("method", ["update_state", "result"])
def test_a_metric_object_that_raises_is_named(method):
    class Crooked(metrics.Metric):
        def __init__(self):
            super().__init__("crooked")
            self.total = self.add_variable((), "zeros", name="total")

        def update_state(self, y_true, y_pred, sample_weight=None):
            if method == "update_state":
                raise Trouble("no such luck")
            self.total.assign_add(1)

        def result(self):
            raise Trouble("no such luck")

    model = classifier(metrics=[Crooked()])
    with pytest.raises(Trouble) as caught:
        model.fit(X, LABELS, verbose=0)
    assert "in metric 'crooked'" in notes(caught)
    assert model.trace_counts == {}


@pytest.mark.parametrize(
    ("hook", "where"),
    [
        ("on_train_begin", "on_train_begin"),
        ("on_epoch_begin", "on_epoch_begin, epoch 0"),
        ("on_train_batch_end", "on_train_batch_end, step 0"),
        ("on_epoch_end", "on_epoch_end, epoch 0"),
        ("on_train_end", "on_train_end"),
    ],
)
def test_a_callback_that_raises_keeps_its_exception_and_is_named(hook, where):
    def raises(self, *args):
        raise Trouble("no such luck")

    crooked = type("Crooked", (Callback,), {hook: raises})
    model = classifier()
    with pytest.raises(Trouble) as caught:
        model.fit(X, LABELS, callbacks=[crooked()], verbose=0)
    assert f"in callback 'Crooked' ({where})" in notes(caught)
    check_alive(model)


def test_a_function_that_raises_inside_a_model_is_named_by_its_path():
    def crooked(x):
        if isinstance(x.shape[0], int):  # a batch, not yet at building
            raise Trouble("no such luck")
        return x

    inner = [layers.Dense(64), layers.Dense(4, activation=crooked)]
    block = exburn.Sequential(inner, name="block_2")
    model = exburn.Sequential([exburn.Input((64,)), block])
    with pytest.raises(Trouble) as caught:
        model.predict(features(32, 64), verbose=0)
    note = "in layer 'block_2/dense_1' (Dense), which received float32[32, 64]"
    assert notes(caught).splitlines()[0] == note
    assert notes(caught).count("in layer") == 1
    assert model.trace_counts == {}


def test_an_exception_of_a_loader_says_which_batch_it_was():
    def batches():
        yield X, LABELS
        raise Trouble("no such luck")

    model = classifier()
    with pytest.raises(Trouble) as caught:
        model.fit(batches(), verbose=0)
    assert "while reading batch 1 of epoch 0 (generator)" in notes(caught)
    check_alive(model)


# ---------------------------------------------------------------------- late data
@pytest.mark.parametrize(
    ("batch", "error", "says"),
    [
        ((X * np.nan, LABELS), DataError, "x must be finite"),
        ((X, LABELS + 1), TargetError, "from 0 to 2"),
        ((X[:, :7], LABELS), ShapeError, "float32[None, 8]"),
        ((X[:, :, None], LABELS), DataError, "structure or rank"),
        ((X, LABELS[:5]), DataError, "same number of rows"),
    ],
)
def test_a_bad_batch_later_in_a_loader_is_refused(batch, error, says):
    model = classifier()
    with pytest.raises(error) as caught:
        model.fit(iter([(X, LABELS), (X, LABELS), batch]), verbose=0)
    assert says in str(caught.value)
    assert error is ShapeError or "batch 2 of the list_iterator" in (
        str(caught.value) + notes(caught)
    )
    check_alive(model)


@pytest.mark.parametrize(
    ("batches", "steps", "says", "epochs"),
    [
        (3, 2, "ended after 1 of 2 steps of epoch 2", 2),
        (4, 2, "ended after 0 of 2 steps of epoch 3", 2),
        (3, None, "is exhausted", 1),
    ],
)
def test_a_generator_that_ends_ends_the_training(batches, steps, says, epochs):
    model, hooks = classifier(), []
    told = LambdaCallback(
        on_train_begin=lambda logs: hooks.append(0),
        on_epoch_end=lambda epoch, logs: hooks.append(sorted(logs)),
        on_train_end=lambda logs: hooks.append(sorted(logs)),
    )
    source = iter([(X, LABELS)] * batches)
    with pytest.warns(UserWarning, match=says) as caught:
        history = model.fit(
            source,
            steps_per_epoch=steps,
            epochs=5,
            validation_data=(X, LABELS),
            callbacks=[told],
            verbose=0,
        )
    assert "training ends here" in str(caught[0].message) and len(caught) == 1
    names = ["accuracy", "loss", "val_accuracy", "val_loss"]
    assert history.epoch == list(range(epochs)) and sorted(history.history) == names
    assert hooks == [0, *[names] * epochs, names]
    assert int(model.optimizer.iterations) == batches
    check_alive(model)


def test_a_generator_that_is_used_up_before_training_is_an_error():
    model, source = classifier(), iter([(X, LABELS)])
    model.fit(source, verbose=0)
    with pytest.raises(DataError, match="yielded no batches"):
        model.fit(source, steps_per_epoch=2, verbose=0)
    check_alive(model)


def test_a_generator_that_serves_one_validation_is_an_error_in_the_next():
    model, once = classifier(), iter([(X, LABELS)])
    with pytest.raises(DataError, match="exhausted") as caught:
        model.fit(X, LABELS, validation_data=once, epochs=2, verbose=0)
    assert "Set validation_steps" in str(caught.value)
    assert model.history.epoch == [0]
    check_alive(model)


# ---------------------------------------------------------------------- callbacks
def test_an_unknown_monitor_is_an_error_at_the_first_epochs_end():
    model = classifier()
    stop = EarlyStopping(monitor="accuracey")
    with pytest.raises(CallbackError) as caught:
        model.fit(X, LABELS, epochs=100, callbacks=[stop], verbose=0)
    text = str(caught.value)
    assert "monitor 'accuracey' is not among the logged values" in text
    assert "available: accuracy, loss" in text and "'accuracy'" in text
    check_alive(model)


def test_a_monitor_of_validation_without_validation_is_an_error():
    model = classifier()
    stop = EarlyStopping(monitor="val_loss")
    with pytest.raises(CallbackError, match="validation_data"):
        model.fit(X, LABELS, epochs=100, callbacks=[stop], verbose=0)
    check_alive(model)


# ---------------------------------------------------------------------- what works
def test_the_check_for_nan_can_be_switched_off():
    x = X.copy()
    x[3, 1] = np.nan
    model = regressor(check_numerics=False)
    assert np.isnan(model.evaluate(x, features(12, 3), verbose=0))


def test_predict_passes_nan_on():
    x = X.copy()
    x[3, 1] = np.nan
    out = untrained().predict(x, verbose=0)
    assert np.isnan(out[3]).all() and np.isfinite(np.delete(out, 3, 0)).all()


def test_predict_works_before_compile_and_again():
    model = untrained()
    first = model.predict(X, verbose=0)
    np.testing.assert_array_equal(model.predict(X, verbose=0), first)


def test_changing_trainable_after_compile_is_honoured_by_the_next_fit():
    model = classifier()
    model.fit(X, LABELS, verbose=0)
    before = model.get_weights()
    model.layers[0].trainable = False
    model.fit(X, LABELS, verbose=0)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    model.layers[0].trainable = True
    model.fit(X, LABELS, verbose=0)
    assert not np.array_equal(before[0], model.get_weights()[0])


def test_no_epochs_train_nothing():
    model = classifier()
    before = model.get_weights()
    assert model.fit(X, LABELS, epochs=0, verbose=0).history == {}
    np.testing.assert_array_equal(before[0], model.get_weights()[0])


def test_flat_targets_fit_one_column_of_outputs():
    model = exburn.Sequential([exburn.Input((8,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    flat = model.evaluate(X, features(12), verbose=0)
    assert flat == model.evaluate(X, features(12)[:, None], verbose=0)


def test_a_failed_fit_does_not_spoil_the_next_one():
    """A refused data set must leave nothing of itself in losses and metrics."""
    model, fresh = classifier(seed=0), classifier(seed=0)
    for spoilt in (LABELS + 1, np.eye(4)[LABELS], LABELS[:5]):
        with pytest.raises(ValueError):
            model.fit(X, spoilt, verbose=0)
    one = model.fit(X, LABELS, batch_size=5, verbose=0).history
    assert one == fresh.fit(X, LABELS, batch_size=5, verbose=0).history


def test_float_ids_are_looked_up_and_checked():
    stack = [exburn.Input((5,)), layers.Embedding(10, 2), layers.Flatten()]
    model = exburn.Sequential([*stack, layers.Dense(3)])
    model.compile("sgd", "cross_entropy")
    ids = np.arange(60).reshape(12, 5) % 10
    model.fit(ids.astype(np.float32), LABELS, verbose=0)
    for wrong in (10, -1, 2.5):
        spoilt = ids.astype(np.float32)
        spoilt[4, 2] = wrong
        with pytest.raises(DataError, match=rf"{float(wrong)} at row 4"):
            model.fit(spoilt, LABELS, verbose=0)


def test_float_ids_stay_exact_in_bfloat16():
    parity = (np.arange(1000) % 2.0)[:, None]
    table = layers.Embedding(1000, 1, weights=parity, dtype="mixed_bfloat16")
    model = exburn.Sequential([exburn.Input((1,)), table], dtype="mixed_bfloat16")
    ids = np.array([[256.0], [257.0], [999.0]])
    np.testing.assert_array_equal(model.predict(ids, verbose=0).ravel(), [0, 1, 1])


def test_ids_are_checked_through_nested_and_subclassed_models():
    class Reader(exburn.Model):
        def __init__(self):
            super().__init__()
            self.inner = exburn.Sequential(
                [exburn.Input((5,), dtype="int32"), layers.Embedding(10, 2)]
            )

        def call(self, x):
            return self.inner(x["ids"]).mean(1) + x["values"][:, :2]

    model = Reader()
    ids = np.arange(60, dtype=np.int32).reshape(12, 5) % 10
    assert model.predict({"ids": ids, "values": X}, verbose=0).shape == (12, 2)
    with pytest.raises(DataError, match=r"x\['ids'\].*from 0 to 8|from 0 to 9"):
        model.predict({"ids": ids + 1, "values": X}, verbose=0)


def test_ids_that_were_computed_are_not_checked_against_the_input():
    start = exburn.Input((5,), dtype="int32")
    model = exburn.Model(start, layers.Embedding(10, 2)(start // 100))
    ids = np.arange(60, dtype=np.int32).reshape(12, 5) * 10
    assert model.predict(ids, verbose=0).shape == (12, 5, 2)


def test_an_endless_loader_is_checked_batch_by_batch():
    model = classifier()
    batches = itertools.repeat((X, LABELS))
    model.fit(batches, steps_per_epoch=3, epochs=2, verbose=0)
    assert model.history.epoch == [0, 1]
