"""Checks of arguments: what passes, as what, and what is refused by name."""

import numpy as np
import pytest

from exburn.core import checks
from exburn.errors import ArgumentError, DTypeError


@pytest.mark.parametrize(
    ("check", "value", "wanted"),
    [
        (checks.check_count, np.int64(3), 3),
        (lambda op, name, v: checks.check_count(op, name, v, 0), 0, 0),
        (checks.check_number, np.float32(0.5), 0.5),
        (checks.check_number, 2, 2.0),
        (checks.check_integer, np.int32(-4), -4),
        (checks.check_label, -1.0, -1),
        (lambda op, _, v: checks.check_axis(op, v), [1, np.int8(2)], (1, 2)),
        (lambda op, _, v: checks.check_seed(op, v), None, None),
        (lambda op, _, v: checks.check_seed(op, v), np.int64(0), 0),
        (checks.check_flag, np.False_, False),
        (checks.check_text, "loss", "loss"),
        (checks.check_float, np.float32(0.5), 0.5),
    ],
)
def test_values_come_back_as_pythons_own(check, value, wanted):
    found = check("Op", "it", value)
    assert found == wanted and type(found) is type(wanted)


@pytest.mark.parametrize(
    ("check", "values", "says"),
    [
        (checks.check_count, [0, 2.0, True, "3", None], "it must be an integer ≥ 1"),
        (checks.check_number, [-1, np.nan, np.inf, True, "1"], "it must be a number ≥"),
        (checks.check_integer, [1.0, False, "1"], "it must be an integer"),
        (checks.check_label, [0.5, np.nan, "a"], "it must be an integer"),
        (lambda op, _, v: checks.check_axis(op, v), [1.0, [1, "a"], None], "axis must"),
        (lambda op, _, v: checks.check_seed(op, v), [-1, 1.5, "a"], "seed must be"),
        (checks.check_flag, ["False", 0, None], "it must be True or False"),
        (checks.check_text, [b"x", 3, None], "it must be text"),
        (checks.check_float, ["1.0", b"1", [1, 2], None], "it must be a number"),
    ],
)
def test_others_are_refused_with_what_was_received(check, values, says):
    for value in values:
        with pytest.raises(ArgumentError) as caught:
            check("Op", "it", value)
        text = str(caught.value)
        assert text.startswith("Op: ") and says in text, value
        assert (
            repr(value[1] if isinstance(value, list) and "axis" in says else value)
            in text
        )


def test_a_number_has_an_upper_bound():
    assert checks.check_number("Dropout", "rate", 1, 0, 1) == 1.0
    with pytest.raises(ArgumentError, match="from 0 to 1, received 1.5"):
        checks.check_number("Dropout", "rate", 1.5, 0, 1)


def test_objects_of_the_package_keras_are_refused_also_when_derived():
    keras = pytest.importorskip("keras")

    class Own(keras.losses.MeanSquaredError):
        pass

    for value in (keras.losses.MeanSquaredError(), Own()):
        with pytest.raises(DTypeError, match="exburn.losses.MeanSquaredError"):
            checks.check_not_of_keras("compile", value)
    checks.check_not_of_keras("compile", len)
