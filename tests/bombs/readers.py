"""The ways in which files are opened, by format."""

import contextlib
import io
from pathlib import Path

from tests.bombs import (
    archives,
    chat_templates,
    checkpoints,
    configs,
    data_sets,
    hdf5,
    npz,
    safetensors,
    tokenizers,
    torch,
)

import exburn
from exburn import layers, saving, utils
from exburn.command_line.main import main
from exburn.datasets.contract.files import read_idx, read_npz, read_records
from exburn.saving.checkpoint import CheckpointDirectory
from exburn.saving.pretrained_folder import read_config
from exburn.saving.weight_sources import open_source
from exburn.text import ChatTemplate, Tokenizer


def every_array(path):
    with saving.read_weights(path) as file:
        for name in file:
            file[name]


def whole(path):
    with open_source(path, "read") as stored:
        stored.read(stored.shapes)


def small_model(path):
    model = exburn.Sequential([exburn.Input((8,)), layers.Dense(4, name="dense")])
    model.load_weights(path, skip_mismatch=True)


def editor(path):
    with contextlib.redirect_stdout(io.StringIO()):
        saving.KerasFileEditor(path)


def command(name):
    def run(path):
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            main([name, str(path)])

    return run


def data_set(path):
    read_npz(Path(path), ["x"], op="load_data")


def numbers(path):
    read_idx(Path(path), op="load_data")


def images(path):
    read_records(Path(path), ["data_batch_1.bin"], 1, op="load_data")


def unpacked(path):
    with contextlib.redirect_stdout(io.StringIO()):
        folder = path.parent / "cache"
        utils.get_file(origin=path.as_uri(), extract=True, cache_dir=folder)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    assert size < 4 * path.stat().st_size + (128 << 20)


def text_both_ways(path):
    tokenizer = Tokenizer.load(path)
    for text in ("a", "a" * 30, ("a" * 24 + "d ") * 20, "a" * 100_000):
        tokenizer.encode(text)
    tokenizer.decode([2] * 100)
    tokenizer.decode([1] * 100_000)
    tokenizer.encode(["a" * 30] * 2)


def chat(path):
    template = ChatTemplate(path.read_text())
    template.render([{"role": "user", "content": "so"}])


def settings(path):
    read_config(path.parent, "from_pretrained")


def resumable(path):
    CheckpointDirectory(path).latest()


_ANY = {
    "read_weights": every_array,
    "load_weights": small_model,
    "exburn info": command("info"),
    "exburn verify": command("verify"),
}
_CHECKPOINTS = {name: read for name, read in _ANY.items() if name != "read_weights"}
_CHECKPOINTS["latest"] = resumable
MODELS = {"load_model": lambda path: exburn.load_model(path)}
EDITOR = {"KerasFileEditor": editor}

#: Bombs by name, and readers by name, of each format.
TABLE = {
    "weights.h5": (hdf5.WEIGHTS, _ANY | EDITOR),
    "h5": (hdf5.LEGACY, _ANY | MODELS),
    "keras": (hdf5.ARCHIVES, _ANY | MODELS | EDITOR),
    "pth": (torch.BOMBS, _ANY),
    "bin.index.json": (torch.PARTS, _ANY | {"all at once": whole}),
    "npz": (npz.BOMBS, _ANY | {"load_data": data_set}),
    "safetensors": (safetensors.BOMBS, _ANY | MODELS),
    "index": (safetensors.INDICES, _ANY | MODELS),
    "exburn": (safetensors.OWN, _ANY | MODELS),
    "checkpoint": (checkpoints.BOMBS, _CHECKPOINTS),
    "config.json": (configs.BOMBS, {"read_config": settings}),
    "tokenizer.json": (tokenizers.BOMBS, {"Tokenizer": text_both_ways}),
    "chat_template.jinja": (chat_templates.BOMBS, {"ChatTemplate": chat}),
    "idx": (data_sets.IDX, {"load_data": numbers}),
    "records": (data_sets.RECORDS, {"load_data": images}),
    "archive": (archives.BOMBS, {"get_file": unpacked}),
}
