"""``model.info()``, ``model.plan()``, and what happens when memory runs out."""

import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError, NotBuiltError, OutOfMemoryError
from exburn.models import planning
from exburn.training import memory
from exburn.training.memory import Footprint, largest_batch

X = np.random.default_rng(0).standard_normal((96, 6)).astype(np.float32)
Y = np.arange(96) % 3


def network(compiled=True, **settings):
    model = exburn.Sequential(
        [exburn.Input((6,)), layers.Dense(8, "relu"), layers.Dense(3)]
    )
    if compiled:
        settings = {"loss": "cross_entropy", "metrics": ["accuracy"]} | settings
        model.compile("adam", seed=0, **settings)
    return model


def test_info():
    info = network().info()
    assert (info.parameters, info.layers, info["bytes"]) == (83, 2, {"float32": 332})
    assert (info.optimizer, info.loss, info.metrics) == (
        "adam",
        "cross_entropy",
        ("accuracy",),
    )
    assert info.learning_rate == pytest.approx(0.001) and info.compiled
    assert 2 * 332 <= info.optimizer_bytes < 2 * 332 + 64
    assert dict(info)["trainable"] == 83 and set(info) == set(dict(info))
    assert "332 B float32" in str(info) and "adam" in str(info)
    bare = network(compiled=False).info()
    assert (bare.optimizer, bare.loss, bare.compiled) == (None, None, False)
    with pytest.raises(NotBuiltError):
        exburn.Sequential([layers.Dense(2)]).info()


def test_info_counts_bytes_by_dtype():
    model = exburn.Sequential(
        [exburn.Input((6,)), layers.Dense(8, dtype="bfloat16"), layers.Dense(3)]
    )
    assert model.info()["bytes"] == {"bfloat16": 112, "float32": 108}


def test_a_plan_compiles_and_runs_nothing_that_counts():
    model = network()
    before = model.get_weights()
    plan = model.plan(32, largest=False)
    assert (plan.program, plan.batch_size, plan.fits) == ("train", 32, True)
    # Forward 2·32·(6·8 + 8·3); the gradients of both kernels, and of the hidden layer.
    assert plan.flops == 2 * 32 * (2 * 48 + 3 * 24)
    parts = plan.state_bytes + plan.batch_bytes + plan.temporary_bytes
    assert parts <= plan.peak_bytes <= parts + plan.output_bytes + 64
    assert plan["largest_batch"] is None and "Peak" in str(plan)
    assert model.trace_counts == {}
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    model.fit(X, Y, verbose=0)
    assert model.trace_counts["train"] == 1


@pytest.mark.parametrize(
    ("settings", "targets"),
    [
        ({"loss": "mse"}, 4 * 3 * 16),
        ({"loss": "cross_entropy"}, 4 * 3 * 16),
        ({"loss": "sparse_categorical_crossentropy"}, 4 * 16),
    ],
)
def test_a_plan_guesses_targets(settings, targets):
    plan = network(metrics=None, **settings).plan(16, largest=False)
    assert plan.batch_bytes == 4 * 6 * 16 + targets


def test_a_plan_knows_the_data_of_the_last_fit():
    model = network()
    model.fit(X, Y, verbose=0)
    plan = model.plan(16, largest=False)
    assert plan.batch_bytes == 4 * 6 * 16 + 4 * 16


def test_without_a_loss_it_is_a_plan_of_predict():
    model = network(compiled=False)
    plan = model.plan(64, largest=False)
    assert plan.program == "predict" and plan.flops == 2 * 64 * 72
    assert plan.output_bytes == 64 * 3 * 4


def test_free_sizes_need_data():
    model = exburn.Sequential([exburn.Input((None, 4)), layers.LSTM(3)])
    with pytest.raises(ArgumentError, match="is free"):
        model.plan(8)
    plan = model.plan(8, np.zeros((1, 7, 4), np.float32), largest=False)
    assert plan.batch_bytes == 4 * 8 * 7 * 4


@pytest.mark.parametrize(
    ("fixed", "slope", "limit"),
    [(1000, 7, 10_000), (0, 1, 5), (10_000, 7, 9_999), (10, 0, 100), (500, 90, 600)],
)
def test_the_largest_batch_is_measured(fixed, slope, limit):
    measured = {}

    def measure(rows):
        step = 64 * (rows // 64)  # memory comes in blocks
        measured[rows] = fixed + slope * rows + step
        return Footprint(rows, 0.0, 0, 0, 0, 0, measured[rows])

    found = largest_batch(measure, measure(32), limit)
    assert len(measured) <= 7
    if found == 0:
        assert min(measured) == 1 and measured[1] > limit
        return
    assert measured[found] <= limit
    if found < 1 << 24:
        worse = fixed + (slope + 1) * found * 1.1
        assert worse > limit * 0.8


@pytest.mark.slow
def test_the_plan_names_the_largest_batch_of_a_smaller_device(monkeypatch):
    model = network()
    monkeypatch.setattr(planning, "free_bytes", lambda: 1 << 20)
    plan = model.plan(32)
    held = plan.available_bytes
    assert plan.fits and 32 < plan.largest_batch
    assert model.plan(plan.largest_batch, largest=False).peak_bytes <= held
    more = int(plan.largest_batch * 1.1) + 8
    worse = model.plan(more)
    assert not worse.fits and worse.largest_batch <= plan.largest_batch * 1.05


# ------------------------------------------------------------------ out of memory
def exhausted(*_, **__):
    raise jax.errors.JaxRuntimeError(
        "RESOURCE_EXHAUSTED: Out of memory allocating 9999999999 bytes."
    )


@pytest.mark.parametrize(
    ("program", "run"),
    [
        ("train", lambda m: m.fit(X, Y, verbose=0)),
        ("evaluate", lambda m: m.evaluate(X, Y, verbose=0)),
        ("evaluate", lambda m: m.test_on_batch(X, Y)),
        ("predict", lambda m: m.predict(X, verbose=0)),
    ],
)
def test_it_is_an_error_with_figures_and_the_model_goes_on(program, run, monkeypatch):
    model = network()
    model.fit(X, Y, verbose=0)
    model.evaluate(X, Y, verbose=0)
    before = model.get_weights()
    programs = model._run.value.trainer.preparer.programs
    monkeypatch.setattr(planning, "free_bytes", lambda: 1 << 10)
    monkeypatch.setattr(planning, "largest_batch", lambda *_: 7)
    with monkeypatch.context() as patch:
        patch.setattr(programs, program, exhausted)
        with pytest.raises(OutOfMemoryError, match="that fits: 7") as caught:
            run(model)
    assert isinstance(caught.value, MemoryError)
    assert caught.value.plan.batch_size in (32, 96)
    assert isinstance(caught.value.__cause__, jax.errors.JaxRuntimeError)
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    run(model)


def test_a_state_that_the_failed_program_consumed_is_restored(monkeypatch):
    model = network()
    monkeypatch.setattr(planning, "largest_batch", lambda *_: 7)
    model.train_on_batch(X[:32], Y[:32])
    before, step = model.get_weights(), model.optimizer.iterations
    programs = model._run.value.trainer.preparer.programs

    def consume(state, *_):
        for leaf in jax.tree.leaves(state):
            if isinstance(leaf, jax.Array):
                leaf.delete()
        exhausted()

    with monkeypatch.context() as patch:
        patch.setattr(programs.train, "_call", consume)
        with pytest.raises(OutOfMemoryError):
            model.fit(X, Y, verbose=0)
    assert model.optimizer.iterations == step
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    model.fit(X, Y, verbose=0)
    assert model.optimizer.iterations == step + 3


def test_other_errors_stay_what_they_are(monkeypatch):
    model = network()

    def fail(logs):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        model.fit(X, Y, verbose=0, callbacks=[fail])

    def filled(logs):
        raise MemoryError("Unable to allocate 1 TiB for an array")  # NumPy's words

    with pytest.raises(MemoryError, match="1 TiB") as caught:
        model.fit(X, Y, verbose=0, callbacks=[filled])
    assert type(caught.value) is MemoryError
    assert memory.is_exhausted(MemoryError("std::bad_alloc"))
    tuning = "NOT_FOUND: All configs failed: RESOURCE_EXHAUSTED: Out of memory while …"
    assert memory.is_exhausted(jax.errors.JaxRuntimeError(tuning))


def test_a_size_that_cannot_even_be_compiled_does_not_fit():
    def measure(rows):
        if rows > 100:
            exhausted()
        return Footprint(rows, 0.0, 0, 0, 0, 0, peak_bytes=1000 + 7 * rows)

    assert 80 <= largest_batch(measure, measure(32), 2000) <= 100


REAL = """
    import resource
    import numpy as np
    import exburn
    from exburn import layers

    model = exburn.Sequential(
        [exburn.Input((64,)), layers.Dense(512, "relu"), layers.Dense(3)]
    )
    model.compile("adam", "cross_entropy", seed=0)
    rows = 800_000
    x, y = np.ones((rows, 64), np.float32), np.zeros(rows, np.int32)
    model.fit(x[:64], y[:64], verbose=0)
    before = model.get_weights()
    used = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)
    try:
        model.fit(x, y, batch_size=rows, verbose=0)
    except exburn.errors.OutOfMemoryError as error:
        plan = error.plan
        print(error)
    for now, then in zip(model.get_weights(), before):
        np.testing.assert_array_equal(now, then)
    assert not plan.fits and 1000 < plan.largest_batch < rows
    fitting = int(plan.largest_batch * 0.7)
    model.fit(x[:fitting], y[:fitting], batch_size=fitting, verbose=0)
    print("went on")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS and /proc")
def test_a_device_that_really_has_not_enough(tmp_path):
    result = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(REAL)],
        capture_output=True,
        text=True,
        env={"JAX_PLATFORMS": "cpu", "PATH": "", "HOME": str(tmp_path)},
        timeout=120,
    )
    assert "went on" in result.stdout, result.stderr[-2000:]
    assert "RESOURCE_EXHAUSTED" in result.stdout
