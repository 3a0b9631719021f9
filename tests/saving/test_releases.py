"""Files of every release are read by this version, and mean the same."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.saving.releases.kinds import KINDS

RELEASES = Path(__file__).parent / "releases"
FILES = sorted(path.parent for path in RELEASES.glob("*/*/answers.npz"))


@pytest.mark.parametrize("files", FILES, ids=lambda p: f"{p.parent.name}-{p.name}")
def test_files_of_a_release_are_read(files, tmp_path):
    folder = Path(shutil.copytree(files, tmp_path / files.name))
    found = KINDS[files.name.replace("_", " ")].read(folder)
    with np.load(files / "answers.npz") as answers:
        assert found.keys() == set(answers.files)
        for name, there in answers.items():
            near = 1e-4 if name in ("loss", "after") else 1e-5  # what trains adds up
            np.testing.assert_allclose(found[name], there, near, near, err_msg=name)


def test_there_are_files_of_every_kind():
    kinds = {name.replace(" ", "_") for name in KINDS}
    assert {files.name for files in FILES} == kinds
