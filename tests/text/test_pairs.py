"""Pairs of answers, packed into rows."""

import json

import numpy as np
import pytest

from exburn.errors import ArgumentError, DataError
from exburn.text import (
    Document,
    DocumentPair,
    DocumentReader,
    PackedPairs,
    Tokenizer,
    pack_pairs,
)

TOKENIZER = Tokenizer.train(["so it is, so it was"] * 9, 270)


def document(*tokens, prompt=1, label=None):
    return Document(np.array(tokens), np.arange(len(tokens)) >= prompt, label)


PAIRS = [
    DocumentPair(document(1, 2, 3), document(1, 4)),
    DocumentPair(document(5, 6, prompt=1), document(5, 7, 8, 9, prompt=2)),
]


def batch_of(packed, rows=1):
    stream = packed.stream(rows)
    return next(iter(stream.iterate(0, None)))


def test_both_answers_of_a_pair_lie_behind_each_other():
    x, y, counted = batch_of(PackedPairs(PAIRS, 12))
    assert x.tokens.tolist() == [[1, 2, 3, 1, 4, 5, 6, 5, 7, 8, 9, 0]]
    assert x.segments.tolist() == [[1, 1, 1, 2, 2, 3, 3, 4, 4, 4, 4, 0]]
    assert counted.tolist() == [[1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0]]
    live = counted[0] > 0
    assert y["tokens"][0][live].tolist() == [2, 3, 4, 6, 8, 9]
    assert y["labels"].tolist() == [[1, 1]] and "reference" not in y


def test_single_answers_lie_beside_the_answer_before():
    answers = [document(1, 2, 3, label=True), document(4, 5, 6, 7, label=False)]
    packed = pack_pairs(answers, length=16, labelled=True)
    x, y, counted = batch_of(packed)
    assert x.tokens.tolist() == [[1, 2, 3, 1, 5, 6, 7, 4, 5, 6, 7, 4, 2, 3, 0, 0]]
    assert y["labels"].tolist() == [[1, -1]]
    assert counted.sum() == 2 + 3 + 3 + 2
    assert [one.chosen.label for one in (packed[0], packed[1])] == [None, None]


def test_rows_of_files_are_pairs_and_labels(tmp_path):
    lines = [
        {"prompt": "so ", "chosen": "it is", "rejected": "it was"},
        {"chosen": "so it is", "rejected": "so was it"},
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    packed = pack_pairs(path, TOKENIZER)
    texts = [
        TOKENIZER.decode(one.tokens) for one in (packed[1].chosen, packed[1].rejected)
    ]
    assert len(packed) == 2 and texts == ["so it is", "so was it"]
    rows = [
        {"prompt": "so ", "completion": "it is", "label": True},
        {"prompt": "so ", "completion": "was it", "label": 0},
        {"prompt": "so ", "completion": "was it", "label": "maybe"},
    ]
    labels = [one.label for one in DocumentReader(rows, TOKENIZER)]
    assert labels == [True, False, None]
    with pytest.raises(DataError, match="1 of 3 answers have no label"):
        pack_pairs(rows, TOKENIZER, labelled=True)
    assert len(pack_pairs(rows[:2], TOKENIZER, labelled=True)) == 2


def test_bad_rows_are_told_by_their_places():
    rows = [{"prompt": "so ", "chosen": "it is", "rejected": " "}, {"chosen": "so"}]
    with pytest.raises(DataError) as error:
        pack_pairs(rows, TOKENIZER)
    text = str(error.value)
    assert "2 of 2 rows cannot be used" in text and "row 0" in text and "row 1" in text


def test_parts_keep_what_belongs_to_them():
    pairs = PackedPairs([*PAIRS, *PAIRS], 12, labels=[True, False, False, True])
    first, last = pairs.divide(0.5)
    assert last[0].chosen == PAIRS[0].chosen and last[1].rejected == PAIRS[1].rejected
    assert batch_of(first)[1]["labels"].tolist() == [[1, -1]]
    assert batch_of(last)[1]["labels"].tolist() == [[-1, 1]]
    assert first.digest != last.digest != pairs.digest
    short = PackedPairs(PAIRS, 5, "drop")
    assert (len(short), short.dropped) == (1, 1) and short[0].chosen == PAIRS[0].chosen
    with pytest.raises(DataError, match="1 of 2 pairs are longer than a row of 5"):
        PackedPairs(PAIRS, 5)


def test_rows_are_short_where_that_fills_them():
    def pair(size):
        return DocumentPair(document(*range(1, size)), document(*range(1, size)))

    assert PackedPairs([pair(73)] * 30).usual_length() == 160
    assert PackedPairs([pair(73)] * 30).usual_length(context=150) == 150
    assert PackedPairs([pair(70)] * 30).usual_length() == 160
    assert PackedPairs([pair(100), *[pair(60)] * 30]).usual_length() == 896
    assert PackedPairs([pair(200)]).usual_length() == 416


def test_a_reference_lies_beside_the_tokens():
    pairs = PackedPairs(PAIRS * 3, 12)

    def score(x, tokens):
        return x.tokens * 100.0 + tokens

    scored = pairs.with_reference(score, 2)
    x, y, counted = batch_of(scored, 3)
    live = counted > 0
    np.testing.assert_array_equal(
        y["reference"][live], (x.tokens * 100.0 + y["tokens"])[live]
    )
    assert scored.digest != pairs.digest and "reference" not in batch_of(pairs)[1]


BAD_ARGUMENTS = [
    (lambda: PackedPairs([PAIRS[0].chosen]), ArgumentError, "entry 0 is a Document"),
    (lambda: PackedPairs([]), DataError, "there are no pairs"),
    (lambda: PackedPairs(PAIRS, 12, "cut"), ArgumentError, "too_long"),
    (lambda: PackedPairs(PAIRS, 4), DataError, "→ too_long='drop' leaves them out; or"),
    (lambda: Document([1, 2], label="good"), DataError, "label is True or False"),
]


@pytest.mark.parametrize("number", range(len(BAD_ARGUMENTS)))
def test_bad_arguments(number):
    call, kind, text = BAD_ARGUMENTS[number]
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize(
    "labels",
    [["good", "bad"], [np.nan, 1], [-1, 1], [None, True], [[True], [False]], [[1], 1]],
)
def test_labels_are_true_or_false(labels):
    pairs = PAIRS[:2]
    assert PackedPairs(pairs, labels=np.array([1, 0]))._labels.tolist() == [1, -1]
    with pytest.raises(DataError, match="labels are"):
        PackedPairs(pairs, labels=labels)
    with pytest.raises(DataError, match="for each of the 2 pairs, received"):
        PackedPairs(pairs, labels=[True])
