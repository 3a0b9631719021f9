"""What errors say, what they are besides, and where warnings point."""

import inspect
import pickle
import warnings

import pytest

from exburn import errors
from exburn.errors import ExBurnError, UnknownNameError, require, unknown_name, warn

ALL = [getattr(errors, name) for name in errors.__all__ if name[0].isupper()]
RAISED = [kind for kind in ALL if issubclass(kind, ExBurnError)]


def test_the_text_names_the_operation_the_facts_and_what_to_do():
    error = ExBurnError("fit", "x is bad", {"x": (3, 4), "y": None}, hint="Mend it.")
    assert str(error) == "fit: x is bad\n  x: (3, 4)\n  y: None\n  → Mend it."


def test_a_text_has_twelve_lines_at_most():
    facts = {f"fact {i}": "\n".join("long") * 50 for i in range(40)}
    lines = str(ExBurnError("fit", "x is bad", facts, hint="Mend it.")).splitlines()
    assert len(lines) <= 12 and lines[-1] == "  → Mend it."


@pytest.mark.parametrize("kind", RAISED, ids=lambda kind: kind.__name__)
def test_every_error_goes_through_pickle_and_is_one_of_pythons(kind):
    if kind is ExBurnError:
        return
    assert len(kind.__bases__) >= 1 and kind.__doc__
    builtin = [c for c in kind.__mro__ if c.__module__ == "builtins"]
    assert any(c not in (Exception, BaseException, object) for c in builtin)
    names = inspect.signature(kind).parameters
    if list(names)[:2] == ["op", "reason"]:
        error = kind("fit", "x is bad", {"x": 3}, hint="Mend it.")
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (kind, str(error))


def test_an_unknown_name_tells_what_is_known_and_similar():
    error = unknown_name("loss", "mze", ["mse", "mae", "huber"], op="compile")
    assert isinstance(error, UnknownNameError)
    assert str(error) == (
        "compile: unknown loss 'mze'\n  known: huber, mae, mse\n"
        "  → Did you mean 'mse' or 'mae'?"
    )
    assert "→" not in str(unknown_name("loss", 3, ["mse"]))


def test_a_missing_package_names_the_extra():
    assert require("math", "demo", "sums").pi > 3
    with pytest.raises(ImportError, match=r"pip install 'exburn\[plot\]'") as caught:
        require("no_such.module", "demo", "plots need it", extra="plot")
    assert "(or: pip install no_such)" in str(caught.value)
    with pytest.raises(errors.MissingDependencyError, match="pip install Other"):
        require("no_such", "demo", "it is needed", package="Other")


def test_a_warning_points_at_the_users_line():
    with warnings.catch_warnings(record=True, action="always") as caught:
        warn("late", errors.RecompileWarning)
        line = inspect.currentframe().f_lineno - 1
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)
    assert caught[0].category is errors.RecompileWarning
