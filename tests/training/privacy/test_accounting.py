"""The noise for an epsilon and the epsilon of steps, beside other accountants."""

from pathlib import Path

import numpy as np
import pytest

from exburn.errors import ArgumentError, UnknownNameError
from exburn.training.privacy.accounting import Privacy, Spending

pytest.importorskip("dp_accounting")

RECORDED = Path(__file__).parents[2] / "insight" / "recorded" / "privacy.npz"


@pytest.fixture(scope="module")
def recorded():
    with np.load(RECORDED) as arrays:
        return dict(arrays)


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_epsilons_are_those_of_dp_accounting(recorded, accountant):
    privacy = Privacy(epsilon=1, delta=1e-5, accountant=accountant)
    epsilons = [
        privacy.epsilon_of([Spending(noise, rate, int(steps))])
        for noise, rate, steps in recorded["cases"]
    ]
    np.testing.assert_allclose(epsilons, recorded[accountant], rtol=1e-6)


def test_epsilons_are_those_of_opacus_but_for_its_fewer_orders(recorded):
    privacy = Privacy(epsilon=1, delta=1e-5)
    for (noise, rate, steps), opacus in zip(
        recorded["cases"], recorded["opacus"], strict=True
    ):
        ours = privacy.epsilon_of([Spending(noise, rate, int(steps))])
        assert ours == pytest.approx(opacus, rel=3e-3)


def test_the_noise_for_an_epsilon_is_that_of_dp_accounting(recorded):
    for (epsilon, rate, steps), noise in zip(
        recorded["targets"], recorded["noises"], strict=True
    ):
        privacy = Privacy(epsilon=epsilon, delta=1e-5)
        ours = privacy.noise_for(rate, int(steps))
        assert ours == pytest.approx(noise, rel=1e-4)
        assert privacy.epsilon_of([Spending(ours, rate, int(steps))]) <= epsilon


def test_what_was_spent_before_leaves_less():
    privacy = Privacy(epsilon=3, delta=1e-5)
    first = Spending(privacy.noise_for(0.01, 2000), 0.01, 1000)  # stopped half-way
    second = Spending(privacy.noise_for(0.01, 1000, [first]), 0.01, 1000)
    assert privacy.epsilon_of([first, second]) == pytest.approx(3, rel=1e-4)
    assert privacy.epsilon_of([first]) < 3
    assert privacy.epsilon_of([]) == 0


def test_an_epsilon_that_cannot_be_reached_is_refused():
    privacy = Privacy(epsilon=1, delta=1e-5)
    with pytest.raises(ArgumentError, match="epsilon=7.3.* was spent before"):
        privacy.noise_for(0.01, 100, [Spending(0.6, 0.01, 600)])
    with pytest.raises(ArgumentError, match="more than 1,000 times the clip"):
        Privacy(epsilon=1e-3, delta=1e-12).noise_for(1.0, 10**7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 1, "delta": 1e-5, "clip": 0}, "clip must be a number > 0"),
        ({"epsilon": 1, "delta": 1e-5, "clip": None}, "clip must be"),
        ({"epsilon": -1, "delta": 1e-5}, "epsilon must be a number > 0"),
        ({"epsilon": 1, "delta": 0}, "delta must be a number in"),
        ({"epsilon": 1, "delta": 1}, "delta must be a number in"),
        ({"delta": 1e-5}, "either epsilon or noise"),
        ({"epsilon": 1, "noise": 1, "delta": 1e-5}, "either epsilon or noise"),
        ({"noise": 0, "delta": 1e-5}, "noise must be a number > 0"),
    ],
)
def test_numbers_that_can_never_work_are_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        Privacy(**options)


def test_an_unknown_accountant_is_refused():
    with pytest.raises(UnknownNameError, match="rdp"):
        Privacy(epsilon=1, delta=1e-5, accountant="moments")


def test_what_a_whole_training_leaves_of_its_epsilon_is_nothing():
    privacy = Privacy(epsilon=8, delta=1e-5)
    whole = Spending(privacy.noise_for(0.07, 225), 0.07, 225)
    assert privacy.epsilon_of([whole]) < 8
    with pytest.raises(ArgumentError, match="epsilon=8 was spent before"):
        privacy.noise_for(0.07, 15, [whole])
