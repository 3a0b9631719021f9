"""Texts over HTTP, from the model to the events of a client."""

import dataclasses
import json

import numpy as np
import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("starlette")
from tests.models.generation.texts import KINDS, Player
from tests.serving.http.conftest import Client

import exburn
from exburn.applications import GPT2
from exburn.errors import ArgumentError, DataError, ServingClosedError
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
    size = len(model.tokenizer.encode("A class"))
    for told in ({"max_length": size + 3}, {"max_new_tokens": 3}):
        model._set_generation(told)
        text = "".join(streams["gpt"].stream({"text_input": "A class"}))
        asked = {"text_input": "A class", "parameters": {"max_tokens": 3}}
        assert text == "".join(streams["gpt"].stream(asked)) != expected
        assert expected.startswith(text)
    model._set_generation(None)


def test_a_server_closes_what_it_made_alone(model):
    with TextStream(model, slots=2) as own:
        server = Server({"own": own, "bare": model}, max_queue=3)
        streams = {entry.name: entry.text for entry in server._registry}
        assert streams["own"] is own
        assert streams["bare"]._most == 3 + streams["bare"].engine.slots
        server.load("bare", model)  # in the place of the first
        server.close()
        assert (own.closed, streams["bare"].closed) == (False, True)
        assert "".join(own.stream({"text_input": "A class"}))
    with pytest.raises(ServingClosedError):
        own.stream({"text_input": "A class"})


def test_a_model_without_a_cache_writes_each_request_by_itself():
    player = Player(KINDS["bytes"])
    player.learn(tokens := player.tokenizer.encode("so it is").tolist())
    with pytest.raises(ArgumentError, match="no cache that slots could be of"):
        TextStream(player.model, slots=2)
    with TextStream(player.model, 16) as texts:
        request = {"text_input": "so", "parameters": {"max_tokens": len(tokens)}}
        assert "".join(texts.stream(request)) == "so it is"
        question = texts.read(request)
        for name, value in (("logprobs", 0), ("adapter", "a"), ("constraint", Form)):
            with pytest.raises(ArgumentError, match=name):
                texts.ask([dataclasses.replace(question, **{name: value})])
        with pytest.raises(DataError, match="from 0 to 299"):
            (row,) = texts.ask(
                [dataclasses.replace(question, tokens=np.array([10**6]))]
            )
            list(row.pieces())


class Form:
    @staticmethod
    def start():
        raise AssertionError


def test_a_model_without_a_tokenizer_is_refused():
    model = GPT2(9, layers=1, width=8, heads=2, positions=8)
    with pytest.raises(ArgumentError, match="needs a tokenizer"):
        TextStream(model)


@pytest.fixture(scope="module")
def client(model):
    server = Server({"gpt": TextStream(model, max_tokens=4, chunk=4)})
    yield Client(server.asgi())
    server.close()


NUMBERS = [-1, 0, 0.5, 2**62, 2**63, 2**64, -(2**63) - 1, 1e308]
OTHERS = [True, float("nan"), float("inf"), "1", "1" * 5000, [1], [[1]], {"a": 1}, []]
TAKEN = {
    "max_tokens": [],
    "temperature": [0, 0.5, 2**62, 2**63, 2**64, 1e308],
    "top_k": [2**62, 2**63],
    "top_p": [0.5],
    "min_p": [0, 0.5],
    "repetition_penalty": [0.5, 2**62, 2**63, 2**64, 1e308],
    "seed": [0, 2**62],
    "stop": ["1", "1" * 5000, []],
    "stream": [True],
}


@pytest.mark.parametrize("name", TAKEN)
def test_whatever_a_parameter_is_it_is_taken_or_refused(client, name):
    for value in (*NUMBERS, *OTHERS):
        parameters = {"max_tokens": 2, name: value}
        body = json.dumps({"text_input": "A class", "parameters": parameters})
        answer = client("POST", PATH, content=body.encode())
        is_taken = any(value is v or value == v is not True for v in TAKEN[name])
        assert answer.status_code == (200 if is_taken else 400), (value, answer.text)
        assert is_taken or len(answer.json()["error"]) <= 1000
        assert "event: error" not in answer.text


@pytest.mark.parametrize(
    "message",
    [
        {"text_input": "a", "parameters": 0},
        {"text_input": "a", "parameters": []},
        {"text_input": "a", "parameters": ""},
        {"text_input": "a", "parameters": {"unknown": 1}},
        {"text_input": "a", "id": 7},
        {"text_input": "a", "unknown": 7},
        {"text_input": 7},
        {"text_input": None},
        {"text_input": "A" * 5000},
        {},
    ],
)
def test_other_messages_are_refused(client, message):
    answer = client("POST", PATH, json=message)
    assert answer.status_code == 400 and len(answer.json()["error"]) <= 1000
