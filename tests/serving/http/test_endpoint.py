import numpy as np
import pytest
from tests.serving.http.conftest import FAST, Client, tensor

import exburn
from exburn import Serving
from exburn.errors import ArgumentError, DTypeError
from exburn.serving import Endpoint, Server
from exburn.serving.http.images import Images


def generate(request):
    yield "a"


class Generator:
    stream = staticmethod(generate)


class Both(Generator):
    def __call__(self, x):
        return 2 * x


def test_what_generates_is_found(mlp):
    assert Endpoint(stream=generate).stream is generate
    assert Endpoint(stream=Generator()).stream is generate
    alone, both = Endpoint.of(Generator()), Endpoint.of(Both())
    assert alone.model is None and alone.stream is generate
    assert both.model is not None and both.stream is generate
    assert Endpoint.of(mlp).stream is None  # a Serving's stream is another thing
    assert Endpoint.of(alone) is alone
    assert alone.of_model(mlp).model is mlp and alone.of_model(mlp).stream is generate


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"model": len, "inputs": {"x": ("FLOAT", (-1,))}},
        {"model": len, "inputs": {"x": ("FP32", (2, 3))}},
        {"model": len, "inputs": {"x": ("FP32", ())}},
        {"model": len, "inputs": {"x": ("FP32", (-1, "3"))}},
    ],
)
def test_what_cannot_be_served_is_an_error(options):
    with pytest.raises(ArgumentError):
        Endpoint(**options)
    with pytest.raises(DTypeError, match="generates"):
        Endpoint(len, stream=7)


def test_images_are_of_inputs_that_can_be_some(mlp):
    for images, message in (
        ({"y": Images()}, "'y'"),
        ({"x": Images()}, "is no image"),
        (True, "no input that is an image"),
    ):
        with pytest.raises((ArgumentError, ValueError), match=message):
            Server({"m": Endpoint(mlp, images=images)})


def test_a_preprocessing_says_what_it_takes(model):
    def split(texts):
        rows = [[float(v) for v in text.split(",")] for text in texts]
        return np.array(rows, np.float32), len(texts)

    def join(output, rows):
        return {"count": np.full(rows, rows), "text": np.array(["a"] * rows)}

    options = {"preprocessing": split, "postprocessing": join, "batch_timeout": 0}
    with Serving(model, **options, **FAST) as serving:
        with pytest.raises(ArgumentError, match="BYTES"):
            Server({"m": serving})
        endpoint = Endpoint(serving, inputs={"csv": ("BYTES", (-1,))})
        client = Client(Server({"m": endpoint}).asgi())
        message = {"inputs": [tensor("csv", ["1,2,3", "4,5,6"], "BYTES")]}
        answer = client("POST", "/v2/models/m/infer", json=message).json()
        assert [o["data"] for o in answer["outputs"]] == [[2, 2], ["a", "a"]]
        message = {"inputs": [tensor("csv", ["1,2,x"], "BYTES")]}
        assert client("POST", "/v2/models/m/infer", json=message).status_code == 500


def test_an_endpoint_may_be_of_a_file(model, tmp_path, rows):
    model.save(tmp_path / "m.exburn")
    endpoint = Endpoint(tmp_path / "m.exburn", stream=generate)
    server = Server({"m": endpoint}, **FAST)
    client = Client(server.asgi())
    assert client.infer(rows(1), "m").status_code == 200
    events = client("POST", "/v2/models/m/generate_stream", json={}).text
    assert '"text_output":"a"' in events
    server.close()
    assert exburn.serving.Endpoint is Endpoint
