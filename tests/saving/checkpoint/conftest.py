import shutil

import pytest
from tests.saving.checkpoint.folders import arrays

from exburn.saving.checkpoint import CheckpointDirectory


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """A folder with the steps 10, 20 and 30."""
    path = tmp_path_factory.mktemp("three")
    with CheckpointDirectory(path) as directory:
        for step in (10, 20, 30):
            directory.write(arrays(step), {"note": [step]}, step=step, epoch=step // 10)
    return path


@pytest.fixture
def copy(three, tmp_path):
    shutil.copytree(three, tmp_path / "copy")
    return tmp_path / "copy"
