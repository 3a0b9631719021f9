"""A server of texts under clients: tokens/s, time to the first token, between tokens.

    python benchmarks/text_server.py [--model tiny|llama-40m|gpt2|llama-1b]
        [--clients 1,8,32,128] [--peers exburn,transformers-serve,llama.cpp,in-process,
        before,batching] [--peer-python PYTHON] [--before CHECKOUT]

Each client asks for one text after another, in chunks, all of unlike random prompts, of
models with random weights of the same sizes. "exburn" is ``Server`` with OpenAI's
routes, "in-process" the same texts without HTTP, "before" a server of the checkout
``--before`` (a ``git worktree`` of 76711e13, the last one whose requests were written
one by one), "batching" the continuous batching of ``transformers`` in its process.
"transformers-serve" is its server with continuous batching, "llama.cpp" the server of
llama.cpp by the package `xllamacpp`; both are run by ``--peer-python``, and all three
then have the same weights, from a folder that the peers write (``llama.cpp`` keeps keys
and values in float16, as it comes). A first round of each number of clients compiles
and does not count. Server and clients are processes of their own; a token's share of
the server's processor time tells more than the clock where others use the machine, too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from generation import MODELS, Sizes, Work, _exburn_model, _torch_model
from process import environment_of
from text_peers import (
    GGUF,
    serve_llama_cpp,
    serve_transformers,
    write_folder,
    write_gguf,
)

_FOLDERS = {"transformers-serve": serve_transformers, "llama.cpp": serve_llama_cpp}
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
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--child", choices=("serve", "load", "folder"))
    parser.add_argument("--peer", default="exburn")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--process", type=int, default=0)
    return parser.parse_args()


# ---------------------------------------------------------------------- models
def model_of(options: argparse.Namespace) -> Any:
    """A decoder with a tokenizer of as many tokens, none of which ends a text."""
    if options.folder is not None:
        from exburn.applications import from_pretrained

        return from_pretrained(options.folder)
    from exburn.text import Tokenizer

    model = _exburn_model(work_of(options))
    model.tokenizer = Tokenizer(json.dumps(tokenizer_of(MODELS[options.model])))
    return model


def work_of(options: argparse.Namespace) -> Work:
    small = options.model in ("tiny", "llama-40m")
    return Work(options.model, "float32" if small else "bfloat16")


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
def serving(
    options: argparse.Namespace, peer: str, clients: int
) -> Iterator[tuple[int, int]]:
    """A server in a process of its own: its port, and its number."""
    words = ["--child", "serve", "--peer", peer, *words_of(options, clients)]
    environment = environment_of()
    if peer == "before":
        environment["PYTHONPATH"] = str(options.before.resolve())
    with subprocess.Popen(
        [python_of(options, peer), __file__, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=peer_environment() if peer in _FOLDERS else environment,
    ) as process:
        try:
            assert process.stdout is not None
            told: list[str] = []
            for line in process.stdout:
                if line.startswith("PORT"):
                    break
                told.append(line)
            else:
                raise RuntimeError("".join(told)[-2000:])
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield int(line.split()[1]), process.pid
        finally:
            process.kill()


def python_of(options: argparse.Namespace, peer: str) -> str:
    return options.peer_python if peer in _FOLDERS else sys.executable


def peer_environment() -> dict[str, str]:
    """Without the path of this checkout, whose folders have names of packages."""
    root = str(Path(__file__).resolve().parents[1])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [path for path in paths if path and os.path.realpath(path) != root]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}


@contextlib.contextmanager
def folder(options: argparse.Namespace) -> Iterator[None]:
    """Weights for all sides, if a peer needs a folder of them."""
    if options.folder is not None or not set(options.peers.split(",")) & set(_FOLDERS):
        yield
        return
    with tempfile.TemporaryDirectory() as place:
        options.folder = Path(place)
        peer = next(iter(_FOLDERS))
        words = [options.peer_python, __file__, "--child", "folder", "--peer", peer]
        words += [*words_of(options, 1), "--peers", options.peers]
        subprocess.run(words, check=True, env=peer_environment())
        yield


def words_of(options: argparse.Namespace, clients: int) -> list[str]:
    words = ["--model", options.model, "--clients", str(clients)]
    words += ["--prompt", str(options.prompt), "--tokens", str(options.tokens)]
    words += ["--rounds", str(options.rounds)]
    words += ["--cache", options.cache] if options.cache else []
    return words + (["--folder", str(options.folder)] if options.folder else [])


# ---------------------------------------------------------------------- clients
async def ask(
    options: argparse.Namespace, prompt: list[int], tokens: int
) -> list[float]:
    """Asks for a text in chunks: the times of the request, and of each event."""
    port, peer = options.port, options.peer
    text = "".join(f" w{number}" for number in prompt)
    if peer == "before":
        path = "/v2/models/m/generate_stream"
        body: dict[str, Any] = {"text_input": text}
        body["parameters"] = {"max_tokens": tokens, "temperature": 0}
    else:
        path, body = "/v1/completions", {"model": "m", "prompt": text, "stream": True}
        body |= {"max_tokens": tokens, "temperature": 0}
        if peer == "llama.cpp":
            body |= {"prompt": prompt, "ignore_eos": True, "cache_prompt": False}
        elif peer == "transformers-serve":
            body["model"] = str(options.folder)
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += "Content-Type: application/json\r\n"
    head += f"Content-Length: {len(data)}\r\n\r\n"
    times, words = [time.perf_counter()], 0
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode() + data)
    async for line in reader:
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            choices = event.get("choices") or [{}]
            part = event.get("text_output") or choices[0].get("text")
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
    rounds, spent = [], []
    for number in range(options.rounds + 1):
        prompts = prompts_of(options, number)
        begin, used = time.perf_counter(), processor_seconds(options.process)
        asked = [ask(options, p, options.tokens) for p in prompts]
        times = await asyncio.gather(*asked)
        rounds.append((time.perf_counter() - begin, times))
        spent.append(processor_seconds(options.process) - used)
    tokens = int(options.clients) * options.tokens
    more = {"processor_ms_a_token": 1e3 * min(spent[1:]) / tokens}
    print("RESULT", json.dumps(figures(options, rounds) | more))


def processor_seconds(process: int) -> float:
    """What a process, with its threads, has used so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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


def over_http(
    options: argparse.Namespace, peer: str, counts: list[int]
) -> Iterator[Any]:
    """One server for all numbers of clients."""
    if missing := [name for name in _NEEDED if not importlib.util.find_spec(name)]:
        raise RuntimeError(f"HTTP needs {', '.join(missing)}")
    with serving(options, peer, max(counts)) as (port, process):
        for clients in counts:
            words = [sys.executable, __file__, "--child", "load", "--peer", peer]
            words += ["--port", str(port), "--process", str(process)]
            words += words_of(options, clients)
            done = subprocess.run(
                words, capture_output=True, text=True, env=environment_of()
            )
            if done.returncode:
                raise RuntimeError(done.stderr[-2000:])
            yield clients, json.loads(done.stdout.rpartition("RESULT ")[2])


# ---------------------------------------------------------------------- in processes
def in_process(
    options: argparse.Namespace, peer: str, counts: list[int]
) -> Iterator[Any]:
    """The texts of a server without its HTTP."""
    from exburn.serving import TextStream
    from exburn.serving.text import TextQuestion
    from exburn.serving.text_rows import TextRows

    sampling = {"temperature": 0.0}

    async def write(texts: Any, prompt: list[int]) -> list[float]:
        times = [time.perf_counter()]
        question = TextQuestion(np.array(prompt), options.tokens, sampling)
        rows = TextRows(texts.ask([question]), 600.0, lambda *_: None)
        async for _, piece in rows.pieces():
            if piece.text:
                times.append(time.perf_counter())
        return times

    async def write_all(texts: Any, options: argparse.Namespace) -> Any:
        rounds = []
        for number in range(options.rounds + 1):
            begin = time.perf_counter()
            written = [write(texts, each) for each in prompts_of(options, number)]
            times = await asyncio.gather(*written)
            rounds.append((time.perf_counter() - begin, times))
        return figures(options, rounds)

    model = model_of(options)
    with TextStream(model, slots=max(counts), cache=options.cache) as texts:
        for clients in counts:
            each = argparse.Namespace(**{**vars(options), "clients": str(clients)})
            yield clients, asyncio.run(write_all(texts, each))


def hide_own_folders() -> None:
    """Modules of this folder and catalogues of the root have names of packages."""
    here = Path(__file__).resolve().parent
    own = (here, here.parent)
    sys.path[:] = [path for path in sys.path if Path(path).resolve() not in own]


def by_batching(
    options: argparse.Namespace, peer: str, counts: list[int]
) -> Iterator[Any]:
    """Continuous batching of ``transformers``; texts come whole."""
    hide_own_folders()
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
    for clients in counts:
        each = argparse.Namespace(**{**vars(options), "clients": str(clients)})
        rounds = []
        for number in range(options.rounds + 1):
            begin = time.perf_counter()
            out = model.generate_batch(
                inputs=prompts_of(each, number),
                generation_config=config,
                progress_bar=False,
            )
            written = [len(one.generated_tokens) for one in out.values()]
            assert written == [options.tokens] * clients, written
            rounds.append(time.perf_counter() - begin)
        yield (
            clients,
            {
                "tokens_per_s": clients * options.tokens / min(rounds[1:]),
                "first_round_s": rounds[0],
            },
        )


WAYS = {
    "exburn": over_http,
    "before": over_http,
    "transformers-serve": over_http,
    "llama.cpp": over_http,
    "in-process": in_process,
    "batching": by_batching,
}


def main() -> None:
    options = arguments()
    if options.child and options.child != "load" and options.peer in _FOLDERS:
        hide_own_folders()
    if options.child == "serve":
        _FOLDERS.get(options.peer, serve)(options)
    elif options.child == "load":
        asyncio.run(ask_all(options))
    elif options.child == "folder":
        model, _ = _torch_model(work_of(options))
        tokenizer = tokenizer_of(MODELS[options.model])
        write_folder(options.folder, model, tokenizer)
        if "llama.cpp" in options.peers.split(","):
            write_gguf(options.folder / GGUF, model, tokenizer)
    else:
        with folder(options):
            compare(options)


def compare(options: argparse.Namespace) -> None:
    counts = [int(count) for count in options.clients.split(",")]
    for peer in options.peers.split(","):
        try:
            for clients, result in WAYS[peer](options, peer, counts):
                told = ", ".join(f"{k} {v:,.1f}" for k, v in result.items())
                print(f"{peer:18} {clients:4} clients: {told}", flush=True)
        except Exception as error:
            print(f"{peer:18} {error}", flush=True)


if __name__ == "__main__":
    main()
