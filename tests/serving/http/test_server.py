import asyncio
import shutil
import ssl
import subprocess
import threading
import time

import httpx
import numpy as np
import pytest
from tests.serving.http.conftest import FAST, Client, tensor

import exburn
from exburn import layers
from exburn.errors import ArgumentError, BusyError, UnknownNameError
from exburn.serving import Server


def test_it_answers_over_a_network(model, mlp, rows):
    x = rows(5)
    body = {"inputs": [tensor("x", x)]}
    with Server({"m": mlp}, port=0) as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert repr(server) == f"<Server of m, at {server.url}>"
        with pytest.raises(BusyError, match="serving already"):
            server.start()
        with pytest.raises(ArgumentError, match="port=0 takes a free one"):
            Server({"m": mlp}, port=server.port).start()
        with httpx.Client(base_url=server.url) as client:
            for _ in range(3):
                answer = client.post("/v2/models/m/infer", json=body)
                data = np.reshape(answer.json()["outputs"][0]["data"], (5, 2))
                np.testing.assert_allclose(data, model.predict(x, verbose=0), atol=1e-6)
            parts = (part.encode() for part in ('{"inputs', '": 1}'))
            chunked = client.post("/v2/models/m/infer", content=parts)
            assert chunked.status_code == 400
            assert client.get("/v2/health/ready").status_code == 200
    assert repr(server) == "<Server of m, not running>"
    with pytest.raises(ArgumentError, match="was closed"):
        server.start()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate")
def test_it_speaks_https(mlp, tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = "openssl req -x509 -nodes -newkey rsa:2048 -subj /CN=localhost -days 1"
    command = [*command.split(), "-keyout", key, "-out", certificate]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1"], check=True)
    files = {"ssl_certfile": certificate, "ssl_keyfile": key}
    with Server({"m": mlp}, port=0, **files) as server:
        context = ssl.create_default_context(cafile=certificate)
        assert server.url.startswith("https://")
        answer = httpx.get(f"{server.url}/v2/models/m/ready", verify=context)
        assert answer.json()["ready"]


def test_models_come_from_files_and_in_versions(model, tmp_path, rows):
    model.save(tmp_path / "model.exburn")
    models = {"m": {"a": tmp_path / "model.exburn", "b": lambda x: 2 * x}}
    options = {**FAST, "example": np.zeros((1, 3), np.float32)}
    server = Server(models, **options)
    assert server.models == {"m": ["a", "b"]}
    client, x = Client(server.asgi()), rows(1)
    answers = [client.infer(x, "m", path).json() for path in ("", "/versions/a")]
    assert [a["model_version"] for a in answers] == ["b", "a"]
    np.testing.assert_allclose(answers[0]["outputs"][0]["data"], 2 * x[0])
    expected = model.predict(x, verbose=0)[0]
    np.testing.assert_allclose(answers[1]["outputs"][0]["data"], expected, atol=1e-6)
    server.unload("m", version="b")
    assert client.infer(x, "m").json()["model_version"] == "a"
    server.close()


@pytest.mark.parametrize(
    ("models", "options", "message"),
    [
        ({"m": {}}, {}, "'m' has no version"),
        (None, {}, "dict"),
        ([1], {}, "dict"),
        ({"a/b": lambda x: x}, {"example": np.zeros((1, 2))}, "letters"),
        ({"m": 7}, {}, "function is needed"),
        ({"m": "none.exburn"}, {}, "none.exburn"),
        ({"m": None}, {"max_body": "much"}, "max_body"),
        ({"m": None}, {"max_rows": 0}, "max_rows"),
        ({"m": None}, {"timeout": "soon"}, "timeout"),
        ({"m": None}, {"timeout": 5000}, "in seconds"),
        ({"m": None}, {"api_keys": ["short"]}, "16 ASCII"),
        ({"m": None}, {"rate": 0}, "rate"),
        ({"m": None}, {"max_memory": -1}, "max_memory"),
    ],
)
def test_wrong_options_are_errors_at_once(models, options, message):
    with pytest.raises((ArgumentError, TypeError, OSError), match=message):
        Server(models, **options)


def test_a_server_without_a_model_is_not_ready_until_it_has_one(mlp, rows):
    server = Server({})
    client = Client(server.asgi())
    for _ in range(2):
        assert client("GET", "/v2/health/live").status_code == 200
        answer = client("GET", "/v2/health/ready")
        assert (answer.status_code, answer.json()) == (503, {"ready": False})
        assert client("GET", "/v2").json()["models"] == []
        assert client("GET", "/openapi.json").status_code == 200
        assert "exburn_http_ready 0.0" in client("GET", "/metrics").text
        assert client.infer(rows(1), "m").status_code == 404
        server.load("m", mlp)
        assert client("GET", "/v2/health/ready").status_code == 200
        assert client.infer(rows(1), "m").status_code == 200
        server.unload("m")
    server.close()


def test_a_misspelled_option_is_named():
    with pytest.raises(UnknownNameError, match="'max_rows'"):
        Server({"m": None}, max_row=3)


def test_run_needs_a_thread_without_a_loop(mlp):
    async def run():
        Server({"m": mlp}, port=0).run()

    with pytest.raises(ArgumentError, match=r"server.start\(\)"):
        asyncio.run(run())


def scores(answer):
    return tuple(answer.json()["outputs"][0]["data"])


def constant(value):
    x = exburn.Input((3,), name="x")
    weights = {"kernel_initializer": "zeros", "bias_initializer": value}
    dense = layers.Dense(1, name="y", **weights)
    return exburn.Model(x, dense(x))


def test_models_are_replaced_under_load_without_a_lost_request(rows):
    values = [float(i) for i in range(4)]
    initializers = [exburn.initializers.Constant(v) for v in values]
    server = Server({"m": constant(initializers[0])}, port=0, **FAST).start()
    answers, stop = [], threading.Event()

    def ask():
        with httpx.Client(base_url=server.url) as client:
            while not stop.is_set():
                body = {"inputs": [tensor("x", rows(3))]}
                answer = client.post("/v2/models/m/infer", json=body)
                answers.append((answer.status_code, scores(answer)))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for initializer in initializers[1:]:
        before, until = len(answers), time.monotonic() + 30
        while len(answers) < before + 4 and time.monotonic() < until:
            time.sleep(0.001)  # all clients ask: they may take longer to begin
        server.load("m", constant(initializer))
    stop.set()
    for thread in threads:
        thread.join()
    last = Client(server.asgi()).infer(rows(1), "m")
    server.close()
    assert {status for status, _ in answers} == {200} and len(answers) > 10
    assert {each for _, each in answers} <= {(v,) * 3 for v in values}
    assert scores(last) == (3.0,)


def test_the_hosts_lifespan_sends_canaries_and_closes_the_models(model):
    server = Server({"m": model}, batch_size=1)
    entry = server._registry.get("m")

    async def run():
        messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
        sent, ready = [], []

        async def receive():
            if len(messages) == 1:
                ready.append(server._health.all_ready())
            return messages.pop(0)

        async def send(message):
            sent.append(message["type"])

        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        await server.asgi()(scope, receive, send)
        return sent, ready

    sent, ready = asyncio.run(run())
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert ready == [True]
    assert entry.serving.closed and not server._health.all_ready()
