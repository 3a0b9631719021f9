"""Texts as numbers, in files, and in the file of a model."""

import json

import numpy as np
import pytest

pytest.importorskip("tokenizers")

import exburn
from exburn.applications import GPT2
from exburn.errors import (
    ArgumentError,
    DataError,
    DTypeError,
    FileFormatError,
    MissingFileError,
    ModelFormatError,
)
from exburn.saving.model_reading import ModelReader
from exburn.saving.shards import TensorFile
from exburn.text import Tokenizer

LINES = ["The function returns a list.", "A class has methods.", "naïve café 日本"] * 5


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(LINES, 300)


@pytest.fixture(scope="module")
def model(tokenizer):
    exburn.set_random_seed(0)
    model = GPT2(300, layers=1, width=16, heads=2, positions=64)
    model.set_weights([9 * w if w.ndim > 1 else w for w in model.get_weights()])
    model.tokenizer = tokenizer
    return model


def test_any_text_comes_back(tokenizer, tmp_path):
    texts = ["A function.", "日本 🎉 \x00", "  spaces ", ""]
    rows = tokenizer.encode(texts)
    assert [row.dtype for row in rows] == [np.int32] * 4
    assert tokenizer.decode(rows) == texts
    assert len(rows[0]) < len(texts[0])
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.encode(texts[0]).tolist() == rows[0].tolist()
    assert again.end == "<|endoftext|>" and again.vocabulary_size == 300
    assert again.to_json() == (tmp_path / "tokenizer.json").read_text("utf-8")


def test_a_tokenizer_that_fills_up_and_cuts_does_not_here(tokenizer):
    told = json.loads(tokenizer.to_json())
    told["truncation"] = {
        "max_length": 2,
        "stride": 0,
        "strategy": "LongestFirst",
        "direction": "Right",
    }
    told["padding"] = {
        "strategy": {"Fixed": 128},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
    }
    assert 2 < len(Tokenizer(json.dumps(told)).encode("A class has methods.")) < 128


def test_texts_in_texts_out_and_stops_that_are_texts(model):
    (whole,) = model.generate(["A class"], 30)
    assert isinstance(whole, str) and len(whole) > 8
    stop = whole[5:7]
    short = model.generate("A class", 30, stop=stop)
    assert short == whole[: whole.index(stop)]
    pieces = list(model.generate("A class", 30, stream=3))
    assert "".join(pieces) == whole and len(pieces) > 3
    assert "".join(model.generate("A class", 30, stop=stop, stream=3)) == short
    both = model.generate(["A class", "The function"], 30, include_prompt=True)
    assert both[0] == "A class" + whole and both[1].startswith("The function")
    beams = model.generate("A class", 6, beams=3)
    assert isinstance(beams, str)


def test_it_is_in_the_file_of_its_model(model, tmp_path):
    model.save(tmp_path / "m.exburn")
    again = exburn.load_model(tmp_path / "m.exburn")
    assert again.tokenizer == model.tokenizer
    assert again.generate("A class", 8) == model.generate("A class", 8)
    assert model.clone().tokenizer == model.tokenizer
    with TensorFile(tmp_path / "m.exburn", op="load_model") as file:
        reader, told = ModelReader(file, None), {"end": None}
        with pytest.raises(ModelFormatError, match="Tokenizer: .* JSON"):
            reader._give_tokenizer(again, told, np.frombuffer(b"{", np.uint8))
    with pytest.raises(ArgumentError, match=r"exburn\.text\.Tokenizer or None"):
        model.tokenizer = "gpt2"


def test_damaged_files_are_errors(tokenizer, tmp_path):
    good, rng = tokenizer.to_json(), np.random.default_rng(0)
    path = tmp_path / "tokenizer.json"
    for text in ("", "[]", "{}", '{"model": 3}', "nope", good[:-9], "[" * 100_000):
        path.write_text(text, "utf-8")
        with pytest.raises(FileFormatError):
            Tokenizer.load(path)
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(FileFormatError):
        Tokenizer.load(path)
    for _ in range(60):
        data = bytearray(good.encode())
        for at in rng.integers(0, len(data), 3):
            data[at] = rng.integers(32, 127)
        path.write_bytes(bytes(data))
        try:
            Tokenizer.load(path).encode("A function")
        except FileFormatError:
            continue
    with pytest.raises(MissingFileError):
        Tokenizer.load(tmp_path / "none.json")


def test_bad_arguments_are_errors(tokenizer):
    with pytest.raises(ArgumentError, match="≥ 257"):
        Tokenizer.train(LINES, 100)
    with pytest.raises(ArgumentError, match="a text is needed"):
        Tokenizer.train([1], 300)
    with pytest.raises(ArgumentError, match="received NoneType"):
        Tokenizer.train(None, 300)
    with pytest.raises(ArgumentError, match="a text is needed"):
        tokenizer.encode(3)
    with pytest.raises(DTypeError):
        tokenizer.decode([0.5])
    for number in (-1, 2**32, 2**62):
        with pytest.raises(DataError, match="from 0 to 4294967295"):
            tokenizer.decode([5, number])
    assert tokenizer.token_of(2**40) is None
    with pytest.raises(ArgumentError, match="a sequence"):
        tokenizer.decode(5)


LONE = "\ud800"  # half of a surrogate pair: no character


@pytest.mark.parametrize(
    "use",
    [
        lambda t, model: t.encode(f"so {LONE}"),
        lambda t, model: t.encode(["so", f"so {LONE}"]),
        lambda t, model: t.number_of(LONE),
        lambda t, model: Tokenizer(t.to_json(), LONE),
        lambda t, model: Tokenizer(t.to_json() + LONE),
        lambda t, model: Tokenizer.train(["so", LONE], 300),
        lambda t, model: Tokenizer.train(["so"], 300, special=[LONE]),
        lambda t, model: model.generate(LONE, 2),
        lambda t, model: model.generate("A", 2, stop=f"so{LONE}"),
    ],
)
def test_a_text_that_is_no_unicode_is_at_fault_itself(tokenizer, model, use):
    with pytest.raises(DataError, match="lone surrogate") as caught:
        use(tokenizer, model)
    assert "file" not in str(caught.value) and r"'\ud800'" in str(caught.value)


def test_what_is_no_text_is_an_error(tokenizer):
    for value in (None, b"so", 3, ["so", None], ["so", ["it"]], np.array(["so"])):
        with pytest.raises(ArgumentError, match="a text is needed"):
            tokenizer.encode(value)
    state = tokenizer.state_dict() | {"end": LONE}
    with pytest.raises(FileFormatError, match="lone surrogate"):
        Tokenizer.from_state(state)
