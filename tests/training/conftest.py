import threading

import pytest
from tests.classifiers import blobs, classifier, model
from tests.training.batches import BEFORE, threads

__all__ = ["blobs", "classifier", "model"]


@pytest.fixture(autouse=True)
def other_threads():
    """Notes the threads that other tests of the process have left running."""
    BEFORE[:] = threading.enumerate()


@pytest.fixture
def no_thread_is_left():
    """Raises after a test that leaves one of ExBurn's threads running."""
    yield
    assert threads() == []
