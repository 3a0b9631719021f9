"""Writing checkpoints beside the training, also where the disk refuses."""

import os
import warnings

import pytest
from tests.saving.checkpoint.folders import arrays, content

from exburn.errors import ArgumentError, CheckpointError, CheckpointWarning
from exburn.saving.checkpoint import CheckpointWriter
from exburn.saving.checkpoint import directory as module

FAILING = ["write_arrays", "write_manifest", "rename", "sync_folder"]


@pytest.mark.parametrize("place", FAILING)
@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("on_error", ["raise", "warn"])
def test_a_full_disk(copy, monkeypatch, place, background, on_error):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    writer = CheckpointWriter(copy, background=background, on_error=on_error)
    writer.open()
    with monkeypatch.context() as patch:
        patch.setattr(os if place == "rename" else module, place, full)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                writer.save(arrays(40), {}, step=40)
                writer.wait()
                raised = None
            except CheckpointError as error:
                raised = error
    if on_error == "raise":
        assert raised is not None and "No space left" in str(raised) and not seen
    else:
        assert raised is None and len(seen) == 1
        assert issubclass(seen[0].category, CheckpointWarning)
    intact = [content(writer.directory.read(c)) for c in writer.directory.checkpoints()]
    assert intact[:3] == [10, 20, 30] and intact[3:] in ([], [40])
    assert not [name for name in os.listdir(copy) if name.startswith(".")]
    writer.save(arrays(50), {}, step=50)
    writer.close()
    assert [c.step for c in writer.directory.checkpoints()] == [50]


def test_writer_arguments():
    for wrong in ({"keep": 0}, {"keep": True}, {"on_error": "ignore"}):
        with pytest.raises(ArgumentError):
            CheckpointWriter("x", **wrong)
