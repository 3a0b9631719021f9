import json

import pytest

pytest.importorskip("tokenizers")
from exburn.errors import ArgumentError
from exburn.serving.http.openai.tool_calls import ToolCallReader, call_form
from exburn.text import CHATML, Tokenizer

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("add", "now")]
ADD = '{"name": "add", "%s": {"a": 1, "b": "é"}}'
QWEN = CHATML + "{# <tool_call> #}"
MISTRAL = CHATML + "{# [TOOL_CALLS] #}"
LLAMA = CHATML + "{# ipython #}"
_ADD, _NOW = ("add", {"a": 1, "b": "é"}), ("now", {})
ADD_QWEN, ADD_LLAMA = ADD % "arguments", ADD % "parameters"
CASES = [
    (QWEN, "Plain.", "Plain.", []),
    (QWEN, f"<tool_call>\n{ADD_QWEN}\n</tool_call>", "", [_ADD]),
    (
        QWEN,
        f'So:\n<tool_call>{ADD_QWEN}</tool_call>\n<tool_call>{{"name": "now"}}'
        "</tool_call>",
        "So:\n\n",
        [_ADD, _NOW],
    ),
    (QWEN, "a <tool_ b", "a <tool_ b", []),
    (QWEN, f"<tool_call>{ADD_QWEN}", f"<tool_call>{ADD_QWEN}", []),
    (QWEN, "<tool_call>{no}</tool_call>!", "<tool_call>{no}</tool_call>!", []),
    (
        QWEN,
        '<tool_call>{"name": "rm"}</tool_call>',
        '<tool_call>{"name": "rm"}</tool_call>',
        [],
    ),
    (
        QWEN,
        '<tool_call>{"name": ["add"]}</tool_call>',
        '<tool_call>{"name": ["add"]}</tool_call>',
        [],
    ),
    (MISTRAL, f'[TOOL_CALLS][{ADD_QWEN}, {{"name": "now"}}]', "", [_ADD, _NOW]),
    (MISTRAL, f"[{ADD_QWEN}]", "", [_ADD]),
    (MISTRAL, "[1, 2] are two.", "[1, 2] are two.", []),
    (MISTRAL, '[{"a": 1}] is a list', '[{"a": 1}] is a list', []),
    (LLAMA, ADD_LLAMA, "", [_ADD]),
    (LLAMA, f"<|python_tag|>{ADD_LLAMA}", "", [_ADD]),
    (LLAMA, '{"a": 1}', '{"a": 1}', []),
    (LLAMA, "Sure. {", "Sure. {", []),
    (CHATML, f"<tool_call>{ADD_QWEN}</tool_call>", None, []),
]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(["so it is"] * 9, 260)


@pytest.mark.parametrize(("template", "answer", "text", "calls"), CASES)
def test_calls_are_the_same_for_any_cut(tokenizer, template, answer, text, calls):
    tokenizer = tokenizer.with_chat_template(template)
    for size in (1, 2, 3, 7, len(answer)):
        reader = ToolCallReader.of(tokenizer, TOOLS, True)
        if text is None:  # no form is known: all of it is text
            assert reader is None
            return
        parts = [answer[at : at + size] for at in range(0, len(answer), size)]
        out, read = "", []
        for number, part in enumerate(parts):
            more, new = reader.read(part, last=number == len(parts) - 1)
            out, read = out + more, read + new
        functions = [call["function"] for call in read]
        assert out == text
        assert [(f["name"], json.loads(f["arguments"])) for f in functions] == calls
        assert len({call["id"] for call in read}) == len(calls)
        assert all(call["type"] == "function" for call in read)


def test_text_in_front_of_a_call_does_not_wait_for_it(tokenizer):
    reader = ToolCallReader.of(tokenizer.with_chat_template(QWEN), TOOLS, True)
    assert reader.read("Let me see. <to", last=False) == ("Let me see. ", [])
    assert reader.read("", last=True) == ("<to", [])


def test_one_call_alone_where_no_more_are_wanted(tokenizer):
    answer = f"<tool_call>{ADD_QWEN}</tool_call>" * 3
    reader = ToolCallReader.of(tokenizer.with_chat_template(QWEN), TOOLS, False)
    calls = []
    for at in range(0, len(answer), 5):
        last = at + 5 >= len(answer)
        text, new = reader.read(answer[at : at + 5], last=last)
        assert text == ""
        calls += new
    assert len(calls) == 1


def test_without_tools_nothing_is_looked_for(tokenizer):
    assert ToolCallReader.of(tokenizer.with_chat_template(QWEN), (), True) is None
    assert ToolCallReader.of(tokenizer, TOOLS, True) is None


ODD = 'a "name" é\\'
FORCED = [{"function": {"name": name}} for name in ("add", "add_more", ODD)]
FORCED[0]["function"]["parameters"] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/$defs/word"}},
    "required": ["a", "b"],
    "additionalProperties": False,
    "$defs": {"word": {"enum": ["é", "x"]}},
}


@pytest.mark.parametrize("template", [QWEN, MISTRAL, LLAMA, CHATML])
def test_what_a_forced_answer_may_say_is_what_the_reader_finds(tokenizer, template):
    pytest.importorskip("llguidance")
    tokenizer = tokenizer.with_chat_template(template)
    form = call_form(tokenizer, forced=True)
    add = ADD % form.arguments
    odd = json.dumps({"name": ODD, form.arguments: {"c": [1]}}, ensure_ascii=False)
    begin, between, end = form.frame
    several = form.constrain(tokenizer, FORCED, True, ())
    one = form.constrain(tokenizer, FORCED, False, ())
    answers = {begin + add + end: ["add"], begin + odd + end: [ODD]}
    if between is not None:
        answers[begin + add + between + odd + end] = ["add", ODD]
    for answer, names in answers.items():
        assert several.allows(answer)
        assert one.allows(answer) is (len(names) == 1)
        reader = ToolCallReader.of(tokenizer, FORCED, True, forced=True)
        text, calls = reader.read(answer, last=True)
        assert text.strip() == ""
        assert [call["function"]["name"] for call in calls] == names
    wrong = ["", "Hi.", begin + end, "So: " + begin + add + end, begin + add]
    wrong += [
        begin + add.replace(old, new) + end
        for old, new in (("1", '"1"'), ("é", "y"), ("add", "rm"), (": ", ":  "))
    ]
    for answer in wrong:
        assert not several.allows(answer) or (answer, end) == (begin + add, "")


def test_tools_that_cannot_be_forced_are_refused(tokenizer):
    pytest.importorskip("llguidance")
    form = call_form(tokenizer, forced=True)
    assert call_form(tokenizer) is None
    endless = {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}
    for schema in ({"type": "nothing"}, {"unevaluatedItems": 1}, endless):
        tools = [{"function": {"name": "add", "parameters": schema}}]
        with pytest.raises(ArgumentError):
            form.constrain(tokenizer, tools, True, ())
