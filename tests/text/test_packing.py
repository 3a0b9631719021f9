import numpy as np
import pytest

from exburn.data import PackedTokens
from exburn.errors import ArgumentError, DataError
from exburn.text import Document, PackedDocuments, Tokenizer, pack

RNG = np.random.default_rng(0)
SIZES = [5, 9, 3, 8, 2, 7, 1]
DOCUMENTS = [
    Document(RNG.integers(1, 50, n), RNG.integers(0, 2, n).astype(bool)) for n in SIZES
]
TEXTS = ["so it was " * n for n in (1, 5, 2, 3)]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(["so it is, so it was"] * 9, 270)


def batches(packed, rows=2, epoch=0, seed=1):
    return list(packed.stream(rows).iterate(epoch, seed))


def documents_in(batch):
    """The documents of a batch, as tokens with what is counted of them."""
    x, y, w = batch
    for row in range(len(y)):
        for number in range(1, x.segments[row].max() + 1):
            places = np.flatnonzero(x.segments[row] == number)
            assert (np.diff(places) == 1).all()
            tokens = x.tokens[row, places]
            assert (y[row, places[:-1]] == tokens[1:]).all()
            assert w[row, places[-1]] == 0  # whose next token is none
            yield tokens.tolist(), w[row, places[:-1]].astype(bool).tolist()


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_each_document_comes_once_with_its_next_tokens(seed):
    packed = PackedDocuments(DOCUMENTS, 10)
    content = []
    for batch in batches(packed, seed=seed):
        assert isinstance(batch[0], PackedTokens)
        assert (batch[2][batch[0].segments == 0] == 0).all()
        content += documents_in(batch)
    wanted = [(d.tokens.tolist(), d.counted[1:].tolist()) for d in DOCUMENTS]
    assert sorted(content) == sorted(wanted)
    assert len(batches(packed, seed=seed)) == packed.stream(2).batches == 2


def test_epochs_and_seeds_have_their_own_order():
    packed = PackedDocuments(DOCUMENTS, 10)

    def order(**when):
        return np.concatenate([b[0].tokens for b in batches(packed, **when)]).tolist()

    assert order(epoch=3) == order(epoch=3)
    assert len({str(order(epoch=n, seed=s)) for n in range(3) for s in range(3)}) == 9


def test_documents_that_are_too_long():
    with pytest.raises(DataError, match="2 of 7 documents are longer") as caught:
        PackedDocuments(DOCUMENTS, 7)
    assert "document 1: 9 tokens" in str(caught.value)
    dropped = PackedDocuments(DOCUMENTS, 7, "drop")
    assert (len(dropped), dropped.dropped, dropped.cut) == (5, 2, 0)
    long = Document(np.arange(9), np.arange(9) > 6)  # counted at its end alone
    cut = PackedDocuments([*DOCUMENTS, long], 7, "cut")
    assert (len(cut), cut.dropped, cut.cut) == (7, 1, 2)
    assert cut[1].tokens.tolist() == DOCUMENTS[1].tokens[:7].tolist()
    assert cut.lengths.max() == 7


def test_the_length_of_rows_that_is_chosen():
    packed = PackedDocuments(DOCUMENTS)
    assert packed.length is None and packed.usual_length() == 128
    assert packed.usual_length(context=100) == 100
    assert packed.usual_length(batch_tokens=20) == 20
    many = PackedDocuments([Document(np.arange(100))] * 50)
    assert many.usual_length() == 2048 and many.usual_length(batch_tokens=512) == 512
    assert PackedDocuments([Document(np.arange(3000))]).usual_length() == 3072
    with pytest.raises(ArgumentError, match="is chosen by fit"):
        packed.rows  # noqa: B018


def test_parts_and_other_lengths():
    packed = PackedDocuments(DOCUMENTS, 10)
    first, last = packed.divide(0.3)
    assert [len(first), len(last)] == [4, 3]
    assert last[0] == DOCUMENTS[4]
    assert packed.rows == 4 and packed.with_length(20).rows == 2
    assert packed.fill_rate == 35 / 40
    with pytest.raises(DataError, match="leaves 0 for training"):
        packed.divide(0.99)


def test_digests_tell_documents_and_lengths():
    packed = PackedDocuments(DOCUMENTS, 10)
    others = [
        packed.with_length(11),
        PackedDocuments(DOCUMENTS[::-1], 10),
        PackedDocuments([*DOCUMENTS[:-1], Document([49], [False])], 10),
        packed.divide(0.3)[0],
    ]
    digests = {packed.digest, *(one.digest for one in others)}
    assert len(digests) == 5
    assert PackedDocuments(DOCUMENTS, 10).digest == packed.digest
    assert packed.stream(2).digest == packed.digest


def test_texts_are_packed(tokenizer):
    packed = pack(TEXTS, tokenizer, cache=False)
    assert len(packed) == 4
    assert tokenizer.decode(packed[0].tokens[:-1]) == TEXTS[0]
    assert pack(DOCUMENTS, length=10).rows == 4


BAD_CALLS = {
    "no tokenizer": (lambda _: pack(TEXTS), ArgumentError, "a tokenizer cuts texts"),
    "no documents": (lambda _: PackedDocuments([]), DataError, "are no documents"),
    "others": (lambda _: PackedDocuments([[1]]), ArgumentError, "entry 0 is a list"),
    "a word": (
        lambda t: pack(TEXTS, t, too_long="leave"),
        ArgumentError,
        "too_long is one of",
    ),
    "a length": (
        lambda t: PackedDocuments(DOCUMENTS, length=1),
        ArgumentError,
        "length",
    ),
    "too long": (
        lambda t: pack([{"prompt": "so", "completion": TEXTS[1]}], t, 3, cache=False),
        DataError,
        "rows cannot be used",
    ),
    "pairs": (
        lambda t: pack([{"chosen": "so it", "rejected": "so is"}], t, cache=False),
        DataError,
        "pairs of answers",
    ),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls(name, tokenizer):
    call, error, text = BAD_CALLS[name]
    with pytest.raises(error, match=text):
        call(tokenizer)
