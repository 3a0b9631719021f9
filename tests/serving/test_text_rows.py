import asyncio
import time

import numpy as np
import pytest

pytest.importorskip("tokenizers")
from tests.models.generation.texts import KINDS, whole_text

from exburn.errors import (
    BatchFailedError,
    DataError,
    DeadlineExceededError,
    ServingClosedError,
)
from exburn.models.generation.engine import TextAnswer, TextPart, TextRequest
from exburn.serving.text_rows import TextRow, TextRows
from exburn.text import TextConstraint, Tokenizer
from exburn.text.settings import TokenizerSettings

TEXT = "so it is, 用户：é 👩‍👩‍👧. User: so it"
STOPS = ([], ["用户"], ["it is", "is, 用户："], ["é 👩‍👩", "User"], ["never"])


def answer_of(tokens, cut, reason="length"):
    """An answer that has come in parts, with a logarithm for each token."""
    answer = TextAnswer(TextRequest([1], 99, logprobs=1))
    for at in range(0, len(tokens), cut):
        part = np.array(tokens[at : at + cut], np.int32)
        logprobs = -part.astype(np.float32)
        answer.add(TextPart(part, logprobs, tuple(((int(t), -1.0),) for t in part)))
    answer.end(reason)
    return answer


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_and_its_tokens_are_the_same_for_any_cut(kind):
    tokenizer = KINDS[kind]
    prompt, tokens = tokenizer.encode("so"), tokenizer.encode(TEXT).tolist()
    for stops in STOPS:
        results = set()
        for cut, least in ((1, 1), (2, 1), (3, 5), (7, 2), (99, 1)):
            row = TextRow(answer_of(tokens, cut), tokenizer, prompt, stops, least)
            pieces = list(row.pieces())
            text = "".join(piece.text for piece in pieces)
            logprobs = [one for piece in pieces for one in piece.logprobs]
            assert [p.finish is None for p in pieces[:-1]] == [True] * len(pieces[:-1])
            assert sum(piece.tokens for piece in pieces) == row.tokens
            shown = tuple((one.token, one.start, one.top) for one in logprobs)
            results.add((text, row.finish, row.tokens, shown))
        (result,) = results
        expected = whole_text(tokenizer, prompt.tolist(), tokens, stops)
        assert result[0] == expected
        met = any(stop in TEXT for stop in stops) and expected != whole_text(
            tokenizer, prompt.tolist(), tokens, []
        )
        assert result[1] == ("stop" if met else "length")
        # Each token that is told begins in the text; without a stop all of them are.
        shown = result[3]
        assert [one[0] for one in shown] == tokens[: len(shown)]
        assert len(shown) == len(tokens) or met
        assert all(start < len(expected) or not met for _, start, _ in shown)


def test_a_row_that_met_its_stop_is_written_no_further():
    tokenizer = KINDS["bytes"]
    answer = TextAnswer(TextRequest([1], 99))
    row = TextRow(answer, tokenizer, tokenizer.encode("so"), ["it"])
    piece = None
    for token in tokenizer.encode("so it is"):
        piece = row.take(TextPart(np.array([token]))) or piece
    assert piece.finish == "stop" and answer.is_cancelled
    assert row.take(TextPart(np.array([3]))) is None and row.take(None) is None


@pytest.mark.parametrize(
    ("reason", "error", "raised"),
    [
        ("deadline", None, DeadlineExceededError),
        ("cancelled", None, ServingClosedError),
        ("error", ZeroDivisionError("secret"), ZeroDivisionError),
        ("error", DataError("TextEngine", "NaN"), BatchFailedError),
        ("error", DataError("generate", "no such token"), DataError),
    ],
)
def test_an_answer_that_fails_is_no_text(reason, error, raised):
    tokenizer = KINDS["bytes"]
    answer = TextAnswer(TextRequest([1], 9))
    answer.add(TextPart(np.array([40])))
    answer.end(reason, error)
    row = TextRow(answer, tokenizer, np.array([40]))
    row.take(TextPart(np.array([40])))
    with pytest.raises(raised):
        row.take(None)


def rows_of(answers, wait=5.0, times=None):
    tokenizer = KINDS["bytes"]
    prompt = tokenizer.encode("so")
    observe = (lambda *_: None) if times is None else lambda *t: times.append(t)
    rows = [TextRow(answer, tokenizer, prompt) for answer in answers]
    return TextRows(rows, wait, observe)


async def gather(rows):
    texts = [""] * len(rows.rows)
    async for number, piece in rows.pieces():
        texts[number] += piece.text
        await asyncio.sleep(0.001)  # a slow client
    return texts


def test_rows_of_one_request_come_as_they_are_written():
    tokens = KINDS["bytes"].encode("so it is").tolist()
    times = []

    async def run():
        answers = [TextAnswer(TextRequest([1], 99)) for _ in range(3)]
        rows = rows_of(answers, times=times)
        gathering = asyncio.ensure_future(gather(rows))
        await asyncio.sleep(0)

        def write():
            for token in tokens:  # of a thread, which nobody holds up
                for answer in answers:
                    answer.add(TextPart(np.array([token])))
            began = time.monotonic()
            for answer in answers:
                answer.end("stop")
            return time.monotonic() - began

        seconds = await asyncio.to_thread(write)
        return await gathering, seconds

    texts, seconds = asyncio.run(run())
    assert texts == ["so it is"] * 3 and seconds < 1
    assert [first for *_, first in times].count(True) == 3
    assert sum(count for _, count, _ in times) == 3 * len(tokens)


def test_a_token_that_does_not_come_in_time_ends_all_rows():
    async def run(tokens):
        answers = [TextAnswer(TextRequest([1], 9)) for _ in range(2)]
        for answer in answers[: len(tokens)]:
            answer.add(TextPart(np.array(tokens)))
        with pytest.raises(DeadlineExceededError):
            await gather(rows_of(answers, 0.02))
        return [answer.is_cancelled for answer in answers]

    assert asyncio.run(run([])) == asyncio.run(run([40])) == [True, True]


def test_who_stops_to_listen_cancels_all_rows():
    async def run():
        answers = [answer_of([40, 41, 42], 1), TextAnswer(TextRequest([1], 9))]
        pieces = rows_of(answers).pieces()
        await anext(pieces)
        await pieces.aclose()
        return [answer.is_cancelled for answer in answers]

    assert asyncio.run(run()) == [True, True]


def test_spaces_of_a_form_are_not_cleaned_up():
    pytest.importorskip("llguidance")
    settings = TokenizerSettings(clean_up_spaces=True)
    tokenizer = Tokenizer.train(["so , so"] * 9, 280)
    tokenizer = Tokenizer(tokenizer._text, settings=settings)
    tokens = tokenizer.encode(" , so").tolist()
    prompt = tokenizer.encode("so")
    form = TextConstraint.compile(tokenizer, regex=" , so")
    for constraint, expected in ((None, ", so"), (form, " , so")):
        row = TextRow(answer_of(tokens, 1), tokenizer, prompt, constraint=constraint)
        assert "".join(piece.text for piece in row.pieces()) == expected
