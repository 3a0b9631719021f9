import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("starlette")
from exburn.serving.http.failures import RequestFailure
from exburn.serving.http.openai.requests import read_chat, read_completion

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello."}]}
TEXT = {"model": "m", "prompt": "Hello"}
READ = {"chat": (read_chat, CHAT), "text": (read_completion, TEXT)}
WRONG = [True, -1, 0.5, "1", [1], {"a": 1}, [], {}, 2**70, float("nan"), "x" * 5000]
# Of each entry, which of the wrong values it takes.
TAKEN = {
    "model": ["1", "x" * 5000],
    "n": [],
    "stream": [True],
    "stream_options": [{}],
    "temperature": [0.5, 2**70],
    "top_p": [0.5],
    "top_k": [],
    "min_p": [0.5],
    "repetition_penalty": [0.5, 2**70],
    "stop": ["1", [], "x" * 5000],
    "seed": [],
    "max_tokens": [],
    "frequency_penalty": [],
    "presence_penalty": [],
    "logit_bias": [{}],
    "store": [],
    "service_tier": [],
    "unknown": [],
}
OF_CHATS = {
    "messages": [],
    "max_completion_tokens": [],
    "logprobs": [True],
    "top_logprobs": [],
    "tools": [[]],
    "tool_choice": [],
    "parallel_tool_calls": [True],
    "response_format": [{}],
    "chat_template_kwargs": [{"a": 1}, {}],
    "functions": [],
    "function_call": [],
    "reasoning_effort": [],
    "audio": [],
    "modalities": [],
    "prediction": [],
    "web_search_options": [],
}
OF_TEXTS = {
    "prompt": ["1", [1], "x" * 5000],
    "logprobs": [],
    "echo": [],
    "suffix": [],
    "best_of": [],
}
ENTRIES = [
    *(("chat", name, taken) for name, taken in {**TAKEN, **OF_CHATS}.items()),
    *(("text", name, taken) for name, taken in {**TAKEN, **OF_TEXTS}.items()),
]


@pytest.mark.parametrize(("kind", "name", "taken"), ENTRIES)
def test_whatever_an_entry_is_it_is_taken_or_refused_by_its_name(kind, name, taken):
    read, plain = READ[kind]
    for value in WRONG:
        call = {**plain, name: value}
        if any(type(value) is type(one) and value == one for one in taken):
            read(call)
            continue
        with pytest.raises(RequestFailure) as raised:
            read(call)
        failure = raised.value
        assert failure.status == 400 and len(failure.message) <= 1000
        assert failure.param == name or failure.param.startswith((f"{name}[", name))


STRICT = {"name": "add", "strict": True}
TOOL = {"type": "function", "function": {"name": "add"}}
NOW = {"type": "function", "function": {"name": "now"}}
NESTED = [
    ({"messages": []}, "messages"),
    ({"messages": [3]}, "messages[0]"),
    ({"messages": [{"content": "a"}]}, "messages[0].role"),
    ({"messages": [{"role": 1, "content": "a"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "", "x": 1}]}, "messages[0].x"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "messages[0].content[0].type",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        "messages[0].content[0].text",
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]},
        "messages[0].tool_calls[0].function",
    ),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"stream_options": {"more": 1}}, "stream_options.more"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"stop": [""]}, "stop"),
    ({"n": 129}, "n"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"tools": [{"type": "function"}]}, "tools[0]"),
    ({"tools": [{"type": "web", "function": {"name": "a"}}]}, "tools[0]"),
    ({"tools": [{"type": "function", "function": {"name": "a", "x": 1}}]}, "x"),
    ({"tools": [{}] * 129}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": NOW}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": "always"}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": NOW}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "custom"}}, "tool_choice.type"),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function"}},
        "tool_choice.function.name",
    ),
    ({"tools": [TOOL], "tool_choice": {**NOW, "x": 1}}, "tool_choice.x"),
    ({"tools": [{**TOOL, "function": STRICT}]}, "strict"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
        "response_format.json_schema.schema",
    ),
]


@pytest.mark.parametrize(("change", "param"), NESTED)
def test_entries_of_entries_are_named_too(change, param):
    with pytest.raises(RequestFailure) as raised:
        read_chat({**CHAT, **change})
    assert raised.value.status == 400 and raised.value.param.endswith(param)


def test_choices_of_tools():
    tools = [TOOL, NOW]
    by_choice = {
        "auto": (tools, [], True),
        "none": ([], [], True),
        "required": (tools, tools, True),
    }
    for choice, expected in by_choice.items():
        call = read_chat({**CHAT, "tools": tools, "tool_choice": choice})
        assert ([*call.tools], [*call.forced], call.parallel) == expected
    call = read_chat({**CHAT, "tools": tools, "tool_choice": NOW})
    assert ([*call.tools], [*call.forced], call.parallel) == (tools, [NOW], False)
    strict = [{**TOOL, "function": STRICT}]
    read_chat({**CHAT, "tools": strict, "tool_choice": "required"})


def test_what_asks_for_nothing_is_taken():
    quiet = {
        "frequency_penalty": 0.0,
        "presence_penalty": 0,
        "logit_bias": {},
        "store": False,
        "service_tier": "auto",
        "user": "me",
        "metadata": {"a": "b"},
        "seed": None,
        "stop": None,
    }
    assert read_chat({**CHAT, **quiet, "modalities": ["text"]}) == read_chat(CHAT)
    assert read_completion({**TEXT, **quiet, "echo": False, "suffix": None})


def test_a_chat_is_laid_out_as_templates_read_it():
    call = {"name": "add", "arguments": '{"a": 1}'}
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": t} for t in "ab"]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "7", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "7", "content": "1", "name": "add"},
    ]
    first, second, third = read_chat({**CHAT, "messages": messages}).messages
    assert first == {"role": "system", "content": "ab"}
    assert second["tool_calls"][0]["function"]["arguments"] == {"a": 1}
    assert third == messages[2]


@pytest.mark.parametrize(
    ("prompt", "count"), [("a", 1), (["a", "b"], 2), ([1, 2], 1), ([[1], [2], "c"], 3)]
)
def test_prompts_are_texts_or_token_numbers(prompt, count):
    assert len(read_completion({**TEXT, "prompt": prompt}).prompts) == count


@pytest.mark.parametrize("prompt", [[], [[]], [1, "a"], ["a", 1], [[1], [True]], [-1]])
def test_other_prompts_are_refused(prompt):
    with pytest.raises(RequestFailure, match="prompt"):
        read_completion({**TEXT, "prompt": prompt})


def test_rows_are_counted_over_all_prompts():
    assert read_completion({**TEXT, "prompt": ["a"] * 64, "n": 2}).n == 2
    with pytest.raises(RequestFailure, match="128"):
        read_completion({**TEXT, "prompt": ["a"] * 65, "n": 2})
