"""``TextEngine``: many texts of one model, written together."""

from __future__ import annotations

import secrets
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.checks import check_count, check_optional
from exburn.errors import ArgumentError, QueueFullError, unknown_name
from exburn.errors.boundary import guard_methods
from exburn.models.generation.adapters import check_rows
from exburn.models.generation.engine.loop import EngineLoop, ModelSource
from exburn.models.generation.engine.meter import EngineStatistics
from exburn.models.generation.engine.pages import PagePool
from exburn.models.generation.engine.programs import CacheLayout, EnginePrograms
from exburn.models.generation.engine.requests import TextAnswer, TextRequest
from exburn.models.generation.engine.rows import Row
from exburn.models.generation.engine.scheduler import RowScheduler
from exburn.models.generation.generate import check_tokens, prepare_generation
from exburn.models.generation.memory import run_model
from exburn.models.generation.plan import GenerationPlan
from exburn.models.lora import active_name, adapter_names
from exburn.models.network import Network
from exburn.models.preparing import on_device
from exburn.module.building import spec_like
from exburn.saving.shards import byte_count
from exburn.training.memory import free_bytes

_OP = "TextEngine"
_USUAL = 2048  # tokens of a text that there is room for in each slot, by default
# Tokens that are written at a time if no prompt is read, and tokens of prompts that are
# read between two steps: on a GPU, and elsewhere.
_STRIDES, _STRIDE = {"gpu": 8}, 4
_PIECES, _PIECE = {"gpu": 512}, 256


@guard_methods
class TextEngine:
    """Writes many texts of one model at once, each as if it were alone.

    A step computes one token of every text; prompts are read piece by piece between two
    steps. Keys and values lie in pages, which texts that begin alike share. A text that
    comes joins the others as soon as there are a slot and pages for it.

    Args:
        model: A model that ``generate`` can write with by a cache.
        slots: Texts that are written at once.
        cache: Bytes of keys and values, as a number or such as ``"2 GB"``; by default
            as many as 2,048 tokens for each slot take, and at most half of the free
            memory.
        page: Tokens of a page.
        prefill: Tokens of prompts that are read between two steps; 512 by default on a
            GPU, 256 elsewhere.
        max_queue: Texts that may wait for a slot; more are refused.
        cache_dtype: ``"int8"``: keys and values are kept in 8 bits, with a scale for
            each head of a token: about twice as many tokens fit. What a text reads of
            them does not depend on its company; texts may differ a little from those of
            ``generate``, whose prompts see their own keys exactly.

    Raises:
        ArgumentError: The model cannot use a cache, that does not fit into the memory,
            or is too small for any text.

    Example:
        >>> from exburn.applications import GPT2
        >>> model = GPT2(vocabulary_size=9, layers=1, width=8, heads=2, positions=32)
        >>> with TextEngine(model, slots=2) as engine:
        ...     request = TextRequest([1, 2, 3], 4, temperature=0)
        ...     [answer] = engine.write([request])
        >>> answer.result().tokens.shape
        (4,)
    """

    def __init__(
        self,
        model: Network,
        slots: int = 32,
        cache: int | str | None = None,
        page: int = 16,
        prefill: int | None = None,
        max_queue: int = 1024,
        cache_dtype: str | None = None,
    ):
        self.slots = check_count(_OP, "slots", slots)
        self.page = check_count(_OP, "page", page)
        if prefill is None:
            prefill = _PIECES.get(jax.default_backend(), _PIECE)
        self.prefill = check_count(_OP, "prefill", prefill)
        self.max_queue = check_count(_OP, "max_queue", max_queue)
        self.model, self.cache_dtype = model, cache_dtype
        self._preparing = threading.RLock()  # a model is prepared by one at a time
        self._trainer: Any = None
        self._exact_plan: Any = None
        self._plan: Any = None
        self._programs: Any = None
        self._source: ModelSource
        self._prepare()
        source, self._reserves = self._source, reads_lengths(self._plan)
        pages = _page_count(cache, source.layout, self.slots, self.page, self._plan)
        self._pool = PagePool(pages, self.page)
        longest = self._plan.positions or pages * page
        scheduler = RowScheduler(self._pool, self.slots, longest, self._reserves)
        stride = _STRIDES.get(jax.default_backend(), _STRIDE)
        self._loop = EngineLoop(source, scheduler, self.slots, self.prefill, stride)
        self._seeds = np.random.default_rng(secrets.randbits(64))
        self._thread = threading.Thread(
            target=self._loop.run, name="exburn-text-engine", daemon=True
        )
        self._end = weakref.finalize(self, _stop, self._loop, self._thread)
        self._thread.start()

    # ------------------------------------------------------------------ texts
    def submit(self, request: TextRequest) -> TextAnswer:
        """Has a text written, as soon as there is room for it.

        Raises:
            QueueFullError: As many texts wait as ``max_queue`` allows.
            ArgumentError: The text is too long for the model, or for the cache.
            DataError: The model has no such token.
            BusyError: The model is being trained.
            ServingClosedError: The engine is closed.
        """
        with self._preparing:
            if self._prepare():
                self._loop.renew(self._source)
            self._check(request)
            if self._loop.waiting >= self.max_queue:
                raise QueueFullError(
                    _OP,
                    f"{self._loop.waiting} texts wait, as many as max_queue allows",
                    hint="Try again later, or raise max_queue or slots.",
                )
            adapter = self._adapter_of(request)
            seed = request.seed
            seed = int(self._seeds.integers(1 << 32)) if seed is None else seed
        matcher = None if request.constraint is None else request.constraint.start()
        salt: tuple = (adapter,)
        if self._reserves:  # keys depend on the prompt's length
            salt += (len(request.tokens),)
        answer = TextAnswer(request, self._loop.wake)
        self._loop.put(Row(request, answer, matcher, seed, salt, adapter))
        return answer

    def write(self, requests: Sequence[TextRequest]) -> list[TextAnswer]:
        """The answers to any number of requests, once all have ended.

        One that fails has an ``error``.

        Raises: As ``submit``, which then cancels all of them.
        """
        answers: list[TextAnswer] = []
        try:
            for request in requests:
                answers.append(self._submit_when_room(request, answers))
        except BaseException:
            for answer in answers:
                answer.cancel()
            raise
        for answer in answers:
            answer.wait()
        return answers

    def _submit_when_room(
        self, request: TextRequest, answers: list[TextAnswer]
    ) -> TextAnswer:
        """Submits a request; while the queue is full, waits for one of some answers."""
        while True:
            try:
                return self.submit(request)
            except QueueFullError:
                before = next((a for a in answers if not a.has_ended), None)
                if before is None:
                    raise
                before.wait()

    def refresh(self) -> None:
        """Goes on with the model's weights as they are now.

        What is kept for texts that begin alike is dropped, and texts under way are read
        anew.
        """
        with self._preparing:
            self._prepare()
            self._loop.renew(self._source)

    def statistics(self) -> EngineStatistics:
        """What it does now, and what it has done."""
        loop, pool = self._loop, self._pool
        return loop.meter.read(
            slots=self.slots,
            active=len(loop.scheduler.rows),
            queue=loop.waiting,
            pages=pool.count,
            pages_free=pool.free,
            pages_kept=pool.unread,
            pages_shared=pool.together,
            page_bytes=loop.source.layout.page_bytes,
        )

    def close(self) -> None:
        """Ends the engine; texts that are not ready fail."""
        self._end()

    def __enter__(self) -> TextEngine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ------------------------------------------------------------------ the model
    def _prepare(self) -> bool:
        """Makes the model ready for the programs; False if it is as it was."""
        model = self.model
        with on_device(model):
            trainer, programs, plan = prepare_generation(model, True)
            if programs is self._programs and plan is self._exact_plan:
                return False
            self._trainer, self._programs = trainer, programs
            self._exact_plan = plan
            self._plan = plan = plan.with_cache_dtype(self.cache_dtype, _OP)
            layout = CacheLayout.of(plan, self.page)
        self._source = ModelSource(
            EnginePrograms(programs, plan, layout.heads_first),
            layout,
            plan.split,
            lambda: on_device(model),
            tuple(adapter_names(model)),
            active_name(model),
        )
        return True

    def _adapter_of(self, request: TextRequest) -> str | None:
        """The adapter that a text is computed with.

        Raises:
            UnknownNameError: The model has no adapter of that name.
            ArgumentError: A layer does not compute each row with its own.
        """
        source, name = self._source, request.adapter
        if name is None or name == source.active:
            return source.active
        if name not in source.adapters:
            raise unknown_name("adapter", name, source.adapters, op=_OP)
        check_rows(self._plan, self._plan.split.peek(), source.adapters)
        return name

    def _check(self, request: TextRequest) -> None:
        """Raises unless the model and the cache have room for a text."""
        if not isinstance(request, TextRequest):
            raise ArgumentError(_OP, f"a TextRequest is needed, received {request!r}")
        plan, new = self._plan, request.max_new_tokens
        size, details = len(request.tokens), {"prompt": len(request.tokens)}
        details["max_new_tokens"] = new
        if plan.positions is not None and size + new > plan.positions:
            raise ArgumentError(
                _OP,
                f"the model has {plan.positions} positions, fewer than the text needs",
                details,
            )
        if (turn := plan.turning_length([size], new)) is not None:
            raise ArgumentError(
                _OP,
                f"texts of more than {turn} tokens have other angles of positions, and "
                "the text becomes longer while it is written",
                details,
                hint="model.generate computes such a text without a cache.",
            )
        if (pages := self._pool.pages_for(size + new)) > self._pool.count:
            raise ArgumentError(
                _OP,
                f"the text needs {pages} pages, and the cache has {self._pool.count}",
                details,
                hint="A larger cache, or a smaller max_new_tokens.",
            )
        check_tokens(self._trainer, plan, [request.tokens], _OP)


def reads_lengths(plan: GenerationPlan) -> bool:
    """Whether a model's keys depend on the length of their text."""
    groups = jax.tree.map(spec_like, plan.split.peek())
    spec = jax.ShapeDtypeStruct((1, 8), jnp.int32)

    def forward(groups: Any, ids: Any, lengths: Any) -> Any:
        return run_model(plan.split, groups, ids, None, lengths=lengths)

    lengths = jax.ShapeDtypeStruct((1,), jnp.int32)
    jaxpr = jax.make_jaxpr(forward)(groups, spec, lengths).jaxpr
    used = {id(var) for equation in jaxpr.eqns for var in equation.invars}
    return id(jaxpr.invars[-1]) in used


def _page_count(
    cache: Any, layout: CacheLayout, slots: int, page: int, plan: GenerationPlan
) -> int:
    """The number of pages.

    Raises:
        ArgumentError: They do not fit into the memory, or are too few for any text.
    """
    free = free_bytes()
    if cache is None:
        tokens = min(plan.positions or _USUAL, _USUAL)
        number = min(slots * -(-tokens // page), free // 2 // layout.page_bytes)
        return max(number, 2)
    if isinstance(cache, str):
        size = byte_count(cache, _OP, "cache")
    else:
        size = check_optional(check_count, _OP, "cache", cache)
    assert size is not None
    details = {"cache": f"{size:,} bytes", "a page": f"{layout.page_bytes:,} bytes"}
    if size > free:
        raise ArgumentError(
            _OP, f"the device has {free:,} bytes free, fewer than the cache", details
        )
    if size < 2 * layout.page_bytes:
        raise ArgumentError(_OP, "the cache is smaller than two pages", details)
    return size // layout.page_bytes


def _stop(loop: EngineLoop, thread: threading.Thread) -> None:
    loop.close()
    if thread is not threading.current_thread():
        thread.join()
