"""Where the time of an epoch goes: waits for data, and work of the device."""

import io
import time

import pytest
from rich.console import Console
from tests.training.batches import Batches, X, Y

from exburn.callbacks import ProgressBar
from exburn.training.timing import Timing

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


@pytest.mark.parametrize(("busy", "part"), [(True, "device"), (False, "data")])
def test_a_wait_beside_a_working_device_is_not_one_for_data(busy, part):
    def slow():
        time.sleep(0.06)
        yield 1

    timing = Timing()
    assert list(timing.data(slow(), lambda: busy)) == [1]
    assert (timing.data_wait > 0) == (part == "data")
    timing.end()
    spent = timing.epochs[0]
    assert spent[f"{part}_ms"] > 50
    assert min(spent["data_ms"], spent["device_ms"]) < 20


@pytest.mark.parametrize(("pause", "shown"), [(0.02, True), (0.0, False)])
def test_waiting_for_data_is_shown(model, pause, shown):
    page = Console(file=io.StringIO(), width=200)
    bar = ProgressBar(verbose=2, console=page)
    history = model.fit(Batches(pause), epochs=2, verbose=0, callbacks=[bar])
    assert ("data wait" in page.file.getvalue()) is shown
    assert (history.data_waits[-1] > 0.5) is shown
    assert len(history.data_waits) == 2
    validated = model.fit(X, Y, epochs=2, validation_data=Batches(pause), verbose=0)
    assert (validated.data_waits[1] > 0.2) is shown  # the first one compiles


@pytest.mark.parametrize("validates", [False, True])
def test_the_wait_for_the_very_first_batch_counts(model, validates):
    def batches():
        time.sleep(0.7)
        while True:
            yield X[:24], Y[:24]

    given = {"x": batches(), "steps_per_epoch": 4}
    if validates:
        given = {"x": X, "y": Y, "validation_steps": 4, "validation_data": batches()}
    history = model.fit(**given, epochs=3, verbose=0, profile=True)
    first, *_, last = history.profile
    assert first["data_ms"] > 700 > last["data_ms"]
    assert history.data_waits[0] > 700 / first["total_ms"] * 0.99
