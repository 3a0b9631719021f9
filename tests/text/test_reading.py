"""Rows as documents: kinds of rows, where they come from, and bad ones."""

import json
import logging

import numpy as np
import pytest
from tests.text.chat_files import tokenizer_of
from tests.text.chat_templates import ANSWER, NEXT, SYSTEM, USER

from exburn.errors import ArgumentError, DataError, FileFormatError, MissingFileError
from exburn.text import Document, DocumentPair, DocumentReader, Tokenizer

CHAT = [{"role": "user", "content": "So?"}, {"role": "assistant", "content": "Yes."}]
BAD = [*CHAT, {"role": "bot", "content": "so"}]
CHATML = "chatml"


def read(source, name=CHATML, **options):
    return [*DocumentReader(source, tokenizer_of(name), **options)]


def text_of(document, *, counted=True):
    tokens = document.tokens[document.counted] if counted else document.tokens
    return tokenizer_of(CHATML).decode(tokens, special=True)


WHOLE = "<|im_start|>user\nSo?<|im_end|>\n<|im_start|>assistant\nYes.<|im_end|>\n"
KINDS = [
    CHAT,
    {"messages": CHAT, "id": 3},
    {"messages": np.array(CHAT, object)},  # as pandas reads Parquet
    {
        "conversations": [
            {"from": "human", "value": "So?"},
            {"from": "gpt", "value": "Yes."},
        ]
    },
    {"prompt": CHAT[:1], "completion": CHAT[1:]},
]


@pytest.mark.parametrize("row", KINDS)
def test_rows_of_each_kind_become_the_same_chat(row):
    [document] = read([row])
    assert text_of(document, counted=False) == WHOLE
    assert text_of(document) == "Yes.<|im_end|>"


def test_texts_are_counted_with_the_token_that_ends_them():
    for row in ("so it is", {"text": "so it is"}):
        [document] = read([row])
        assert text_of(document, counted=False) == "so it is</s>"
        assert document.counted.all()
    [document] = read(["so it is</s>"])  # which has it already
    assert text_of(document, counted=False) == "so it is</s>"


def test_of_a_prompt_as_text_only_the_completion_is_counted():
    row = {"prompt": "Is it?", "completion": " It is."}
    [document] = read([row])
    assert text_of(document, counted=False) == "Is it? It is.</s>"
    assert text_of(document) == " It is.</s>"
    assert read([row], train_on="all")[0].counted.all()


PAIRS = [
    {"prompt": "Is it?", "chosen": " Yes.", "rejected": " No."},
    {"chosen": "Is it? Yes.", "rejected": "Is it? No."},
    {
        "chosen": CHAT,
        "rejected": [CHAT[0], {"role": "assistant", "content": "No."}],
    },
    {
        "prompt": "So?",
        "chosen": CHAT,
        "rejected": [CHAT[0], {"role": "assistant", "content": "No."}],
    },
    {
        "prompt": CHAT[:1],
        "chosen": CHAT[1:],
        "rejected": [{"role": "assistant", "content": "No."}],
    },
]


@pytest.mark.parametrize("row", PAIRS)
def test_pairs_count_what_differs(row):
    [pair] = read([row])
    assert isinstance(pair, DocumentPair)
    chosen, rejected = text_of(pair.chosen), text_of(pair.rejected)
    assert chosen.lstrip().startswith("Yes.") and rejected.lstrip().startswith("No.")
    assert text_of(pair.chosen, counted=False).endswith(chosen.lstrip() + "\n") or (
        text_of(pair.chosen, counted=False) == "Is it? Yes.</s>"
    )


def test_documents_stay_as_they_are():
    document = Document([1, 2, 3], [False, True, True])
    assert read([document, document]) == [document, document]


@pytest.mark.parametrize(
    ("row", "columns", "reason"),
    [
        ({"messages": CHAT, "text": "so"}, None, "'messages' or 'text'"),
        ({"body": "so", "id": 3}, None, "no columns of a chat or a text among 'body'"),
        ({"text": "so"}, "messages", "it has no 'messages'"),
        ({"prompt": "so", "completion": CHAT}, None, "both texts or both messages"),
        ({"chosen": "so", "rejected": CHAT}, None, "both texts or both messages"),
        ({"chosen": "so", "rejected": "it"}, None, "begin in unlike ways"),
        ({"prompt": "No?", "chosen": CHAT, "rejected": CHAT}, None, "do not begin"),
        ({"conversations": [{"who": "so"}]}, None, "'from' and 'value'"),
        ({"messages": CHAT, "tools": "{"}, None, "no valid JSON"),
        ({"messages": CHAT, "chat_template_kwargs": ["a"]}, None, "must be an object"),
        ({"messages": CHAT, "chat_template_kwargs": {"tools": 3}}, None, "more names"),
        ({"messages": CHAT, "tools": "3"}, None, "must be a list"),
        ({"text": 3}, None, "a text is needed, received int"),
        ({"text": "  "}, None, "there is no text"),
        (3, None, "no chat, text or object, but int"),
        ("so \ud800", None, "surrogate"),
        ([*CHAT[:1], {"role": "assistant", "content": "\ud800"}], None, "surrogate"),
    ],
)
def test_a_row_that_cannot_be_used_says_why(row, columns, reason):
    with pytest.raises(DataError, match=reason):
        read([CHAT, row] if columns is None else [row], columns=columns)


def test_columns_can_be_chosen_and_named():
    row = {"messages": CHAT, "text": "so"}
    assert text_of(read([row], columns="text")[0]) == "so</s>"
    assert text_of(read([{"body": "so"}], columns={"text": "body"})[0]) == "so</s>"
    both = {"body": CHAT, "text": "so"}
    assert text_of(read([both], columns={"messages": "body"})[0]) == "Yes.<|im_end|>"


def test_variables_of_a_row_and_of_the_call_reach_the_template():
    chat = [*CHAT, *CHAT]
    template = "{% for m in messages %}{% generation %}{{ tone }}{{ m.content }}"
    template += "{% endgeneration %}{% endfor %}"
    tokenizer = tokenizer_of(CHATML).with_chat_template(template)
    rows = [chat, {"messages": chat, "chat_template_kwargs": {"tone": "!"}}]
    first, second = DocumentReader(rows, tokenizer, variables={"tone": "?"})
    assert tokenizer.decode(first.tokens).startswith("?So?")
    assert tokenizer.decode(second.tokens).startswith("!So?")


# ---------------------------------------------------------------------- bad rows
ROWS = [CHAT, BAD, "so", [USER], CHAT, *[BAD] * 5]


def test_all_bad_rows_are_counted_and_the_first_are_shown():
    with pytest.raises(DataError) as error:
        read(ROWS)
    text = str(error.value)
    assert "7 of 10 rows cannot be used" in text and "row 3: there is no answer" in text
    assert "row 1: message 2 has the role 'bot'" in text
    assert "row 7" in text and "row 8" not in text
    assert "bad_rows='skip'" in text


def test_bad_rows_are_left_out_and_counted(caplog):
    with caplog.at_level(logging.WARNING, "exburn"):
        documents = read(ROWS, bad_rows="skip")
    assert len(documents) == 3
    assert "7 of 10 rows cannot be used, first row 1" in caplog.text
    with pytest.raises(DataError, match="2 of 2"):
        read([BAD, BAD], bad_rows="skip")
    with pytest.raises(DataError, match="no rows"):
        read([])


def test_a_document_is_not_longer_than_the_context():
    [document] = read([CHAT])
    assert len(read([CHAT], max_length=len(document))) == 1
    with pytest.raises(DataError, match="tokens, more than the 20 allowed"):
        read([CHAT, CHAT], max_length=20)


def test_a_long_text_becomes_several_documents():
    [whole] = read(["so it is, so it was, as tall as a tree"])
    pieces = read(["so it is, so it was, as tall as a tree", "so"], max_length=5)
    *pieces, last = pieces
    assert text_of(last) == "so</s>" and all(2 <= len(p) <= 5 for p in pieces)
    targets = [token for piece in pieces for token in piece.tokens[1:]]
    assert targets == whole.tokens[1:].tolist()
    long = {"prompt": "so it is", "completion": ", so it was, as tall"}
    with pytest.raises(DataError, match="more than the 5 allowed"):
        read([long], max_length=5)


def test_a_row_can_be_looked_at_alone():
    reader = DocumentReader(ROWS, tokenizer_of(CHATML))
    assert reader.rows == 10
    assert text_of(reader.document(4)) == "Yes.<|im_end|>"
    with pytest.raises(DataError, match="has the role 'bot'"):
        reader.document(1)
    with pytest.raises(DataError, match="no row 10"):
        reader.document(10)


def test_more_rows_than_are_cut_at_once_keep_their_order():
    texts = [f"so {number}" for number in range(600)]
    documents = read(texts)
    assert [text_of(d) for d in documents] == [f"{text}</s>" for text in texts]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"train_on": "user"}, "train_on"),
        ({"bad_rows": "drop"}, "bad_rows"),
        ({"columns": "texts"}, "columns"),
        ({"columns": {"texts": "body"}}, "columns"),
        ({"max_length": 0}, "max_length"),
    ],
)
def test_arguments_are_checked_at_once(options, reason):
    with pytest.raises(ArgumentError, match=reason):
        DocumentReader([CHAT], tokenizer_of(CHATML), **options)


def test_chats_need_a_template_and_texts_none():
    tokenizer = Tokenizer(tokenizer_of(CHATML).to_json(), "</s>")
    assert len([*DocumentReader(["so"], tokenizer)]) == 1
    with pytest.raises(
        ArgumentError, match="the tokenizer's template, and it has none"
    ):
        [*DocumentReader([CHAT], tokenizer)]
    with pytest.raises(ArgumentError, match="a tokenizer cuts texts"):
        DocumentReader([CHAT], None)


# ---------------------------------------------------------------------- sources
def lines(*rows):
    return "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows)


def test_json_lines_are_read_and_told_by_their_lines(tmp_path):
    path = tmp_path / "chats.jsonl"
    row = {"messages": CHAT}
    path.write_text("\ufeff" + lines(row, "", row) + "\n", encoding="utf-8")
    assert len(read(path)) == 2 and len(read(str(path))) == 2
    data = lines(row, "{", '{"text": "a", "text": "b"}', {"messages": [USER]}).encode()
    path.write_bytes(data + b'\n{"text": "\xff"}\n' + lines(row).encode())
    with pytest.raises(DataError) as error:
        read(path)
    text = str(error.value)
    assert "4 of 6 rows" in text and "chats.jsonl, line 2: the line is no valid" in text
    assert "occurs twice" in text and "line 5: it is not UTF-8: byte 10" in text
    assert "line 4: there is no answer" in text


def test_a_long_line_is_told_and_the_others_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("exburn.text.records._MOST_LINE", 100)
    monkeypatch.setattr("exburn.text.records._PART", 40)
    path = tmp_path / "texts.jsonl"
    path.write_text(lines({"text": "a"}, {"text": "b" * 500}, {"text": "c"}))
    with pytest.raises(DataError, match="1 of 3 rows cannot be used") as error:
        read(path)
    assert "line 2: a line has more than" in str(error.value)
    assert len(read(path, bad_rows="skip")) == 2


def test_a_json_list_is_read(tmp_path):
    path = tmp_path / "chats.json"
    path.write_text(json.dumps([CHAT, {"messages": CHAT}]))
    assert len(read(path)) == 2
    path.write_text("{}")
    with pytest.raises(FileFormatError, match="a list of rows"):
        read(path)


def test_parquet_and_frames_are_read(tmp_path):
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    rows = {"messages": [CHAT, [SYSTEM, *CHAT]], "id": [1, 2]}
    frame = polars.DataFrame(rows)
    path = tmp_path / "chats.parquet"
    frame.write_parquet(path)
    expected = read(rows["messages"])
    sources = [path, frame, frame.lazy(), frame.to_arrow(), pandas.DataFrame(rows)]
    for source in [*sources, pandas.read_parquet(path), frame["messages"]]:
        reader = DocumentReader(source, tokenizer_of(CHATML))
        assert [*reader] == expected and reader.rows == 2
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(FileFormatError, match="no file of Parquet"):
        read(path)


def test_parquet_with_a_type_of_its_own_is_refused(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    kind = arrow.json_() if hasattr(arrow, "json_") else arrow.uuid()
    array = arrow.ExtensionArray.from_storage(kind, arrow.array(['"so"']))
    path = tmp_path / "chats.parquet"
    pyarrow.parquet.write_table(arrow.table({"text": array}), path)
    with pytest.raises(FileFormatError, match="of somebody's own: 'text'"):
        read(path)


def test_data_sets_of_hugging_face_are_read():
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_list([{"messages": CHAT}] * 3)
    reader = DocumentReader(data, tokenizer_of(CHATML))
    assert len([*reader]) == 3 and reader.rows == 3
    stream = DocumentReader(data.to_iterable_dataset(), tokenizer_of(CHATML))
    assert [*stream] == [*reader] and stream.rows is None
    with pytest.raises(ArgumentError, match=r"dataset\['train'\]"):
        DocumentReader(datasets.DatasetDict(train=data), tokenizer_of(CHATML))


@pytest.mark.parametrize(
    ("source", "error", "reason"),
    [
        (3, ArgumentError, "a path, a frame"),
        (b"so", ArgumentError, "a path, a frame"),
        ({"messages": CHAT}, ArgumentError, r"\[row\]"),
        (Document([1]), ArgumentError, "a list of documents"),
        ("nowhere.jsonl", MissingFileError, "nowhere"),
    ],
)
def test_what_has_no_rows_is_refused(source, error, reason):
    with pytest.raises(error, match=reason):
        DocumentReader(source, tokenizer_of(CHATML))


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "texts.txt").write_text("so")
    with pytest.raises(FileFormatError, match=r"read_text"):
        DocumentReader(tmp_path / "texts.txt", tokenizer_of(CHATML))


def test_the_next_turn_is_counted_from_a_prompt_with_answers():
    row = {"prompt": [USER, ANSWER, NEXT], "completion": CHAT[1:]}
    for name in (CHATML, "llama3_training"):
        [document] = read([row], name)
        assert text_of(document).startswith("Yes.<|")
