"""Archives of programs that are damaged, or lack what is asked for."""

import json

import jax
import numpy as np
import pytest

from exburn.errors import ArgumentError, DataError, ExBurnError, ModelFormatError
from exburn.export import ExportArchive, load_archive
from exburn.export.archive import FORMAT
from exburn.saving.seal import read_document, seal_document

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 3)).astype("float32")


def test_what_is_read_is_checked(model, tmp_path):
    with pytest.raises(ArgumentError, match="no archive"):
        load_archive(tmp_path)
    archive = ExportArchive()
    archive.track_and_add_endpoint("serve", model)
    archive.write_out(tmp_path, verbose=False)
    loaded = load_archive(tmp_path)
    for wrong in ((X[:, :2],), (X[0],), (X, X), ([X],)):
        with pytest.raises(DataError):
            loaded.serve(*wrong)
    with pytest.raises(AttributeError, match="train"):
        _ = loaded.train
    assert "serve" in dir(loaded)
    program = (tmp_path / "serve.stablehlo").read_bytes()
    flipped = bytearray(program)
    flipped[len(program) // 2] ^= 1
    (tmp_path / "serve.stablehlo").write_bytes(flipped)
    with pytest.raises(ExBurnError):
        load_archive(tmp_path)
    (tmp_path / "serve.stablehlo").write_bytes(program)
    manifest = tmp_path / "archive.json"
    about = read_document(manifest, FORMAT, "test")
    for data in (b"no JSON", b"{}", json.dumps({"format": FORMAT}).encode()):
        manifest.write_bytes(data)
        with pytest.raises(ModelFormatError, match="damaged"):
            load_archive(tmp_path)
    wrong = {
        "endpoints": [["../serve"], [3], "serve", None, ["serve", "serve"]],
        "collections": [["/etc/passwd"], ["variables"], ["absent"], ["serve"], {}],
        "trainable": [[True], ["x"], [1] * 99, 3],
    }
    for key, values in wrong.items():
        for value in values:  # with digests that fit
            manifest.write_bytes(seal_document(FORMAT, about | {key: value}))
            with pytest.raises(ModelFormatError, match="damaged"):
                load_archive(tmp_path)
    assert jax.tree.leaves(model.get_weights())
