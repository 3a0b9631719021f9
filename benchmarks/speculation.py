"""Tokens/s with drafts: what a pass over several tokens costs, and how many it writes.

    python benchmarks/speculation.py shape [--model llama-1b] [--batches 1,8]
    python benchmarks/speculation.py learnt [--steps 400]

``shape`` has random weights of a model's sizes, in bfloat16. A pass costs what it costs
with learnt ones; how many tokens it writes does not tell anything, since random weights
write what no text is like. So the line of a draft has ``cost``: a pass with its draft,
by the time of a token without one. A draft pays for texts of which a pass writes more
tokens than that.

``learnt`` trains a model and a smaller one on the Python files of the installed
packages, a tenth of which is kept for prompts, and writes: code that goes on (``new``),
and behind a file's beginning the same once more (``again``: a text that is written out,
as code with one change is), greedily and drawn at a temperature. ``written`` are
tokens of a pass, ``accepted`` the share of drafted ones, ``speed`` tokens/s by those
without a draft. ``rules`` compares, on the two models' probabilities, how often a draft
with the same draws is accepted, and how often by the rule of Leviathan et al. (2023).

Rounds go in turns, the minimum of each counts; on a CPU by processor time, for which
``XLA_FLAGS=--xla_cpu_multi_thread_eigen=false`` and one core are right.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from generation import MODELS

PROMPT, TOKENS = 128, 128
SMALL = {"layers": 2, "width": 512, "heads": 8, "key_value_heads": 8, "mlp_width": 1536}
WORDS, LENGTH = 1024, 128
KEYS = {"key_value_heads": 4}
LEARNT = {  # the model and the one that drafts
    "tiny": (
        {"layers": 2, "width": 128, "heads": 4, "mlp_width": 352, **KEYS},
        {"layers": 1, "width": 48, "heads": 4, "mlp_width": 128, **KEYS},
    ),
    "small": (
        {"layers": 6, "width": 384, "heads": 8, "mlp_width": 1024, **KEYS},
        {"layers": 1, "width": 96, "heads": 4, "mlp_width": 256, **KEYS},
    ),
}


def show(*words: Any) -> None:
    print(*words, flush=True)


def fastest(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The least seconds of each call, in turns, after one that compiles."""
    import jax

    clock = time.perf_counter
    if jax.default_backend() == "cpu":
        clock = time.process_time  # other processes do not count
    best = dict.fromkeys(calls, float("inf"))
    for number in range(rounds + 1):
        for name, call in calls.items():
            start = clock()
            call()
            if number:
                best[name] = min(best[name], clock() - start)
    return best


def compare(
    model: Any,
    prompts: list,
    drafts: dict[str, Any],
    rounds: int,
    rows: int,
    **options: Any,
) -> None:
    """Shows what each draft costs and writes; the first line is that of none.

    Args:
        rows: Prompts of a call.
    """
    groups = [prompts[at : at + rows] for at in range(0, len(prompts), rows)]

    def write(count: int, draft: Any) -> Callable[[], Any]:
        return lambda: [
            model.generate(group, count, draft=draft, **options) for group in groups
        ]

    calls: dict[str, Callable[[], Any]] = {}
    lines: list[dict[str, Any]] = []
    for name, draft in {"none": None, **drafts}.items():
        calls |= {name: write(TOKENS, draft), f"{name}, one": write(1, draft)}
    best = fastest(calls, rounds)
    for name, draft in {"none": None, **drafts}.items():
        spent = best[name] - best[f"{name}, one"]
        line = {"draft": name, "tokens/s": len(prompts) * (TOKENS - 1) / spent}
        steps = TOKENS - 1.0
        if draft is not None:
            counts = draft.statistics  # of several equal calls
            each = counts.written / (len(prompts) * (TOKENS - 1))
            steps = counts.passes / each / len(prompts)  # of each row
            line |= {"written": counts.tokens_per_pass, "accepted": counts.acceptance}
        line["ms a pass"] = 1e3 * spent / steps / len(groups)
        if lines:
            line["cost"] = line["ms a pass"] / lines[0]["ms a pass"]
            line["speed"] = line["tokens/s"] / lines[0]["tokens/s"]
        lines.append(line)
        show(
            "  ",
            *(f"{k} {v:.3g}" if k != "draft" else f"{v:<12}" for k, v in line.items()),
        )


# ---------------------------------------------------------------------- shape
def llama(vocabulary: int, **options: Any) -> Any:
    from exburn.applications import Llama

    return Llama(vocabulary_size=vocabulary, tie_embeddings=True, **options)


def shape(args: Any) -> None:
    import exburn
    from exburn.text import DraftModel, PromptLookup

    exburn.set_random_seed(0)
    sizes = MODELS[args.model]
    model = llama(
        sizes.vocabulary,
        layers=sizes.layers,
        width=sizes.width,
        heads=sizes.heads,
        key_value_heads=sizes.key_heads,
        mlp_width=sizes.mlp_width,
        dtype="bfloat16",
    )
    small = llama(sizes.vocabulary, **SMALL, dtype="bfloat16")
    kinds: dict[str, Callable[[], Any]] = {
        "ngrams 4": lambda: PromptLookup(4),
        "ngrams 8": lambda: PromptLookup(8),
        "ngrams 16": lambda: PromptLookup(16),
        "small 4": lambda: DraftModel(small, 4),
        "int4 4": lambda: DraftModel("int4", 4),
    }
    rng = np.random.default_rng(0)
    for batch in map(int, args.batches.split(",")):
        period = rng.integers(0, sizes.vocabulary, (batch, PROMPT // 4))
        show(f"{args.model}, {batch} rows")
        names = [n for n in kinds if n.split()[0] in args.drafts.split(",")]
        drafts = {name: kinds[name]() for name in names}
        compare(model, list(np.tile(period, 4)), drafts, args.rounds, batch)


# ---------------------------------------------------------------------- learnt
def files() -> list[str]:
    """Texts of Python files of some length, always the same ones."""
    folder = Path(sysconfig.get_paths()["purelib"])
    texts = []
    for name in ("jax", "flax", "optax", "numpy", "scipy"):
        for path in sorted((folder / name).rglob("*.py")):
            text = path.read_text("utf-8", errors="ignore")
            if 2_000 < len(text) < 60_000:
                texts.append(text)
    np.random.default_rng(0).shuffle(texts)
    return texts


def learn(model: Any, chunks: np.ndarray, steps: int, batch: int) -> None:
    import exburn

    begun = time.perf_counter()
    schedule = exburn.optimizers.schedules.CosineDecay(
        1e-5, steps, warmup_target=3e-3, warmup_steps=steps // 20
    )
    model.compile(exburn.optimizers.AdamW(schedule))
    rows = np.random.default_rng(1).integers(0, len(chunks), steps * batch)
    x, y = chunks[rows, :-1], chunks[rows, 1:]
    model.fit(x, y, batch_size=batch, verbose=0, shuffle=False)
    loss = model.evaluate(chunks[:64, :-1], chunks[:64, 1:], verbose=0)
    loss, spent = np.ravel(loss)[0], time.perf_counter() - begun
    show(f"  {model.count_params():,} weights: loss {loss:.3f} in {spent:.0f} s")


def learnt(args: Any) -> None:
    import exburn
    from exburn.text import DraftModel, PromptLookup, RandomSampler, Tokenizer

    exburn.set_random_seed(0)
    texts, chosen = files(), args.drafts.split(",")
    held = len(texts) // 10
    tokenizer = Tokenizer.train(texts[held : held + 400], WORDS)
    tokens = np.concatenate(tokenizer.encode(texts[held : held + args.files]))
    size = LENGTH + 1
    chunks = tokens[: len(tokens) // size * size].reshape(-1, size)
    show(f"{len(tokens):,} tokens of {args.files} files")
    model, small = (llama(WORDS, **sizes) for sizes in LEARNT[args.size])
    learn(model, chunks, args.steps, args.batch)
    rows = [row for row in tokenizer.encode(texts[:held]) if len(row) > 400]
    if "small" in chosen:
        learn(small, chunks, args.steps, args.batch)
        rules(model, small, [row[: LENGTH + 1] for row in rows[:16]])
    rows = rows[: args.prompts]
    kinds: dict[str, Callable[[], Any]] = {
        "ngrams 4": lambda: PromptLookup(4),
        "ngrams 8": lambda: PromptLookup(8),
        "small 3": lambda: DraftModel(small, 3),
        "int4 3": lambda: DraftModel("int4", 3),
    }
    samplers = {"greedy": None, "drawn": RandomSampler(temperature=0.7)}
    for name in args.samplers.split(","):
        for text, prompts in (
            ("new", [row[:120] for row in rows]),
            ("again", [np.concatenate([row[:96], row[:24]]) for row in rows]),
        ):
            show(f"{text}, {name}")
            drafts = {k: make() for k, make in kinds.items() if k.split()[0] in chosen}
            options = {"sampler": samplers[name], "seed": 1}
            compare(model, prompts, drafts, args.rounds, 1, **options)


def rules(model: Any, small: Any, rows: list[np.ndarray]) -> None:
    """How often a token of the small model is accepted, by two rules."""
    import jax
    import jax.numpy as jnp

    for name, draft in (("small", small), ("int4", model.quantize("int4"))):
        for temperature in (1.0, 0.7):
            share, log = [], []
            for one in (model, draft):
                scores = one.predict(np.stack(rows)[:, :-1], verbose=0)
                scores = jnp.asarray(scores).reshape(-1, WORDS) / temperature
                share.append(jax.nn.softmax(scores))
                log.append(scores)
            best = jnp.minimum(*share).sum(-1).mean()
            noise = jax.random.gumbel(jax.random.key(0), log[0].shape)
            same = (log[0] + noise).argmax(-1) == (log[1] + noise).argmax(-1)
            apart = jnp.einsum("tv,tv->t", *share).mean()
            show(
                f"rules, {name}, temperature {temperature}: by Leviathan's "
                f"{float(best):.3f}, with the same draws {float(same.mean()):.3f}, "
                f"with draws of its own {float(apart):.3f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("part", choices=("shape", "learnt"))
    parser.add_argument("--model", default="llama-1b", choices=sorted(MODELS))
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--drafts", default="ngrams,small,int4")
    parser.add_argument("--size", default="tiny", choices=sorted(LEARNT))
    parser.add_argument("--samplers", default="greedy,drawn")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--files", type=int, default=800)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    {"shape": shape, "learnt": learnt}[args.part](args)


if __name__ == "__main__":
    main()
