"""Everything that writes files: how it writes a value, and how that is read back.

The tests of crashes, and of flipped bits, go through this table;
``test_writers.py`` looks for functions of the package that are not in it.
"""

import dataclasses
import functools
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.applications import hub_files
from tests.tuning.models import X, Y, make_model

import exburn
from exburn import layers, runs, saving, tuning
from exburn.applications import BERT, GPT2, from_pretrained
from exburn.command_line.main import main
from exburn.errors import ExBurnError
from exburn.export import ExportArchive, load_archive, verify
from exburn.runs.directory import RunDirectory
from exburn.saving.checkpoint import CheckpointDirectory
from exburn.text import Document, Tokenizer, token_store
from exburn.tuning import SweepResult
from exburn.tuning.records import LaneRecord
from exburn.utils import load_img, plot_model, save_img


@dataclasses.dataclass(frozen=True)
class Writer:
    """A function that writes.

    Attributes:
        write: Called with a folder and a number, which it writes into the folder.
        read: Returns the content from the folder; equal numbers, equal contents.
        sealed: Whether its format is ExBurn's own, and so has digests.
        slow: Whether one case takes more than a fraction of a second.
        native: Whether other people's code touches the disk, which the faults of this
            process do not reach: ``test_kill.py`` kills those.
        adds: Whether nothing is replaced: lines are added to a file.
    """

    write: Callable[[Path, int], Any]
    read: Callable[[Path], Any]
    sealed: bool = True
    slow: bool = False
    native: bool = False
    adds: bool = False


def model(value: int = 0) -> Any:
    made = exburn.Sequential(
        [exburn.Input((4,)), layers.Dense(3, name="a"), layers.Dense(2, name="b")],
        name="small",
    )
    made.compile("sgd", "mse", seed=1)
    made.set_weights([np.full(w.shape, value) for w in made.get_weights()])
    return made


def weights(of: Any) -> Any:
    return [w.tolist() for w in of.get_weights()]


def adapted(value: int = 0) -> Any:
    made = exburn.Sequential([exburn.Input((8,)), layers.Dense(8, name="a")])
    made.add_lora(rank=2)
    made.set_weights([np.full(w.shape, value) for w in made.get_weights()])
    return made


def read_weights(folder: Path) -> Any:
    made = model()
    made.load_weights(folder / "w.safetensors")
    return weights(made)


def read_adapters(folder: Path) -> Any:
    made = adapted()
    made.load_lora(folder / "lora.safetensors")
    return weights(made)


def archive(folder: Path, value: int) -> None:
    made = ExportArchive()
    made.track_and_add_endpoint("serve", model(value))
    made.write_out(folder / "archive", verbose=False)


def read_archive(folder: Path) -> Any:
    found = load_archive(folder / "archive")
    served = np.asarray(found.serve(np.ones((1, 4), "float32"))).tolist()
    return served, [np.asarray(v).tolist() for v in found.variables]


def predicted(name: str) -> Callable[[Path], Any]:
    return lambda folder: np.asarray(
        exburn.predict(folder / name, np.ones((2, 4), "float32"))
    ).tolist()


def bundle(folder: Path, value: int) -> None:
    model(value).export(folder / "app", format="mobile", formats=("onnx",))


def read_bundle(folder: Path) -> Any:
    verify(folder / "app")
    data = (folder / "app" / "model.onnx").read_bytes()
    return data, (folder / "app" / "golden.safetensors").read_bytes()


def sweep(folder: Path, value: int) -> None:
    lane = LaneRecord({"rate": 0.1}, {"loss": [2.0, value]}, 2, "finished", score=value)
    SweepResult([lane], None, "loss", "min").save(folder / "sweep.json")


def read_sweep(folder: Path) -> Any:
    found = SweepResult.load(folder / "sweep.json")
    return [r.get_config() for r in found.records], found.monitor, found.mode


def swept(folder: Path) -> Any:
    """A sweep that takes up the checkpoint in the folder, and has nothing left to do.

    Data, model and options are always the same.
    """
    fit = {"epochs": 1, "batch_size": 16, "validation_split": 0.25, "verbose": 0}
    over = {"over": {"seed": [0, 1]}, "checkpoint": folder / "sweep"}
    found = tuning.sweep(make_model(), X, Y, **fit, **over)
    return [r.get_config() for r in found.records], weights(found.best_model())


def checkpoint(folder: Path, value: int) -> None:
    with CheckpointDirectory(folder / "checkpoints") as directory:
        directory.write({"w": np.full(3, value)}, {"note": value}, step=value)


def read_checkpoint(folder: Path) -> Any:
    directory = CheckpointDirectory(folder / "checkpoints")
    found = [directory.read(one) for one in directory._folders()]
    newest = max(found, key=lambda one: one.checkpoint.serial)
    return newest.arrays["w"].tolist(), newest.run, newest.checkpoint.step


def run(folder: Path, value: int) -> None:
    if (folder / "run").exists():
        made = RunDirectory.go_on(folder / "run")
    else:
        made = RunDirectory.create(folder / "run", {"id": "a"}, {"device": "cpu"})
    made.metrics.add({"kind": "epoch", "epoch": 0, "logs": {"loss": float(value)}})
    made.close()


def read_run(folder: Path) -> Any:
    found = runs.read(folder / "run")
    if found.damaged:
        raise exburn.errors.FileFormatError("runs", "lines are damaged")
    return found.config, found.environment, found.epochs, found.events


def report(folder: Path, value: int) -> None:
    if not (folder / "run").exists():
        run(folder, 1)
    runs.write_report(folder / "run", folder / f"report-{value}.html")
    os.replace(folder / f"report-{value}.html", folder / "report.html")


@functools.cache
def bert() -> Any:
    """A model of a folder of Hugging Face's, which is read once."""
    with tempfile.TemporaryDirectory() as folder:
        tensors = hub_files.arrays(hub_files.bert_shapes())
        hub_files.write(Path(folder, "source"), hub_files.BERT, tensors)
        return BERT.from_pretrained(Path(folder, "source"))


def pretrained(folder: Path, value: int, size: Any = "5GB") -> None:
    made = bert()
    made.set_weights([np.full(w.shape, value) for w in made.get_weights()])
    made.save_pretrained(folder / "bert", max_shard_size=size)


def read_pretrained(folder: Path) -> Any:
    return weights(BERT.from_pretrained(folder / "bert"))


@functools.cache
def writer_of_texts() -> Any:
    """A decoder with all files that there may be, none of which the encoder has."""
    ends = {"end_tokens": [3], "do_sample": True, "temperature": 0.5}
    sizes = {"vocabulary_size": 8, "layers": 1, "width": 8, "heads": 2, "positions": 4}
    made = GPT2(**sizes, generation=ends)
    made.tokenizer = Tokenizer(json.dumps({"model": {"type": "WordLevel"}}))
    return made


def of_two_kinds(folder: Path, value: int, size: Any = "5GB") -> None:
    """An encoder takes the place of a decoder, beside a file of the user's."""
    made = {1: writer_of_texts(), 2: bert()}[value]
    made.save_pretrained(folder / "model", max_shard_size=size)
    if value == 1:
        (folder / "model" / "README.md").write_text("mine")


def read_of_two_kinds(folder: Path) -> Any:
    made = from_pretrained(folder / "model")
    told = made.tokenizer and made.tokenizer.to_json()
    config = made.generation.get_config() if isinstance(made, GPT2) else None
    mine = (folder / "model" / "README.md").read_text()
    return type(made).__name__, weights(made), told, config, mine


def tokenizer(folder: Path, value: int) -> None:
    vocabulary = {"[UNK]": 0, "a" * value: 1}
    text = json.dumps({"model": {"type": "WordLevel", "vocab": vocabulary}})
    Tokenizer(text).save(folder / "tokenizer.json")


def tokens(folder: Path, value: int) -> None:
    documents = [Document(np.arange(1, 2 + value * n)) for n in range(9)]
    token_store.store(folder / "x.tokens", documents, least=1)


def read_tokens(folder: Path) -> Any:
    arrays = token_store.open_tokens(folder / "x.tokens")
    return [v[:].tolist() for v in arrays]


def edited(folder: Path, value: int) -> None:
    import h5py

    source = folder.parent / "source.weights.h5"
    with h5py.File(source, "w") as file:
        file["layers/dense/vars/0"] = np.full(3, value)
    saving.KerasFileEditor(source).save(folder / "e.weights.h5")


def read_edited(folder: Path) -> Any:
    with saving.read_weights(folder / "e.weights.h5") as found:
        return {name: array.tolist() for name, array in found.items()}


def picture(folder: Path, value: int) -> None:
    save_img(folder / "x.png", np.full((2, 2, 3), 100 * value), scale=False)


def read_parameters(folder: Path) -> Any:
    return weights(exburn.import_params(model(), folder / "w.json"))


@functools.cache
def inputs_of_predictions() -> Path:
    """A folder with a model and rows for it, which the command reads."""
    folder = Path(tempfile.mkdtemp())
    model(1).save(folder / "m.keras")
    for value in range(4):
        (folder / f"{value}.csv").write_text(f"a,b,c,d\n{value},0,0,0\n")
    return folder


def predictions(folder: Path, value: int) -> None:
    given = inputs_of_predictions()
    rows = str(given / f"{value}.csv")
    out = str(folder / "out.npy")
    main(["predict", str(given / "m.keras"), rows, "-o", out, "--force"])


WRITERS = {
    "model": Writer(
        lambda f, v: model(v).save(f / "m.exburn"),
        lambda f: weights(exburn.load_model(f / "m.exburn")),
    ),
    "model in parts": Writer(
        lambda f, v: model(v).save(f / "m.exburn", max_shard_size="32B"),
        lambda f: weights(exburn.load_model(f / "m.exburn")),
    ),
    "weights": Writer(
        lambda f, v: model(v).save_weights(f / "w.safetensors"), read_weights
    ),
    "weights in parts": Writer(
        lambda f, v: model(v).save_weights(f / "w.safetensors", max_shard_size="32B"),
        read_weights,
    ),
    "adapters": Writer(
        lambda f, v: adapted(v).save_lora(f / "lora.safetensors"), read_adapters
    ),
    "archive": Writer(archive, read_archive),
    "stablehlo": Writer(
        lambda f, v: model(v).export(f / "m.stablehlo"), predicted("m.stablehlo")
    ),
    "onnx": Writer(
        lambda f, v: model(v).export(f / "m.onnx"), predicted("m.onnx"), sealed=False
    ),
    "bundle": Writer(bundle, read_bundle, slow=True),
    "sweep": Writer(sweep, read_sweep),
    "sweep's checkpoint": Writer(
        lambda f, v: swept(f), swept, slow=True, native=True, adds=True
    ),
    "checkpoint": Writer(checkpoint, read_checkpoint, slow=True, native=True),
    "run": Writer(run, read_run, adds=True),
    "report": Writer(
        report, lambda f: (f / "report.html").read_text()[-8:], sealed=False
    ),
    "pretrained": Writer(pretrained, read_pretrained, sealed=False, slow=True),
    "pretrained in parts": Writer(
        lambda f, v: pretrained(f, v, "2KB"), read_pretrained, sealed=False, slow=True
    ),
    "pretrained of two kinds": Writer(
        of_two_kinds, read_of_two_kinds, sealed=False, slow=True
    ),
    "pretrained of two kinds in parts": Writer(
        lambda f, v: of_two_kinds(f, v, "2KB"),
        read_of_two_kinds,
        sealed=False,
        slow=True,
    ),
    "tokenizer": Writer(
        tokenizer,
        lambda f: Tokenizer.load(f / "tokenizer.json", lazy=True).to_json(),
        sealed=False,
    ),
    "tokens": Writer(tokens, read_tokens),
    "edited": Writer(edited, read_edited, sealed=False),
    "predictions": Writer(
        predictions, lambda folder: np.load(folder / "out.npy").tolist(), sealed=False
    ),
    "picture": Writer(
        picture, lambda f: np.asarray(load_img(f / "x.png")).tolist(), sealed=False
    ),
    "graph": Writer(
        lambda f, v: plot_model(model(v), f / "m.dot"),
        lambda f: (f / "m.dot").read_text()[-2:],
        sealed=False,
    ),
    "parameters in tensors": Writer(
        lambda f, v: exburn.export_params(model(v), f / "w.safetensors"),
        lambda f: weights(exburn.import_params(model(), f / "w.safetensors")),
    ),
    "parameters": Writer(
        lambda f, v: exburn.export_params(model(v), f / "w.json"),
        read_parameters,
        sealed=False,
    ),
}


def files_of(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size)


def outcome_of_flip(name: str, seed: int) -> str | None:
    """What is wrong after one flipped bit, of those that a writer wrote.

    Returns:
        ``None`` if it is a typed error, or the same content.
    """
    writer, rng = WRITERS[name], random.Random(seed)
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base, "folder")
        folder.mkdir()
        writer.write(folder, 1)
        return flip(writer, folder, rng)


def flip(writer: Writer, folder: Path, rng: random.Random) -> str | None:
    """Flips one bit in a copy of a folder, and says what is wrong afterwards."""
    good = writer.read(folder)
    with tempfile.TemporaryDirectory() as base:
        copy = Path(shutil.copytree(folder, Path(base, folder.name), symlinks=True))
        path = rng.choice(files_of(copy))
        data = bytearray(path.read_bytes())
        at, bit = rng.randrange(len(data)), rng.randrange(8)
        data[at] ^= 1 << bit
        path.write_bytes(data)
        where = f"{path.relative_to(copy)}, byte {at}, bit {bit}"
        try:
            content = writer.read(copy)
        except ExBurnError:
            return None
        except Exception as error:
            return f"raw {type(error).__name__} of {where}: {error}"
        return None if content == good else f"other content of {where}"
