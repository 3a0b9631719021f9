"""Masks that are guessed: the same texts as with one mask at a time."""

import random

import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn.applications import GPT2
from exburn.errors import IncompleteAnswerError
from exburn.models.generation import constrained, mask_table
from exburn.models.generation.mask_table import MaskGuesses, guess_place
from exburn.text import Greedy, RandomSampler, Tokenizer, TopP

pytest.importorskip("llguidance")

ITEM = r'\{"name": "(alpha|beta)", "town": "[a-z ]{0,12}", "n": [0-9]{1,3}\}'
ITEMS = rf"\[{ITEM}(, {ITEM})*\]"
ROWS = ["so", "it is", "yes or no"]


@pytest.fixture(scope="module")
def model():
    texts = ['[{"name": "alpha", "town": "so it is", "n": 12}, {"name": "beta"}]'] * 9
    exburn.set_random_seed(3)
    tokenizer = Tokenizer.train(texts, 300)
    model = GPT2(tokenizer.vocabulary_size, layers=1, width=16, heads=2, positions=128)
    model.set_weights([6 * w if w.ndim > 1 else w for w in model.get_weights()])
    model.tokenizer = tokenizer
    return model


@pytest.fixture
def calls(monkeypatch):
    """Steps of the calls, and how many of their tokens were right."""
    found, call = [], constrained.ConstrainedRun._take
    monkeypatch.setattr(constrained, "_KEPT", mask_table.GuessStore())

    def take(self, flight):
        before = self._step
        call(self, flight)
        found.append((flight.steps, self._step - before))

    monkeypatch.setattr(constrained.ConstrainedRun, "_take", take)
    return found


def write(model, **options):
    options = {"regex": ITEMS, "seed": 5, "room": (16, 96)} | options
    try:
        return model.generate(ROWS, 96, **options)
    except IncompleteAnswerError as error:
        return error.answers


OPTIONS = {
    "random": {"sampler": RandomSampler(temperature=0.7)},
    "penalty": {"sampler": Greedy(repetition_penalty=1.3)},
    "top p": {"sampler": TopP(0.9)},
    "stop": {"stop": '"n": 1', "sampler": RandomSampler()},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_texts_are_those_of_a_mask_at_a_time(model, calls, monkeypatch, name):
    monkeypatch.setattr(constrained, "_LEAST_RIGHT", 2)
    guessed = write(model, **OPTIONS[name])
    again = write(model, **OPTIONS[name])  # with what is known by then
    several = [right for steps, right in calls if steps > 1]
    assert sum(several) > 16 and (min(several) < 8 or name == "stop")
    monkeypatch.setattr(constrained, "_LEAST_RIGHT", 10**6)
    monkeypatch.setattr(constrained, "_MOST_RIGHT", 10**6)
    calls.clear()
    assert guessed == again == write(model, **OPTIONS[name])
    assert {steps for steps, _ in calls} == {1}


def test_a_table_that_is_full_begins_anew(model, calls, monkeypatch):
    plain = write(model, **OPTIONS["random"])
    monkeypatch.setattr(mask_table, "_SIZE", 14)
    monkeypatch.setattr(constrained, "_LEAST_RIGHT", 1)
    monkeypatch.setattr(constrained, "_KEPT", mask_table.GuessStore())
    cleared, clear = [], MaskGuesses.clear
    monkeypatch.setattr(
        MaskGuesses, "clear", lambda self: (cleared.append(1), clear(self))
    )
    assert write(model, **OPTIONS["random"]) == plain
    assert len(cleared) > 2


def test_streams_have_pieces_of_their_size(model, monkeypatch):
    monkeypatch.setattr(constrained, "_LEAST_RIGHT", 1)
    tokens = model.tokenizer.encode("so")
    options = {"regex": "[a-z ]{200}", "sampler": RandomSampler(), "seed": 1}
    pieces = []
    with pytest.raises(IncompleteAnswerError):
        for piece in model.generate(tokens, 64, stream=3, **options):
            pieces.append(piece)
    assert max(map(len, pieces)) <= 3
    assert len(np.concatenate(pieces)) == 64


def test_a_second_text_of_a_form_is_written_in_few_calls(model, calls):
    options = {"regex": r"(\[alpha, beta, \[0, 1\]\], ){1,99}"}
    first = write(model, **options)
    before = len(calls)
    calls.clear()
    assert write(model, **options) == first
    assert len(calls) < before and len(calls) < 40


def test_guesses_are_those_of_the_device():
    draw = random.Random(0)
    masks = np.array([[1 << n, 2**32 - 1 - n] for n in range(6)], np.uint32)
    guesses = MaskGuesses(2, 2, exact=True)
    places = guesses.begin(masks[:2])
    for _ in range(200):
        tokens = np.array([draw.randrange(4) for _ in places])
        guess = guess_place(
            jnp.array(guesses.links), jnp.array(places), jnp.array(tokens)
        )
        assert guess.tolist() == guesses.after(places, tokens.tolist()).tolist()
        masks_now = masks[[(p + t) % 6 for p, t in zip(places, tokens, strict=True)]]
        places, _ = guesses.note(places, tokens.tolist(), masks_now)
        assert (guesses.masks[places] == masks_now).all()


def test_a_mask_of_more_tokens_suffices_where_the_likeliest_is_taken():
    string, shorter, far = (np.uint32([[m]]) for m in (0xFFFF, 0x7FFF, 0xFF))
    for exact in (False, True):
        guesses = MaskGuesses(1, 1, exact)
        place = guesses.begin(string)
        found = [bool(guesses.suffice(place, m)[0]) for m in (string, shorter, far)]
        assert found == [True, not exact, False]
        assert not guesses.suffice(place, np.uint32([[0x10000]]))[0]
