"""Python's garbage collector while a process starts."""

import gc

import pytest

from exburn.runtime import gc_pause


@pytest.fixture
def thawed():
    """What ``tests/memory.py`` has frozen is looked through."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("thawed")
@pytest.mark.parametrize("frozen", [False, True])
def test_no_garbage_is_looked_for_until_a_program_was_compiled(monkeypatch, frozen):
    monkeypatch.setattr(gc_pause, "_started", False)
    if frozen:
        monkeypatch.setattr(gc, "get_freeze_count", lambda: 30_000)
        monkeypatch.setattr(gc, "unfreeze", None)  # somebody else's stay frozen
    with gc_pause.starting():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), gc_pause.starting():
        raise ZeroDivisionError
    assert gc.isenabled()
    gc_pause.has_started()
    with gc_pause.starting():
        assert gc.isenabled()


@pytest.mark.usefixtures("thawed")
def test_a_frozen_heap_thaws_unless_someone_else_froze_it():
    with gc_pause.frozen_heap():
        assert gc.get_freeze_count() > 1000
        with gc_pause.frozen_heap():
            pass
        assert gc.get_freeze_count() > 1000
    assert gc.get_freeze_count() == 0


def test_what_python_itself_froze_is_nobody_elses(monkeypatch):
    frozen = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 375)  # Python 3.12 begins so
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    monkeypatch.setattr(gc, "unfreeze", lambda: None)
    with gc_pause.frozen_heap():
        assert frozen


def test_a_collector_that_the_user_has_switched_off_stays_off(monkeypatch):
    monkeypatch.setattr(gc_pause, "_started", False)
    gc.disable()
    try:
        with gc_pause.starting():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
