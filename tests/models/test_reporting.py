"""What ``explain_plan`` tells, and what of the plan is set by hand."""

import warnings

import jax
import numpy as np
import pytest
from tests.training.sequences import batches, sequence_model

import exburn
from exburn import layers
from exburn.errors import ArgumentError, NotCompiledError, RecompileWarning
from exburn.runtime import xla_options


@pytest.mark.usefixtures("cpu_only")
def test_the_plan_is_explained_and_can_be_forced():
    x, y = batches(4)[0]
    model = sequence_model()
    with pytest.raises(ArgumentError, match="fit"):
        model.explain_plan()
    model.fit(x, y, verbose=0)
    taken = {d.choice: d for d in model.explain_plan()}
    assert taken["data"].taken == "on the device"
    assert "MFLOP" in taken["steps per call"].reason
    assert "fit(resident" in str(model.explain_plan())
    assert "attention" not in taken
    assert "cpu" in taken["large half-precision arrays"].reason
    assert "cpu" in taken["products that XLA tries"].reason
    assert "cpu" in taken["schedules"].reason
    model.fit(x, y, batch_size=2, verbose=0, resident=False)
    assert model.explain_plan()[0].taken == "streamed by threads"
    model.compile("sgd", loss="mse", steps_per_execution=3)
    model.fit(x, y, batch_size=2, verbose=0)
    steps = model.explain_plan()[1]
    assert steps.taken == "3" and "given" in steps.reason


@pytest.mark.parametrize(
    ("lengths", "taken"), [([8, 8, 8, 8, 8], "8"), ([8, 5, 8, 5, 8, 5], "1")]
)
def test_the_plan_tells_how_a_loader_ran(lengths, taken):
    model = sequence_model()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecompileWarning)
        model.fit(iter(batches(*lengths)), verbose=0)
    steps = {d.choice: d for d in model.explain_plan()}["steps per call"]
    assert steps.taken == taken and "fewer in a row" in steps.reason


def test_the_plan_of_a_model_with_attention_names_it():
    x = exburn.Input((4, 8))
    inner = exburn.Model(x, layers.MultiHeadAttention(2, 4)(x, x))
    model = exburn.Sequential([exburn.Input((4, 8)), inner])
    model.compile("sgd", loss="mse")
    model.fit(np.ones((4, 4, 8)), np.ones((4, 4, 8)), verbose=0)
    taken = {d.choice: d for d in model.explain_plan()}
    assert "disable_flash_attention" in taken["attention"].switch


def test_the_words_of_a_plan_are_printed_whole():
    model = exburn.Sequential([exburn.Input((4, 4, 1)), layers.Conv2D(1, 4)])
    model.compile("sgd", loss="mse")
    model.fit(np.ones((4, 4, 4, 1)), np.ones((4, 1, 1, 1)), verbose=0)
    plan = model.explain_plan()
    printed = set(str(plan).split())
    assert {word for d in plan for word in d.switch.split()} <= printed
    assert max(map(len, str(plan).splitlines())) <= 100


@pytest.mark.parametrize(
    ("told", "taken", "reason"),
    [
        (False, "for one GPU", "the model runs on one"),
        (True, "for several GPUs, whose sums are hidden", "the model runs on several"),
        (None, "as XLA has them", "an older JAX, or XLA_FLAGS"),
    ],
)
def test_the_plan_names_schedules_of_a_gpu(told, taken, reason, monkeypatch):
    model = exburn.Sequential([exburn.Input((4,)), layers.Dense(1)])
    model.compile("sgd", loss="mse")
    model.fit(np.ones((4, 4)), np.ones((4, 1)), verbose=0)
    options = {} if told is None else {xla_options.SCHEDULER: told}
    given = "exburn.training.program_cache.compiler_options"
    monkeypatch.setattr(given, lambda *_: options)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    row = {d.choice: d for d in model.explain_plan()}["schedules"]
    assert (row.taken, row.reason) == (taken, reason)


def test_the_plan_names_what_xla_tries(monkeypatch):
    model = exburn.Sequential([exburn.Input((4,)), layers.Dense(1)])
    model.compile("sgd", loss="mse")
    model.fit(np.ones((4, 4)), np.ones((4, 1)), verbose=0)
    given, told = [], {xla_options.FEWER_PRODUCTS: 2}

    def options(cost, platform, training, devices, gradients):
        given.append((cost.flops, training))
        return told

    monkeypatch.setattr("exburn.training.program_cache.compiler_options", options)
    row = {d.choice: d for d in model.explain_plan()}["products that XLA tries"]
    assert row.taken == "two of cuBLAS', all of Triton's"
    assert given == [(2 * 4 * 4, True)]
    assert xla_options.FEWER_PRODUCTS in row.switch
    told = {xla_options.TRITON: False}
    row = {d.choice: d for d in model.explain_plan()}["products that XLA tries"]
    assert row.taken == "all of cuBLAS', none of Triton's"
    assert xla_options.TRITON in row.switch


class EveryThird(exburn.callbacks.Callback):
    every = 3

    def on_train_batch_end(self, batch, logs=None):
        self.seen = [*getattr(self, "seen", []), batch]


@pytest.mark.usefixtures("cpu_only")
def test_steps_of_a_call_are_as_they_were_asked_for():
    model = exburn.Sequential([exburn.Input((4,)), layers.Dense(1)])
    model.compile("sgd", loss="mse", seed=1, steps_per_execution=4, unroll=2)
    x, y = np.ones((24, 4)), np.ones((24, 1))
    model.fit(x, y, batch_size=2, verbose=0)
    taken = {d.choice: d.taken for d in model.explain_plan()}
    assert taken["steps per call"] == "4" and taken["unrolled steps"] == "2"
    assert " unroll=2\n" in train_program(model, steps=4)
    callback = EveryThird()
    model.fit(x, y, batch_size=2, verbose=0, callbacks=[callback])
    steps = {d.choice: d for d in model.explain_plan()}["steps per call"]
    assert steps.taken == "3" and "callback" in steps.reason
    assert callback.seen == [2, 5, 8, 11]
    assert model.get_compile_config()["unroll"] == 2


def train_program(model, steps):
    """The jaxpr of a chunk."""
    trainer = model._training_session.trainer
    batch = [np.ones((steps, 2, n), "float32") for n in (4, 1)]
    make = jax.make_jaxpr(trainer.preparer.programs.train)
    return str(make(trainer.preparer.initial_state(), (*batch, None), None, None))


@pytest.mark.usefixtures("cpu_only")
def test_convolutions_on_a_cpu_run_one_step_a_call():
    model = exburn.Sequential(
        [
            exburn.Input((8, 8, 1)),
            layers.Conv2D(2, 3),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )
    model.compile("sgd", loss="mse")
    model.fit(np.ones((16, 8, 8, 1)), np.ones((16, 1)), batch_size=4, verbose=0)
    plan = {d.choice: d for d in model.explain_plan()}
    steps = plan["steps per call"]
    assert steps.taken == "1" and "convolutions" in steps.reason
    assert plan["convolutions"].taken.endswith("none of YNNPACK's")
    assert "XLA_FLAGS" in plan["convolutions"].switch


def test_resident_and_streamed_runs_end_alike():
    x, y = batches(4)[0]
    ends = []
    for resident in (True, False):
        model = sequence_model()
        model.compile("sgd", loss="mse", seed=1)
        model.fit(x, y, batch_size=2, epochs=2, verbose=0, resident=resident)
        ends.append(model.get_weights())
    for a, b in zip(*ends, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_report_says_what_was_compiled_and_why():
    model = sequence_model()
    model.fit(*batches(4)[0], verbose=0)
    model.fit(*batches(4)[0], verbose=0)
    model.evaluate(*batches(4)[0], verbose=0)
    report = model.compile_report()
    assert [(e.program, e.reason) for e in report] == [
        ("train", "first use"),
        ("evaluate", "first use"),
    ]
    assert all(e.seconds > 0 and e.at > 1.7e9 for e in report)
    assert "2 compilations" in str(report) and "evaluate" in str(report)


def test_batch_sizes_are_expected_up_to_a_number():
    model = sequence_model()
    # A mean over rows cannot leave padding out: every size is a program of its own.
    model.compile("sgd", loss=lambda y, p: ((y - p) ** 2).mean())
    x, y = batches(4)[0]
    for rows in range(1, 9):
        model.train_on_batch(x[:rows], y[:rows])
    x, y = (np.concatenate([v, v]) for v in (x, y))
    model.train_on_batch(x[:9], y[:9])
    with pytest.warns(RecompileWarning):
        model.train_on_batch(x[:10], y[:10])


def test_reports_need_compile():
    model = exburn.Sequential([exburn.Input((2,)), layers.Dense(1)])
    with pytest.raises(NotCompiledError):
        model.compile_report()
