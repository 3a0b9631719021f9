"""Texts over HTTP, from the model to the events of a client."""

import json

import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("starlette")
from tests.serving.http.conftest import Client

import exburn
from exburn.applications import GPT2
from exburn.errors import ArgumentError
from exburn.serving import Server, TextStream
from exburn.text import Tokenizer

PATH = "/v2/models/gpt/generate_stream"


@pytest.fixture(scope="module")
def model():
    exburn.set_random_seed(0)
    model = GPT2(270, layers=1, width=16, heads=2, positions=64)
    model.set_weights([9 * w if w.ndim > 1 else w for w in model.get_weights()])
    model.tokenizer = Tokenizer.train(["A class has methods."] * 9, 270)
    return model


@pytest.mark.long
def test_a_client_gets_the_text_in_events(model):
    expected = model.generate("A class", 20)
    streams = {"gpt": TextStream(model, max_tokens=32, chunk=4), "plain": model}
    client = Client(Server(streams, port=0).asgi())
    body = {"text_input": "A class", "parameters": {"max_tokens": 20}}
    answer = client("POST", PATH, json=body)
    assert answer.status_code == 200, answer.text
    parts = [
        json.loads(line.removeprefix("data: "))["text_output"]
        for line in answer.text.splitlines()
        if line.startswith("data: ")
    ]
    assert "".join(parts) == expected and len(parts) > 2
    told = {"temperature": 0.8, "top_p": 0.9, "seed": 3, "max_tokens": 5}
    for bad in (
        {"text_input": 3},
        {"text_input": ""},
        {"text_input": "A", "more": 1},
        {"text_input": "A", "parameters": {"max_tokens": 33}},
        {"text_input": "A", "parameters": {"top_p": 2}},
        {"text_input": "A", "parameters": {"stop": 3}},
        {"text_input": "A", "parameters": {"heat": 2}},
        {"text_input": "A", "parameters": told | {"min_p": 3}},
        {"text_input": "A class has methods." * 9},
    ):
        assert client("POST", PATH, json=bad).status_code == 400, bad
    body = {"text_input": "A class", "parameters": {"max_tokens": 20}}
    assert client("POST", PATH.replace("gpt", "plain"), json=body).status_code == 200
    body = {"text_input": "A", "parameters": told}
    texts = {client("POST", PATH, json=body).text for _ in range(2)}
    assert len(texts) == 1
    counts = model._run.value.trainer.preparer.trace_counts
    assert counts["prefill"] == counts["generate"] == 2  # by hand, and for all requests


def test_a_model_without_a_tokenizer_is_refused():
    model = GPT2(9, layers=1, width=8, heads=2, positions=8)
    with pytest.raises(ArgumentError, match="needs a tokenizer"):
        TextStream(model)
