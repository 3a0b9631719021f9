"""The loss of a language model's last product: without its scores, and with them.

    python benchmarks/fused_loss.py [--shapes 256x2048x248320,16384x2048x128256]
        [--sides exburn,scores,jax,torch,compiled,liger] [--dtype bfloat16]
        [--chunk 0] [--narrow] [--once] [--counted 1.0] [--variants] [--rounds 20]
        [--json out.json]

A shape is tokens x width x words. Each side computes the mean cross-entropy of the
words' labels and its gradients by the tokens' vectors and by the table of words, in a
process of its own: milliseconds (the least and the middle of the rounds), the peak of
the device's memory, and what the program needs beside its arguments and results.
``exburn`` is `head_loss`, ``scores`` ExBurn's loss of all scores, whose kernel reads
them once on a GPU, ``jax`` the product and the loss as XLA compiles them,
``torch`` ``F.cross_entropy`` of the product, ``compiled`` the same by
``torch.compile``, ``liger`` liger-kernel's fused linear cross-entropy. A side that is
not installed is left out, with a line that says so.

``--chunk`` are the rows of a chunk (0: the rule's), ``--narrow`` keeps scores in the
dtype of the vectors, ``--once`` has Triton's kernel read them (on a GPU), ``--counted``
is the share of tokens that count. ``--variants`` measures ``exburn`` with each of them
in turn. Lines are written as they come; about two minutes on an H200. On a CPU:
``--shapes 1024x128x32000 --dtype float32``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SHAPES = "256x2048x248320,16384x2048x128256"
SIDES = "exburn,scores,jax,torch,compiled,liger"
VARIANTS = [
    [],
    ["--narrow"],
    ["--once"],
    *(["--chunk", str(rows), "--once"] for rows in (512, 1024, 2048, 4096, 8192)),
    *(["--chunk", str(rows), "--narrow"] for rows in (1024, 4096)),
    ["--counted", "0.4"],
]


def arrays(options: argparse.Namespace) -> tuple[int, int, int, np.ndarray, np.ndarray]:
    tokens, width, words = map(int, options.shapes.split("x"))
    rng = np.random.default_rng(0)
    labels = rng.integers(0, words, tokens)
    counts = rng.random(tokens) < options.counted
    return tokens, width, words, labels, counts


def measure(run: Callable[[], Any], wait: Callable[[Any], Any], rounds: int) -> list:
    """Milliseconds of a call, round by round."""
    for _ in range(3):
        wait(run())
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        wait(run())
        times.append(1e3 * (time.perf_counter() - start))
    return times


# ------------------------------------------------------------------------------ sides
def in_jax(options: argparse.Namespace) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    from exburn.losses import SparseCategoricalCrossentropy
    from exburn.runtime.kernels.head_loss import Head, RowChunks, head_cross_entropy

    tokens, width, words, labels, counts = arrays(options)
    keys = jax.random.split(jax.random.key(0))
    x = jax.random.normal(keys[0], (tokens, width), options.dtype)
    table = (jax.random.normal(keys[1], (words, width)) * 0.02).astype(options.dtype)
    labels, factors = jnp.asarray(labels), jnp.asarray(counts / counts.sum(), "float32")
    live = None if counts.all() else factors != 0
    chunks = RowChunks(
        options.chunk or None,
        sorts=live is not None,
        narrow=options.narrow,
        once=options.once,
    )

    def without_scores(x, table):
        head = Head(x, table, turned=True)
        scored, zero = head_cross_entropy(head, labels, factors, live, plan=chunks)
        return jnp.sum(factors * scored.losses) + zero

    def with_scores(x, table):
        loss = SparseCategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        )
        return loss(labels, x @ table.T, sample_weight=factors)

    def plain(x, table):
        scores = (x @ table.T).astype(jnp.float32)
        own = jnp.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
        return jnp.sum(factors * (jax.nn.logsumexp(scores, axis=1) - own))

    losses = {"exburn": without_scores, "scores": with_scores, "jax": plain}
    loss = losses[options.sides]
    program = jax.jit(jax.value_and_grad(loss, (0, 1))).lower(x, table).compile()
    analysis = program.memory_analysis()
    times = measure(lambda: program(x, table), jax.block_until_ready, options.rounds)
    value, slopes = program(x, table)
    statistics_of = jax.local_devices()[0].memory_stats() or {}
    return {
        "times": times,
        "peak": statistics_of.get("peak_bytes_in_use"),
        "beside": analysis.temp_size_in_bytes if analysis else None,
        "value": float(value),
        "norm": [float(jnp.linalg.norm(v.astype(jnp.float32))) for v in slopes],
    }


def in_torch(options: argparse.Namespace) -> dict[str, Any]:
    import torch
    import torch.nn.functional as F

    tokens, width, words, labels, counts = arrays(options)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, options.dtype)
    torch.manual_seed(0)
    x = torch.randn(tokens, width, device=device).to(dtype).requires_grad_()
    table = (0.02 * torch.randn(words, width, device=device)).to(dtype)
    table.requires_grad_()
    labels = torch.tensor(np.where(counts, labels, -100), device=device)
    if options.sides == "liger":
        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

        fused = LigerFusedLinearCrossEntropyLoss()

    def loss(x, table):
        if options.sides == "liger":
            return fused(table, x, labels)
        return F.cross_entropy((x @ table.T).float(), labels)

    call = torch.compile(loss) if options.sides == "compiled" else loss

    def run():
        x.grad = table.grad = None
        value = call(x, table)
        value.backward()
        return value

    def wait(value):
        if device == "cuda":
            torch.cuda.synchronize()
        return value

    times = measure(run, wait, options.rounds)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else None
    norm = [float(v.grad.float().norm()) for v in (x, table)]
    return {"times": times, "peak": peak, "value": float(run()), "norm": norm}


SIDE = dict.fromkeys(("exburn", "scores", "jax"), in_jax)


# ------------------------------------------------------------------------------- lines
def line_of(shape: str, side: str, words: list[str], result: dict[str, Any]) -> str:
    times = result["times"]
    peak, beside = (
        "-" if (size := result.get(name)) is None else f"{size / 1e9:.2f}"
        for name in ("peak", "beside")
    )
    return (
        f"{shape:>20} {' '.join([side, *words]):<28} least {min(times):8.2f} ms  "
        f"middle {statistics.median(times):8.2f} ms  peak {peak} GB  beside {beside} GB"
        f"  loss {result['value']:.5f}"
    )


def in_process(shape: str, side: str, words: list[str], seconds: float) -> Any:
    """What a side measures in a process of its own; the last line of its errors."""
    command = [sys.executable, __file__, "--child", "--shapes", shape, "--sides", side]
    try:
        done = subprocess.run(
            [*command, *words], capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return f"no result in {seconds:.0f} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["it failed"])[-1]
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--sides", default=SIDES)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--chunk", type=int, default=0)
    parser.add_argument("--counted", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60, help="of one process")
    for name in ("narrow", "once", "variants", "child"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(SIDE.get(options.sides, in_torch)(options)))
        return
    shared = ["--dtype", options.dtype, "--rounds", str(options.rounds)]
    own = ["--chunk", str(options.chunk), "--counted", str(options.counted)]
    own += [f"--{name}" for name in ("narrow", "once") if getattr(options, name)]
    results = []
    for shape in options.shapes.split(","):
        for side in options.sides.split(","):
            turns = VARIANTS if options.variants and side == "exburn" else [own]
            for words in turns:
                result = in_process(shape, side, [*shared, *words], options.seconds)
                told = words if options.variants and side == "exburn" else []
                if isinstance(result, str):
                    print(f"{shape:>20} {side} {' '.join(told)}: {result}", flush=True)
                    continue
                print(line_of(shape, side, told, result), flush=True)
                results.append({"shape": shape, "side": side, "words": words, **result})
                if options.json:
                    options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
