"""Whatever goes on from a folder notices what is not as it was, and names it."""

from __future__ import annotations

import pytest
from tests.training.checkpoint.changes import CHANGES, WITHIN, Training

import exburn
from exburn.errors import CheckpointError


class Sweeping:
    """A sweep with a folder."""

    ignores: frozenset[str] = frozenset()

    def __init__(self, folder):
        self.folder = folder / "sweep"

    def run(self, training):
        return exburn.sweep(
            training.model(),
            **training.data(),
            over={"scale": [0.5, 1.0]},
            epochs=2,
            verbose=0,
            checkpoint=self.folder,
        )

    begin = again = run


KINDS = {"sweep": Sweeping}


@pytest.fixture(scope="module", params=KINDS)
def kept(request, tmp_path_factory):
    """Something with a folder in which a training is."""
    kind = KINDS[request.param](tmp_path_factory.mktemp("changes"))
    kind.begin(Training())
    return kind


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_is_named(kept, change):
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
