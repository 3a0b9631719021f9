"""Trainings that return the model and its history as a list."""

from tests.elixir.gradients.models import X, Y, model


def test_accuracy_is_added_once():
    made = model()
    history = made.fit(X, Y, verbose=0, accuracy=True)
    assert list(history.history) == ["loss", "accuracy"]
    assert list(made.fit(X, Y, verbose=0, accuracy=True).history) == [
        *("loss", "accuracy")
    ]
    assert made.optimizer.iterations == 2  # the optimizer went on
    assert list(model(accuracy=True).fit(X, Y, verbose=0).history) == [
        *("loss", "accuracy")
    ]
