"""Folders of checkpoints whose lists tell of far more than their files hold."""

import json

import numpy as np
import tensorstore

from exburn.saving.checkpoint import CheckpointDirectory
from exburn.saving.checkpoint.manifest import MANIFEST, read_manifest, write_manifest

_FACTS = ("step", "epoch", "batch", "score", "run")
KERNEL = "state/params/dense/kernel"


def folder(folder, change):
    """A checkpoint that is changed, and whose digests fit again."""
    path = folder / "checkpoints"
    with CheckpointDirectory(path) as directory:
        arrays = {KERNEL: np.ones((8, 4), "f4"), "state/step": np.array(3)}
        place = directory.write(arrays, {}, step=1).path
    manifest = read_manifest(place)
    change(place)
    (place / MANIFEST).unlink()
    write_manifest(place, {name: manifest[name] for name in _FACTS})
    return path


def told(place, shape):
    """Another shape in the list."""
    file = place / "run.json"
    run = json.loads(file.read_bytes())
    run["arrays"][KERNEL][1] = shape
    file.write_text(json.dumps(run))


def stored(place, **changes):
    """Other facts where Orbax keeps an array, which are those that it believes."""
    where = {"driver": "ocdbt", "base": f"file://{place / 'arrays'}/"}
    store = tensorstore.KvStore.open(where).result()
    key = next(k for k in store.list().result() if k.endswith(b"kernel/zarr.json"))
    about = json.loads(store[key])
    about["codecs"] = [{"name": "bytes", "configuration": {"endian": "little"}}]
    if "chunk_shape" in changes:
        about["chunk_grid"]["configuration"]["chunk_shape"] = changes.pop("chunk_shape")
    store[key] = json.dumps(about | changes).encode()


def long_list(path):
    return folder(path, lambda place: told(place, [2**20, 2**20]))


def no_elements(path):
    return folder(path, lambda place: told(place, [0, 2**62]))


def without_content(path):
    """An array of 3.6 GB that nobody has written, as its list says."""

    def change(place):
        shape = [30_000, 30_000]
        told(place, shape)
        stored(place, shape=shape, chunk_shape=[1000, 1000])

    return folder(path, change)


def another_shape(path):
    """The same, and the list does not tell it."""
    change = {"shape": [30_000, 30_000], "chunk_shape": [1000, 1000]}
    return folder(path, lambda place: stored(place, **change))


def large_chunk(path):
    return folder(path, lambda place: stored(place, chunk_shape=[2**15, 2**15]))


BOMBS = {
    make.__name__: make
    for make in (
        *(long_list, no_elements, without_content, another_shape, large_chunk),
    )
}
