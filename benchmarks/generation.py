"""Tokens/s of decoders, GPT-2 or a Llama of 1B, beside Hugging Face's.

    python benchmarks/generation.py [--model gpt2|llama-1b|llama-40m|tiny]
        [--batches 1,8,64] [--weights float32|bfloat16|int8|int4]
        [--peers exburn,eager,compiled] [--profile]

All write 256 tokens greedily behind prompts of 128, with random weights of the same
sizes. "exburn-plain" is exburn without kernels of its own. "eager" is ``transformers``
as it comes, "compiled" its static cache with ``torch.compile(mode="reduce-overhead")``.
A call is timed whole, from NumPy or host tensors to tokens on the host; the median of
the warm rounds counts. "decode" leaves the prompt out: the time of all tokens less that
of one.

The bound is the time in which the weights and the keys and values so far can be read
once for each token, at the memory bandwidth that the device's maker names; beside it is
the bandwidth that a copy of 1 GiB reaches. With ``--profile`` exburn tells the kernels
of a token, from a trace of JAX's profiler. Each peer runs in a process of its own, all
in one call. With ``--json`` what is there already is not measured again.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from process import options, read, result_of, write

PEERS = ("exburn", "exburn-plain", "eager", "compiled")
BATCHES = "1,8,64"
PROMPT, TOKENS = 128, 256


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of a model; its table of tokens makes the scores, too."""

    vocabulary: int
    layers: int
    width: int
    heads: int
    key_heads: int
    mlp_width: int

    @property
    def entries(self) -> tuple[int, int]:
        """Entries of the blocks' kernels, and of the table."""
        keys = self.width // self.heads * self.key_heads
        gates = 2 if self.key_heads < self.heads else 1
        attention = 2 * self.width * (self.width + keys)
        mlp = (1 + gates) * self.width * self.mlp_width
        return self.layers * (attention + mlp), self.vocabulary * self.width


MODELS = {
    "gpt2": Sizes(50257, 12, 768, 12, 12, 3072),
    "llama-1b": Sizes(128256, 16, 2048, 32, 8, 8192),
    "llama-40m": Sizes(32000, 8, 512, 8, 2, 1536),
    "tiny": Sizes(2000, 4, 128, 4, 2, 384),
}
#: Bytes of an entry, with its share of a scale.
BYTES = {"float32": 4.0, "bfloat16": 2.0, "int8": 1.0, "int4": 0.5 + 2 / 64}
#: Bytes/s of the device's memory, as its maker names them.
BANDWIDTH = {"H100": 3.35e12, "H200": 4.8e12, "A100": 2.04e12}
Write = Callable[[int], np.ndarray]  # so many tokens behind the prompts


@dataclasses.dataclass(frozen=True)
class Work:
    """What is written with what."""

    model: str
    weights: str
    plain: bool = False

    @property
    def sizes(self) -> Sizes:
        return MODELS[self.model]

    def prompts(self, batch: int) -> np.ndarray:
        """Random token numbers."""
        rng = np.random.default_rng(0)
        return rng.integers(0, self.sizes.vocabulary, (batch, PROMPT)).astype("int32")


def by_exburn(work: Work, batch: int) -> Write:
    """``model.generate``."""
    model = _exburn_model(work)
    ids = work.prompts(batch)
    return lambda count: np.stack(model.generate(ids, count))


@functools.cache
def _exburn_model(work: Work) -> Any:
    import exburn
    from exburn.applications import GPT2, Llama

    if work.plain:
        exburn.config.disable_gpu_kernels()
    exburn.set_random_seed(0)
    sizes = work.sizes
    dtype = "float32" if work.weights == "float32" else "bfloat16"
    if work.model == "gpt2":
        model = GPT2(dtype=dtype)
    else:
        model = Llama(
            vocabulary_size=sizes.vocabulary,
            layers=sizes.layers,
            width=sizes.width,
            heads=sizes.heads,
            key_value_heads=sizes.key_heads,
            mlp_width=sizes.mlp_width,
            rope_base=500_000.0,
            tie_embeddings=True,
            dtype=dtype,
        )
    return model if work.weights == dtype else model.quantize(work.weights)


def by_transformers(work: Work, batch: int, compiled: bool = False) -> Write:
    """``generate`` of a model of ``transformers``."""
    import torch

    model, device = _torch_model(work)
    ids = torch.from_numpy(work.prompts(batch)).long()
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
def _torch_model(work: Work) -> tuple[Any, str]:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    device, sizes = "cuda" if torch.cuda.is_available() else "cpu", work.sizes
    if work.weights not in ("float32", "bfloat16"):
        raise ValueError(f"transformers alone has no {work.weights}")
    if work.model == "gpt2":
        config = GPT2Config(
            vocab_size=sizes.vocabulary,
            n_layer=sizes.layers,
            n_embd=sizes.width,
            n_head=sizes.heads,
            n_positions=1024,
        )
        model = GPT2LMHeadModel(config)
    else:
        config = LlamaConfig(
            vocab_size=sizes.vocabulary,
            num_hidden_layers=sizes.layers,
            hidden_size=sizes.width,
            num_attention_heads=sizes.heads,
            num_key_value_heads=sizes.key_heads,
            intermediate_size=sizes.mlp_width,
            tie_word_embeddings=True,
        )
        with torch.device(device):
            model = LlamaForCausalLM(config)
    return model.to(device, getattr(torch, work.weights)).eval(), device


def _plain(work: Work, batch: int) -> Write:
    return by_exburn(dataclasses.replace(work, plain=True), batch)


RUNNERS: dict[str, Callable[[Work, int], Write]] = {
    "exburn": by_exburn,
    "exburn-plain": _plain,
    "eager": by_transformers,
    "compiled": functools.partial(by_transformers, compiled=True),
}


def bytes_per_step(work: Work, batch: int) -> float:
    """Bytes to be read for one token of each row, of a text half written."""
    sizes = work.sizes
    weights = BYTES[work.weights] * sum(sizes.entries)
    keys = sizes.width // sizes.heads * sizes.key_heads
    length = PROMPT + TOKENS / 2
    return weights + 2 * batch * sizes.layers * 2 * keys * length


def kernels_of(call: Callable[[], Any], tokens: int) -> dict[str, list]:
    """Microseconds and launches a token of each kernel of a call, and of all."""
    import jax
    from jax.profiler import ProfileData

    totals: dict[str, list] = {}
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            call()
        for file in Path(folder).glob("**/*.xplane.pb"):
            for plane in ProfileData.from_file(str(file)).planes:
                for line in plane.lines:
                    if not plane.name.startswith("/device:GPU"):
                        continue
                    if not line.name.startswith("Stream"):
                        continue
                    for event in line.events:
                        name = re.sub(r"([._]+\d+)+$", "", event.name)[:50]
                        entry = totals.setdefault(name, [0.0, 0])
                        entry[0] += event.duration_ns / 1e3
                        entry[1] += 1
    ordered = sorted(totals.items(), key=lambda item: -item[1][0])
    each = {k: [us / tokens, n / tokens] for k, (us, n) in ordered}
    return {"all": [sum(v[i] for v in each.values()) for i in (0, 1)]} | each


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


def child(peer: str, work: Work, args: Any) -> None:
    results: dict[str, Any] = {}
    rounds, tokens = args.rounds, args.tokens
    for batch in map(int, args.batches.split(",")):
        try:
            run = RUNNERS[peer](work, batch)
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
        if args.profile and peer.startswith("exburn"):
            kernels = kernels_of(lambda run=run: run(tokens), tokens)
            results[str(batch)]["kernels"] = kernels
    if peer == "exburn":
        results["copy_bytes_per_s"] = copy_bandwidth()
    print("RESULT " + json.dumps(results), flush=True)


def bandwidth_of(device: str) -> float | None:
    """Bytes/s of a device by its name."""
    return next((rate for name, rate in BANDWIDTH.items() if name in device), None)


def tell(report: dict[str, Any], work: Work, batches: list[int], device: str) -> None:
    rate = bandwidth_of(device)
    copied = report.get("exburn", {}).get("copy_bytes_per_s")
    named = "unknown" if rate is None else f"{rate / 1e12:.2f} TB/s"
    reached = "" if copied is None else f", a copy reaches {copied / 1e12:.2f} TB/s"
    print(f"{device}: memory bandwidth {named}{reached}")
    for batch in batches:
        bound = None if rate is None else batch * rate / bytes_per_step(work, batch)
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
                f"{work.model} {work.weights} batch {batch:3} {peer:12} "
                f"{result['tokens_per_s']:10,.0f} tokens/s, "
                f"decode {decode:10,.0f} tokens/s{share}; first call "
                f"{result['first_call_s']:.1f} s"
            )
            for name, (us, count) in list(result.get("kernels", {}).items())[:14]:
                print(f"    {us:9.2f} µs {count:7.2f} × {name}")


def main() -> None:
    parser = options(__doc__, PEERS)
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    parser.add_argument("--weights", choices=BYTES, default="bfloat16")
    parser.add_argument("--batches", default=BATCHES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    work = Work(args.model, args.weights)
    if args.child:
        child(args.child[0], work, args)
        return
    report = read(args.json)
    words = ["--model", args.model, "--weights", args.weights]
    words += ["--batches", args.batches, "--rounds", str(args.rounds)]
    words += ["--tokens", str(args.tokens)] + ["--profile"] * args.profile
    for peer in args.peers.split(","):
        if peer not in report:
            result = result_of(__file__, peer, "-", *words)
            if result is not None:
                report[peer] = result
                brief = {k: v for k, v in result.items() if k != "kernels"}
                print(peer, json.dumps(brief)[:300], flush=True)
        if args.json:
            write(args.json, report)
    from process import versions

    tell(report, work, [int(n) for n in args.batches.split(",")], versions()["device"])


if __name__ == "__main__":
    main()
