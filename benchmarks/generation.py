"""Tokens/s of GPT-2 (124 million parameters, bfloat16) beside Hugging Face's.

    python benchmarks/generation.py [--peers exburn,eager,compiled] [--batches 1,8,64]

All write 256 tokens greedily behind prompts of 128, with random weights of the same
sizes. "eager" is ``transformers`` as it comes, "compiled" its static cache with
``torch.compile(mode="reduce-overhead")``. A call is timed whole, from NumPy or host
tensors to tokens on the host; the median of the warm rounds counts. "decode" leaves the
prompt out: the time of all tokens less that of one.

The bound is the time in which the weights and the keys and values so far can be read
once for each token, at the memory bandwidth that the device's maker names; beside it is
the bandwidth that a copy of 1 GiB reaches. Each peer runs in a process of its own,
all in one call. With ``--json`` what is there already is not measured again.
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from process import options, read, result_of, write

PEERS = ("exburn", "eager", "compiled")
BATCHES = "1,8,64"
PROMPT, TOKENS, VOCABULARY = 128, 256, 50257
LAYERS, WIDTH, HEADS, POSITIONS = 12, 768, 12, 1024
#: Bytes/s of the device's memory, as its maker names them.
BANDWIDTH = {"H100": 3.35e12, "H200": 4.8e12, "A100": 2.04e12}
Write = Callable[[int], np.ndarray]  # so many tokens behind the prompts


def prompts(batch: int) -> np.ndarray:
    """Random token numbers."""
    rng = np.random.default_rng(0)
    return rng.integers(0, VOCABULARY, (batch, PROMPT)).astype("int32")


def by_exburn(batch: int) -> Write:
    """``model.generate``."""
    model = _exburn_model()
    ids = prompts(batch)
    return lambda count: np.stack(model.generate(ids, count))


@functools.cache
def _exburn_model() -> Any:
    import exburn
    from exburn.applications import GPT2

    exburn.set_random_seed(0)
    return GPT2(dtype="bfloat16")


def by_transformers(batch: int, compiled: bool = False) -> Write:
    """``GPT2LMHeadModel.generate``."""
    import torch

    model, device = _torch_model()
    ids = torch.from_numpy(prompts(batch)).long()
    more: dict[str, Any] = {}
    if compiled:
        from transformers import CompileConfig

        config = CompileConfig(mode="reduce-overhead", fullgraph=True)
        more = {"cache_implementation": "static", "compile_config": config}

    @torch.inference_mode()
    def run(count: int) -> np.ndarray:
        prompt = ids.to(device)
        out = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=None,
            **more,
        )
        return out[:, PROMPT:].cpu().numpy()

    return run


@functools.cache
def _torch_model() -> tuple[Any, str]:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_layer=LAYERS,
        n_embd=WIDTH,
        n_head=HEADS,
        n_positions=POSITIONS,
    )
    model = GPT2LMHeadModel(config).to(device, torch.bfloat16).eval()
    return model, device


RUNNERS: dict[str, Callable[[int], Write]] = {
    "exburn": by_exburn,
    "eager": by_transformers,
    "compiled": functools.partial(by_transformers, compiled=True),
}


def bytes_per_step(batch: int) -> float:
    """Bytes to be read for one token of each row, of a text half written."""
    kernels = LAYERS * 12 * WIDTH * WIDTH + VOCABULARY * WIDTH
    length = PROMPT + TOKENS / 2
    return 2 * (kernels + batch * LAYERS * 2 * WIDTH * length)


def copy_bandwidth() -> float:
    """Bytes/s that a copy of 1 GiB reads and writes."""
    import jax
    import jax.numpy as jnp

    size = 1 << (29 if jax.default_backend() == "gpu" else 24)
    array, add = jnp.ones(size, jnp.bfloat16), jax.jit(lambda v: v + 1)
    add(array).block_until_ready()
    spans = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(10):
            out = add(array)
        out.block_until_ready()
        spans.append((time.perf_counter() - start) / 10)
    return 4 * size / statistics.median(spans)


def seconds_of(call: Callable[[], Any], rounds: int) -> list[float]:
    spans = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        spans.append(time.perf_counter() - start)
    return spans


def child(peer: str, batches: list[int], rounds: int, tokens: int) -> None:
    results: dict[str, Any] = {}
    for batch in batches:
        try:
            run = RUNNERS[peer](batch)
            begun = time.perf_counter()
            written = run(tokens)
            first = time.perf_counter() - begun
            assert written.shape == (batch, tokens), written.shape
            run(1)
            whole = seconds_of(lambda run=run: run(tokens), rounds)
            one = seconds_of(lambda run=run: run(1), rounds)
        except Exception as error:  # of a peer that cannot: the others go on
            results[str(batch)] = {"error": f"{type(error).__name__}: {error}"[:300]}
            continue
        steps = statistics.median(whole) - statistics.median(one)
        results[str(batch)] = {
            "seconds": whole,
            "first_call_s": first,
            "tokens_per_s": batch * tokens / statistics.median(whole),
            "decode_tokens_per_s": batch * (tokens - 1) / steps,
            "prompt_s": statistics.median(one),
        }
    if peer == "exburn":
        results["copy_bytes_per_s"] = copy_bandwidth()
    print("RESULT " + json.dumps(results), flush=True)


def bandwidth_of(device: str) -> float | None:
    """Bytes/s of a device by its name."""
    return next((rate for name, rate in BANDWIDTH.items() if name in device), None)


def tell(report: dict[str, Any], batches: list[int], device: str) -> None:
    rate = bandwidth_of(device)
    copied = report.get("exburn", {}).get("copy_bytes_per_s")
    named = "unknown" if rate is None else f"{rate / 1e12:.2f} TB/s"
    reached = "" if copied is None else f", a copy reaches {copied / 1e12:.2f} TB/s"
    print(f"{device}: memory bandwidth {named}{reached}")
    for batch in batches:
        bound = None if rate is None else batch * rate / bytes_per_step(batch)
        for peer, results in report.items():
            result = results.get(str(batch))
            if result is None:
                continue
            if "error" in result:
                print(f"batch {batch:3} {peer:9} failed: {result['error']}")
                continue
            decode = result["decode_tokens_per_s"]
            share = "" if bound is None else f", {decode / bound:.0%} of the bound"
            print(
                f"batch {batch:3} {peer:9} {result['tokens_per_s']:10,.0f} tokens/s, "
                f"decode {decode:10,.0f} tokens/s{share}; first call "
                f"{result['first_call_s']:.1f} s"
            )


def main() -> None:
    parser = options(__doc__, PEERS)
    parser.add_argument("--batches", default=BATCHES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    args = parser.parse_args()
    batches = [int(batch) for batch in args.batches.split(",")]
    if args.child:
        child(args.child[0], batches, args.rounds, args.tokens)
        return
    report = read(args.json)
    words = ["--batches", args.batches, "--rounds", str(args.rounds)]
    words += ["--tokens", str(args.tokens)]
    for peer in args.peers.split(","):
        if peer not in report:
            result = result_of(__file__, peer, "-", *words)
            if result is not None:
                report[peer] = result
                print(peer, json.dumps(result), flush=True)
        if args.json:
            write(args.json, report)
    from process import versions

    tell(report, batches, versions()["device"])


if __name__ == "__main__":
    main()
