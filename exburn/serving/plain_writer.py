"""Texts of models that the engine does not take: each request runs by itself."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.errors import ArgumentError, QueueFullError, ServingClosedError
from exburn.models.generation.engine import TextAnswer, TextPart, TextRequest
from exburn.text import Sampler

_THREADS, _CHUNK = 16, 8


class PlainWriter:
    """Writes by ``model.generate``, with the methods of the engine that a server uses.

    Requests share two programs, whatever they ask for; they are compiled here.
    Logarithms, constraints and adapters by request need the engine.

    Args:
        room: Tokens of a prompt and of an answer, at most.
        chunk: Tokens of a part; 8 by default, since each part is a call.
        max_queue: Requests that may wait for others.

    Attributes:
        under_way: Texts that are written, or wait.
    """

    def __init__(
        self, model: Any, room: tuple[int, int], chunk: int | None, max_queue: int
    ):
        self._model, self._room, self._chunk = model, room, chunk or _CHUNK
        self._most, self.under_way = max_queue + _THREADS, 0
        self._counting = threading.Lock()
        self._starting = threading.Lock()  # a model is prepared by one at a time
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="exburn-text")
        self.closed = False
        if room[1] > 1:
            self._begin(np.zeros(1, np.int32), 2, _AnySampler(), {})  # compiles

    def submit(self, request: TextRequest) -> TextAnswer:
        """Begins to write.

        Raises:
            ArgumentError: It asks for what only the engine does.
            QueueFullError: Too many wait.
        """
        for name in ("logprobs", "constraint", "adapter"):
            if getattr(request, name) is not None:
                raise ArgumentError(
                    "generate",
                    f"{name}: this model writes without the engine, which gives it",
                )
        if self.closed:
            raise ServingClosedError("serving", "the stream is closed")
        answer = TextAnswer(request)
        with self._counting:
            if self.under_way >= self._most:
                raise QueueFullError("serving", f"{self._most} texts are under way")
            self.under_way += 1
        self._threads.submit(self._write, request, answer)
        return answer

    def refresh(self) -> None:
        """Nothing is kept from one request to the next."""

    def close(self) -> None:
        """Takes no more; what is at work ends behind its part."""
        self.closed = True
        self._threads.shutdown(wait=False, cancel_futures=False)

    def _write(self, request: TextRequest, answer: TextAnswer) -> None:
        most, count = request.max_new_tokens, 0
        try:
            stop = [list(tokens) for tokens in request.stops] or None
            options = {"stop": stop, "seed": request.seed}
            sampler = _sampler_of(request)
            for tokens in self._begin(request.tokens, most, sampler, options):
                if answer.is_cancelled or self.closed:
                    break
                count += len(tokens)
                answer.add(TextPart(tokens))
            over = answer.is_cancelled or self.closed
            reason = "stop" if count < most else "length"
            answer.end("cancelled" if over else reason)
        except BaseException as error:  # told to who waits for the answer
            answer.end("error", error)
        finally:
            with self._counting:
                self.under_way -= 1

    def _begin(
        self, tokens: np.ndarray, count: int, sampler: Sampler, options: dict[str, Any]
    ) -> Iterator[np.ndarray]:
        with self._starting:
            return self._model.generate(
                tokens,
                count,
                sampler=sampler,
                room=self._room,
                stream=self._chunk,
                **options,
            )


@dataclasses.dataclass(frozen=True)
class _AnySampler(Sampler):
    """All samplers in one, whose choice is a matter of its numbers.

    Args:
        greedy: 1 to take the likeliest token, else 0.
        k, p, min_p: As of ``TopK``, ``TopP`` and ``MinP``; tokens need all of them.
    """

    greedy: Any = 1
    k: Any = 1 << 30
    p: Any = 1.0
    min_p: Any = 0.0

    def keep(self, logits):
        ordered = jnp.sort(logits, axis=-1, descending=True)
        among = jnp.arange(logits.shape[-1]) < self.k
        shares = jax.nn.softmax(jnp.where(among, ordered, -jnp.inf), axis=-1)
        needed = among & (jnp.cumsum(shares, axis=-1) - shares < self.p)
        needed &= shares >= self.min_p * shares[..., :1]
        least = jnp.where(needed, ordered, jnp.inf).min(axis=-1, keepdims=True)
        return jnp.where(logits < least, -jnp.inf, logits)

    def __call__(self, logits, keys):
        drawn = super().__call__(logits, keys)
        return jnp.where(self.greedy == 1, logits.argmax(axis=-1), drawn)


def _sampler_of(request: TextRequest) -> Sampler:
    return _AnySampler(
        int(request.temperature == 0),
        request.top_k or 1 << 30,
        request.top_p,
        request.min_p,
        temperature=request.temperature or 1.0,
        repetition_penalty=request.repetition_penalty,
    )
