"""Clients of a text server who know their texts beforehand, and poison between them."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from typing import Any

import exburn
from exburn.applications import GPT2
from exburn.text import Tokenizer

COUNTS = (1, 3, 8, 20, 40)
PROMPTS = ("so it is", "it", "is so", "so " * 30, "so " * 30 + "it")


def make_model() -> Any:
    exburn.set_random_seed(0)
    tokenizer = Tokenizer.train(["so it is"] * 9, 262)
    model = GPT2(262, layers=1, width=16, heads=2, positions=256)
    model.set_weights([9 * w if w.ndim > 1 else w for w in model.get_weights()])
    model.tokenizer = tokenizer
    return model


def known_texts(model: Any) -> dict[Any, str]:
    """The text of each request, written alone."""
    texts: dict[Any, str] = {}
    for prompt in PROMPTS:
        for count in COUNTS:
            texts[prompt, count, None] = model.generate(prompt, count)
            sampler = exburn.text.RandomSampler()
            drawn = model.generate(prompt, count, sampler=sampler, seed=7)
            texts[prompt, count, 7] = drawn
    return texts


class Soak:
    """Clients of a port, and what became of their requests."""

    def __init__(self, texts: dict[Any, str], port: int, seed: int):
        self.texts, self.port, self.outcomes = texts, port, Counter[str]()
        self.random, self.wrong = random.Random(seed), []

    async def client(self, until: float, most: int) -> None:
        while time.monotonic() < until and sum(self.outcomes.values()) < most:
            kind = self.random.choice(("text",) * 6 + ("bad", "leaves", "stalls"))
            outcome = await getattr(self, kind)()
            self.outcomes[outcome] += 1

    async def text(self) -> str:
        """Asks, again where the server could not begin, and compares."""
        key = self.random.choice(list(self.texts))
        prompt, count, seed = key
        body: dict[str, Any] = {"model": "m", "prompt": prompt, "max_tokens": count}
        body |= {"temperature": 0} if seed is None else {"temperature": 1, "seed": seed}
        rows = body["n"] = self.random.choice((1, 1, 1, 3)) if seed is None else 1
        body["stream"] = self.random.random() < 0.5
        expected, stop = self.texts[key], None
        if len(expected) > 4 and self.random.random() < 0.3:
            stop = body["stop"] = expected[2:4]
        for _ in range(60):
            try:
                status, texts = await self.ask(body)
            except (ConnectionError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.05)  # nothing was answered: ask again
                continue
            if status == 200:
                if stop is not None:
                    expected = expected[: expected.index(stop)]
                if texts != [expected] * rows:
                    self.wrong.append((body, expected, texts))
                    return "wrong"
                return "right"
            if status not in (429, 503):
                self.wrong.append((body, status, texts))
                return f"status {status}"
            await asyncio.sleep(0.05)
        return "lost"

    async def ask(self, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and texts; an answer that is cut off raises."""
        reader, writer = await self.send(json.dumps(body).encode())
        try:
            data = await reader.read()
        finally:
            writer.close()
        head, _, rest = data.partition(b"\r\n\r\n")
        if not head:
            raise ConnectionError
        status = int(head.split()[1])
        if status != 200:
            return status, rest
        texts = [""] * body["n"]
        if not body["stream"]:
            for choice in json.loads(rest)["choices"]:
                texts[choice["index"]] = choice["text"]
            return status, texts
        lines = [x for x in rest.split(b"\n") if x.startswith(b"data: ")]
        if not rest.endswith(b"0\r\n\r\n") or lines[-1].strip() != b"data: [DONE]":
            raise ConnectionError  # seen to be cut off
        for line in lines[:-1]:
            (choice,) = json.loads(line[6:])["choices"]
            texts[choice["index"]] += choice["text"]
        return status, texts

    async def send(self, body: bytes, length: int | None = None) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        size = len(body) if length is None else length
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Connection: close\r\nContent-Length: {size}\r\n\r\n"
        writer.write(head.encode() + body)
        return reader, writer

    async def bad(self) -> str:
        """Bodies that are refused."""
        body = self.random.choice(
            (
                b"{",
                b'{"model": "m", "prompt": "\xff"}',
                b'{"model": "m", "prompt": "a", "n": 1000}',
                b'{"model": "m", "prompt": "a", "temperature": "hot"}',
                b'{"model": "m", "prompt": ' + b"[" * 2000,
                b'{"model": "m", "prompt": "' + b"a" * 9000 + b'"}',
                b'{"model": "no", "prompt": "a"}',
            )
        )
        try:
            reader, writer = await self.send(body)
            data = await reader.read()
            writer.close()
        except ConnectionError:
            return "not reached"
        if not data:
            return "not reached"
        return "refused" if data.split()[1] in (b"400", b"404", b"503") else "taken"

    async def leaves(self) -> str:
        """A client that goes before its answer is there."""
        body = {"model": "m", "prompt": "so", "max_tokens": 200, "stream": True, "n": 2}
        try:
            _, writer = await self.send(json.dumps(body).encode())
            await asyncio.sleep(self.random.random() * 0.02)
            writer.close()
        except ConnectionError:
            return "not reached"
        return "left"

    async def stalls(self) -> str:
        """A client that sends half of a body, or reads nothing for a while."""
        body = json.dumps({"model": "m", "prompt": "so", "max_tokens": 100}).encode()
        try:
            _, writer = await self.send(body, self.random.choice((None, 500)))
            await asyncio.sleep(0.1)
            writer.close()
        except ConnectionError:
            return "not reached"
        return "stalled"
