import json
import re

import numpy as np
import pytest
from tests.checkout import ROOT
from tests.serving.http.conftest import FAST, Client, tensor

import exburn
from exburn import Serving, layers
from exburn.serving import Server
from exburn.serving.http.routes import Routes

TABLE = Routes(*(6 * [None])).table


def test_docs_have_the_same_table():
    text = (ROOT / "docs" / "server.md").read_text("utf-8")
    listed = re.findall(r"^\| `([A-Z]+) (/\S*)` \| (.+) \|$", text, re.MULTILINE)
    links = re.compile(r"\[(.*?)\]\(.*?\)")
    rows = {
        (method, path, links.sub(r"\1", sentence)) for method, path, sentence in listed
    }
    assert rows == {
        (row.method, row.path, row.text[0].lower() + row.text[1:].rstrip("."))
        for row in TABLE
    }


def test_every_row_is_routed_described_and_open_as_it_says(model):
    server = Server({"m": model}, port=0, api_keys=["k" * 16], **FAST)
    client = Client(server.asgi())
    headers = {"x-api-key": "k" * 16}
    paths = client("GET", "/openapi.json", headers=headers).json()["paths"]
    for row in TABLE:
        for path in row.paths:
            path = path.replace("{model}", "m").replace("{version}", "1")
            refused = client(row.method, path).status_code == 401
            assert refused != row.is_open, path
            other = "GET" if row.method == "POST" else "POST"
            assert client(other, path, headers=headers).status_code == 405, path
            described = row.is_listed and row.models not in ("stream", "text")
            assert (row.method.lower() in paths.get(path, {})) == described, path
    server.close()


def test_the_protocols_examples_hold(client):
    """Those of the specification, for this model."""
    assert client("GET", "/v2/health/live").json() == {"live": True}
    assert client("GET", "/v2/health/ready").json() == {"ready": True}
    server = client("GET", "/v2").json()
    assert server["name"] == "exburn" and "binary_tensor_data" in server["extensions"]
    assert client("GET", "/v2/models/mlp").json() == {
        "name": "mlp",
        "versions": ["1"],
        "platform": "exburn_jax",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
        "outputs": [{"name": "scores", "datatype": "FP32", "shape": [-1, 2]}],
    }
    for path in ("", "/versions/1"):
        ready = client("GET", f"/v2/models/mlp{path}/ready")
        assert ready.json() == {"name": "mlp", "ready": True}
        assert client("GET", f"/v2/models/mlp{path}").json()["name"] == "mlp"


@pytest.mark.parametrize("count", [1, 7, 50])
def test_answers_are_those_of_predict(client, model, rows, count):
    x = rows(count)
    expected = model.predict(x, verbose=0)
    for path in ("", "/versions/1"):
        answer = client.infer(x, path=path, id="seven")
        assert answer.status_code == 200
        message = answer.json()
        (scores,) = message.pop("outputs")
        assert message == {"model_name": "mlp", "model_version": "1", "id": "seven"}
        assert (scores["shape"], scores["datatype"]) == ([count, 2], "FP32")
        data = np.array(scores["data"], np.float32).reshape(count, 2)
        np.testing.assert_allclose(data, expected, atol=1e-6)


def test_several_tensors_go_by_name(client):
    ids, flags = [[1, 2], [3, 9]], [[True], [False]]
    body = {
        "inputs": [tensor("ids", ids, "INT32"), tensor("flags", flags, "BOOL")],
        "outputs": [{"name": "not"}],
    }
    answer = client("POST", "/v2/models/several/infer", json=body).json()
    assert answer["outputs"] == [
        {"name": "not", "datatype": "BOOL", "shape": [2, 1], "data": [False, True]}
    ]
    body["inputs"][0]["data"] = [1, 2, 3, 10]  # beyond the table
    refused = client("POST", "/v2/models/several/infer", json=body)
    assert refused.status_code == 400 and "10" in refused.json()["error"]
    body["inputs"][0].update(data=[1, 2], shape=[1, 2])
    assert client("POST", "/v2/models/several/infer", json=body).status_code == 400


def test_binary_tensors_go_both_ways(client, model, rows):
    x = rows(4)
    entry = tensor("x", x, parameters={"binary_data_size": x.nbytes})
    del entry["data"]
    message = {"inputs": [entry], "parameters": {"binary_data_output": True}}
    text = json.dumps(message).encode()
    answer = client(
        "POST",
        "/v2/models/mlp/infer",
        content=text + x.tobytes(),
        headers={"Inference-Header-Content-Length": str(len(text))},
    )
    assert answer.headers["content-type"] == "application/octet-stream"
    length = int(answer.headers["inference-header-content-length"])
    (output,) = json.loads(answer.content[:length])["outputs"]
    assert output["parameters"] == {"binary_data_size": 32}
    data = np.frombuffer(answer.content[length:], np.float32).reshape(4, 2)
    np.testing.assert_allclose(data, model.predict(x, verbose=0), atol=1e-6)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/models/none", 404),
        ("GET", "/v2/models/mlp/versions/2", 404),
        ("GET", "/v2/models/mlp/versions/2/ready", 404),
        ("POST", "/v2/models/none/infer", 404),
        ("POST", "/v2/models/mlp/versions/2/infer", 404),
        ("POST", "/v2/models/..%2F..%2Fetc%2Fpasswd/infer", 404),
        ("POST", "/v2/models/mlp.exburn/infer", 404),
        ("POST", "/v2/repository/models/mlp/load", 404),
        ("GET", "/v2/models/mlp/infer", 405),
        ("POST", "/v2", 405),
        ("GET", "/v2/", 404),
        ("GET", "/nothing", 404),
    ],
)
def test_what_is_not_there(client, method, path, status):
    answer = client(method, path)
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}


def test_limits_are_those_of_the_server(client, rows):
    assert client.infer(rows(51)).status_code == 413
    long = client("POST", "/v2/models/mlp/infer", content=b" " * 64_001)
    assert long.status_code == 413


def test_a_full_queue_a_deadline_and_a_failure_have_their_status(gate):
    options = {"example": np.zeros((1, 1), np.float32), "batch_size": 1}
    with Serving(gate, batch_timeout=0, max_queue=1, **options) as serving:
        client = Client(Server({"gate": serving}, timeout="100 ms").asgi())
        gate.block(serving)
        held = serving.submit(gate.row(1.0))
        full = client.infer([[2.0]], "gate")
        assert full.status_code == 429 and full.headers["retry-after"] == "1"
        held.cancel()
        assert client.infer([[2.0]], "gate").status_code == 504
        gate.open.set()
        gate.held.result(10)
        failed = client.infer([[-1.0]], "gate")
        assert failed.status_code == 500 and "poison" not in failed.text
        serving.close()
        assert client.infer([[2.0]], "gate").status_code == 503
        assert client("GET", "/v2/models/gate/ready").status_code == 503
        assert client("GET", "/v2/health/ready").status_code == 503


def test_metrics_and_descriptions_are_there(client):
    text = client("GET", "/metrics")
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "exburn_http_requests_total" in text.text
    assert client("GET", "/openapi.json").json()["openapi"] == "3.1.0"


def test_a_bad_id_names_its_input_and_nothing_of_the_model():
    """Also where the inputs are sorted otherwise than their names are told."""
    zeta, alpha = (exburn.Input((2,), dtype="int32", name=n) for n in ("zeta", "alpha"))
    large, small = layers.Embedding(10, 2, name="secret"), layers.Embedding(5, 2)
    y = layers.Add()([large(zeta), small(alpha)])
    model = exburn.Model({"zeta": zeta, "alpha": alpha}, y)
    server = Server({"m": model}, **FAST)
    client = Client(server.asgi())
    for name, most in (("zeta", 9), ("alpha", 4)):
        for bad in (most + 1, -1):
            ids = {"zeta": [[0, 1]], "alpha": [[0, 1]], name: [[0, bad]]}
            inputs = [tensor(n, x, "INT32") for n, x in ids.items()]
            answer = client("POST", "/v2/models/m/infer", json={"inputs": inputs})
            assert answer.status_code == 400
            assert answer.json()["error"] == (
                f"the ids in input {name!r} must be whole numbers from 0 to {most}\n"
                f"  first bad value: {bad} at row 0, position (0, 1)\n"
                "  bad values: 1 of 2"
            )
    server.close()
