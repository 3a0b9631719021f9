"""Texts that are written together: each is what it would be alone."""

import threading
import time

import numpy as np
import pytest

import exburn
from exburn.applications import GPT2
from exburn.models.generation.engine import TextEngine, TextRequest
from exburn.text import RandomSampler

WORDS, NEW = 64, 12
POISON = WORDS - 1  # a token whose vector is NaN


def text_model(seed=3):
    exburn.set_random_seed(seed)
    model = GPT2(WORDS, layers=1, width=16, heads=2, positions=96)
    model.set_weights([12 * w if w.ndim > 1 else w for w in model.get_weights()])
    return model


def prompts_of(count, seed=0):
    """Prompts of unlike lengths, some of which begin alike."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, POISON, 40)
    rows = []
    for number in range(count):
        size = int(rng.integers(1, 60))
        own = rng.integers(0, POISON, size)
        rows.append(np.concatenate([first, own])[:70] if number % 3 == 0 else own)
    return rows


def greedy(tokens, count=NEW, **options):
    return TextRequest(tokens, count, temperature=0, **options)


@pytest.fixture(scope="module")
def model():
    return text_model()


@pytest.fixture(scope="module")
def alone(model):
    """Prompts, and their texts by ``generate``."""
    prompts = prompts_of(16)
    return prompts, [row.tolist() for row in model.generate(prompts, NEW)]


@pytest.fixture(scope="module")
def engine(model):
    with TextEngine(model, slots=3, prefill=32, page=4) as engine:
        yield engine


def tokens_of(answers):
    return [answer.result(120).tokens.tolist() for answer in answers]


def test_texts_are_those_of_generate_in_any_company(engine, alone):
    prompts, texts = alone
    rng, answers = np.random.default_rng(1), {}
    lock = threading.Lock()

    def ask(numbers):
        for number in numbers:
            answer = engine.submit(greedy(prompts[number], client=int(number) % 2))
            with lock:
                answers[int(number)] = answer
            time.sleep(float(rng.random()) / 500)

    order = rng.permutation(len(prompts))
    threads = [threading.Thread(target=ask, args=(order[i::2],)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = engine.write([greedy(prompt) for prompt in prompts])
    assert tokens_of(answers[i] for i in range(len(prompts))) == texts
    assert tokens_of(again) == texts
    assert all(answer.finish_reason == "length" for answer in again)
    assert any(answer.shared_tokens for answer in again)
    pages = engine.statistics()
    assert pages.pages_free == pages.pages and pages.active == pages.queue == 0


def test_a_full_cache_makes_texts_wait_and_changes_none(model, alone):
    prompts, texts = alone
    page = engine_page_bytes(model)
    with TextEngine(model, slots=3, prefill=32, page=4, cache=24 * page) as engine:
        answers = engine.write([greedy(prompt) for prompt in prompts])
        assert tokens_of(answers) == texts
        drawn = [TextRequest(p, NEW, seed=5) for p in prompts]
        sampled = tokens_of(engine.write(drawn))
        numbers = engine.statistics()
        assert numbers.pages == numbers.pages_free == 24
        assert numbers.preempted > 0
    rows = [model.generate(p, NEW, sampler=RandomSampler(), seed=5) for p in prompts]
    assert sampled == [row.tolist() for row in rows]


def engine_page_bytes(model):
    with TextEngine(model, slots=1, page=4) as engine:
        return engine.statistics().page_bytes


class Counting:
    """A constraint by which token 3 comes, then 4, then 5 …, and its matcher."""

    def __init__(self, count=0):
        self.count, self.ended = count, False

    def start(self):
        return Counting()

    def mask(self):
        bits = np.zeros(WORDS, bool)
        bits[3 + self.count] = True
        return np.packbits(bits, bitorder="little").view(np.uint32)

    def accept(self, token):
        assert token == 3 + self.count
        self.count += 1
        self.ended = self.count == 6


def test_a_constraint_holds_from_the_first_token_on(engine, alone):
    prompts, texts = alone
    requests = [greedy(row, constraint=Counting()) for row in prompts[:3]]
    answers = engine.write([*requests, greedy(prompts[3])])
    assert tokens_of(answers) == [[*range(3, 9)]] * 3 + [texts[3]]
    assert [answer.finish_reason for answer in answers] == ["stop"] * 3 + ["length"]
