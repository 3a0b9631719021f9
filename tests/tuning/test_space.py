"""Trials of grids, draws and conditions; and what cannot be a space."""

import numpy as np
import pytest

from exburn.errors import ArgumentError, UnknownNameError
from exburn.tuning import space as spaces
from exburn.tuning.space import (
    Space,
    choice,
    grid,
    integers,
    log_uniform,
    random,
    uniform,
    when,
)


def test_a_grid_is_the_product_in_the_order_of_its_paths():
    over = {
        "seed": range(2),
        "rate": log_uniform(1e-3, 1e-1, 3),
        "act": ("relu", "tanh"),
    }
    trials = Space.of(over, grid()).trials()
    assert len(trials) == 12
    assert trials[0] == {"seed": 0, "rate": 1e-3, "act": "relu"}
    assert trials[1] == {"seed": 0, "rate": 1e-3, "act": "tanh"}
    rates = [t["rate"] for t in trials[:6:2]]
    np.testing.assert_allclose(rates, np.geomspace(1e-3, 1e-1, 3), rtol=1e-12)
    assert trials[-1] == {"seed": 1, "rate": 0.1, "act": "tanh"}  # the bound itself


@pytest.mark.parametrize(
    ("domain", "values"),
    [
        (uniform(-1, 1, 3), [-1.0, 0.0, 1.0]),
        (uniform(0, 1, 1), [0.5]),
        (integers(2, 4), [2, 3, 4]),
        (integers(1, 3, 9), [1, 2, 3]),  # no value twice
        (integers(8, 128, 5, log=True), [8, 16, 32, 64, 128]),
        (np.linspace(0, 1, 3), [0.0, 0.5, 1.0]),
        ({"b", "a"}, ["a", "b"]),
        (choice([None, (1, 2)]), [None, (1, 2)]),
    ],
)
def test_what_a_grid_takes_of_a_domain(domain, values):
    assert [t["p"] for t in Space.of({"p": domain}).trials()] == values


def test_a_path_exists_only_where_its_condition_holds():
    over = {
        "momentum": when("kind", "sgd", when("rate", lambda r: r > 0.05, [0.0, 0.9])),
        "kind": ["adam", "sgd"],
        "rate": [0.01, 0.1],
        "beta": when("kind", ["adam", "nadam"], [0.9]),
    }
    trials = Space.of(over).trials()
    assert trials == [
        {"kind": "adam", "rate": 0.01, "beta": 0.9},
        {"kind": "adam", "rate": 0.1, "beta": 0.9},
        {"kind": "sgd", "rate": 0.01},
        {"momentum": 0.0, "kind": "sgd", "rate": 0.1},
        {"momentum": 0.9, "kind": "sgd", "rate": 0.1},
    ]
    drawn = Space.of(over, random(40)).trials()
    assert all(("beta" in t) == (t["kind"] == "adam") for t in drawn)
    assert {("momentum" in t) for t in drawn} == {True, False}
    # What depends on a path that is not there is not there either.
    chain = {"a": [0, 1], "b": when("a", 1, [True]), "c": when("b", True, [5])}
    assert Space.of(chain).trials() == [{"a": 0}, {"a": 1, "b": True, "c": 5}]


def test_draws_are_in_their_domain_and_repeat_with_the_seed():
    over = {"lr": log_uniform(1e-4, 1e-1), "n": integers(1, 3), "u": uniform(2, 3)}
    trials = Space.of(over, random(400), seed=7).trials()
    assert trials == Space.of(over, random(400), seed=7).trials()
    assert trials != Space.of(over, random(400), seed=8).trials()
    logs = np.log10([t["lr"] for t in trials])
    assert -4 <= logs.min() < -3.9 and -1.1 < logs.max() <= -1
    assert abs(np.mean(logs) + 2.5) < 0.15  # even in the exponent
    assert {t["n"] for t in trials} == {1, 2, 3}
    assert all(2 <= t["u"] <= 3 for t in trials)


def test_each_draw_with_all_values_of_a_path():
    over = {"lr": uniform(0, 1), "seed": range(3), "drop": [0.0, 0.5]}
    trials = Space.of(over, random(2, each=["seed"])).trials()
    assert [t["seed"] for t in trials] == [0, 1, 2] * 2
    assert len({(t["lr"], t["drop"]) for t in trials}) == 2
    assert list(trials[0]) == list(over)


def test_ask_goes_through_the_trials_and_ends():
    space = Space.of({"seed": range(5)})
    assert [len(space.ask(2)) for _ in range(4)] == [2, 2, 1, 0]


def test_a_sampler_that_is_asked():
    class Halves:
        told = ()

        def ask(self, space, n):
            return [space.draw(np.random.default_rng(i)) for i in range(n)]

        def tell(self, records):
            self.told = records

    space = Space.of({"lr": uniform(0, 1)}, Halves())
    assert space.asks and len(space.ask(3)) == 3
    space.tell([1, 2])
    assert space.sampler.told == [1, 2]
    with pytest.raises(ArgumentError, match="say how many trials"):
        space.trials()


BAD_ARGUMENTS = [
    (lambda: Space.of({}), "at least one path"),
    (lambda: Space.of([1]), "must be a dict of paths"),
    (lambda: Space.of({3: [1]}), "a path must be text, received 3"),
    (lambda: Space.of({" ": [1]}), "a path must be text"),
    (lambda: Space.of({"a": []}), "'a' must have at least one value"),
    (lambda: Space.of({"a": 0.5}), "a list, a range or a domain, received 0.5"),
    (lambda: Space.of({"a": "relu"}), "received 'relu'"),
    (lambda: Space.of({"a": np.ones((2, 2))}), "a list, a range or a domain"),
    (lambda: Space.of({"a": [1]}, sampler=3), "sampler must be grid"),
    (lambda: Space.of({"a": uniform(0, 1)}).trials(), "no number of values"),
    (lambda: choice([]), "at least one value"),
    (lambda: log_uniform(0, 1), "low must be a number > 0, received 0"),
    (lambda: log_uniform(-1, 1), "low must be a number > 0, received -1"),
    (lambda: integers(0, 8, log=True), "low must be a number > 0"),
    (lambda: uniform(1, 1), "low must be below high"),
    (lambda: uniform(0, float("inf")), "high must be a finite number"),
    (lambda: uniform(0, 1, 0), "n must be an integer ≥ 1"),
    (lambda: integers(0, 1.5), "high must be a whole number"),
    (lambda: random(0), "n must be an integer ≥ 1"),
    (lambda: random(2.5), "n must be an integer ≥ 1"),
    (lambda: random(2, each="seed"), "each must be a list of paths"),
    (lambda: when(3, 1, [1]), "a path must be text"),
    (lambda: when("a", [], [1]), "at least one value"),
    (lambda: when("a", 1, []), "at least one value"),
    (lambda: Space.of({"a": [1]}).ask(0), "n must be an integer ≥ 1"),
    (
        lambda: Space.of({"a": when("b", 1, [1]), "b": when("a", 1, [1])}),
        "conditions depend on each other",
    ),
    (
        lambda: Space.of({"a": [1], "b": when("a", 1, [2])}, random(1, each=["a"])),
        "'b' depends on 'a', which is in each=",
    ),
]


@pytest.mark.parametrize(
    ("over", "sampler"),
    [
        ({"rate": [1], "seed": when("rat", 1, [2])}, None),
        ({"rate": [1]}, random(2, each=["rat"])),
    ],
)
def test_an_unknown_path_is_told_with_the_nearest(over, sampler):
    with pytest.raises(UnknownNameError, match=r"(?s)'rat'.*Did you mean 'rate'"):
        Space.of(over, sampler)


def test_a_grid_that_would_fill_the_memory(monkeypatch):
    monkeypatch.setattr(spaces, "MOST_TRIALS", 8)
    assert len(Space.of({"a": range(8)}).trials()) == 8
    with pytest.raises(ArgumentError, match="more than 8 trials"):
        Space.of({"a": range(3), "b": integers(0, 2)}).trials()
    for values in (range(10**12), integers(0, 10**12)):
        with pytest.raises(ArgumentError, match="at most 8, received 1,000"):
            Space.of({"a": values}).trials()
