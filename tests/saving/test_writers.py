"""Every writer: a kill or a full disk at each step, and flipped bits."""

import ast
import errno
import random
import re
import shutil
from pathlib import Path

import pytest
from tests.saving.faults import crashing
from tests.saving.writers import WRITERS, flip

import exburn
from exburn.errors import ExBurnError, ModelFormatError

FLIPS = 40  # of each format; python -m tests.fuzz --kind flips has more
STEPS = 12  # at most, of a writer whose cases take long


def written(name, folder, value=1):
    pytest.importorskip("onnxruntime")
    folder.mkdir(exist_ok=True)
    WRITERS[name].write(folder, value)
    return WRITERS[name].read(folder)


SEALED = [name for name, writer in WRITERS.items() if writer.sealed]
REACHED = [n for n, writer in WRITERS.items() if not (writer.native or writer.adds)]


@pytest.mark.parametrize("name", SEALED)
def test_a_flipped_bit_is_an_error_or_changes_nothing(name, tmp_path):
    written(name, tmp_path / "a")
    rng = random.Random(0)
    count = FLIPS // 4 if WRITERS[name].slow else FLIPS
    wrong = [flip(WRITERS[name], tmp_path / "a", rng) for _ in range(count)]
    assert [text for text in wrong if text] == []


@pytest.mark.parametrize("kind", ["kill", "full"])
@pytest.mark.parametrize("name", REACHED)
def test_the_old_or_the_new_is_there_at_each_step(name, kind, tmp_path):
    writer, old = WRITERS[name], written(name, tmp_path / "old")
    shutil.copytree(tmp_path / "old", tmp_path / "count" / "old")
    with crashing(None) as faults:
        writer.write(tmp_path / "count" / "old", 2)
    new = writer.read(tmp_path / "count" / "old")
    total = len(faults.done)
    assert total >= 3, faults.done
    step = max(total // STEPS, 1)
    for at in range(0, total, step):
        work = tmp_path / f"work{at}" / "old"
        shutil.copytree(tmp_path / "old", work)
        error = None
        with crashing(at, None if kind == "kill" else errno.ENOSPC) as faults:
            try:
                writer.write(work, 2)
            except faults.killed:
                pass
            except Exception as failure:
                error = failure
        place = f"{faults.done[at]} {at} of {total}"
        assert error is None or isinstance(error, ExBurnError), (place, error)
        content = writer.read(work)
        assert content in (old, new), place
        shutil.rmtree(work.parent)


# Functions that write, and what of the table writes by them; or why none does.
ELSEWHERE = {
    "callbacks/csv_logger.py": "rows are added to a file of the user's",
    "callbacks/pictures.py": "a picture of its own for each epoch",
    "exburn/command_line/demo.py": "a folder of the demonstration's",
    "exburn/visualization/galleries.py": "a picture",
    "datasets/contract/download.py": "a part, which is renamed when its digest fits",
    "exburn/utils/files.py": "a part, which is renamed when its digest fits",
    "exburn/utils/images.py": "picture",
    "exburn/utils/drawing.py": "graph",
    "exburn/models/pickling.py": "a temporary folder",
    "exburn/saving/own_storage.py": "a temporary folder",
    "exburn/saving/checkpoint/writers.py": "what processes tell each other",
    "exburn/saving/checkpoint/manifest.py": "checkpoint",
    "exburn/saving/checkpoint/directory.py": "checkpoint",
    "exburn/saving/checkpoint/arrays.py": "checkpoint",
    "exburn/saving/file_editor.py": "edited",
    "exburn/saving/foreign_safetensors.py": "pretrained in parts",
    "exburn/saving/shards.py": "model in parts",
    "exburn/applications/pretrained.py": "pretrained",
    "exburn/command_line/predict.py": "predictions",
    "exburn/models/elixir.py": "parameters",
    "exburn/text/gguf_tokenizer.py": "a temporary folder",
    "exburn/text/token_store.py": "tokens",
    "exburn/text/tokenizer.py": "tokenizer",
    "exburn/tuning/result.py": "sweep",
    "exburn/tuning/checkpoint.py": "sweep's checkpoint",
    "exburn/runs/report.py": "report",
    "exburn/runs/directory.py": "run",
    "exburn/runs/json_lines.py": "run",
    "exburn/runtime/files/atomic.py": "all of them",
    "exburn/runtime/files/together.py": "pretrained",
    "exburn/export/exporting.py": "stablehlo",
    "exburn/export/archive.py": "archive",
    "exburn/export/stablehlo.py": "stablehlo",
    "exburn/export/onnx/__init__.py": "onnx",
    "exburn/export/mobile/__init__.py": "bundle",
    "exburn/export/rows.py": "a temporary folder",
    "exburn/export/converter.py": "a temporary folder",
    "exburn/export/diagnosis.py": "a temporary folder",
    "exburn/export/litert/conversion.py": "a temporary folder",
    "exburn/export/core_ml/conversion.py": "a temporary folder",
    "exburn/export/litert/__init__.py": "a temporary folder, moved into a staged one",
    "exburn/export/job.py": "a temporary folder",
    "exburn/export/core_ml/__init__.py": "a temporary folder, moved into a staged one",
    "exburn/visualization/diagram.py": "bytes, which plot_model writes",
}
_CALLS = {"write_atomically", "staging", "staged", "Staged", "savez", "savefig"}
_METHODS = {"write_text", "write_bytes"}
_HINT = "|".join(rf"\b{name}\(" for name in (*_CALLS, *_METHODS, "open", "fdopen"))


def _writes(node):
    """Tells whether a call writes a file."""
    name = getattr(node.func, "id", getattr(node.func, "attr", ""))
    if name in _CALLS or name in _METHODS:
        return True
    if name not in ("open", "fdopen"):
        return False
    texts = [a.value for a in node.args if isinstance(a, ast.Constant)]
    modes = [t for t in texts if isinstance(t, str) and t in ("w", "wb", "a", "ab")]
    flags = "O_WRONLY" in ast.dump(node) or "O_RDWR" in ast.dump(node)
    return bool(modes or flags)


def test_no_writer_is_left_out():
    root = Path(exburn.__file__).resolve().parents[1]
    found = set()
    for folder in ("exburn", "layers", "optimizers", "callbacks", "datasets"):
        for path in (root / folder).rglob("*.py"):
            text = path.read_text("utf-8")
            if not re.search(_HINT, text):  # parsing all takes long
                continue
            tree = ast.parse(text)
            calls = (n for n in ast.walk(tree) if isinstance(n, ast.Call))
            if any(map(_writes, calls)):
                found.add(path.relative_to(root).as_posix())
    assert found <= {*ELSEWHERE}, found - {*ELSEWHERE}
    named = {*ELSEWHERE.values()} & {*WRITERS}
    assert named >= {"checkpoint", "archive", "sweep", "run", "model in parts"}


def test_a_header_that_has_lost_its_digest_is_no_model(tmp_path):
    model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
    path = tmp_path / "model.exburn"
    model.save(path)
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b'"digest"', b'"digesu"', 1))
    with pytest.raises(ModelFormatError):
        exburn.saving.load_model(path)
