"""Every reader of a path that a user names: a pipe, a device, a folder, nothing.

None of them may wait for ever, or read for ever: each is a typed error, at once.
"""

import os
import signal

import numpy as np
import pytest

import exburn
from exburn import datasets, layers, saving, tuning, utils
from exburn.command_line.main import main
from exburn.errors import ExBurnError
from exburn.saving.seal import read_document
from exburn.text import Tokenizer


def model():
    return exburn.Sequential([exburn.Input((2,)), layers.Dense(1)])


def vocabulary(path):
    layers.StringLookup(vocabulary=str(path))


def command(name, *more):
    def run(path):
        if main([name, str(path), *map(str, more)]) == 0:
            raise AssertionError("the command ended well")
        raise exburn.errors.LoadError(name, "it failed, as it must")

    return run


def image_folder(path):
    os.makedirs(path.parent / "images" / "a", exist_ok=True)
    inner = path.parent / "images" / "a" / "x.png"
    if os.path.lexists(path):
        os.symlink(path, inner)
    datasets.image_folder(path.parent / "images", image_size=(2, 2))


def text_folder(path):
    os.makedirs(path.parent / "texts" / "a", exist_ok=True)
    os.symlink(path, path.parent / "texts" / "a" / "x.txt")
    datasets.text_folder(path.parent / "texts")


READERS = {
    "load_model": lambda path: exburn.load_model(path),
    "load_weights": lambda path: model().load_weights(path),
    "read_weights": lambda path: saving.read_weights(path),
    "load_lora": lambda path: model().load_lora(path),
    "KerasFileEditor": lambda path: saving.KerasFileEditor(path),
    "SweepResult": lambda path: tuning.SweepResult.load(path),
    "Tokenizer": lambda path: Tokenizer.load(path),
    "document": lambda path: read_document(path, "exburn-x-1", "load"),
    "import_params": lambda path: exburn.import_params(model(), path, format="json"),
    "predict.exburn": lambda path: exburn.predict(path, np.ones((1, 2))),
    "predict.stablehlo": lambda path: exburn.predict(path, np.ones((1, 2))),
    "predict.tflite": lambda path: exburn.predict(path, np.ones((1, 2))),
    "predict.onnx": lambda path: exburn.predict(path, np.ones((1, 2))),
    "vocabulary": vocabulary,
    "load_img": lambda path: utils.load_img(path),
    "image_folder": image_folder,
    "text_folder": text_folder,
    "mnist": lambda path: datasets.mnist.load_data(path),
    "info": command("info"),
    "verify": command("verify"),
    "convert": command("convert", "out.exburn"),
    "report": command("report"),
    "dashboard": command("dashboard", "--once"),
}
KINDS = {
    "pipe": os.mkfifo,
    "device": lambda path: os.symlink("/dev/zero", path),
    "nothing": lambda path: None,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file_is_a_typed_error_at_once(reader, kind, tmp_path):
    if reader == "predict.tflite":
        pytest.importorskip("ai_edge_litert")
    if reader == "predict.onnx":
        pytest.importorskip("onnxruntime")
    suffix = os.path.splitext(reader)[1] or {"KerasFileEditor": ".weights.h5"}.get(
        reader, ".exburn"
    )
    path = tmp_path / f"file{suffix}"
    KINDS[kind](path)

    def late(signum, frame):
        raise AssertionError("the reader waits")

    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    try:
        with pytest.raises(ExBurnError):
            READERS[reader](path)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)
