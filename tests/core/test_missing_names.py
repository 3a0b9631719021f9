"""Names of Keras that are not here."""

import pytest

import exburn
from exburn.core.missing_names import _INSTEAD, missing


@pytest.mark.parametrize("module", _INSTEAD)
def test_every_such_name_is_absent_and_says_what_to_write(module):
    import importlib

    for name, instead in _INSTEAD[module].items():
        with pytest.raises(AttributeError) as caught:
            getattr(importlib.import_module(module), name)
        assert str(caught.value).endswith("→ " + instead)
        assert caught.value.name == name


def test_other_names_have_no_hint():
    assert str(missing("exburn", "nothing")) == (
        "module 'exburn' has no attribute 'nothing'"
    )
    with pytest.raises(AttributeError, match="no attribute 'nothing'$"):
        exburn.nothing  # noqa: B018
