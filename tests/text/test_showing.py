"""Documents, to be looked at."""

import html
import io
import json
import re

import pytest
from rich.console import Console
from tests.text.chat_files import tokenizer_of

from exburn.applications import GPT2
from exburn.errors import ArgumentError, DataError
from exburn.text import Document, DocumentReader, show
from exburn.text.showing import DocumentView

CHAT = [
    {"role": "user", "content": "So <b> $x$ \x1b[2J\u202e?"},
    {"role": "assistant", "content": "Yes, 世界 😀\n[red]it[/red]"},
]
PLAIN = (
    "<|im_start|>user\nSo <b> $x$ \\x1b[2J\\u202e?<|im_end|>\n<|im_start|>assistant\n"
    "⟦Yes, 世界 😀\n[red]it[/red]<|im_end|>⟧\n"
)


@pytest.fixture
def view():
    tokenizer = tokenizer_of("chatml")
    return DocumentView.of(DocumentReader([CHAT], tokenizer).document(0), tokenizer)


def test_text_without_colours_has_marks_around_what_counts(view):
    assert str(view).startswith(PLAIN)
    count = DocumentReader([CHAT], tokenizer_of("chatml")).document(0).counted.sum()
    assert str(view).endswith(f"{count} of {view.tokens} tokens are counted, in ⟦ ⟧")


def test_a_terminal_has_colours_and_obeys_no_character_of_a_text(view):
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system="truecolor")
    console.print(view)
    text = file.getvalue()
    assert "\x1b[2J" not in text and "\\x1b" in text and "[red]" in strip(text)
    green = "".join(re.findall(r"48;2;\d+;\d+;\d+m([^\x1b]*)\x1b", text))
    assert green == "Yes, 世界 😀↵[red]it[/red]<|im_end|>"


def strip(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_a_page_has_colours_and_no_tag_of_a_text(view):
    page = view._repr_html_()
    assert "<b>" not in page and "\x1b" not in page and "$x$" not in page
    counted = re.findall(r'<span class="c\d">(.*?)</span>', page, re.DOTALL)
    text = html.unescape("".join(counted)).replace("↵", "")
    assert text == "Yes, 世界 😀\n[red]it[/red]<|im_end|>"


def printed(capsys, *arguments, **options):
    show(*arguments, **options)
    return capsys.readouterr().out


def test_examples_of_each_kind_are_shown(capsys, tmp_path):
    tokenizer = tokenizer_of("chatml")
    assert printed(capsys, CHAT, tokenizer).startswith(PLAIN)
    assert printed(capsys, {"messages": CHAT}, tokenizer).startswith(PLAIN)
    assert printed(capsys, [CHAT, "so"], tokenizer, index=1).startswith(
        "⟦so</s>⟧\n3 of"
    )
    assert printed(capsys, "so", tokenizer).startswith("⟦so</s>⟧")
    document = Document(tokenizer.encode("so"), [True, False])
    assert printed(capsys, document, tokenizer).startswith("⟦s⟧o\n1 of 2")
    pair = {"prompt": "Is it?", "chosen": " Yes", "rejected": " No"}
    out = printed(capsys, pair, tokenizer)
    assert "Is it?⟦ Yes</s>⟧" in out and "Is it?⟦ No</s>⟧" in out
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps({"text": "a"}) + "\n" + json.dumps({"text": "so"}))
    assert printed(capsys, path, tokenizer, index=1).startswith("⟦so</s>⟧")
    assert printed(capsys, str(path), tokenizer).startswith("⟦a</s>⟧")
    model = GPT2(vocabulary_size=300, layers=1, width=8, heads=2, positions=8)
    model.tokenizer = tokenizer
    assert printed(capsys, "so", model).startswith("⟦so</s>⟧")
    assert "⟦<|im_start|>" in printed(capsys, CHAT, tokenizer, train_on="all")


def test_what_cannot_be_shown_is_told():
    with pytest.raises(ArgumentError, match="a tokenizer is needed"):
        show(CHAT, None)
    with pytest.raises(DataError, match="no row 3"):
        show([CHAT], tokenizer_of("chatml"), index=3)
    with pytest.raises(DataError, match="there is no answer"):
        show(CHAT[:1], tokenizer_of("chatml"))
