"""A model as one of lm-eval, EleutherAI's harness of tasks that judge language models.

Source: Gao et al., *A Framework for Few-shot Language Model Evaluation*, 2021.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from exburn.core.checks import check_count
from exburn.errors import ArgumentError, require
from exburn.models.generation.scoring import TokenWindow, score_windows, window_length
from exburn.models.network import Network
from exburn.text import Greedy, RandomSampler, TopK, TopP

_OP = "as_lm_eval"
_NEW = 256  # tokens that are written where a task says nothing, as by lm-eval
_PIECE = 16  # tokens between two looks for what ends an answer
# What tasks call the number of tokens to write.
_COUNTS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")


def as_lm_eval(self: Network, *, batch_size: int = 8, length: int | None = None) -> Any:
    """The model as an ``lm_eval.api.model.LM``, which the harness' tasks can judge.

    It computes the log-likelihoods of answers, of whole texts by windows, and answers
    by ``generate``; requests of like lengths run together.

    Args:
        batch_size: Requests that run together.
        length: Tokens that the model sees at most; by default those that it has
            positions for, or 2,048, within the context that its folder tells. What is
            longer is cut in front.

    Returns:
        An object for ``lm_eval.simple_evaluate(model=…, tasks=[…])``.

    Raises:
        ArgumentError: The model has no tokenizer, or none of its tokens begins or ends
            a text.
        MissingDependencyError: ``lm_eval`` is not installed.

    Example:
        >>> from exburn.applications import GPT2
        >>> from exburn.text import Tokenizer
        >>> model = GPT2(270, layers=1, width=8, heads=2, positions=32)
        >>> model.tokenizer = Tokenizer.train(["so it is"] * 9, 270)
        >>> lm = model.as_lm_eval()  # doctest: +SKIP
        >>> results = lm_eval.simple_evaluate(lm, ["lambada"])  # doctest: +SKIP
    """
    require("lm_eval", _OP, "it judges models by tasks", extra="lm-eval")
    return _class()(self, check_count(_OP, "batch_size", batch_size), length)


class Judged:
    """What lm-eval asks of a model; its class adds how requests are read.

    Args:
        model: The model, with a tokenizer.
        batch_size: Requests that run together.
        length: Tokens that the model sees at most.
    """

    backend = "causal"
    cache_hook: Any  # the harness' own

    def __init__(self, model: Any, batch_size: int, length: int | None):
        super().__init__()
        self.model, self.batch_size = model, batch_size
        if model.tokenizer is None:
            raise ArgumentError(
                _OP,
                "the model has no tokenizer, which turns texts into token numbers",
                hint="model.tokenizer = exburn.text.Tokenizer.load(path)",
            )
        self.text = model.tokenizer
        self.max_length = window_length(model, length, _OP)
        self.max_gen_toks = min(_NEW, self.max_length - 1)
        ends = [self.text.begin, self.text.end]
        numbers = [self.text.number_of(name) for name in ends if name is not None]
        if not numbers:
            raise ArgumentError(
                _OP,
                "no token of the tokenizer begins or ends a text, which stands in "
                "front of texts that are scored as a whole",
                hint="Tokenizer(text, end='<|endoftext|>')",
            )
        self._first, self._last = numbers[0], numbers[-1]

    @property
    def prefix_token_id(self) -> int:
        """The token in front of texts that have nothing there."""
        return self._first

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        return self._last

    @property
    def tokenizer_name(self) -> str:
        """A name for the harness' caches of requests."""
        return f"exburn-{self.model.name}"

    def chat_template(self, chat_template: Any = False) -> str:
        """The template's text; empty if the tokenizer has none."""
        template = self.text.settings.chat_template
        return str(template) if template and chat_template else ""

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Messages as the text that the model is given."""
        template = self.text.chat_template
        if template is None:
            raise ArgumentError(_OP, "the tokenizer has no template of chats")
        return template.render(
            chat_history, add_generation_prompt=add_generation_prompt
        )

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        """Token numbers of a text."""
        special = True if add_special_tokens is None else add_special_tokens
        if add_special_tokens is None:
            name = self.text.token_of(self._first)
            special = not string.startswith(name or "\0")
        return self.text.encode(string, special=special).tolist()

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        """Log-likelihoods of continuations, and whether each is the likeliest."""
        windows = []
        for (_, text), context, continuation in requests:
            if not continuation:
                raise ArgumentError(_OP, f"an answer has no token: {text!r}")
            if len(continuation) > self.max_length:
                raise ArgumentError(
                    _OP,
                    f"an answer has {len(continuation)} tokens, more than the model "
                    f"sees ({self.max_length})",
                )
            tokens = np.array(context + continuation, np.int32)
            windows.append(
                TokenWindow(tokens[-self.max_length - 1 :], len(continuation))
            )
        scores = score_windows(self.model, windows, self.batch_size, _OP)
        answers = [
            (float(s.log_likelihoods.sum(dtype=np.float64)), bool(s.greedy.all()))
            for s in scores
        ]
        for (strings, _, _), answer in zip(requests, answers, strict=True):
            if strings[0] is not None:
                self.cache_hook.add_partial("loglikelihood", strings, answer)
        return answers

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Log-likelihoods of whole texts, by windows whose scored tokens are apart."""
        windows = [
            _rolling(
                [self.prefix_token_id, *self.tok_encode(request.args[0])],
                self.max_length,
            )
            for request in requests
        ]
        flat = [window for of_text in windows for window in of_text]
        scores = iter(score_windows(self.model, flat, self.batch_size, _OP))
        totals = [
            sum(float(next(scores).log_likelihoods.sum(dtype=np.float64)) for _ in part)
            for part in windows
        ]
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def generate_until(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[str]:
        """Answers up to what ends them; those of one set of options run together."""
        groups: dict[str, list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(repr(request.args[1]), []).append(number)
        results = [""] * len(requests)
        for numbers in groups.values():
            options = _Options.of(requests[numbers[0]].args[1], self)
            rows = {i: self._prompt(requests[i].args[0], options) for i in numbers}
            order = sorted(numbers, key=lambda i: -len(rows[i]))
            for start in range(0, len(order), self.batch_size):
                part = order[start : start + self.batch_size]
                answers = self._write([rows[i] for i in part], options)
                for i, answer in zip(part, answers, strict=True):
                    results[i] = answer
                    args = requests[i].args
                    self.cache_hook.add_partial("generate_until", args, answer)
        return results

    def _prompt(self, context: str, options: _Options) -> np.ndarray:
        tokens = self.tok_encode(context) or [self.prefix_token_id]
        return np.array(tokens[-(self.max_length - options.count) :], np.int32)

    def _write(self, rows: list[np.ndarray], options: _Options) -> list[str]:
        """Texts of a batch, which ends when each has met one of its stops."""
        written: list[list[int]] = [[] for _ in rows]
        pieces = self.model.generate(
            rows, options.count, sampler=options.sampler, stream=_PIECE
        )
        for piece in pieces:
            for tokens, more in zip(written, piece, strict=True):
                tokens += more.tolist()
            texts = [self.text.decode(tokens) for tokens in written]
            if all(any(stop in text for stop in options.stops) for text in texts):
                break
        texts = [self.text.decode(tokens) for tokens in written]
        for stop in options.stops:
            texts = [text.split(stop)[0] if stop else text for text in texts]
        return texts


def _rolling(tokens: list[int], length: int) -> list[TokenWindow]:
    """Windows of which each sees all that fits in front of what it scores.

    Example:
        >>> windows = _rolling([9, 1, 2, 3, 4, 5], 3)
        >>> [(w.tokens.tolist(), w.scored) for w in windows]
        [([9, 1, 2, 3], 3), ([2, 3, 4, 5], 2)]
    """
    windows, row, done = [], np.array(tokens, np.int32), 1
    while done < len(row):
        end = min(done + length, len(row))
        windows.append(TokenWindow(row[max(end - length - 1, 0) : end], end - done))
        done = end
    return windows


class _Options:
    """What a task says of answers.

    Attributes:
        count: Tokens at most.
        stops: Texts that end an answer.
        sampler: What chooses tokens.
    """

    def __init__(self, count: int, stops: list[str], sampler: Any):
        self.count, self.stops, self.sampler = count, stops, sampler

    @classmethod
    def of(cls, values: dict[str, Any], judged: Judged) -> _Options:
        """The options of a request.

        Raises:
            ArgumentError: One is not known here.
        """
        values, stops = dict(values), values.get("until") or []
        values.pop("until", None)
        end = judged.text.token_of(judged.eot_token_id)
        stops = [*([stops] if isinstance(stops, str) else stops), end]
        counts = [values.pop(name) for name in _COUNTS if name in values]
        count = counts[0] if counts else judged.max_gen_toks
        temperature = values.pop("temperature", None)
        samples = values.pop("do_sample", bool(temperature))
        top_p, top_k = values.pop("top_p", None) or 1.0, values.pop("top_k", 0)
        if values or (top_p != 1 and top_k):
            names = sorted(values) or ["top_k together with top_p"]
            raise ArgumentError(
                _OP,
                f"a task's generation_kwargs have {', '.join(names)}, which generate "
                "does not",
                hint="until, max_gen_toks, do_sample, temperature, top_p or top_k.",
            )
        if count >= judged.max_length:
            raise ArgumentError(
                _OP,
                f"a task writes {count} tokens, and the model sees "
                f"{judged.max_length} with the question",
            )
        sampler: Any = Greedy()
        if samples:
            temperature = 1.0 if temperature is None else temperature
            sampler = RandomSampler(temperature=temperature)
            if top_k:
                sampler = TopK(top_k, temperature=temperature)
            elif top_p != 1:
                sampler = TopP(top_p, temperature=temperature)
        return cls(count, [stop for stop in stops if stop], sampler)


@functools.cache
def _class() -> type:
    """The class: what lm-eval does with requests, and what this file answers."""
    from lm_eval.api.model import TemplateLM

    return type("ExBurnLM", (Judged, TemplateLM), {})
