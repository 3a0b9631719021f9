"""Reports of compilations and plans; warnings about compiling again."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError, NotCompiledError, RecompileWarning

RNG = np.random.default_rng(0)


def sequence_model():
    model = exburn.Sequential(
        [exburn.Input((None, 3)), layers.GlobalAveragePooling1D(), layers.Dense(1)]
    )
    model.compile("sgd", loss="mse")
    return model


def batches(*lengths, dtype="float32"):
    return [
        (RNG.standard_normal((8, n, 3)).astype(dtype), np.zeros((8, 1), "float32"))
        for n in lengths
    ]


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
    x, y = batches(4)[0]
    model.train_on_batch(x, y)
    with pytest.warns(RecompileWarning, match="float32.* → uint8"):
        model.train_on_batch(x.astype("uint8"), y)


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
    model.fit(x, y, batch_size=2, verbose=0, resident=False)
    assert model.explain_plan()[0].taken == "streamed by a thread"
    model.compile("sgd", loss="mse", steps_per_execution=3)
    model.fit(x, y, batch_size=2, verbose=0)
    steps = model.explain_plan()[1]
    assert steps.taken == "3" and "given" in steps.reason


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
    steps = model.explain_plan()[1]
    assert steps.taken == "1" and "convolutions" in steps.reason


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


def test_reports_need_compile():
    model = exburn.Sequential([exburn.Input((2,)), layers.Dense(1)])
    with pytest.raises(NotCompiledError):
        model.compile_report()


@pytest.mark.parametrize("resident", ["yes", 2, True])
def test_resident_is_checked(resident):
    data = batches(4)[0] if resident is not True else (iter(batches(4)), None)
    with pytest.raises(ArgumentError, match="resident|loader"):
        sequence_model().fit(*data, verbose=0, resident=resident)
