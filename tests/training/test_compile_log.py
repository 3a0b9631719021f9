"""Reports of compilations; warnings about compiling again."""

from collections import Counter

import jax
import numpy as np
import pytest
from tests.training.sequences import batches, sequence_model

import exburn
from exburn import layers, optimizers
from exburn.errors import RecompileWarning
from exburn.training.program import Program


def test_a_short_last_batch_is_named():
    model = sequence_model()
    x, y = np.ones((8, 4, 3), "float32"), np.zeros((8, 1), "float32")
    for rows in (8, 7):
        model.fit(x[:rows], y[:rows], batch_size=4, resident=False, verbose=0)
    reasons = [entry.reason for entry in model.compile_report()]
    assert reasons == ["first use", "a mask of rows is new"]


def test_a_changed_length_warns_once_and_names_it():
    model = sequence_model()
    with pytest.warns(
        RecompileWarning, match=r"float32\[1, 8, 4, 3\] → .*8, 5, 3"
    ) as w:
        for x, y in batches(4, 5, 6, 7):
            model.train_on_batch(x, y)
    assert len(w) == 1
    assert [e.program for e in model.compile_report()] == ["train"] * 4


def test_a_changed_dtype_warns():
    model = sequence_model()
    model.compile(optimizers.SGD(0.1, momentum=0.9), "mse")
    x, y = batches(4)[0]
    model.train_on_batch(x, y)
    model.optimizer.momentum = 0.5
    with pytest.warns(RecompileWarning, match="float32.* → uint8.*momentum 0.9 → 0.5"):
        model.train_on_batch(x.astype("uint8"), y)


def test_nothing_that_is_meant_warns():
    x, y = np.ones((100, 4), "float32"), np.ones((100, 1), "float32")
    model = exburn.Sequential([exburn.Input((4,)), layers.Dense(1)])
    model.compile("sgd", loss="mse")
    model.fit(x, y, epochs=2, validation_split=0.23, verbose=0)  # short last batches
    model.fit(x.astype("float64"), y, batch_size=25, verbose=0)
    for rate in (1, np.float64(0.1), np.int64(1)):
        model.optimizer.learning_rate = rate
        model.fit(x, y, sample_weight=np.ones(100), verbose=0)
    for rows in (32, 31, 17):
        model.train_on_batch(x[:rows], y[:rows])
        model.test_on_batch(x[:rows], y[:rows])
        model.predict_on_batch(x[:rows])
    model.layers[0].trainable = False
    model.evaluate(x[:77], y[:77], verbose=0)
    counts = Counter(e.program for e in model.compile_report())
    assert counts == {"train": 4, "evaluate": 3, "predict": 1}


def test_sizes_that_change_are_told_from_the_last_one():
    x, y = np.ones((120, 4), "float32"), np.ones((120, 1), "float32")
    model = exburn.Sequential([exburn.Input((4,)), layers.Dense(1)])
    model.compile("sgd", loss="mse")
    with pytest.warns(RecompileWarning) as caught:
        for rows in range(100, 110):
            model.fit(x[:rows], y[:rows], batch_size=100, epochs=2, verbose=0)
    text = str(caught[0].message)
    assert len(caught) == 1 and "float32[108, 4] → float32[109, 4]" in text
    assert caught[0].filename == __file__  # the line that called fit
    assert "data of few sizes" in text and "pad sequences" not in text


@pytest.mark.parametrize("epochs", [1, 2])  # streamed, and on the device
def test_training_and_validation_compile_beside_each_other_and_once(
    epochs, monkeypatch
):
    begun = []
    ahead = Program._compiling
    monkeypatch.setattr(
        Program,
        "_compiling",
        lambda self, *args: [begun.append(self), ahead(self, *args)][1],
    )
    x, y = np.ones((100, 4), "float32"), np.ones((100, 1), "float32")
    model = exburn.Sequential([exburn.Input((4,)), layers.Dense(1)])
    model.compile("sgd", loss="mse")
    model.fit(x, y, epochs=epochs, validation_split=0.23, verbose=0)
    programs = model._training_session.preparer.programs
    assert begun == [programs.evaluate, programs.train]
    assert [(e.program, e.reason) for e in model.compile_report()] == [
        ("train", "first use"),
        ("evaluate", "first use"),
    ]


def test_what_could_not_be_compiled_ahead_is_compiled_by_the_call(monkeypatch):
    def fail(*_):
        raise jax.errors.JaxRuntimeError("INTERNAL: in the thread")

    monkeypatch.setattr(jax.stages.Lowered, "compile", fail)
    model = exburn.Sequential([exburn.Input((4,)), layers.Dense(1)])
    model.compile("sgd", loss="mse")
    before = model.get_weights()[0]
    model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0)
    assert not np.array_equal(model.get_weights()[0], before)
    assert [(e.program, e.reason) for e in model.compile_report()] == [
        ("train", "first use")
    ]


def test_options_of_the_optimizer_leave_evaluate_and_predict():
    model, (x, y) = sequence_model(), batches(4)[0]
    for momentum in (0.5, 0.6, 0.7):
        model.optimizer.momentum = momentum
        model.fit(x, y, verbose=0)
        model.evaluate(x, y, verbose=0)
        model.predict(x, verbose=0)
    assert model.trace_counts == {"train": 3, "evaluate": 1, "predict": 1}


@pytest.mark.parametrize(("order", "programs"), [("nbnbn", 2), ("bnbnb", 1)])
def test_data_that_are_bound_to_a_device_compile_once(order, programs):
    model, device = sequence_model(), jax.devices()[0]
    free = batches(4)[0]
    data = {"n": free, "b": tuple(jax.device_put(a, device) for a in free)}
    compiled = Counter()

    def note(event, _, **details):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled[details.get("fun_name")] += 1

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        for kind in order:
            x, y = data[kind]
            model.fit(x, y, verbose=0)
            model.evaluate(x, y, verbose=0)
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    told = Counter(entry.program for entry in model.compile_report())
    assert told["train"] == compiled["jit(exburn_train)"] == programs
    assert told["evaluate"] == compiled["jit(exburn_evaluate)"] == programs
    moved = [e.reason for e in model.compile_report() if "bound to" in e.reason]
    assert len(moved) == 2 * (programs - 1)


@pytest.mark.parametrize("known", [True, False])  # by its length, or by steps=
def test_loaders_of_many_lengths_share_programs_of_evaluation(known):
    model, whole = sequence_model(), batches(*[4] * 16)

    class Known:
        def __init__(self, steps):
            self.steps = steps

        def __len__(self):
            return self.steps

        def __iter__(self):
            return iter(whole[: self.steps])

    for steps in range(5, 17):
        options = {} if known else {"steps": steps}
        make = Known if known else lambda steps: iter(whole)
        losses = [model.test_on_batch(x, y) for x, y in whole[:steps]]
        found = model.evaluate(make(steps), verbose=0, **options)
        np.testing.assert_allclose(found, np.mean(losses), rtol=1e-5)
        out = model.predict(make(steps), verbose=0, **options)
        assert out.shape == (8 * steps, 1)
    assert model.trace_counts["evaluate"] <= 9  # one is that of a single batch
    assert model.trace_counts["predict"] <= 8


def test_a_source_that_ends_early_is_told_at_the_line_of_the_user():
    model, given = sequence_model(), batches(4, 4, 4)
    for run in (model.evaluate, model.predict):
        with pytest.warns(UserWarning, match="ended after 3 of 10 steps") as caught:
            run(iter(given), steps=10, verbose=0)
        assert caught[0].filename == __file__
