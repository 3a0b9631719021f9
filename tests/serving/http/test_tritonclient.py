"""Triton's own client, as it is installed, against a server."""

import asyncio

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.serving import Server

triton = pytest.importorskip("tritonclient.http", reason="comes with the tests' others")
KEY = "k" * 20


@pytest.fixture(scope="module")
def words():
    return exburn.Sequential(
        [
            exburn.Input((1,), dtype="string", name="text"),
            layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot"),
            layers.Dense(2, name="y"),
        ]
    )


@pytest.fixture(scope="module")
def server(mlp, several, words):
    models = {"mlp": mlp, "several": several, "words": words}
    with Server(models, port=0, batch_size=2, api_keys=[KEY]) as server:
        yield server


@pytest.fixture(scope="module")
def client(server):
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        yield client


def headers():  # the client writes into them
    return {"x-api-key": KEY}


def tensors(binary, **arrays):
    for name, array in arrays.items():
        datatype = triton.np_to_triton_dtype(array.dtype)
        value = triton.InferInput(name, list(array.shape), datatype)
        value.set_data_from_numpy(array, binary_data=binary)
        yield value


def test_it_finds_what_is_served(client):
    assert client.is_server_live() and client.is_server_ready()
    for version, ready in (("", True), ("1", True), ("2", False)):
        assert client.is_model_ready("mlp", version, headers=headers()) == ready
    assert client.get_server_metadata(headers=headers())["name"] == "exburn"
    metadata = client.get_model_metadata("several", headers=headers())
    assert {t["name"]: t["datatype"] for t in metadata["inputs"]} == {
        "flags": "BOOL",
        "ids": "INT32",
    }


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_arrays_go_both_ways(client, model, rows, binary, compression):
    x = rows(4)
    outputs = [triton.InferRequestedOutput("scores", binary_data=binary)]
    for wanted in (None, outputs):
        result = client.infer(
            "mlp",
            list(tensors(binary, x=x)),
            outputs=wanted,
            request_id="seven",
            timeout=2_000_000,
            headers=headers(),
            request_compression_algorithm=compression,
            response_compression_algorithm=compression,
        )
        expected = model.predict(x, verbose=0)
        np.testing.assert_allclose(result.as_numpy("scores"), expected, atol=1e-6)
        assert result.get_response()["id"] == "seven"


@pytest.mark.parametrize("binary", [True, False])
def test_every_kind_of_tensor_goes(client, words, binary):
    texts = np.array([["a"], ["ä"]], object)
    result = client.infer("words", [*tensors(binary, text=texts)], headers=headers())
    expected = words.predict(np.array([["a"], ["ä"]]), verbose=0)
    np.testing.assert_allclose(result.as_numpy("y"), expected, atol=1e-6)
    ids, flags = np.ones((3, 2), np.int32), np.array([[True], [False], [True]])
    inputs = [*tensors(binary, ids=ids, flags=flags)]
    request = client.async_infer("several", inputs, headers=headers())
    result = request.get_result()
    assert result.as_numpy("not").tolist() == [[False], [True], [False]]
    assert result.as_numpy("both").shape == (3, 4)


def test_its_asynchronous_client_works(server, model, rows):
    aio = pytest.importorskip("tritonclient.http.aio")

    async def run():
        async with aio.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
            x = rows(3)
            inputs = list(tensors(True, x=x))
            asked = [client.infer("mlp", inputs, headers=headers()) for _ in range(8)]
            return x, [r.as_numpy("scores") for r in await asyncio.gather(*asked)]

    x, results = asyncio.run(run())
    for result in results:
        np.testing.assert_allclose(result, model.predict(x, verbose=0), atol=1e-6)


def test_errors_reach_it(client, rows):
    good, bad = [*tensors(True, x=rows(1))], [*tensors(True, x=rows(1)[:, :2])]
    for model, inputs, head, status in (
        ("mlp", bad, headers(), 400),
        ("none", good, headers(), 404),
        ("mlp", good, {}, 401),
    ):
        with pytest.raises(triton.InferenceServerException) as caught:
            client.infer(model, inputs, headers=head)
        assert caught.value.status() == str(status)
