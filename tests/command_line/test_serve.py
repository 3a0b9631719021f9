"""``exburn serve``: its options are the server's, and it serves files until SIGTERM."""

import contextlib
import importlib.util
import inspect
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.command_line.main import main

NEEDED = ("starlette", "uvicorn", "httptools", "orjson", "prometheus_client")
needs_server = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, NEEDED)), reason="pip install exburn[server]"
)
KEY = "k" * 20


@pytest.fixture
def served(monkeypatch):
    """What the command would serve."""
    calls = []

    class Server:
        def __init__(self, models, **options):
            calls.append((models, options))

        def run(self, *, listening):
            calls.append("ran")
            listening("http://127.0.0.1:8000")

    monkeypatch.setattr(exburn.serving, "Server", Server, raising=False)
    return calls


def test_files_are_called_by_their_names(served):
    assert main(["serve", "a/iris.exburn", "mood.keras"]) == 0
    models, options = served[0]
    assert models == {
        "iris": {"1": Path("a/iris.exburn")},
        "mood": {"1": Path("mood.keras")},
    }
    assert options == {"log_level": "INFO"} and served[1] == "ran"


def test_what_is_served_is_told_as_json(served, capsys):
    assert main(["serve", "a/iris.exburn", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "models": {"iris": {"1": "a/iris.exburn"}},
        "pid": os.getpid(),
        "url": "http://127.0.0.1:8000",
    }


def test_names_and_versions(served):
    files = ["old.exburn", "new.exburn", "b.exburn"]
    names = ["--name", "iris:1", "--name", "iris:2", "--name", "mood"]
    assert main(["serve", *files, *names]) == 0
    assert served[0][0] == {
        "iris": {"1": Path("old.exburn"), "2": Path("new.exburn")},
        "mood": {"1": Path("b.exburn")},
    }


def test_options_reach_the_server(served, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n\n{KEY}2\n")
    words = f"--host 0.0.0.0 --port 0 --api-key-file {keys} --max-body 2MB --rate 1.5"
    words += " --timeout 1.5 --drain 5s --max-queue 7 --log-level WARNING --mesh fsdp"
    words += " --max-connections 9 --cors-origins https://a.example"
    words += (
        " --reuse-port --allowed-hosts a.example,*.b.example --allowed-hosts c.example"
    )
    assert main(["serve", "m.exburn", *words.split()]) == 0
    assert served[0][1] == {
        "host": "0.0.0.0",
        "port": 0,
        "api_keys": [KEY, KEY + "2"],
        "max_body": "2MB",
        "rate": 1.5,
        "timeout": 1.5,
        "drain": "5s",
        "max_queue": 7,
        "log_level": "WARNING",
        "mesh": "fsdp",
        "max_connections": 9,
        "reuse_port": True,
        "cors_origins": ["https://a.example"],
        "allowed_hosts": ["a.example", "*.b.example", "c.example"],
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of Hugging Face's form, with an adapter beside it."""
    tokenizers = pytest.importorskip("tokenizers")
    assert tokenizers and needs_server
    from exburn.applications import Decoder
    from exburn.text import CHATML, Tokenizer

    folder = tmp_path_factory.mktemp("models")
    tokenizer = Tokenizer.train(["so it is"] * 9, 270, special=["<|im_end|>"])
    sizes = {"layers": 1, "width": 16, "heads": 2, "key_value_heads": 1}
    sizes |= {"mlp_width": 32, "head_size": 8, "vocabulary_size": 270}
    model = Decoder("qwen3", **sizes)
    model.tokenizer = tokenizer.with_chat_template(CHATML)
    model.save_pretrained(folder / "tiny-1.5")
    model.add_lora(rank=2)
    model.save_adapter(folder / "poems")
    return folder


@needs_server
def test_a_folder_writes_texts(served, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder / "tiny-1.5")
    words = ["--slots", "2", "--cache", "1 MB", "--quantize", "int8"]
    words += ["--adapter", f"poems={folder / 'poems'}", "--max-queue", "7"]
    assert main(["serve", str(folder / "tiny-1.5"), ".", *words, "--name", "a:1",
                 "--name", "a:2"]) == 0  # fmt: skip
    texts = served[0][0]["a"]["1"]
    assert texts.engine.slots == 2 and texts.takes_chats
    assert texts.engine.statistics().queue == 0 and texts._most == 9
    assert texts.adapters == ["poems"] and texts.model.active_adapter is None
    for one in served[0][0]["a"].values():
        one.close()
    served.clear()
    assert main(["serve", ".", "--json"]) == 0
    ((name, versions),) = served[0][0].items()
    assert name == "tiny-1.5"
    versions["1"].close()
    served.clear()
    assert main(["serve", ".", "--batch-timeout", "1 s"]) == 1 and not served
    assert "--batch-timeout is of models that answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a.exburn", "--adapter", "poems"], "--adapter is NAME=FOLDER"),
        (["a.exburn", "--slots", "2"], "a.exburn"),
        (["a.exburn", "b.exburn", "--name", "a"], "once for each file: 1 for 2"),
        (["x/a.exburn", "y/a.exburn"], "two models are called 'a', version '1'"),
        (["a.exburn", "--api-key-file", "EMPTY"], "holds no API key"),
        (["a.exburn", "--api-key-file", "none"], "there is no file"),
        (["a.exburn", "--import", "no_such_module"], "--import no_such_module"),
    ],
)
def test_what_cannot_be_served_is_said(words, said, served, tmp_path, capsys):
    (tmp_path / "empty").write_text("\n \n")
    words = [str(tmp_path / "empty") if word == "EMPTY" else word for word in words]
    assert main(["serve", *words]) == 1
    assert said in capsys.readouterr().err and not served


def test_sigterm_ends_it_while_it_loads(monkeypatch):
    def load(models, **options):
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(exburn.serving, "Server", load, raising=False)
    with pytest.raises(SystemExit) as end:
        main(["serve", "m.exburn"])
    assert end.value.code == 143 and signal.getsignal(signal.SIGTERM) is before


@needs_server
def test_the_help_tells_the_server_s_own_defaults(capsys):
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for name, parameter in inspect.signature(exburn.serving.Server).parameters.items():
        if name in ("models", "serving", "api_keys"):
            continue
        text = re.search(rf"--{name.replace('_', '-')} [^-]*?\(([^)]*)\)", shown)
        assert text, f"{name} is not told"
        if parameter.default not in (None, 0):
            assert str(parameter.default) in text[1], name


def ask(url, x, key=KEY):
    entry = {
        "name": "x",
        "datatype": "FP32",
        "shape": list(x.shape),
        "data": x.tolist(),
    }
    body, headers = json.dumps({"inputs": [entry]}).encode(), {"x-api-key": key}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
        return np.reshape(json.load(answer)["outputs"][0]["data"], (len(x), -1))


@needs_server
def test_it_serves_files_until_sigterm(tmp_path):
    """With a layer of one's own that ``--import`` registers."""
    (tmp_path / "mine.py").write_text(
        "import exburn\n"
        "@exburn.saving.register_keras_serializable('mine')\n"
        "class Twice(exburn.layers.Layer):\n"
        "    def call(self, x):\n"
        "        return 2 * x\n"
    )
    make = f"import sys; sys.path.append({str(tmp_path)!r}); import exburn, mine\n"
    make += "x = exburn.Input((3,), name='x')\n"
    make += f"exburn.Model(x, mine.Twice()(x)).save({str(tmp_path / 'own.exburn')!r})"
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", make], env=environment, check=True)
    model = exburn.Sequential([exburn.Input((3,), name="x"), layers.Dense(2)])
    model.save(tmp_path / "plain.keras")
    (tmp_path / "keys").write_text(KEY)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    words = "serve own.exburn plain.keras --import mine --api-key-file keys --drain 0"
    process = subprocess.Popen(
        [sys.executable, "-m", "exburn", *words.split(), "--port", str(port)],
        env=environment,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    url, until = f"http://127.0.0.1:{port}/v2", time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(urllib.error.URLError):
            urllib.request.urlopen(f"{url}/health/ready").close()
            break
        time.sleep(0.1)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(ask(f"{url}/models/own/infer", x), 2 * x)
    expected = model.predict(x, verbose=0)
    np.testing.assert_allclose(ask(f"{url}/models/plain/infer", x), expected, atol=1e-6)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        ask(f"{url}/models/own/infer", x, key="wrong")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    lines = [json.loads(line) for line in said.splitlines()]
    assert process.returncode == 0
    assert [line["status"] for line in lines if line.get("model")] == [200, 200]
    (first,) = [line for line in lines if "url" in line]
    assert first["message"] == f"Serving own, plain at http://127.0.0.1:{port}"


@needs_server
def test_a_terminal_gets_plain_lines(tmp_path):
    exburn.Sequential([exburn.Input((3,)), layers.Dense(2)]).save(tmp_path / "d.exburn")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "exburn", "serve", "d.exburn", "--port", "0"],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        cwd=tmp_path,
        stderr=theirs,
    )
    os.close(theirs)
    said = ""
    with contextlib.suppress(OSError):  # the other end is closed: the process is over
        while part := os.read(ours, 1000).decode():
            said += part
            if found := re.search(r"Serving d at (http://\S+)\r\n", said):
                if "health" not in said:
                    urllib.request.urlopen(f"{found[1]}/v2/health/live").close()
                else:
                    process.send_signal(signal.SIGINT)
    os.close(ours)
    process.wait(timeout=30)
    lines = said.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d Serving d at http://127.0.0.1:\d+", lines[0])
    assert re.search(r" GET /v2/health/live  200  \d+\.\d ms$", lines[1])
