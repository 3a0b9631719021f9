"""Tokenizers of the recorded templates."""

import functools
import json

from tests.text import chat_templates

from exburn.text import Tokenizer

RECORDED = json.loads(chat_templates.RECORDED.read_text())


@functools.cache
def tokenizer_of(name):
    """The tokenizer of bytes with the recorded template of this name."""
    tokenizer = Tokenizer(json.dumps(RECORDED["tokenizer"]), "</s>")
    return tokenizer.with_chat_template(
        RECORDED["templates"][name], chat_templates.TOKENS
    )
