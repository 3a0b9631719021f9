import pytest
from tests.classifiers import blobs, classifier, model
from tests.training.batches import threads

__all__ = ["blobs", "classifier", "model"]


@pytest.fixture
def no_thread_is_left():
    """Raises after a test that leaves one of ExBurn's threads running."""
    yield
    assert threads() == []
