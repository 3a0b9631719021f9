"""Chats as texts: templates beside ``transformers``', and templates of strangers."""

import json

import pytest
from tests.text import chat_templates

from exburn.errors import DataError
from exburn.text import ChatTemplate

RECORDED = json.loads(chat_templates.RECORDED.read_text())


@pytest.mark.parametrize("row", RECORDED["rows"])
def test_a_text_is_that_of_transformers(row):
    name, case = row.split()
    messages, options = chat_templates.CASES[case]
    template = ChatTemplate(RECORDED["templates"][name], chat_templates.TOKENS)
    known = {"tools", "add_generation_prompt", "continue_final_message"}
    arguments = {key: options[key] for key in options if key in known}
    variables = {key: options[key] for key in options if key not in known}
    expected = RECORDED["rows"][row]
    if "error" in expected:
        with pytest.raises(DataError):
            template.render(messages, variables=variables, **arguments)
    else:
        text = template.render(messages, variables=variables, **arguments)
        assert text == expected["text"]
