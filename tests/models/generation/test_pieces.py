"""Texts that come in pieces: any tokens, any stops, any cuts, one text."""

import json

import numpy as np
import pytest

pytest.importorskip("tokenizers")
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.models.generation.texts import KINDS, Player, whole_text

from exburn.models.generation.pieces import Pieces
from exburn.text import Tokenizer


def in_pieces(tokenizer, prompt, tokens, stops, cuts):
    pieces = Pieces(tokenizer, np.array(prompt, np.int32), stops)
    tokens = np.array(tokens, np.int32)
    told = [pieces.take(tokens[:cut], False) for cut in sorted(cuts)]
    return [*told, pieces.take(tokens, True)]


@st.composite
def writings(draw):
    kind = draw(st.sampled_from(sorted(KINDS)))
    tokenizer = KINDS[kind]
    prompt = tokenizer.encode(draw(st.sampled_from(["so", "a User:", "so it is so"])))
    token = st.integers(0, tokenizer.vocabulary_size - 1)
    texts = st.sampled_from(["用户：", "用用户", "👩‍👩‍👧", "User: so", "é"])
    encoded = texts.map(lambda text: tokenizer.encode(text).tolist())
    parts = draw(st.lists(st.one_of(token.map(lambda n: [n]), encoded), max_size=12))
    tokens = [number for part in parts for number in part]
    text = whole_text(tokenizer, prompt, tokens, [])
    stops = draw(
        st.lists(st.sampled_from(["用户：", "户", "\ufffd", "so"]), max_size=2)
    )
    for _ in range(draw(st.integers(0, 3)) if text else 0):
        start = draw(st.integers(0, len(text) - 1))
        size = draw(st.integers(1, 5))
        stops.append(text[start : start + size] + draw(st.sampled_from(["", "", "户"])))
    cuts = draw(st.lists(st.integers(0, len(tokens)), max_size=6))
    return kind, prompt.tolist(), tokens, stops, cuts


USER = KINDS["bytes"].encode("用户").tolist()


@settings(max_examples=200)
@given(writings())
@example(("bytes", [1], USER[:-1], ["用户："], range(len(USER))))
@example(("bytes", [1], USER, ["用户：", "户"], range(len(USER))))
@example(("sentencepiece", [259], [3 + 0xE7, 3 + 0x94, 3 + 0xA8, 3 + 0xE6], [], [3]))
@example(("sentencepiece", [259], [1, 2, 260], [" so"], [1, 2]))
def test_a_stream_has_the_text_of_the_whole(writing):
    kind, prompt, tokens, stops, cuts = writing
    tokenizer = KINDS[kind]
    expected = whole_text(tokenizer, prompt, tokens, stops)
    assert "".join(in_pieces(tokenizer, prompt, tokens, stops, [])) == expected
    assert "".join(in_pieces(tokenizer, prompt, tokens, stops, cuts)) == expected
    every = range(len(tokens) + 1)
    assert "".join(in_pieces(tokenizer, prompt, tokens, stops, every)) == expected


def test_text_is_given_out_as_soon_as_it_is_certain():
    tokenizer = KINDS["bytes"]
    tokens = tokenizer.encode("naïve 用户").tolist()
    told = in_pieces(tokenizer, [1], tokens, ["用户："], range(1, len(tokens) + 1))
    assert told[0] == "na" and told[-1] == "用户"
    assert "".join(told[:-1]) == "naïve "


def test_a_long_text_costs_a_window_for_each_token(monkeypatch):
    seen = []
    decode = Tokenizer.decode

    def counted(self, tokens, **options):
        seen.append(len(tokens))
        return decode(self, tokens, **options)

    monkeypatch.setattr(Tokenizer, "decode", counted)
    tokenizer = KINDS["bytes"]
    tokens = tokenizer.encode("so it was 用户。" * 200)
    in_pieces(tokenizer, [1], tokens, [], [])
    assert len(tokens) > 800 and sum(seen) < 20 * len(tokens)


def test_the_whole_is_the_text_of_all_tokens_in_json():
    tokenizer = KINDS["bytes"]
    text = json.dumps({"用户": "👩‍👩‍👧"}, ensure_ascii=False)
    tokens = tokenizer.encode(text).tolist()
    assert "".join(in_pieces(tokenizer, [1], tokens, [], range(9))) == text


@pytest.fixture(scope="module")
def player():
    return Player(KINDS["bytes"])


def test_a_stop_is_no_part_of_a_stream(player):
    tokens = player.tokenizer.encode("so 用户").tolist()
    half = player.tokenizer.encode("你").tolist()[:-1] or [0xE4]
    player.learn([*tokens, *half])
    count = len(tokens) + len(half)
    for stops, expected in (
        (["用户："], "so 用户" + player.tokenizer.decode(half)),
        (["用户", "户"], "so "),
        (["so 用", "用户", " "], "so"),  # the first one that is complete
    ):
        options = {"stop": stops, "max_new_tokens": count}
        assert player.model.generate("so", **options) == expected
        for size in range(1, count + 1):
            pieces = player.model.generate("so", stream=size, **options)
            assert "".join(pieces) == expected


def test_a_special_token_and_the_longest_of_several_sequences_stop(player):
    named = player.tokenizer.number_of("<|user|>")
    player.learn([70, 71, 72, named, 73])
    text = player.tokenizer.decode([70, 71, 72])
    assert player.model.generate("so", 5, stop="<|user|>") == text
    for stops in ([72, [71, 72]], [[71, 72], 72]):
        assert player.model.generate("so", 5, stop=stops) == text[:1]
        pieces = player.model.generate("so", 5, stop=stops, stream=1)
        assert "".join(pieces) == text[:1]
