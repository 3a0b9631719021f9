"""Folders of other libraries: read, used, and written again byte by byte."""

import json
import os
import subprocess
import sys
import textwrap

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.applications import hub_files
from tests.saving import torch_files

from exburn import applications, load_model, predict
from exburn.applications import BERT, GPT2, ViT, from_pretrained
from exburn.errors import (
    ArgumentError,
    DataError,
    FileFormatError,
    MissingDependencyError,
    MissingFileError,
    UnknownNameError,
)
from exburn.saving import pretrained_folder, read_weights
from exburn.text import Tokenizer

FILES = ("model.safetensors", "config.json")
IDS = np.array([[2, 5, 9, 3, 0], [2, 7, 3, 0, 0]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tensors = hub_files.arrays(hub_files.bert_shapes())
    tensors["embeddings.position_ids"] = np.arange(12)[None]
    return hub_files.write(tmp_path_factory.mktemp("bert"), hub_files.BERT, tensors)


@pytest.fixture(scope="module")
def model(folder):
    return BERT.from_pretrained(folder)


def same_files(one, two, names=FILES):
    for name in names:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name


def test_a_folder_is_written_as_it_was_read(folder, model, tmp_path):
    file = model.save_pretrained(tmp_path / "new")
    assert file == tmp_path / "new" / "model.safetensors"
    same_files(folder, tmp_path / "new")


def test_a_network_under_another_name_is_written_as_it_was_read(tmp_path):
    model = ViT(**SMALL, classes=3)
    model.save_pretrained(tmp_path, style="timm")
    config = json.loads((tmp_path / "config.json").read_text())
    config["architecture"] = (
        "vit_tiny_patch16_224"  # with sizes of its own all the same
    )
    hub_files.write_json(tmp_path / "config.json", config)
    tensors = load_file(tmp_path / FILES[0])
    save_file(tensors, tmp_path / FILES[0])  # without metadata, as timm does
    ViT.from_pretrained(tmp_path).save_pretrained(tmp_path / "again")
    same_files(tmp_path, tmp_path / "again")


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16])
def test_halves_stay_halves(dtype, tmp_path):
    tensors = hub_files.arrays(hub_files.bert_shapes())
    tensors = {name: a.astype(dtype) for name, a in tensors.items()}
    there = hub_files.write(tmp_path / "there", hub_files.BERT, tensors)
    model = BERT.from_pretrained(there)
    assert model.weights[0].dtype == np.dtype(dtype)
    model.save_pretrained(tmp_path / "here")
    same_files(there, tmp_path / "here")
    full = BERT.from_pretrained(there, dtype="float32")
    assert full.weights[0].dtype == np.float32
    full.save_pretrained(tmp_path / "full")
    same_files(there, tmp_path / "full")


def test_changed_numbers_are_not_rounded(tmp_path):
    tensors = hub_files.arrays(hub_files.bert_shapes())
    tensors = {name: a.astype(ml_dtypes.bfloat16) for name, a in tensors.items()}
    config = hub_files.BERT | {"torch_dtype": "bfloat16"}
    there = hub_files.write(tmp_path / "there", config, tensors)
    model = BERT.from_pretrained(there, dtype="float32")
    model.save_pretrained(tmp_path / "same")
    same_files(there, tmp_path / "same")
    for weight in model.weights:
        weight.assign(np.asarray(weight) + 1e-5)
    model.save_pretrained(tmp_path / "new")
    about = json.loads((tmp_path / "new" / "config.json").read_text())
    assert about["torch_dtype"] == "float32"
    again = BERT.from_pretrained(tmp_path / "new")
    for one, two in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_new_top_has_the_names_that_its_class_has(folder, tmp_path):
    BERT.from_pretrained(folder, classes=3).save_pretrained(tmp_path)
    names = list(read_weights(tmp_path / "model.safetensors"))
    assert {name.partition(".")[0] for name in names} == {"bert", "classifier"}


def test_several_files_with_an_index(folder, model, tmp_path):
    index = model.save_pretrained(tmp_path / "parts", max_shard_size="8KB")
    assert index.name == "model.safetensors.index.json"
    about = json.loads(index.read_text())
    names = sorted(set(about["weight_map"].values()))
    assert len(names) > 1
    assert names[0] == f"model-00001-of-{len(names):05d}.safetensors"
    assert not (tmp_path / "parts" / "model.safetensors").exists()
    again = BERT.from_pretrained(tmp_path / "parts")
    for one, two in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)
    again.save_pretrained(tmp_path / "parts")  # one file takes their place
    same_files(folder, tmp_path / "parts")
    assert len(os.listdir(tmp_path / "parts")) == 2


def test_a_folder_of_pytorch_alone(folder, model, tmp_path):
    tensors = hub_files.arrays(hub_files.bert_shapes())
    made = {
        n: torch_files.tensor(a, str(i)) for i, (n, a) in enumerate(tensors.items())
    }
    (tmp_path / "config.json").write_text(json.dumps(hub_files.BERT))
    names = list(made)
    parts = {"pytorch_model-1.bin": names[:9], "pytorch_model-2.bin": names[9:]}
    for file, some in parts.items():
        data = torch_files.zipped({name: made[name] for name in some})
        (tmp_path / file).write_bytes(data)
    index = {"weight_map": {n: file for file, some in parts.items() for n in some}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    again = BERT.from_pretrained(tmp_path)
    for one, two in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_model_of_a_folder_is_like_any_other(model, tmp_path):
    x = {"input_ids": IDS, "attention_mask": (IDS != 0).astype(int)}
    expected = np.asarray(model(x))
    model.save(tmp_path / "model.exburn")
    again = load_model(tmp_path / "model.exburn")
    assert type(again) is BERT
    np.testing.assert_allclose(np.asarray(again(x)), expected, atol=1e-6)
    again.save_pretrained(tmp_path / "folder")
    third = applications.from_pretrained(tmp_path / "folder")
    np.testing.assert_allclose(np.asarray(third(x)), expected, atol=1e-6)


def test_a_new_top_on_old_layers(folder, tmp_path):
    model = BERT.from_pretrained(folder, classes=3)
    assert model.output_shape == (None, 3)
    model.freeze("block_*")
    model.compile("adam", "cross_entropy")
    x = {"input_ids": IDS, "attention_mask": (IDS != 0).astype(int)}
    x["token_type_ids"] = np.zeros_like(IDS)
    model.fit(x, np.array([0, 2]), verbose=0)
    model.save_pretrained(tmp_path / "new")
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["pad_token_id"] == 0  # of the folder that it comes from
    again = applications.from_pretrained(tmp_path / "new")
    np.testing.assert_allclose(again.predict(x), model.predict(x), atol=1e-6)
    with pytest.raises(FileFormatError, match="predictions/kernel"):
        ViT(**SMALL, weights=_vit(tmp_path), classes=7)
    assert ViT.from_pretrained(_vit(tmp_path), classes=7).output_shape == (None, 7)


SMALL = {"input_shape": (8, 8, 3), "patch_size": 4, "layers": 2, "width": 16}
SMALL |= {"heads": 2, "mlp_width": 24}


def _vit(folder):
    tensors = hub_files.arrays(hub_files.vit_shapes())
    return hub_files.write(folder / "vit", hub_files.VIT, tensors)


def test_what_is_wrong_is_told(folder, tmp_path, monkeypatch):
    with pytest.raises(MissingFileError, match="no file or folder"):
        BERT.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(ArgumentError, match="is a file"):
        BERT.from_pretrained(folder / "model.safetensors")
    with pytest.raises(ArgumentError, match="is a file"):
        applications.from_pretrained(folder / "config.json")
    with pytest.raises(FileFormatError, match=r"does not hold a ViT\n.*\n.*bert"):
        ViT.from_pretrained(folder)
    with pytest.raises(MissingFileError, match=r"has no config\.json"):
        BERT.from_pretrained(tmp_path)
    config = tmp_path / "config.json"
    for text, error, match in (
        ("{", FileFormatError, "JSON"),
        ("[]", FileFormatError, "object"),
        ('{"model_type": "mamba"}', FileFormatError, "no known family"),
        ('{"model_type": "bert"}', MissingFileError, "no weights"),
        ('{"model_type": "bert", "model_type": 3}', FileFormatError, "twice"),
    ):
        config.write_text(text)
        with pytest.raises(error, match=match):
            applications.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(
        (folder / "model.safetensors").read_bytes()
    )
    for key, value, match in (
        ("hidden_size", "16", "must be a whole number"),
        ("hidden_size", 32, "hidden_size: 32, in the file 16"),
        ("num_hidden_layers", 3, "num_hidden_layers: 3, in the file 2"),
        ("num_hidden_layers", 1, "num_hidden_layers: 1, in the file 2"),
        ("num_attention_heads", 3, "describes no BERT: 3 heads do not divide 16"),
        ("hidden_act", "laplace", "hidden_act"),
        ("embedding_size", 8, "nothing is known of: 'embedding_size'"),
        ("architectures", ["BertForTokenClassification"], "'architectures'"),
    ):
        config.write_text(json.dumps(hub_files.BERT | {key: value}))
        with pytest.raises(FileFormatError, match=match):
            applications.from_pretrained(tmp_path)
    with pytest.raises(UnknownNameError, match="style"):
        BERT.from_pretrained(folder).save_pretrained(tmp_path, style="timm")
    adapted = BERT.from_pretrained(folder)
    adapted.add_lora(rank=2)
    with pytest.raises(ArgumentError, match=r"lora_a.*\n.*merge=True"):
        adapted.save_pretrained(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingDependencyError, match=r"exburn\[hub\]"):
        BERT.from_pretrained("user/model")


def test_which_file_of_a_folder(tmp_path):
    for name in ("b.safetensors", "a.safetensors"):
        (tmp_path / name).touch()
    with pytest.raises(ArgumentError, match=r"a\.safetensors, b\.safetensors"):
        pretrained_folder.find_weights(tmp_path, "op")
    (tmp_path / "b.safetensors").unlink()
    assert pretrained_folder.find_weights(tmp_path, "op").name == "a.safetensors"


def test_weights_of_applications_come_from_folders_too(tmp_path, monkeypatch):
    options = {"input_shape": (32, 32, 3), "alpha": 0.35, "classes": 10}
    model = applications.MobileNetV2(**options, weights=None)
    model.save_weights(tmp_path / "model.safetensors")
    again = applications.MobileNetV2(**options, weights=tmp_path)
    for one, two in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)
    monkeypatch.setattr(pretrained_folder, "_download", lambda name, op: tmp_path)
    applications.MobileNetV2(**options, weights="user/mobilenet")
    with pytest.raises(FileFormatError, match="another model"):
        applications.VGG16(weights=str(tmp_path), input_shape=(32, 32, 3), classes=10)


def test_families_go_out_as_onnx(tmp_path):
    pytest.importorskip("onnxruntime")
    sizes = {"vocabulary_size": 50, "layers": 1, "width": 16, "heads": 2}
    text = BERT(**sizes, mlp_width=32, positions=16, pooling="mean")
    ids = np.array([[1, 2, 3], [4, 5, 6]], "int32")
    x = {"input_ids": ids, "attention_mask": ids % 2, "token_type_ids": 0 * ids}
    lite = applications.EfficientNetLite(width=0.25, depth=0.3, size=32, classes=3)
    images = np.random.default_rng(0).normal(size=(2, 32, 32, 3)).astype("float32")
    vit = ViT(**SMALL | {"input_shape": (8, 8, 3)}, include_top=False)
    for name, model, samples in (
        ("bert", text, x),
        ("lite", lite, images),
        ("vit", vit, images[:, :8, :8]),
    ):
        report = model.export(tmp_path / f"{name}.onnx", samples=samples, verbose=0)
        assert report.error < 1e-4
        found = predict(tmp_path / f"{name}.onnx", samples)
        expected = model.predict(samples, verbose=0)
        np.testing.assert_allclose(np.asarray(found), expected, atol=1e-5)


HUB = """
import http.server, json, os, sys, threading
from pathlib import Path

folder = Path(sys.argv[1])
SHA = "0" * 40


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, body):
        path = self.path.partition("?")[0]
        files = sorted(os.listdir(folder))
        if path.startswith("/api/models/user/tiny/tree"):
            found = [
                {"type": "file", "path": n, "size": (folder / n).stat().st_size,
                 "oid": n} for n in files
            ]
            return self.send(json.dumps(found).encode(), "application/json", body)
        if path.startswith("/api/models/user/tiny"):
            names = [{"rfilename": n} for n in files]
            about = {"id": "user/tiny", "sha": SHA, "siblings": names}
            return self.send(json.dumps(about).encode(), "application/json", body)
        if path.startswith("/user/tiny/resolve/"):
            file = folder / path.rpartition("/")[2]
            if file.exists():
                return self.send(file.read_bytes(), "application/octet-stream", body)
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def send(self, data, kind, body):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{len(data)}"')
        self.send_header("X-Repo-Commit", SHA)
        self.end_headers()
        if body:
            self.wfile.write(data)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ["HF_ENDPOINT"] = f"http://127.0.0.1:{server.server_port}"
os.environ["HF_HOME"] = sys.argv[2]
os.environ["HF_HUB_DISABLE_XET"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
from exburn import applications
from exburn.errors import DataError

model = applications.from_pretrained("user/tiny")
print(type(model).__name__, model.count_params())
try:
    applications.from_pretrained("user/other")
except DataError as error:
    print("DataError", error.details["cause"].split(":")[0])
"""


def test_a_name_on_a_hub(folder, model, tmp_path):
    pytest.importorskip("huggingface_hub")
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(HUB))
    done = subprocess.run(
        [sys.executable, script, folder, tmp_path / "home"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines[0] == f"BERT {model.count_params()}"
    assert lines[1].startswith("DataError")


def test_a_hub_that_cannot_be_reached(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")

    def refuse(*_, **__):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(hub, "snapshot_download", refuse)
    with pytest.raises(DataError, match="no route to host"):
        BERT.from_pretrained("user/model")


@pytest.mark.parametrize(
    "name",
    [
        "//host/share",
        "\\\\host\\share",
        "http://host/user/model",
        "file:///etc/passwd",
        "user/model@../../refs",
        "user/model@a/../b",
        "../user",
        "user/..",
        "user/model/more",
    ],
)
def test_what_is_no_name_is_not_asked_for(name, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub, "snapshot_download", pytest.fail)
    with pytest.raises(MissingFileError, match="no file or folder"):
        BERT.from_pretrained(name)


PEAK = """
import resource, sys
import numpy as np
from exburn.applications import BERT

BERT.from_pretrained(sys.argv[2])


def status(name):
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith(name))
    return int(line.split()[1]) * 1024


before = status("VmRSS")
model = BERT.from_pretrained(sys.argv[1])
print(status("VmHWM") - before, model.count_params() * 4)
"""


def test_the_memory_is_hardly_more_than_that_of_the_weights(folder, tmp_path):
    # The table of tokens is most of it, as in small language models.
    sizes = {"vocabulary_size": 60000, "layers": 4, "width": 512, "heads": 2}
    BERT(**sizes, mlp_width=2048, positions=12).save_pretrained(tmp_path / "large")
    script = tmp_path / "script.py"
    script.write_text(PEAK)
    done = subprocess.run(
        [sys.executable, script, tmp_path / "large", folder],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    used, weights = map(int, done.stdout.split())
    assert used <= 1.2 * weights, (used, weights)


TOKENIZER = '{"model": {"type": "WordLevel"}}'


def test_what_another_model_has_left_goes_and_all_else_stays(tmp_path):
    decoder = GPT2(8, 1, 8, 2, positions=4, generation={"end_tokens": [3]})
    decoder.tokenizer = Tokenizer(TOKENIZER)
    decoder.save_pretrained(tmp_path, max_shard_size="1KB")
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "config.json").write_text("{}")
    shards = [path.name for path in tmp_path.glob("*-of-*")]
    assert len(shards) > 1
    encoder = BERT(9, 1, 8, 2, 8, positions=4)
    encoder.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        *FILES,
        *("README.md", "notes"),
    }
    assert type(from_pretrained(tmp_path)) is BERT
    assert from_pretrained(tmp_path).tokenizer is None


def test_files_of_the_same_model_stay_but_for_what_it_says_of_writing(tmp_path):
    decoder = GPT2(8, 1, 8, 2, positions=4, generation={"end_tokens": [3]})
    decoder.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(TOKENIZER)  # a user put it there
    GPT2(8, 1, 8, 2, positions=4).save_pretrained(tmp_path)
    assert from_pretrained(tmp_path).generation.end_tokens is None
    assert from_pretrained(tmp_path).tokenizer.to_json() == TOKENIZER
