"""Tokens/s of ``TextEngine``, by the number of texts that are written at once.

    python benchmarks/text_engine.py [--model gpt2|llama-1b] [--clients 1,8,32,128]
        [--pages kernel,plain] [--prompt 128] [--tokens 128] [--profile]

Each client asks for one text after another, all of random tokens, with random weights
of the model's sizes. "kernel" reads pages by the kernel of Pallas, where it runs,
"plain" has XLA gather them. A first round compiles; the best of the rounds after it
counts. With ``--profile`` the times of a round's calls are told.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from generation import MODELS, Work, _exburn_model

from exburn.models.generation.engine import TextEngine, TextRequest
from exburn.runtime.kernels import paged_attention


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="llama-1b", choices=list(MODELS))
    parser.add_argument("--clients", default="1,8,32,128")
    parser.add_argument("--pages", default="kernel,plain")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cache", default="8 GB")
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--stride", type=int, help="tokens of a call")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    model = _exburn_model(Work(given.model, "bfloat16"))
    suits = paged_attention.suits
    for kind in given.pages.split(","):
        paged_attention.suits = suits if kind == "kernel" else lambda arrays: False
        for clients in map(int, given.clients.split(",")):
            start = time.perf_counter()
            with TextEngine(
                model, slots=clients, cache=given.cache, prefill=given.prefill
            ) as engine:
                engine._loop._stride = given.stride or engine._loop._stride

                _measure(given, model, engine, kind, clients, start)


def _measure(given, model, engine, kind, clients, start) -> None:
    """Prints one line."""
    vocabulary = MODELS[given.model].vocabulary
    best = None
    for number in range(given.rounds + 1):
        rng = np.random.default_rng(number)
        requests = [
            TextRequest(
                rng.integers(0, vocabulary, given.prompt), given.tokens, temperature=0
            )
            for _ in range(clients)
        ]
        if given.profile and number == given.rounds:
            _profile(engine, requests)
            continue
        begin = time.perf_counter()
        answers = engine.write(requests)
        seconds = time.perf_counter() - begin
        assert all(answer.finish_reason == "length" for answer in answers)
        if number == 0:
            compiled = begin + seconds - start
            continue
        first = sorted(a.times["first"] - a.times["submitted"] for a in answers)
        rate = clients * given.tokens / seconds
        if best is None or rate > best[0]:
            best = rate, first[len(first) // 2], first[-1], seconds
    if best is None:
        return
    rate, middle, last, seconds = best
    step = (seconds - last) / (given.tokens - 1)
    print(
        f"{given.model} {kind:6} prefill {given.prefill} clients {clients:4}: "
        f"{rate:9,.0f} tokens/s, first token {middle * 1e3:7.1f} ms "
        f"(last {last * 1e3:.1f}), step {step * 1e3:6.2f} ms, "
        f"start and first round {compiled:.0f} s",
        flush=True,
    )


def _profile(engine, requests) -> None:
    """Prints how the processor's time of the engine's thread is spent."""
    import cProfile
    import pstats

    loop, profile = engine._loop, cProfile.Profile()
    once = loop._round

    def watched() -> None:
        profile.enable()
        once()
        profile.disable()

    loop._round = watched
    engine.write(requests)
    loop._round = once
    pstats.Stats(profile).sort_stats("cumulative").print_stats(28)


if __name__ == "__main__":
    main()
