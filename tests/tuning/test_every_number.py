"""A swept number trains what it names: every numeric argument of the public classes."""

import contextlib
import signal

import pytest
from tests.distribution.devices import on_devices
from tests.tuning import every_number

import exburn
from exburn.errors import ArgumentError, SignatureError

SUBJECTS = {
    subject.name: subject
    for subjects in (
        every_number.dense_subjects,
        every_number.loss_subjects,
        every_number.optimizer_subjects,
        every_number.schedule_subjects,
        every_number.layer_subjects,
    )
    for subject in subjects()
}
OF_TRAINING = [n for n in SUBJECTS if n.startswith(("optimizers.", "schedules."))]
# They evaluate the loss again: neither of parts of a batch, nor a scaled one.
WHOLE_LOSS = "optimizers.LBFGS", "optimizers.SAM", "optimizers.Sophia"
_LONGEST = 600  # seconds of the processor for a case
SAMPLE = {  # subject → arguments that are tried in every run
    "initializers.RandomNormal": ["stddev"],
    "constraints.MinMaxNorm": ["max_value"],
    "layers.ActivityRegularization": ["l2"],
    "losses.CosineSimilarity": ["axis"],
    "schedules.CosineSchedule": ["min_learning_rate"],
}


@contextlib.contextmanager
def within(seconds):
    """Ends the block with an error if it takes longer, however busy the machine is."""

    def end(*_):
        raise TimeoutError(f"it took more than {seconds} seconds of the processor")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def check(name, **kind):
    """Each argument trains what it names, or is refused with its path."""
    subject = SUBJECTS[name]
    with within(_LONGEST):
        found = list(every_number.outcomes(subject, **kind))
    assert not [one for one in found if one.kind == "differs"]
    for one in found:
        assert one.kind != "refused" or subject.path(one.option) in one.text
    return [one.kind for one in found]


@pytest.mark.parametrize("name", SAMPLE)
def test_some_arguments_train_what_they_name(name):
    assert check(name, only=SAMPLE[name]) == ["same"]


def test_options_of_an_optimizer_that_accumulates_train_what_they_name():
    only = ["momentum", "weight_decay"]
    assert check("optimizers.SGD", only=only, steps=2) == ["same", "same"]


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_argument_trains_what_it_names(name):
    check(name)


@pytest.mark.parametrize("name", OF_TRAINING)
def test_every_argument_trains_what_it_names_with_accumulated_gradients(name):
    if name in WHOLE_LOSS:
        with pytest.raises((SignatureError, ArgumentError), match="accumulat"):
            check(name, steps=2)
        return
    check(name, steps=2)


@on_devices
@pytest.mark.parametrize("name", OF_TRAINING)
def test_every_argument_trains_what_it_names_on_two_devices(name):
    check(name, mesh=2)


@contextlib.contextmanager
def policy(name):
    """In the block, new layers have this policy."""
    exburn.config.set_dtype_policy(name)
    try:
        yield
    finally:
        exburn.config.set_dtype_policy("float32")


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("name", OF_TRAINING)
def test_every_argument_trains_what_it_names_in_mixed_precision(name, precision):
    with policy(precision):
        if name in WHOLE_LOSS and precision == "mixed_float16":
            with pytest.raises(ArgumentError, match="needs the plain loss"):
                check(name)
            return
        check(name)
