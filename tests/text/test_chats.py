"""Chats as documents: what of them the loss counts."""

import numpy as np
import pytest
from tests.text.chat_files import RECORDED, tokenizer_of
from tests.text.chat_templates import ANSWER, CASES, NEXT, THOUGHT, USER

from exburn.errors import DataError
from exburn.text import DocumentReader
from exburn.text.chats import check_messages, overlap

MARKED = [name for name, text in RECORDED["templates"].items() if "endgen" in text]
CHAT = CASES["turns"][0]


def counted(name, messages, **options):
    tokenizer = tokenizer_of(name)
    document = DocumentReader([messages], tokenizer, **options).document(0)
    return tokenizer.decode(document.tokens[document.counted], special=True)


@pytest.mark.parametrize("case", ["short", "turns", "system", "thought"])
@pytest.mark.parametrize("name", MARKED)
def test_tokens_and_what_is_counted_are_those_of_transformers(name, case):
    expected = RECORDED["rows"][f"{name} {case}"]
    if "error" in expected:
        pytest.skip(expected["error"])
    document = DocumentReader([CASES[case][0]], tokenizer_of(name)).document(0)
    assert document.tokens.tolist() == expected["tokens"]
    assert "".join(str(int(c)) for c in document.counted) == expected["mask"]


@pytest.mark.parametrize(
    ("name", "train_on", "expected"),
    [
        ("chatml", "answers", "As tall\n\nas a tree. <|im_end|>Yes.<|im_end|>"),
        ("chatml", "last", "Yes.<|im_end|>"),
        ("llama3", "answers", "As tall\n\nas a tree.<|eot_id|>Yes.<|eot_id|>"),
        ("llama3_training", "last", "Yes.<|eot_id|>"),
        ("phi3_training", "last", "Yes.<|end|>\n</s>"),
        # The token that ends a text comes behind the last message alone.
        ("phi3_5", "answers", "As tall\n\nas a tree. <|end|>Yes.<|end|>\n</s>"),
        ("mistral", "answers", "As tall\n\nas a tree. </s>Yes.</s>"),
        ("gemma3", "last", "Yes.<end_of_turn>"),
        ("qwen3", "last", "<think>\n\n</think>\n\nYes.<|im_end|>"),
    ],
)
def test_answers_are_counted_with_the_token_that_ends_them(name, train_on, expected):
    assert counted(name, CHAT, train_on=train_on) == expected


@pytest.mark.parametrize(
    ("name", "weights", "expected"),
    [
        ("chatml", (0, 1), "Yes.<|im_end|>"),
        ("chatml", (1, 0), "As tall\n\nas a tree. <|im_end|>"),
        ("llama3_training", (0, None), "Yes.<|eot_id|>"),
        ("llama3_training", (1, 0), "As tall\n\nas a tree.<|eot_id|>"),
    ],
)
def test_answers_of_weight_0_are_not_counted(name, weights, expected):
    answers = iter(weights)
    chat = [  # columns of tables have nothing for other roles
        m | {"weight": next(answers) if m["role"] == "assistant" else None}
        for m in CHAT
    ]
    assert counted(name, chat) == expected


@pytest.mark.parametrize(
    ("weights", "train_on", "reason"),
    [
        ({1: 0, 3: 0}, "answers", "the weight 0"),
        ({3: 0}, "last", "the weight 0"),
        ({1: 0}, "all", "train_on='all'"),
        ({1: 0.5}, "answers", "message 1 of the assistant has the weight 0.5"),
        ({0: 1}, "answers", "message 0 of the user has the weight 1"),
    ],
)
def test_weights_that_say_something_else_are_refused(weights, train_on, reason):
    chat = [
        m | {"weight": weights[n]} if n in weights else m for n, m in enumerate(CHAT)
    ]
    with pytest.raises(DataError, match=reason):
        counted("chatml", chat, train_on=train_on)


def test_everything_is_counted_where_that_is_asked_for():
    tokenizer = tokenizer_of("chatml")
    document = DocumentReader([CHAT], tokenizer, train_on="all").document(0)
    assert document.counted.all()
    assert tokenizer.decode(document.tokens, special=True).startswith("<|im_start|>us")


def test_a_template_that_leaves_out_old_thoughts_is_an_error_with_the_example():
    chat = [USER, THOUGHT, NEXT, THOUGHT]
    with pytest.raises(DataError, match="in message 1 in another way once") as error:
        counted("qwen3", chat)
    assert "train_on='last'" in str(error.value)
    assert counted("qwen3", chat, train_on="last").startswith(
        "<think>\n3 + 3\n</think>"
    )


def test_the_part_that_tools_add_is_not_counted():
    chat, options = CASES["called"]
    text = counted("qwen2_5", {"messages": chat, "tools": options["tools"]})
    assert text.startswith("<tool_call>") and text.endswith("as a tree. <|im_end|>")
    assert "tool_response" not in text


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "an empty list"),
        ("so", "a list of messages"),
        ([3], "message 0 must be an object"),
        ([{"content": "so"}], "message 0 has the role None, not one of"),
        ([{"role": "bot", "content": "so"}], "has the role 'bot'"),
        ([{"role": "user"}], "message 0 has no content"),
        ([{"role": "user", "content": 3}], "must be text, received 3"),
        ([{"role": "user", "content": " \n"}], "message 0 is empty"),
        ([{"role": "user", "content": [{"type": "image"}]}], "must be text"),
        ([{"role": "user", "content": object()}], "plain|alone"),
        ([{"role": "user", 3: "so"}], "keys are no texts"),
    ],
)
def test_a_message_that_says_nothing_is_refused(messages, reason):
    with pytest.raises(DataError, match=reason):
        check_messages(messages)


def test_a_call_of_a_tool_needs_no_text():
    calls = {"role": "assistant", "content": "", "tool_calls": [{"function": {}}]}
    assert check_messages([calls]) == [calls]


@pytest.mark.parametrize(
    ("messages", "name", "reason"),
    [
        ([USER], "chatml", "there is no answer"),
        ([ANSWER, USER], "chatml", "the first message is of the assistant"),
        ([USER, USER, ANSWER], "gemma", "roles must alternate"),
    ],
)
def test_a_chat_that_does_not_fit_is_refused(messages, name, reason):
    with pytest.raises(DataError, match=reason):
        counted(name, messages)


def test_tokens_on_the_edge_of_a_part_belong_to_it():
    offsets = np.array([[0, 0], [0, 2], [2, 5], [6, 6], [6, 7]])
    assert overlap(offsets, (4, 6)).tolist() == [2, 3]
    assert overlap(offsets, (0, 2)).tolist() == [1]
