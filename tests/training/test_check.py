"""Values of real data that a compiled program could not complain about."""

from types import SimpleNamespace

import numpy as np
import pytest

from exburn.errors import DataError
from exburn.training.check import ValueCheck, check_ids, noting

IDS = np.array([[0, 1], [2, 9]])


def test_ids_beyond_the_table_have_a_place():
    check_ids([IDS], ((0, 10, "embedding"),), "fit")
    check_ids([IDS], (), "fit")
    with pytest.raises(DataError, match=r"from 0 to 8") as caught:
        check_ids({"a": IDS}, ((0, 9, "embedding"),), "fit")
    text = str(caught.value)
    assert "x['a']" in text and "9 at row 1, position (1, 1)" in text
    assert "bad values: 1 of 4" in text and "layer: embedding" in text


def test_ids_are_named_as_their_caller_names_them():
    x, lookups = {"a": IDS, "z": IDS}, ((0, 10, "small"), (1, 9, "large"))
    with pytest.raises(DataError, match=r"the ids in input 'z' must"):
        check_ids(x, lookups, "serving", ("input 'a'", "input 'z'"))


@pytest.mark.parametrize("bad", [-1.0, 0.5, np.nan, np.inf])
def test_numbers_that_are_no_ids(bad):
    ids = np.array([1.0, bad])
    with pytest.raises(DataError, match="whole numbers from 0 to 2"):
        check_ids(ids, ((0, 3, "table"),), "fit")


def test_an_input_of_integers_without_a_table_takes_any_whole_number():
    check_ids(np.array([-5.0, 1e6]), ((0, None, "count"),), "fit")
    with pytest.raises(DataError, match="the input 'count' is of integers"):
        check_ids(np.array([0.5]), ((0, None, "count"),), "fit")


def test_errors_say_where():
    with pytest.raises(KeyError) as caught, noting("the loss f", IDS, IDS):
        raise KeyError("x")
    said = "the loss f, which received int64[2, 2], int64[2, 2]: 'x'"
    assert str(caught.value) == said


def test_equal_checks_are_of_the_same_pass_losses_and_questions():
    class Preparer:
        def __init__(self, forward, objective):
            self.passes = SimpleNamespace(latest=forward)
            self.objective, self.matching = objective, None

    forward, objective, outputs = object(), object(), object()

    def check(preparer=None, outputs=outputs, finite=True):
        preparer = preparer or Preparer(forward, objective)
        return ValueCheck(preparer, outputs, "fit", finite, True)

    assert check() == check() and hash(check()) == hash(check())
    others = [
        check(Preparer(object(), objective)),
        check(Preparer(forward, object())),
        check(outputs=object()),
        check(finite=False),
    ]
    assert all(check() != other for other in others)
