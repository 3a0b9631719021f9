"""A server of texts under clients: tokens/s, time to the first token, between tokens.

    python benchmarks/text_server.py [--model tiny|gpt2|llama-1b] [--clients 1,8,32,128]
        [--peers exburn,in-process,before,batching] [--before CHECKOUT]

Each client asks for one text after another, in chunks, all of unlike random prompts, of
models with random weights of the same sizes. "exburn" is ``Server`` with OpenAI's
routes, "in-process" the same texts without HTTP, "before" a server of the checkout
``--before`` (a ``git worktree`` of 76711e13, the last one whose requests were written
one by one), "batching" the continuous batching of ``transformers`` in its process. A
first round of each number of clients compiles and does not count. Server and clients
are processes of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from generation import MODELS, Sizes, Work, _exburn_model, _torch_model
from process import environment_of

_NEEDED = ("starlette", "uvicorn", "httptools", "orjson", "prometheus_client")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="tiny", choices=list(MODELS))
    parser.add_argument("--clients", default="1,8,32,128")
    parser.add_argument("--peers", default="exburn,in-process")
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cache", default=None)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--child", choices=("serve", "load"))
    parser.add_argument("--peer", default="exburn")
    parser.add_argument("--port", type=int, default=0)
    return parser.parse_args()


# ---------------------------------------------------------------------- models
def model_of(options: argparse.Namespace) -> Any:
    """A decoder with a tokenizer of as many tokens, none of which ends a text."""
    from exburn.text import Tokenizer

    model = _exburn_model(work_of(options))
    model.tokenizer = Tokenizer(json.dumps(tokenizer_of(MODELS[options.model])))
    return model


def work_of(options: argparse.Namespace) -> Work:
    tiny = options.model == "tiny"
    return Work(options.model, "float32" if tiny else "bfloat16")


def tokenizer_of(sizes: Sizes) -> dict[str, Any]:
    """``tokenizer.json`` of words ``w0``, ``w1`` …"""
    vocabulary = {f"Ġw{number}": number for number in range(sizes.vocabulary)}
    letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    split = {"type": "Split", "pattern": {"Regex": " w[0-9]+"}}
    split |= {"behavior": "Isolated", "invert": False}
    letters |= {"use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, letters]},
        "decoder": letters,
        "model": {
            "type": "BPE",
            "vocab": vocabulary,
            "merges": [],
            "ignore_merges": True,
        },
    }


def prompts_of(options: argparse.Namespace, number: int) -> list[list[int]]:
    """Unlike prompts of one round, a token number for each word."""
    count = int(options.clients)
    rng = np.random.default_rng(number)
    size = MODELS[options.model].vocabulary
    return rng.integers(0, size, (count, options.prompt)).tolist()


# ---------------------------------------------------------------------- exburn
def serve(options: argparse.Namespace) -> None:
    """Serves in this process until it is ended."""
    import exburn.serving
    from exburn.serving import TextStream

    model, clients = model_of(options), int(options.clients)
    limits: dict[str, Any] = {"timeout": "10 min", "log_level": "WARNING"}
    if options.peer == "before":
        texts = TextStream(model, options.tokens, options.prompt)
        limits["max_streams"] = clients
    else:
        texts = TextStream(model, slots=clients, cache=options.cache, wait="10 min")
    server = exburn.serving.Server({"m": texts}, port=0, **limits)
    server.run(listening=lambda url: print("PORT", url.rpartition(":")[2], flush=True))


@contextlib.contextmanager
def serving(options: argparse.Namespace, peer: str, clients: int) -> Iterator[int]:
    """A server in a process of its own, and its port."""
    words = [sys.executable, __file__, "--child", "serve", "--peer", peer]
    words += words_of(options, clients)
    environment = environment_of()
    if peer == "before":
        environment["PYTHONPATH"] = str(options.before.resolve())
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("PORT"):
                raise RuntimeError(process.communicate()[1][-2000:])
            yield int(line.split()[1])
        finally:
            process.kill()


def words_of(options: argparse.Namespace, clients: int) -> list[str]:
    words = ["--model", options.model, "--clients", str(clients)]
    words += ["--prompt", str(options.prompt), "--tokens", str(options.tokens)]
    words += ["--rounds", str(options.rounds)]
    return words + (["--cache", options.cache] if options.cache else [])


# ---------------------------------------------------------------------- clients
async def ask(port: int, peer: str, prompt: list[int], tokens: int) -> list[float]:
    """Asks for a text in chunks: the times of the request, and of each event."""
    text = "".join(f" w{number}" for number in prompt)
    if peer == "before":
        path = "/v2/models/m/generate_stream"
        body: dict[str, Any] = {"text_input": text}
        body["parameters"] = {"max_tokens": tokens, "temperature": 0}
    else:
        path, body = "/v1/completions", {"model": "m", "prompt": text, "stream": True}
        body |= {"max_tokens": tokens, "temperature": 0}
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Content-Length: {len(data)}\r\n\r\n"
    times, words = [time.perf_counter()], 0
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode() + data)
    async for line in reader:
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            part = event.get("text_output") or event.get("choices", [{}])[0].get("text")
            if part:
                words += part.count(" w")
                times.append(time.perf_counter())
        elif line.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5", b"event: error")):
            raise RuntimeError((line + await reader.read()).decode())
    writer.close()
    assert words == tokens, f"{words} tokens came instead of {tokens}"
    return times


async def ask_all(options: argparse.Namespace) -> None:
    """Rounds of all clients; prints the figures of those behind the first."""
    rounds = []
    for number in range(options.rounds + 1):
        prompts = prompts_of(options, number)
        begin = time.perf_counter()
        asked = [ask(options.port, options.peer, p, options.tokens) for p in prompts]
        times = await asyncio.gather(*asked)
        rounds.append((time.perf_counter() - begin, times))
    print("RESULT", json.dumps(figures(options, rounds)))


def figures(options: argparse.Namespace, rounds: list[Any]) -> dict[str, float]:
    """Of the best round behind the first."""
    seconds, times = min(rounds[1:], key=lambda each: each[0])
    first = [each[1] - each[0] for each in times]
    between = [(each[-1] - each[1]) / max(options.tokens - 1, 1) for each in times]
    gaps: Any = np.diff(np.concatenate([each[1:] for each in times]))
    return {
        "tokens_per_s": len(times) * options.tokens / seconds,
        "first_ms": 1e3 * statistics.median(first),
        "first_last_ms": 1e3 * max(first),
        "between_ms": 1e3 * statistics.median(between),
        "gap_p99_ms": 1e3 * float(np.quantile(gaps[gaps > 0], 0.99))
        if len(gaps)
        else 0,
        "first_round_s": rounds[0][0],
    }


def over_http(options: argparse.Namespace, peer: str, clients: int) -> Any:
    if missing := [name for name in _NEEDED if not importlib.util.find_spec(name)]:
        raise RuntimeError(f"HTTP needs {', '.join(missing)}")
    with serving(options, peer, clients) as port:
        words = [sys.executable, __file__, "--child", "load", "--peer", peer]
        words += ["--port", str(port), *words_of(options, clients)]
        done = subprocess.run(
            words, capture_output=True, text=True, env=environment_of()
        )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.rpartition("RESULT ")[2])


# ---------------------------------------------------------------------- in processes
def in_process(options: argparse.Namespace, peer: str, clients: int) -> Any:
    """The texts of a server without its HTTP."""
    from exburn.serving import TextStream
    from exburn.serving.text import TextQuestion
    from exburn.serving.text_rows import TextRows

    options = argparse.Namespace(**{**vars(options), "clients": str(clients)})
    sampling = {"temperature": 0.0}

    async def write(texts: Any, prompt: list[int]) -> list[float]:
        times = [time.perf_counter()]
        question = TextQuestion(np.array(prompt), options.tokens, sampling)
        rows = TextRows(texts.ask([question]), 600.0, lambda *_: None)
        async for _, piece in rows.pieces():
            if piece.text:
                times.append(time.perf_counter())
        return times

    async def write_all(texts: Any) -> Any:
        rounds = []
        for number in range(options.rounds + 1):
            begin = time.perf_counter()
            written = [write(texts, each) for each in prompts_of(options, number)]
            times = await asyncio.gather(*written)
            rounds.append((time.perf_counter() - begin, times))
        return figures(options, rounds)

    model = model_of(options)
    with TextStream(model, slots=clients, cache=options.cache) as texts:
        return asyncio.run(write_all(texts))


def by_batching(options: argparse.Namespace, peer: str, clients: int) -> Any:
    """Continuous batching of ``transformers``; texts come whole."""
    # Modules of this folder and catalogues of the root have names of its packages.
    here = Path(__file__).resolve().parent
    own = (here, here.parent)
    sys.path[:] = [path for path in sys.path if Path(path).resolve() not in own]
    from transformers import GenerationConfig

    model, device = _torch_model(work_of(options))
    if device == "cpu":
        model = model.float()
    config = GenerationConfig(
        max_new_tokens=options.tokens,
        do_sample=False,
        eos_token_id=-1,
        pad_token_id=0,
    )
    options = argparse.Namespace(**{**vars(options), "clients": str(clients)})
    rounds = []
    for number in range(options.rounds + 1):
        begin = time.perf_counter()
        out = model.generate_batch(
            inputs=prompts_of(options, number),
            generation_config=config,
            progress_bar=False,
        )
        counts = [len(each.generated_tokens) for each in out.values()]
        assert counts == [options.tokens] * clients, counts
        rounds.append(time.perf_counter() - begin)
    return {
        "tokens_per_s": clients * options.tokens / min(rounds[1:]),
        "first_round_s": rounds[0],
    }


WAYS = {
    "exburn": over_http,
    "before": over_http,
    "in-process": in_process,
    "batching": by_batching,
}


def main() -> None:
    options = arguments()
    if options.child == "serve":
        serve(options)
    elif options.child == "load":
        asyncio.run(ask_all(options))
    else:
        for peer in options.peers.split(","):
            for clients in map(int, options.clients.split(",")):
                try:
                    result = WAYS[peer](options, peer, clients)
                except Exception as error:
                    print(f"{peer:10} {clients:4} clients: {error}", flush=True)
                    break
                told = ", ".join(f"{k} {v:,.1f}" for k, v in result.items())
                print(f"{peer:10} {clients:4} clients: {told}", flush=True)


if __name__ == "__main__":
    main()
