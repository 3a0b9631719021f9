"""Whatever goes on from a folder notices what is not as it was, and names it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.training.checkpoint.changes import CHANGES, WITHIN, Training
from tests.training.checkpoint.resumable import KINDS, Distilled, Pruned, Resuming

from exburn.callbacks import LambdaCallback, LearningRateScheduler, ModelCheckpoint
from exburn.compression import PolynomialSparsity
from exburn.errors import CheckpointError

# Options of a kind → a change of them, and what the error names.
OWN: list[tuple[type[Resuming], dict[str, Any], str]] = [
    (Pruned, {"sparsity": 0.6}, "model.changes"),
    (Pruned, {"schedule": PolynomialSparsity(end=8)}, "model.changes"),
    (Pruned, {"scope": "layer"}, "model.changes"),
    (Distilled, {"temperature": 3.0}, r"model\._losses"),
    (Distilled, {"student_loss_weight": 0.4}, "student_loss_weight: 0.5 → 0.4"),
]


@pytest.fixture(scope="module", params=KINDS)
def kept(request, tmp_path_factory):
    """Something with a folder in which a training is."""
    kind = KINDS[request.param](tmp_path_factory.mktemp("changes"))
    kind.begin(Training())
    return kind


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_is_named(kept, change):
    if change in kept.lacks:
        pytest.skip("such a training has no such thing")
    edit, message = CHANGES[change]
    training = Training()
    edit(training)
    if change in kept.ignores:
        kept.compare(training)
    else:
        with pytest.raises(CheckpointError, match=message):
            kept.again(training)


def test_the_same_goes_on(kept):
    kept.again(Training())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", WITHIN)
def test_what_has_no_name_is_compared(kind, change, tmp_path):
    first, second, message = WITHIN[change]
    kept = KINDS[kind](tmp_path)
    one, other = Training(), Training()
    first(one)
    second(other)
    kept.begin(one)
    kept.again(one)
    with pytest.raises(CheckpointError, match=message):
        kept.again(other)


@pytest.mark.parametrize(("kind", "options", "message"), OWN)
def test_options_of_other_trainings_are_compared(kind, options, message, tmp_path):
    one = kind(tmp_path)
    one.begin(Training())
    one.again(Training())
    other = kind(tmp_path)
    for name in ("prunes", "options"):
        if hasattr(other, name):
            setattr(other, name, getattr(other, name) | options)
    with pytest.raises(CheckpointError, match=message):
        other.again(Training())


def test_what_hooks_have_changed_in_this_process_is_no_difference(tmp_path):
    training, model = Training(), Training().model()
    scale, hidden = model.get_layer("scale"), model.get_layer("hidden")

    def change(epoch, logs):
        scale.factor /= 2

    def fit(epochs, **options):
        callbacks = [
            LearningRateScheduler(lambda epoch, rate: rate / 2),
            LambdaCallback(on_epoch_end=change),
            *options.pop("callbacks", []),
        ]
        data = {**training.data(), "callbacks": callbacks, "verbose": 0}
        return model.fit(**data, epochs=epochs, **options)

    again = {"resume": tmp_path / "all"}
    fit(2, callbacks=[ModelCheckpoint(f"{tmp_path}/all/")])
    for epochs in (3, 4):
        assert fit(epochs, **again).epoch == [*range(epochs)]
    model.optimizer.learning_rate = 0.5
    with pytest.raises(CheckpointError, match=r"learning_rate: 0.01 → 0.5"):
        fit(5, **again)
    fit(5, **again, may_differ="optimizer")
    assert float(model.optimizer.learning_rate) == 0.5 / 2**3  # of epochs 3, 4 and 5
    hidden.activation = abs
    with pytest.raises(CheckpointError, match="hidden.activation: relu → abs"):
        fit(5, **again)
