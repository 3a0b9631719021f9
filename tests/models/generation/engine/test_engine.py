"""Texts that are written together: each is what it would be alone."""

import functools
import threading
import time

import jax
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.applications import GPT2, Llama
from exburn.errors import (
    ArgumentError,
    BatchFailedError,
    DataError,
    QueueFullError,
    ServingClosedError,
    UnknownNameError,
)
from exburn.models.generation.engine import TextEngine, TextRequest
from exburn.runtime.kernels import paged_attention
from exburn.text import RandomSampler

WORDS, NEW = 64, 12
POISON = WORDS - 1  # a token whose vector is NaN


def text_model(seed=3):
    exburn.set_random_seed(seed)
    model = Llama(
        WORDS,
        layers=1,
        width=16,
        heads=4,
        key_value_heads=2,
        mlp_width=32,
        tie_embeddings=False,
    )
    weights = [12 * w if w.ndim > 1 else w for w in model.get_weights()]
    weights[0][POISON] = np.nan
    (head,) = [i for i, w in enumerate(weights) if w.shape == (16, WORDS)]
    weights[head][:, POISON] = 0  # never the likeliest
    model.set_weights(weights)
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


def wait_for(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.002)


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

    def __init__(self, fails=None):
        self.count, self.has_ended, self.fails = 0, False, fails

    def start(self):
        return Counting(self.fails)

    def mask(self):
        if self.fails == self.count:
            raise ValueError("the form is broken")
        bits = np.zeros(WORDS, bool)
        bits[3 + self.count] = True
        return np.packbits(bits, bitorder="little").view(np.uint32)

    def accept(self, token):
        assert token == 3 + self.count
        self.count += 1
        self.has_ended = self.count == 6


def test_a_constraint_holds_from_the_first_token_on(engine, alone):
    prompts, texts = alone
    requests = [greedy(row, constraint=Counting()) for row in prompts[:3]]
    answers = engine.write([*requests, greedy(prompts[3])])
    assert tokens_of(answers) == [[*range(3, 9)]] * 3 + [texts[3]]
    assert [answer.finish_reason for answer in answers] == ["stop"] * 3 + ["length"]


# ------------------------------------------------------------------ ends of texts
def test_a_failing_text_fails_alone(engine, alone):
    prompts, texts = alone
    poison = np.append(prompts[0][:9], POISON)

    def shout(part):
        raise RuntimeError("nobody listens")

    requests = [
        greedy(prompts[1]),
        greedy(poison),
        greedy(prompts[2], constraint=Counting(fails=0)),
        greedy(prompts[2], constraint=Counting(fails=3)),
        greedy(prompts[2], constraint=Counting()),
        greedy(prompts[3]),
        greedy(prompts[4]),
        greedy(poison[3:]),
    ]
    answers = [engine.submit(request) for request in requests]
    answers[5].listen(shout)
    for answer in answers:
        assert answer.wait(120)
    reasons = [answer.finish_reason for answer in answers]
    assert reasons == ["length", *["error"] * 3, "stop", "error", "length", "error"]
    with pytest.raises(DataError, match="scores are NaN"):
        answers[1].result()
    with pytest.raises(BatchFailedError, match="ValueError: the form is broken"):
        list(answers[3])
    assert isinstance(answers[5].error, RuntimeError)
    assert tokens_of([answers[0], answers[6]]) == [texts[1], texts[4]]
    assert answers[4].result().tokens.tolist() == [*range(3, 9)]
    # What they had is free, and holds nothing that spoils others.
    numbers = engine.statistics()
    assert numbers.pages_free == numbers.pages and numbers.failures == 0
    assert tokens_of(engine.write([greedy(prompt) for prompt in prompts])) == texts


def test_stops_end_a_text_and_are_not_told(engine, alone):
    prompts, texts = alone
    prompt, text = prompts[1], texts[1]
    stop = text[4:6]
    end = next(i for i in range(len(text)) if text[i : i + 2] == stop)
    answer = engine.submit(greedy(prompt, stops=[[WORDS - 2] * 4, stop]))
    assert [t for part in answer for t in part.tokens.tolist()] == text[:end]
    assert (answer.finish_reason, answer.stop) == ("stop", tuple(stop))
    never = engine.submit(greedy(prompt, stops=[[WORDS - 2] * 4]))
    assert never.result(60).tokens.tolist() == text


def test_logprobs_are_those_of_the_scores(engine, model, alone):
    prompt, text = alone[0][1], alone[1][1]
    answer = engine.submit(greedy(prompt, logprobs=2)).result(60)
    ids = np.concatenate([prompt, text])[None]
    scores = np.asarray(model(ids), np.float64)[0, len(prompt) - 1 : -1]
    logs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    np.testing.assert_allclose(answer.logprobs, logs[range(NEW), text], atol=1e-4)
    for row, top in zip(logs, answer.top, strict=True):
        order = np.argsort(-row)[:2]
        assert [token for token, _ in top] == order.tolist()
        np.testing.assert_allclose([v for _, v in top], row[order], atol=1e-4)
    one = engine.submit(greedy(prompt, logprobs=0)).result(60)
    np.testing.assert_allclose(one.logprobs, answer.logprobs, atol=1e-5)
    assert one.top is None


def test_cancelled_and_late_texts_free_their_slots(engine, alone):
    prompts, texts = alone
    long = [engine.submit(greedy(prompts[i], 4000)) for i in range(3)]
    next(iter(long[0]))
    waiting = engine.submit(greedy(prompts[3], deadline=time.monotonic() + 0.02))
    gone = engine.submit(greedy(prompts[4]))
    gone.cancel()
    late = engine.submit(greedy(prompts[5]))
    assert waiting.wait(60) and gone.wait(60) and not late.has_ended
    assert (waiting.finish_reason, gone.finish_reason) == ("deadline", "cancelled")
    assert not waiting.result().tokens.size
    for answer in long:
        answer.cancel()
    assert late.result(60).tokens.tolist() == texts[5]
    assert [answer.finish_reason for answer in long] == ["cancelled"] * 3
    soon = engine.submit(greedy(prompts[1], 4000, deadline=time.monotonic() + 0.3))
    start = soon.result(60).tokens.tolist()
    assert soon.finish_reason == "deadline" and start[:NEW] == texts[1][: len(start)]
    wait_for(lambda: engine.statistics().active == 0)
    assert engine.statistics().pages_free == engine.statistics().pages


def test_clients_take_turns(engine, alone):
    prompts, _ = alone
    block = [engine.submit(greedy(prompts[0], 4000, client="x")) for _ in range(3)]
    wait_for(lambda: engine.statistics().active == 3)
    order, lock = [], threading.Lock()

    def note(name):
        def listen(part):
            with lock:
                order.append(name)

        return listen

    answers = []
    for number in range(5):
        answers.append(engine.submit(greedy(prompts[1], 1, client="many")))
        answers[-1].listen(note(f"many {number}"))
    answers.append(engine.submit(greedy(prompts[1], 1, client="one")))
    answers[-1].listen(note("one"))
    for answer in block:
        answer.cancel()
    for answer in answers:
        assert answer.wait(60)
    firsts = list(dict.fromkeys(order))
    assert firsts.index("one") <= 3  # of slots that are given at once
    many = [name for name in firsts if name != "one"]
    assert many == [f"many {number}" for number in range(5)]


# ------------------------------------------------------------------ the engine
def test_pages_of_int8_hold_more_tokens_and_company_changes_no_text(model, alone):
    prompts, texts = (list(rows)[1:5] for rows in alone)
    options = {"page": 4, "cache_dtype": "int8"}
    requests = [greedy(prompt, logprobs=0) for prompt in prompts]
    with TextEngine(model, slots=2, prefill=16, **options) as engine:
        answers = [a.result(120) for a in engine.write(requests)]
        bytes_of_page = engine.statistics().page_bytes
        single = engine.write(requests[3:])[0].result(120)
    # 4 tokens, 2 heads of 4 numbers and a scale of 4 bytes, keys and values
    assert bytes_of_page == 4 * 2 * (4 + 4) * 2
    assert single.tokens.tolist() == answers[3].tokens.tolist()
    np.testing.assert_allclose(single.logprobs, answers[3].logprobs, atol=1e-4)
    same = sum(
        a.tokens.tolist() == text for a, text in zip(answers, texts, strict=True)
    )
    assert same >= 3  # of 4 texts of a model whose scores are all alike


def test_other_weights_write_other_texts(model, alone):
    prompts, texts = alone
    other = text_model(seed=4)
    with TextEngine(other, slots=3, prefill=32, page=4) as engine:
        before = tokens_of(engine.write([greedy(p) for p in prompts[:4]]))
        assert before != texts[:4]
        running = engine.submit(greedy(prompts[0], 3000))
        next(iter(running))
        other.set_weights(model.get_weights())
        after = tokens_of(engine.write([greedy(p) for p in prompts[:4]]))
        assert after == texts[:4]
        running.cancel()
        for _ in range(4):  # as a training does, at any moment
            answers = [engine.submit(greedy(p)) for p in prompts[:4]]
            before = jax.tree.leaves(engine._loop.source.split.read())
            other.set_weights(model.get_weights())
            for array in before:
                array.delete()
            assert tokens_of(answers) == texts[:4]
        engine.refresh()
        assert tokens_of(engine.write([greedy(prompts[0])])) == texts[:1]


def test_each_text_has_its_adapter():
    model, prompts = text_model(), prompts_of(4)
    for name in ("one", "two"):
        model.add_lora(rank=2, name=name)
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if "/lora_adapters/" in weight.path and "embedding" not in weight.path:
            weight.assign(4 * rng.normal(size=weight.shape))
    model.set_adapter("one")
    names = ("one", "two", None)
    texts = {
        name: [row.tolist() for row in model.generate(prompts, 6, adapter=name)]
        for name in names
    }
    assert texts[None] == texts["one"] != texts["two"]
    with TextEngine(model, slots=3, page=4, prefill=32) as engine:
        requests = [greedy(p, 6, adapter=name) for name in names for p in prompts]
        for _ in range(2):  # the second time with the pages of the first
            answers = engine.write(requests)
            assert tokens_of(answers) == texts["one"] + texts["two"] + texts["one"]
        assert answers[0].shared_tokens and answers[4].shared_tokens
        model.set_adapter("two")
        assert tokens_of(engine.write([greedy(p, 6) for p in prompts])) == texts["two"]


def test_a_failure_of_the_engine_is_told_and_it_goes_on(engine, alone, monkeypatch):
    prompts, texts = alone
    loop = engine._loop

    def fail(*args):
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(loop, "_call", fail)
    answers = engine.write([greedy(prompt) for prompt in prompts[:5]])
    assert {str(answer.error) for answer in answers} == {"the device is gone"}
    numbers = engine.statistics()
    assert numbers.failures >= 1 and str(numbers.failure) == "the device is gone"
    monkeypatch.undo()
    assert tokens_of(engine.write([greedy(p) for p in prompts])) == texts


def test_a_full_queue_and_a_closed_engine_refuse(model, alone):
    prompts, _ = alone
    engine = TextEngine(model, slots=1, prefill=32, page=4, max_queue=2)
    engine._loop._round = lambda: time.sleep(0.001)  # nothing is ever admitted
    answers = [engine.submit(greedy(prompts[1])) for _ in range(2)]
    with pytest.raises(QueueFullError, match="2 texts wait, as many as max_queue"):
        engine.submit(greedy(prompts[1]))
    engine.close()
    for answer in answers:
        with pytest.raises(ServingClosedError, match="the engine is closed"):
            answer.result(1)
    with pytest.raises(ServingClosedError):
        engine.submit(greedy(prompts[1]))


def test_write_takes_more_than_the_queue(engine, alone, monkeypatch):
    prompts, texts = alone
    monkeypatch.setattr(engine, "max_queue", 2)
    assert tokens_of(engine.write([greedy(prompt) for prompt in prompts])) == texts


BAD_TEXTS = [
    (lambda: greedy([]), DataError, "the prompt is empty"),
    (lambda: greedy([1, -2]), DataError, "≥ 0, received -2"),
    (lambda: greedy([[1]]), ArgumentError, "one axis"),
    (lambda: greedy([1], 0), ArgumentError, "max_new_tokens must be an integer ≥ 1"),
    (lambda: TextRequest([1], 2, top_p=0), ArgumentError, "top_p"),
    (lambda: TextRequest([1], 2, temperature=-1), ArgumentError, "temperature"),
    (lambda: greedy([1], stops=[[]]), ArgumentError, "a stop must not be empty"),
    (lambda: greedy([1], logprobs=65), ArgumentError, "logprobs is at most 64"),
    (lambda: greedy([1], constraint=3), ArgumentError, "constraint is"),
    (lambda: greedy([1], client=[]), ArgumentError, "client must be hashable"),
    (lambda: greedy([1, WORDS]), DataError, f"{WORDS}"),
    (lambda: greedy([1], adapter="mine"), UnknownNameError, "mine"),
    (lambda: greedy([1] * 99, 9**9), ArgumentError, "the text needs .* pages"),
]


@pytest.mark.parametrize("make, error, message", BAD_TEXTS)
def test_refuses_a_text_before_anything_runs(engine, make, error, message):
    with pytest.raises(error, match=message):
        engine.submit(make())


def test_refuses_models_and_caches_by_name(model):
    with pytest.raises(ArgumentError, match="free, fewer than the cache"):
        TextEngine(model, cache="900 TB")
    with pytest.raises(ArgumentError, match="smaller than two pages"):
        TextEngine(model, cache=100)
    with pytest.raises(ArgumentError, match="cache is a size such as"):
        TextEngine(model, cache="much")
    with pytest.raises(ArgumentError, match='TextEngine: cache_dtype is "int8"'):
        TextEngine(model, cache_dtype="int4")
    short = GPT2(WORDS, layers=1, width=16, heads=2, positions=8)
    with TextEngine(short, slots=1) as engine:
        with pytest.raises(ArgumentError, match="has 8 positions, fewer than the text"):
            engine.submit(greedy([1] * 5, 4))
    whole = exburn.Sequential(
        [exburn.Input((6,)), layers.Embedding(9, 4), layers.Dense(9)]
    )
    with pytest.raises(ArgumentError, match="the model cannot use a cache: its input"):
        TextEngine(whole)


def test_texts_are_the_same_by_the_kernel_of_pages(model, alone, monkeypatch):
    prompts, texts = alone
    attend = paged_attention.attend
    monkeypatch.setattr(paged_attention, "suits", lambda arrays: True)
    monkeypatch.setattr(
        paged_attention, "attend", functools.partial(attend, interpret=True)
    )
    with TextEngine(model, slots=3, prefill=32, page=4) as engine:
        assert engine._loop.source.layout.heads_first
        assert tokens_of(engine.write([greedy(prompt) for prompt in prompts])) == texts


def test_thousands_of_texts_none_lost_none_wrong(model):
    prompts = prompts_of(40, seed=7)
    texts = [row.tolist() for row in model.generate(prompts, NEW)]
    drawn = [
        row.tolist()
        for prompt in prompts
        for row in [model.generate(prompt, NEW, sampler=RandomSampler(), seed=5)]
    ]
    page, lock, outcomes = engine_page_bytes(model), threading.Lock(), []

    def ask(engine, seed):
        rng = np.random.default_rng(seed)
        for _ in range(600):
            number, kind = int(rng.integers(40)), int(rng.integers(8))
            prompt, count = prompts[number], int(rng.integers(1, NEW + 1))
            text, reason, options = texts[number][:count], "length", {}
            if kind == 0:
                prompt, reason = np.append(prompt[:40], POISON), "error"
            elif kind == 1:
                options, text = {"temperature": 1, "seed": 5}, drawn[number][:count]
            elif kind == 2:
                options, text, reason = (
                    {"constraint": Counting()},
                    [*range(3, 9)],
                    "stop",
                )
                count = NEW
            elif kind == 3:
                options, reason = {"deadline": time.monotonic()}, "deadline"
            elif kind == 4:
                options, count = {"stops": [text[-1:]]}, NEW
                text, reason = text[: text.index(text[-1])], "stop"
            request = TextRequest(prompt, count, **{"temperature": 0} | options)
            answer = engine.submit(request)
            if kind == 5:
                answer.cancel()
                reason = "cancelled"
            if rng.random() < 0.3:
                answer.wait(60)
            with lock:
                outcomes.append((answer, reason, text))

    with TextEngine(
        model, slots=6, prefill=32, page=4, cache=40 * page, max_queue=10_000
    ) as engine:
        threads = [threading.Thread(target=ask, args=(engine, i)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        lost = [answer for answer, *_ in outcomes if not answer.wait(120)]
        numbers = engine.statistics()
    wrong = []
    for answer, reason, text in outcomes:
        if answer.finish_reason in ("length", "stop"):
            right = answer.result().tokens.tolist() == text
        else:
            right = answer.finish_reason == reason
        if not right:
            wrong.append((answer.finish_reason, reason, answer.error))
    assert (len(outcomes), lost, wrong[:3]) == (2400, [], [])
    assert numbers.failures == 0 and numbers.preempted > 0
    assert sum(numbers.ended.values()) == 2400
    assert numbers.pages_free == numbers.pages
