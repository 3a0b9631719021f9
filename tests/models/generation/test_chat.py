"""Answers to chats."""

import numpy as np
import pytest
from tests.text.chat_files import RECORDED, tokenizer_of
from tests.text.chat_templates import ANSWER, NEXT, TOOL, USER

from exburn.applications import GPT2
from exburn.errors import ArgumentError, DataError
from exburn.text import Tokenizer, TopK

QUESTION = [{"role": "user", "content": "So?"}]


@pytest.fixture(scope="module")
def model():
    return GPT2(vocabulary_size=300, layers=1, width=16, heads=2, positions=1024)


@pytest.fixture
def talker(model):
    model.tokenizer = tokenizer_of("chatml")
    return model


def written(model, name, messages, tokens=12, **options):
    """What ``generate`` writes behind the text of the template."""
    model.tokenizer = tokenizer_of(name)
    text = model.tokenizer.chat_template.render(messages, add_generation_prompt=True)
    prompt = model.tokenizer.encode(text, special=False)
    row = model.generate(prompt, tokens, **options)
    return model.tokenizer.decode(row)


@pytest.mark.parametrize("name", ["chatml", "gemma"])
def test_an_answer_is_what_comes_behind_the_text_of_the_template(model, name):
    messages = [USER, ANSWER, NEXT]
    expected = written(model, name, messages)
    assert model.chat(messages, 12) == expected


def test_options_are_those_of_generate(talker):
    options = {"sampler": TopK(5), "seed": 3}
    expected = written(talker, "chatml", QUESTION, **options)
    assert talker.chat(QUESTION, 12, **options) == expected
    assert "".join(talker.chat(QUESTION, 12, stream=3, **options)) == expected
    cut = talker.chat(QUESTION, 12, stop=expected[2:4], **options)
    assert cut == expected[: expected.find(expected[2:4])]
    assert talker.chat([QUESTION, QUESTION], 12) == [talker.chat(QUESTION, 12)] * 2
    assert isinstance(talker.chat(QUESTION, 12, beams=2), str)


@pytest.mark.parametrize(
    ("name", "end"),
    [("chatml", "<|im_end|>"), ("llama3", "<|eot_id|>"), ("gemma", "<end_of_turn>")],
)
def test_an_answer_ends_with_the_token_that_the_template_puts_there(model, name, end):
    tokenizer = model.tokenizer = tokenizer_of(name)
    tokens = [*tokenizer.encode("It is."), tokenizer.number_of(end)]
    tokens += [*tokenizer.encode("And on.")]
    start = []

    def choose(logits, keys):
        import jax
        import jax.numpy as jnp

        def step():
            start.append(len(start))
            return np.int32(tokens[min(len(start) - 1, len(tokens) - 1)])

        token = jax.experimental.io_callback(
            step, jax.ShapeDtypeStruct((), jnp.int32), ordered=True
        )
        return jnp.full(logits.shape[:1], token)

    assert model.chat(QUESTION, 30, sampler=choose, seed=0) == "It is."


def test_a_message_is_written_on_and_tools_reach_the_template(talker):
    open_chat = [*QUESTION, {"role": "assistant", "content": "It"}]
    text = talker.tokenizer.chat_template.render(open_chat, continue_final_message=True)
    prompt = talker.tokenizer.encode(text, special=False)
    expected = talker.tokenizer.decode(talker.generate(prompt, 9))
    assert talker.chat(open_chat, 9, continue_final_message=True) == expected
    talker.tokenizer = talker.tokenizer.with_chat_template(
        RECORDED["templates"]["qwen3"]
    )
    plain = talker.chat(QUESTION, 9)
    assert talker.chat(QUESTION, 9, tools=[TOOL]) != plain
    assert isinstance(
        talker.chat(QUESTION, 9, variables={"enable_thinking": False}), str
    )


def test_what_is_missing_is_told(model):
    model.tokenizer = None
    with pytest.raises(ArgumentError, match="the model's tokenizer, and it has none"):
        model.chat(QUESTION)
    model.tokenizer = Tokenizer(tokenizer_of("chatml").to_json())
    with pytest.raises(
        ArgumentError, match="the tokenizer's template, and it has none"
    ):
        model.chat(QUESTION)
    model.tokenizer = tokenizer_of("gemma")
    with pytest.raises(DataError, match="roles must alternate"):
        model.chat([*QUESTION, *QUESTION])
    with pytest.raises(DataError, match="an empty list"):
        model.chat([])
    with pytest.raises(ArgumentError, match="positions"):
        model.chat([{"role": "user", "content": "so " * 1100}])
