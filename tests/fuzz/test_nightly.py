"""Random programs beside Keras: no difference but those that were decided."""

import re

import numpy as np
import pytest
from tests.fuzz import engine
from tests.fuzz.engine import KINDS, Decided
from tests.fuzz.values import Array, Call


@pytest.mark.parametrize("kind", KINDS)
def test_no_new_difference(kind, request):
    """``--fuzz-draws`` programs in all; of this kind its share of them."""
    options = request.config.option
    count = max(1, options.fuzz_draws * KINDS[kind] // 100)
    found = engine.run_kind(kind, range(count), options.fuzz_seed, Decided())
    new = [str(finding) for finding in found if finding is not None]
    assert not new, "\n\n".join(new)


@pytest.mark.parametrize("kind", KINDS)
def test_draws_are_programs_that_depend_on_the_seed_alone(kind):
    module = engine.module_of(kind)

    def sources(seed):
        draws = [module.draw(np.random.default_rng([seed, i])) for i in range(40)]
        return [module.render(spec) for spec in draws]

    first = sources(1)
    for source in first:
        compile(source, "<drawn>", "exec")
    assert first == sources(1) and first != sources(2)
    assert len(set(first)) > 30


def test_every_decision_says_who_is_right_and_why():
    for entry in Decided().entries:
        assert set(entry["kinds"]) <= set(KINDS)
        assert entry["right"] in ("ExBurn", "Keras", "either") and entry["why"]
        for pattern in (*entry["source"], entry["difference"]):
            re.compile(pattern)


def test_a_difference_is_found_made_simple_and_told_once_it_is_decided(monkeypatch):
    from exburn import ops

    class Wrong:
        """A kind of program whose op is wrong for negative numbers."""

        TOLERANCE = 1e-6

        @staticmethod
        def draw(rng):
            x = Array(int(rng.integers(9)), (3, 4, 2), "float32", -2, 2)
            return Call("ops.leaky_relu", [x], {"negative_slope": 0.3})

        @staticmethod
        def render(spec):
            return f"result = {spec!r}"

    monkeypatch.setattr(ops, "leaky_relu", lambda x, negative_slope=0.2: abs(x))
    monkeypatch.setattr(engine, "module_of", lambda name: Wrong)
    nothing = Decided()
    nothing.entries = []
    finding = engine.find("ops", 0, 0, nothing)
    assert finding.difference.startswith("value: ")
    assert re.fullmatch(r"result = .*_relu\(array\(\d, \([\d, ]+\)\)\)", finding.source)
    assert eval(finding.source.partition("array")[2][:-1])[1] != (3, 4, 2)
    assert "--kind ops --seed 0 --only 0" in str(finding)
    nothing.entries = [
        {"kinds": ["ops"], "source": ["leaky_relu"], "difference": "^value"}
    ]
    nothing.uses = [0]
    assert engine.find("ops", 0, 0, nothing) is None and nothing.uses == [1]
