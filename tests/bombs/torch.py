"""Files of PyTorch that multiply what they hold."""

import functools

from tests.saving import torch_files


def _pickled(data, folder):
    path = folder / "model.pth"
    path.write_bytes(torch_files.archive({"data.pkl": data, "version": b"3"}))
    return path


def _stored(tensors, folder):
    path = folder / "model.pth"
    path.write_bytes(torch_files.zipped(tensors))
    return path


BOMBS = {
    name: functools.partial(_pickled, data) for name, data in torch_files.multiplied()
} | {
    name: functools.partial(_stored, tensors)
    for name, tensors in torch_files.multiplied_tensors()
}
