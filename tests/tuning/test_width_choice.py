"""How many lanes run at once."""

import pytest
from tests.tuning.models import make_model, read_data

from exburn.errors import OutOfMemoryError
from exburn.tuning import width_choice
from exburn.tuning.hyperparameters import find
from exburn.tuning.variants import make_variants
from exburn.tuning.width_choice import LaneMemory, WidthChoice, check_memory

TRIALS = [{"seed": seed} for seed in range(32)]


@pytest.fixture(scope="module")
def variant():
    model = make_model()
    data = read_data(model)
    return make_variants(model, data, {"seed": find(model, "seed")}, TRIALS, 1)[0]


def choose(variant, monkeypatch, seconds, compiling=0.0, epochs=100, asked=None):
    """The choice where an epoch of so many lanes takes so many seconds."""
    choice = WidthChoice(asked, own_order=True)
    tried = []

    def time(self, variant, trials, rows):
        tried.append(len(trials))
        return width_choice._Time(seconds(len(trials)), compiling)

    monkeypatch.setattr(WidthChoice, "_time", time)
    return choice(variant, TRIALS, None, epochs), tried


def test_lanes_run_together_as_long_as_that_is_quicker(variant, monkeypatch):
    at_once, tried = choose(variant, monkeypatch, lambda n: 1.0)
    assert (at_once, tried) == (32, [1, 8, 32])
    at_once, tried = choose(variant, monkeypatch, lambda n: max(n, 8.0))
    assert (at_once, tried) == (8, [1, 8, 32])


def test_they_run_one_after_the_other_where_that_is_quicker(variant, monkeypatch):
    at_once, tried = choose(variant, monkeypatch, lambda n: n * n)
    assert (at_once, tried) == (1, [1, 8])


def test_a_program_that_takes_longer_to_compile_than_it_spares_is_none(
    variant, monkeypatch
):
    few = {"epochs": 1, "compiling": 100.0}
    at_once, tried = choose(variant, monkeypatch, lambda n: 1.0, **few)
    assert (at_once, tried) == (1, [1])


def test_the_user_may_say_how_many(variant, monkeypatch):
    assert choose(variant, monkeypatch, lambda n: n, asked=5) == (5, [])
    memory = LaneMemory(state=10, lane=100, data=50, available=1000, measured=True)
    monkeypatch.setattr(width_choice, "look_at_memory", lambda *_: memory)
    assert memory.most == 8
    with pytest.raises(OutOfMemoryError, match="9 lanes at once"):
        choose(variant, monkeypatch, lambda n: 1.0, asked=9)
    assert choose(variant, monkeypatch, lambda n: 1.0)[0] == 8


def test_a_lane_that_does_not_fit_is_an_error():
    memory = LaneMemory(state=10, lane=100, data=950, available=1000, measured=True)
    with pytest.raises(OutOfMemoryError, match="a lane with hidden/units=9 does not"):
        check_memory(memory, 1, {"hidden/units": 9})


def test_lanes_that_cannot_be_mapped_run_in_turn_and_say_why(variant, monkeypatch):
    monkeypatch.setattr(variant, "_why", "a step cannot be that of many (no rule)")
    choice = WidthChoice(None, own_order=True)
    assert choice(variant, TRIALS, None, 1) == 1
    (note,) = choice.notes
    assert note == "lanes run in turn: a step cannot be that of many (no rule)"


def test_groups_that_the_device_cannot_hold_wait_on_the_host(variant, monkeypatch):
    choice = WidthChoice(None, own_order=True)
    choice._memory[variant] = LaneMemory(10, 25, data=90, available=1000, measured=True)
    # 810 bytes for the states of all, and 15 more for each lane of the one that runs.
    assert choice._all_fit([(variant, 30), (variant, 6)])
    assert not choice._all_fit([(variant, 30), (variant, 7)])
    assert not choice.must_park([(variant, 30), (variant, 7)])  # a CPU's is the host's
    monkeypatch.setattr(width_choice.jax, "default_backend", lambda: "gpu")
    assert choice.must_park([(variant, 30), (variant, 7)])
    assert not choice.must_park([(variant, 100)])
