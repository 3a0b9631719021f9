import json

import numpy as np
import pandas
import pytest

from exburn.errors import SaveError
from exburn.text import CHATML, Document, Tokenizer, pack, token_store
from exburn.text.token_store import stored

TEXTS = ["so it was", "so", "it is so"]
CHAT = [{"role": "user", "content": "so?"}, {"role": "assistant", "content": "it is"}]


@pytest.fixture(scope="module")
def tokenizer():
    special = ["<|im_start|>", "<|im_end|>"]
    made = Tokenizer.train(["so it is, so it was"] * 9, 270, special=special)
    return made.with_chat_template(CHATML)


@pytest.fixture(autouse=True)
def keep_all(monkeypatch):
    monkeypatch.setattr(token_store, "_FEW", 1)


def files(folder):
    return sorted(folder.glob("*.tokens"))


def test_the_second_start_cuts_no_text(tokenizer, tmp_path, monkeypatch):
    first = pack(TEXTS, tokenizer, cache=tmp_path)
    (path,) = files(tmp_path)
    monkeypatch.setattr(Tokenizer, "encode_with_offsets", None)  # cannot be called
    second = pack(TEXTS, tokenizer, cache=tmp_path)
    assert [second[n] for n in range(3)] == [first[n] for n in range(3)]
    assert second.digest == first.digest
    assert files(tmp_path) == [path]


def test_few_tokens_leave_no_file(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(token_store, "_FEW", 1000)
    assert len(pack(TEXTS, tokenizer, cache=tmp_path)) == 3
    assert not files(tmp_path)


CHANGES = {
    "the rows": lambda t: (TEXTS[:2], t, {}),
    "a letter": lambda t: ([*TEXTS[:2], "it is no"], t, {}),
    "their order": lambda t: (TEXTS[::-1], t, {}),
    "the tokenizer": lambda t: (TEXTS, Tokenizer.train(["so it"] * 9, 262), {}),
    "the template": lambda t: (TEXTS, t.with_chat_template(CHATML + " "), {}),
    "train_on": lambda t: (TEXTS, t, {"train_on": "all"}),
    "bad_rows": lambda t: (TEXTS, t, {"bad_rows": "skip"}),
    "variables": lambda t: (TEXTS, t, {"variables": {"today": "Monday"}}),
    "the longest": lambda t: (TEXTS, t, {"length": 99}),
    "their form": lambda t: ([{"text": text} for text in TEXTS], t, {}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_has_changed_has_another_file(name, tokenizer, tmp_path):
    pack(TEXTS, tokenizer, cache=tmp_path)
    source, other, options = CHANGES[name](tokenizer)
    pack(source, other, cache=tmp_path, **options)
    assert len(files(tmp_path)) == 2


def test_a_file_of_rows_that_has_changed_is_found(tokenizer, tmp_path):
    rows = tmp_path / "chats.jsonl"
    rows.write_text(json.dumps({"messages": CHAT}) + "\n")
    before = pack(rows, tokenizer, cache=tmp_path / "cache")
    rows.write_text(rows.read_text().replace("it is", "it was"))
    after = pack(rows, tokenizer, cache=tmp_path / "cache")
    assert before[0] != after[0] and len(files(tmp_path / "cache")) == 2


def test_sources_of_each_kind_are_found_again(tokenizer, tmp_path):
    document = Document([1, 2, 3])
    frame = pandas.DataFrame({"text": TEXTS})
    for number, source in enumerate([TEXTS, frame, [CHAT, CHAT]], 1):
        for _ in range(2):
            pack(source, tokenizer, cache=tmp_path)
        assert len(files(tmp_path)) == number
    pack([TEXTS[0], document], tokenizer, cache=tmp_path)
    other = Document([1, 2, 3], np.array([True, False, True]))
    pack([TEXTS[0], other], tokenizer, cache=tmp_path)
    assert len(files(tmp_path)) == 5
    pack(iter(TEXTS), tokenizer, cache=tmp_path)  # which no second start has
    assert len(files(tmp_path)) == 5


@pytest.mark.parametrize("place", [0, 5, -1, -20, -40])
def test_a_damaged_file_is_made_anew(place, tokenizer, tmp_path, caplog):
    digest = pack(TEXTS, tokenizer, cache=tmp_path).digest
    (path,) = files(tmp_path)
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)
    assert pack(TEXTS, tokenizer, cache=tmp_path).digest == digest
    assert "made anew" in caplog.text
    assert stored(path) is not None


@pytest.mark.parametrize("size", [0, 3, 40, 52, 60])
def test_a_file_that_was_cut_off_is_made_anew(size, tokenizer, tmp_path, caplog):
    pack(TEXTS, tokenizer, cache=tmp_path)
    (path,) = files(tmp_path)
    path.write_bytes(path.read_bytes()[:size])
    assert stored(path) is None and "made anew" in caplog.text


def test_bad_rows_leave_no_file(tokenizer, tmp_path):
    with pytest.raises(Exception, match="cannot be used"):
        pack([*TEXTS, ""], tokenizer, cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to(tokenizer, tmp_path, caplog, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises((SaveError, OSError)):
        pack(TEXTS, tokenizer, cache=tmp_path / "file")
    monkeypatch.setenv("EXBURN_CACHE", str(tmp_path / "file"))
    assert len(pack(TEXTS, tokenizer)) == 3
    assert "the tokens are not kept" in caplog.text
    monkeypatch.setenv("EXBURN_CACHE", "~nobody/there")
    assert len(pack(TEXTS, tokenizer)) == 3


def test_the_usual_folder(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("EXBURN_CACHE", str(tmp_path))
    pack(TEXTS, tokenizer)
    assert len(files(tmp_path / "tokens")) == 1
