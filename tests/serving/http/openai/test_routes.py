"""OpenAI's client, unmodified, over a real socket."""

import asyncio
import json
import socket
import time

import httpx
import numpy as np
import openai
import pytest
from tests.serving.http.openai.conftest import KEY

import exburn
from exburn.serving import Server, TextStream

CHAT = {"model": "gpt", "messages": [{"role": "user", "content": "A class"}]}
GREEDY = {"temperature": 0, "max_tokens": 12}


def chat_of(writer, count, **options):
    return writer.chat(CHAT["messages"], count, **options)


def test_models_are_listed(client):
    (model,) = client.models.list()
    assert (model.id, model.object, model.owned_by) == ("gpt", "model", "exburn")
    assert client.models.retrieve("gpt") == model
    for name in ("other", "gpt:none", "gpt:"):
        if name == "gpt:":
            continue
        with pytest.raises(openai.NotFoundError) as raised:
            client.models.retrieve(name)
        assert raised.value.code == "model_not_found"


def test_a_chat_is_that_of_the_model(client, writer):
    answer = client.chat.completions.create(**CHAT, **GREEDY)
    (choice,) = answer.choices
    assert choice.message.content == chat_of(writer, 12)
    assert choice.message.role == "assistant" and choice.finish_reason == "length"
    assert answer.object == "chat.completion" and answer.model == "gpt"
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == 12 + answer.usage.prompt_tokens
    again = client.chat.completions.create(**CHAT, **GREEDY)
    assert again.choices == answer.choices
    assert again.usage.prompt_tokens_details.cached_tokens == 16  # a page


def test_a_chat_comes_in_chunks(client, writer):
    options = {"stream": True, "stream_options": {"include_usage": True}, "n": 2}
    chunks = list(client.chat.completions.create(**CHAT, **GREEDY, **options))
    texts = ["", ""]
    for chunk in chunks[:-1]:
        (choice,) = chunk.choices
        texts[choice.index] += choice.delta.content or ""
        assert chunk.usage is None and chunk.object == "chat.completion.chunk"
    assert texts == [chat_of(writer, 12)] * 2
    roles = [c.choices[0].delta.role for c in chunks[:-1] if c.choices[0].delta.role]
    assert roles == ["assistant"] * 2
    ends = [c.choices[0].finish_reason for c in chunks[:-1]]
    assert [end for end in ends if end] == ["length"] * 2
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 24
    assert len({chunk.id for chunk in chunks}) == 1


def test_texts_go_on(client, writer):
    answer = client.completions.create(model="gpt", prompt="A class", **GREEDY)
    (choice,) = answer.choices
    assert choice.text == writer.generate("A class", 12)
    assert answer.object == "text_completion"
    prompts = ["A class", "methods"]
    numbers = [writer.tokenizer.encode(prompt).tolist() for prompt in prompts]
    for prompt in (prompts, numbers):
        several = client.completions.create(model="gpt", prompt=prompt, n=2, **GREEDY)
        texts = [choice.text for choice in several.choices]
        expected = [writer.generate(prompt, 12) for prompt in prompts]
        assert texts == [text for text in expected for _ in range(2)]
        assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
        assert several.usage.prompt_tokens == sum(map(len, numbers))
    stream = client.completions.create(
        model="gpt", prompt="A class", stream=True, **GREEDY
    )
    assert "".join(chunk.choices[0].text for chunk in stream) == choice.text
    assert client.completions.create(model="gpt", prompt="A").usage.completion_tokens


def test_seeds_and_samplers_are_those_of_generate(client, writer):
    drawn = {"temperature": 0.9, "top_p": 0.8, "seed": 3, "max_tokens": 10}
    ask = client.completions.create
    first = ask(model="gpt", prompt="A class", n=2, **drawn).choices
    assert first == ask(model="gpt", prompt="A class", n=2, **drawn).choices
    assert first[0].text != first[1].text
    (alone,) = ask(model="gpt", prompt="A class", **{**drawn, "seed": 4}).choices
    assert alone.text == first[1].text  # the second row's own seed
    sampler = exburn.text.TopP(0.8, temperature=0.9)
    assert first[0].text == writer.generate("A class", 10, sampler=sampler, seed=3)
    extra = {"top_k": 1, "min_p": 0.1, "repetition_penalty": 1.2}
    (choice,) = ask(
        model="gpt", prompt="A class", max_tokens=6, extra_body=extra
    ).choices
    sampler = exburn.text.Greedy(repetition_penalty=1.2)
    assert choice.text == writer.generate("A class", 6, sampler=sampler)


def test_stops_are_texts(client, writer):
    text = writer.generate("A class", 24)
    stop = text[5:8]
    for stream in (False, True):
        answer = client.completions.create(
            model="gpt",
            prompt="A class",
            temperature=0,
            max_tokens=24,
            stop=[stop, "never"],
            stream=stream,
        )
        parts = list(answer) if stream else [answer]
        out = "".join(part.choices[0].text for part in parts)
        assert out == text[: text.index(stop)]
        assert parts[-1].choices[0].finish_reason == "stop"


def test_logarithms_are_told_beside_their_tokens(client):
    asked = {"logprobs": True, "top_logprobs": 3}
    answer = client.chat.completions.create(**CHAT, **GREEDY, **asked)
    (choice,) = answer.choices
    tokens = choice.logprobs.content
    data = b"".join(bytes(token.bytes) for token in tokens)
    assert data.decode("utf-8", "replace") == choice.message.content
    for token in tokens:
        tops = [top.logprob for top in token.top_logprobs]
        assert len(tops) == 3 and tops == sorted(tops, reverse=True)
        assert token.logprob == pytest.approx(tops[0]) and token.logprob <= 0
    chunks = list(
        client.chat.completions.create(**CHAT, **GREEDY, **asked, stream=True)
    )
    told = [c.choices[0].logprobs for c in chunks if c.choices[0].logprobs]
    assert [t.token for part in told for t in part.content] == [t.token for t in tokens]
    answer = client.completions.create(model="gpt", prompt="A", logprobs=2, **GREEDY)
    logprobs = answer.choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.text_offset) == 12
    assert logprobs.text_offset[0] == 0 and len(logprobs.top_logprobs[0]) == 2
    assert logprobs.token_logprobs[0] == max(logprobs.top_logprobs[0].values())


def test_answers_have_the_form_that_is_asked_for(client):
    pytest.importorskip("llguidance")
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [1, 2]}, "b": {"type": "boolean"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    described = {"name": "pair", "schema": schema, "strict": True}
    asked = {"response_format": {"type": "json_schema", "json_schema": described}}
    for stream in (False, True):
        answer = client.chat.completions.create(
            **CHAT, **asked, max_tokens=200, seed=1, stream=stream
        )
        if stream:
            text = "".join(chunk.choices[0].delta.content or "" for chunk in answer)
        else:
            text = answer.choices[0].message.content
            assert answer.choices[0].finish_reason == "stop"
        value = json.loads(text)
        assert value["a"] in (1, 2) and isinstance(value["b"], bool)
    for bad in ({"type": "nothing"}, {"type": "object", "unevaluatedItems": 1}):
        described["schema"] = bad
        with pytest.raises(openai.BadRequestError) as raised:
            client.chat.completions.create(**CHAT, **asked)
        assert raised.value.param == "response_format"


def tool(name, **properties):
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


ADD = tool("add", a={"enum": [1, 2]}, b={"$ref": "#/$defs/bit"})
ADD["function"]["parameters"]["$defs"] = {"bit": {"type": "boolean"}}
TOOLS = [ADD, tool("now")]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", [None, "add", "now"])
def test_a_call_comes_where_it_must(client, name, stream):
    pytest.importorskip("llguidance")
    choice = "required"
    if name is not None:
        choice = {"type": "function", "function": {"name": name}}
    options = {"tools": TOOLS, "tool_choice": choice, "n": 4, "seed": 3}
    answer = client.chat.completions.create(
        **CHAT, **options, max_tokens=200, stream=stream
    )
    names = set()
    if stream:
        chunks = [chunk.choices[0] for chunk in answer]
        assert not any(one.delta.content for one in chunks)
        called = [one for one in chunks if one.delta.tool_calls]
        calls = [one.delta.tool_calls for one in called]
        assert sorted(one.index for one in called) == [0, 1, 2, 3]
        reasons = [one.finish_reason for one in chunks if one.finish_reason]
    else:
        assert not any(one.message.content for one in answer.choices)
        calls = [one.message.tool_calls for one in answer.choices]
        reasons = [one.finish_reason for one in answer.choices]
    assert reasons == ["tool_calls"] * 4
    for (call,) in calls:
        names.add(call.function.name)
        value = json.loads(call.function.arguments)
        if call.function.name == "add":
            assert value["a"] in (1, 2) and isinstance(value["b"], bool)
        else:
            assert value == {}
    assert names <= {"add", "now"} if name is None else names == {name}


def test_no_call_comes_where_it_must_not_and_cut_ones_are_text(client, writer):
    answer = client.chat.completions.create(
        **CHAT, **GREEDY, tools=TOOLS, tool_choice="none"
    )
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].message.content == chat_of(writer, 12)
    pytest.importorskip("llguidance")
    options = {"tools": TOOLS, "max_tokens": 3, "tool_choice": "required"}
    (choice,) = client.chat.completions.create(**CHAT, **options).choices
    assert choice.finish_reason == "length" and choice.message.tool_calls is None
    assert '{"name": "'.startswith(choice.message.content[:10])
    bad = tool("bad", a={"type": "nothing"})
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(**CHAT, tools=[bad], tool_choice="required")
    assert raised.value.param == "tool_choice"


def test_coroutines_ask_side_by_side(server, writer):
    async def run():
        options = {"base_url": f"{server.url}/v1", "api_key": KEY}
        async with openai.AsyncOpenAI(**options, max_retries=0) as client:

            async def ask(count):
                stream = await client.chat.completions.create(
                    **CHAT, temperature=0, max_tokens=count, stream=True
                )
                parts = [chunk.choices[0].delta.content async for chunk in stream]
                return "".join(part or "" for part in parts)

            return await asyncio.gather(*map(ask, range(4, 20)))

    texts = asyncio.run(run())
    assert texts == [chat_of(writer, count) for count in range(4, 20)]


ERRORS = [
    ({"model": "none"}, openai.NotFoundError, "model_not_found"),
    ({"model": "gpt:none"}, openai.NotFoundError, "model_not_found"),
    ({"messages": []}, openai.BadRequestError, None),
    ({"n": 129}, openai.BadRequestError, None),
    ({"max_tokens": 4000}, openai.BadRequestError, "context_length_exceeded"),
    (
        {"messages": [{"role": "user", "content": "class " * 4000}]},
        openai.BadRequestError,
        "context_length_exceeded",
    ),
    ({"frequency_penalty": 1.0}, openai.BadRequestError, "unsupported_parameter"),
    ({"extra_body": {"best": 1}}, openai.BadRequestError, "unknown_parameter"),
    ({"user": "x" * 200_000}, openai.APIStatusError, None),
]


@pytest.mark.parametrize(("change", "error", "code"), ERRORS)
def test_errors_have_the_clients_form(client, change, error, code):
    with pytest.raises(error) as raised:
        client.chat.completions.create(**{**CHAT, **change})
    body = raised.value.body
    assert set(body) == {"message", "type", "param", "code"} and body["code"] == code
    assert len(body["message"]) <= 1000
    assert body["param"] in (None, *change, *change.get("extra_body", ()))
    if code == "context_length_exceeded":
        assert body["param"] is not None
    if "user" in change:
        assert raised.value.status_code == 413


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"prompt": "class " * 4000}, "context_length_exceeded"),
        ({"prompt": ""}, None),
        ({"prompt": [10**6]}, None),
    ],
)
def test_a_prompt_that_does_not_fit_is_named(client, change, code):
    with pytest.raises(openai.BadRequestError) as raised:
        client.completions.create(model="gpt", **change)
    assert (raised.value.param, raised.value.code) == ("prompt", code)


def test_a_key_is_needed(server):
    options = {"base_url": f"{server.url}/v1", "max_retries": 0}
    with openai.OpenAI(api_key="another key of 20", **options) as client:
        with pytest.raises(openai.AuthenticationError) as raised:
            client.models.list()
    assert raised.value.code == "invalid_api_key"


RAW = [
    (b"{", 400),
    (b'{"model": "\xff"}', 400),
    (b'{"model": "\\ud800", "prompt": "a"}', 400),
    (b'{"model": "gpt", "prompt": "\\ud800"}', 400),
    (b"[" * 5000, 400),
    (b'{"model": "gpt", "prompt": ' + b"[" * 900 + b"]" * 900 + b"}", 400),
    (b'{"model": "gpt", "prompt": "a", "stop": {"a": [1]}}', 400),
    (b'{"model": "gpt", "prompt": [999999]}', 400),
    (b'{"model": "gpt", "prompt": ""}', 400),
    (b"null", 400),
    (b"", 400),
]


@pytest.mark.parametrize(("body", "status"), RAW)
def test_bodies_of_any_kind_are_refused_in_one_form(server, body, status):
    headers = {"authorization": f"Bearer {KEY}"}
    answer = httpx.post(f"{server.url}/v1/completions", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_deep_schemas_are_refused(client):
    schema = {"type": "object"}
    for _ in range(300):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    asked = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    try:
        answer = client.chat.completions.create(
            **CHAT, max_tokens=3, response_format=asked
        )
        assert answer.choices[0].finish_reason == "length"
    except openai.BadRequestError as error:
        assert error.param == "response_format"


def wait_until_idle(texts, seconds=10):
    until = time.monotonic() + seconds
    while (statistics := texts.engine.statistics()).active or statistics.queue:
        assert time.monotonic() < until, statistics
        time.sleep(0.01)
    return statistics


def send(server, **options):
    """A connection on which a chat in chunks has been asked for."""
    body = json.dumps({**CHAT, "stream": True, "temperature": 0, **options}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.sendall(head.encode() + body)
    return connection


def test_who_leaves_frees_slots_at_once(server, texts, client):
    wait_until_idle(texts)
    before = texts.engine.statistics()
    connections = [send(server, n=4, max_tokens=400) for _ in range(4)]
    for connection in connections[:2]:
        assert connection.recv(20).startswith(b"HTTP/1.1 200")
    for connection in connections:  # midway, and while it waits
        connection.close()
    statistics = wait_until_idle(texts)
    assert statistics.ended["cancelled"] >= before.ended["cancelled"] + 12
    assert statistics.pages_free == statistics.pages
    assert client.completions.create(model="gpt", prompt="A", max_tokens=2).choices


def test_slow_readers_hold_up_nobody(server, texts, client):
    slow = [send(server, n=8, max_tokens=480, logprobs=True) for _ in range(2)]
    began = time.monotonic()
    answer = client.completions.create(model="gpt", prompt="A class", **GREEDY)
    assert answer.usage.completion_tokens == 12 and time.monotonic() - began < 60
    wait_until_idle(texts, 60)  # written to the end, though nobody has read
    for connection in slow:
        connection.close()


def test_too_many_get_429_and_when_to_try_again(client):
    with pytest.raises(openai.RateLimitError) as raised:
        client.chat.completions.create(**CHAT, n=128, max_tokens=400)
    assert raised.value.response.headers["retry-after"] == "1"
    assert raised.value.code == "rate_limit_exceeded"
    answer = client.completions.create(model="gpt", prompt="A", **GREEDY)
    assert answer.usage.completion_tokens == 12


def test_metrics_tell_of_tokens(server, client):
    client.completions.create(model="gpt", prompt="A class", **GREEDY)
    headers = {"authorization": f"Bearer {KEY}"}
    text = httpx.get(f"{server.url}/metrics", headers=headers).text
    labels = 'model="gpt",version="1"'
    for name in (
        "exburn_text_tokens_total",
        "exburn_text_first_token_seconds_count",
        "exburn_text_token_seconds_count",
        "exburn_text_slots",
        "exburn_text_running",
        "exburn_text_queue",
        "exburn_text_pages",
        "exburn_text_pages_free",
    ):
        assert f"{name}{{{labels}}}" in text, name
    assert f"exburn_text_slots{{{labels}}} 4.0" in text


def test_a_model_that_fails_is_not_the_callers_fault(writer):
    texts = TextStream(writer, slots=2)
    with Server({"gpt": texts}, port=0) as server:
        options = {"base_url": f"{server.url}/v1", "api_key": KEY, "max_retries": 0}
        with openai.OpenAI(**options) as client:
            texts.close()
            with pytest.raises(openai.InternalServerError) as raised:
                client.chat.completions.create(**CHAT)
    assert raised.value.status_code == 503


def test_adapters_are_models_of_their_own(writer):
    model = writer.clone()
    model.tokenizer = writer.tokenizer
    expected = {"gpt": model.generate("A class", 12)}
    for number, name in enumerate(("poems", "code")):
        exburn.set_random_seed(number)
        model.add_lora(rank=2, name=name)
        rng = np.random.default_rng(number)
        for weight in model.weights:
            if weight.path.endswith("lora_b") and weight.trainable:
                weight.assign(0.5 * rng.standard_normal(weight.shape))
        expected[f"gpt:{name}"] = model.generate("A class", 12)
    model.set_adapter(None)
    assert len(set(expected.values())) == 3
    with TextStream(model, slots=4) as texts:
        with Server({"gpt": texts}, port=0) as server:
            options = {"base_url": f"{server.url}/v1", "api_key": KEY}

            async def run():
                async with openai.AsyncOpenAI(**options) as client:
                    models = [model.id async for model in client.models.list()]
                    asked = (
                        client.completions.create(model=n, prompt="A class", **GREEDY)
                        for n in models
                    )
                    answers = await asyncio.gather(*asked)  # in one batch
                    return {a.model: a.choices[0].text for a in answers}

            assert asyncio.run(run()) == expected
