"""Files of PyTorch that multiply what they hold."""

import functools
import json

import numpy as np
from tests.saving import torch_files


def _pickled(data, folder):
    path = folder / "model.pth"
    path.write_bytes(torch_files.archive({"data.pkl": data, "version": b"3"}))
    return path


def _stored(tensors, folder):
    path = folder / "model.pth"
    path.write_bytes(torch_files.zipped(tensors))
    return path


def many_parts(folder):
    """A hundred files, each of which asks for what a short file may."""
    listed = {}
    for number in range(100):
        name = f"part-{number}.bin"
        storage = torch_files.Storage(np.zeros(1, "f4"), "0")
        wide = torch_files.Tensor(storage, (1 << 23,), (0,))
        (folder / name).write_bytes(torch_files.zipped({f"w{number}": wide}))
        listed[f"w{number}"] = name
    path = folder / "pytorch_model.bin.index.json"
    path.write_text(json.dumps({"weight_map": listed}))
    return path


BOMBS = {
    name: functools.partial(_pickled, data) for name, data in torch_files.multiplied()
} | {
    name: functools.partial(_stored, tensors)
    for name, tensors in torch_files.multiplied_tensors()
}
PARTS = {"many_parts": many_parts}
