"""Tokens/s of a 1B Llama whose rows have adapters of their own.

    python benchmarks/adapters.py [--rows 32] [--adapters 8] [--tokens 64] [--small]

Ways: ``none`` (no adapter computed), ``active`` (one for all rows, as after
``set_adapter``), ``one`` (the same by its name), ``rows`` (each row its own). All write
greedily behind prompts of 128 in one call of ``generate``; the least of the warm rounds
counts, and each way is beside ``none``. With ``--small`` the sizes are for a processor,
and its time counts, which others on the machine change less.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from exburn.applications import Llama
from exburn.module.traversal import iter_weights

PROMPT, RANK = 128, 16
SIZES = {"layers": 16, "width": 2048, "heads": 32, "key_value_heads": 8}
SIZES |= {"mlp_width": 8192, "vocabulary_size": 128_256, "dtype": "bfloat16"}
SMALL = SIZES | {"layers": 4, "width": 512, "heads": 8, "key_value_heads": 2}
SMALL |= {"mlp_width": 2048, "vocabulary_size": 8_192, "dtype": "float32"}


def make_model(count: int, small: bool) -> Any:
    """A model with random adapters, of which none is active."""
    sizes: dict[str, Any] = SMALL if small else SIZES
    model = Llama(tie_embeddings=True, **sizes)
    rng = np.random.default_rng(0)
    for number in range(count):
        model.add_lora(RANK, name=f"a{number}", filter=["*attention*", "*mlp*"])
    for path, weight, _ in iter_weights(model):
        if path.endswith("lora_b"):
            weight.assign(rng.standard_normal(weight.shape, np.float32) * 0.01)
    model.set_adapter(None)
    return model


def seconds(write: Callable[[], Any], rounds: int, clock: Callable) -> float:
    """The least time of a round, after a first one that compiles."""
    write()
    times = []
    for _ in range(rounds):
        start = clock()
        write()
        times.append(clock() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("rows", 32), ("adapters", 8), ("tokens", 64), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args()
    model = make_model(asked.adapters, asked.small)
    ids = np.random.default_rng(1).integers(0, 8_000, (asked.rows, PROMPT))
    names = [f"a{row % asked.adapters}" for row in range(asked.rows)]
    base = 0.0
    for way, active, adapter in (
        ("none", None, None),
        ("rows", None, names),
        ("one", None, "a0"),
        ("active", "a0", None),
    ):
        model.set_adapter(active)
        took = seconds(
            lambda adapter=adapter: model.generate(ids, asked.tokens, adapter=adapter),
            asked.rounds,
            time.process_time if asked.small else time.perf_counter,
        )
        base = base or took
        rate = asked.rows * asked.tokens / took
        print(f"{way:7} {rate:9,.0f} tokens/s  {took / base:.2f} × none", flush=True)


if __name__ == "__main__":
    main()
