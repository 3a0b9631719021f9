"""Rounds of answers: written by the model as it is, rewarded, and made into batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from exburn.core.digests import describe_value
from exburn.core.random_keys import path_hash
from exburn.errors import ArgumentError
from exburn.models.generation.plan import fixed_length
from exburn.models.improving.options import ImproveOptions
from exburn.models.improving.policy_loss import PolicyLoss, factors_of
from exburn.models.improving.prompts import PromptRow, PromptRows
from exburn.models.improving.rewards import Reward, advantages
from exburn.models.improving.sampling import AnswerSampler, SampledAnswer
from exburn.models.network import Network
from exburn.models.session import require_trainer
from exburn.runtime.donation import copies
from exburn.training.objective.likelihood import token_log_probabilities

_OP = "improve"
_LEAST = 16  # tokens of a row, at least


class Rollouts:
    """The rounds of a training.

    Attributes:
        reference: The trained parameters as they were before the training, of which
            the divergence is taken; ``None`` where it costs nothing.
    """

    def __init__(
        self,
        model: Network,
        options: ImproveOptions,
        rows: PromptRows,
        rewards: Sequence[Reward],
    ):
        self._model, self._options = model, options
        self._rows, self._rewards = rows, rewards
        sampling = options.sampling()
        self._writer = AnswerSampler(model, rows, sampling, options.slots)
        self.loss = PolicyLoss.of(options, [reward.name for reward in rewards])
        self.reference: dict[str, Any] | None = None
        if options.beta:
            trainer = require_trainer(model, _OP)
            self.reference = copies(trainer.holder.split.read()[0])

    @property
    def rounds(self) -> int:
        """Rounds that go once through the prompts."""
        return -(-len(self._rows) // self._options.batch_size)

    def settings(self) -> dict[str, Any]:
        """What the samples depend on, by name."""
        named = {f"reward.{r.name}": (r.function, r.weight) for r in self._rewards}
        own = {"prompts": self._rows.digest, **self._options.settings(), **named}
        if self.reference is not None:
            own["reference"] = describe_value(self.reference)
        return own

    def like(self) -> tuple:
        """A batch for shapes."""
        options = self._options
        longest = max(len(row.tokens) for row in self._rows.rows)
        width = self._width(longest + min(options.max_new_tokens, _LEAST))
        columns = self._columns(
            np.zeros((self._height(), width + 1), np.int32),
            np.zeros((self._height(), width), np.float32),
        )
        for name in self.loss.likelihoods:
            columns[1][name] = np.zeros((self._height(), width), np.float32)
        return columns

    # ------------------------------------------------------------------ a round
    def sample(self, seed: int, first: int, key: Sequence[int]) -> tuple:
        """The batches of a round, ``[steps, rows, …]``.

        Args:
            first: Number of its first prompt, in the order of all passes.
            key: Numbers of the round, which make its draws.
        """
        options = self._options
        prompts = self._rows.batch(seed, first, options.batch_size)
        prompts = [row for row in prompts for _ in range(options.group)]
        random = np.random.Generator(
            np.random.Philox(key=[seed, path_hash(f"answers {[*key]}")])
        )
        answers = self._writer.write(prompts, int(random.integers(1 << 62)))
        given = self._reward(prompts, answers)
        total = self._total(given)
        worth, alike = advantages(total, options.group, str(options.scale_rewards))
        figures = {
            "reward": total,
            "reward_std": np.full(len(total), total.std(ddof=1)),
            "unlike": np.repeat(1.0 - alike, options.group),
            "length": np.array([len(answer.tokens) for answer in answers]),
            "truncated": np.array([not answer.ended for answer in answers]),
            **({f"reward/{n}": v for n, v in given.items()} if len(given) > 1 else {}),
        }
        return self._batches(prompts, answers, worth, figures, random)

    def judge(self, rows: PromptRows, seed: int) -> dict[str, float]:
        """Mean figures of one answer to each of other prompts."""
        answers = self._writer.write(rows.rows, seed)
        given = self._reward(rows.rows, answers)
        total = self._total(given)
        means = {"reward": total, "length": [len(a.tokens) for a in answers]}
        if len(given) > 1:
            means |= {f"reward/{name}": values for name, values in given.items()}
        return {name: float(np.mean(values)) for name, values in means.items()}

    def _total(self, given: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.sum([r.weight * given[r.name] for r in self._rewards], axis=0)

    def _reward(
        self, prompts: Sequence[PromptRow], answers: Sequence[SampledAnswer]
    ) -> dict[str, np.ndarray]:
        texts, places = [a.text for a in answers], [row.place for row in prompts]
        columns = {
            name: [row.columns[name] for row in prompts] for name in self._rows.columns
        }
        return {r.name: r.of(texts, columns, places) for r in self._rewards}

    # ------------------------------------------------------------------ arrays
    def _batches(
        self,
        prompts: Sequence[PromptRow],
        answers: Sequence[SampledAnswer],
        worth: np.ndarray,
        figures: Mapping[str, np.ndarray],
        random: np.random.Generator,
    ) -> tuple:
        options, steps = self._options, self._options.steps_per_generation
        rows = [
            np.concatenate([row.tokens, answer.tokens])
            for row, answer in zip(prompts, answers, strict=True)
        ]
        width = self._width(max(map(len, rows)) - 1)
        order = np.array(self._order(len(rows), random))
        parts = order.reshape(steps, options.rows)
        shape = steps, self._height(), width
        tokens = np.zeros((*shape[:2], width + 1), np.int32)
        counted = np.zeros(shape, np.float32)
        values = {
            name: np.zeros(shape, np.float32)
            for name in ("advantages", "first", *figures)
        }
        for step, part in enumerate(parts):
            for row, number in enumerate(part):
                place = slice(len(prompts[number].tokens) - 1, len(rows[number]) - 1)
                tokens[step, row, : len(rows[number])] = rows[number]
                kept = answers[number].ended or not options.mask_truncated
                counted[step, row, place] = kept
                values["advantages"][step, row, place] = worth[number]
                values["first"][step, row, place.start] = 1
                for name, figure in figures.items():
                    values[name][step, row, place.start] = figure[number]
        batches = [
            self._columns(tokens[i], counted[i], {n: v[i] for n, v in values.items()})
            for i in range(steps)
        ]
        total = counted.sum() / steps
        for x, y, w in batches:
            y["factors"] = factors_of(options, w, total)
            y |= self._likelihoods(x, y["tokens"], w)
        return jax.tree.map(
            lambda *leaves: np.stack(leaves * options.num_iterations), *batches
        )

    def _order(self, count: int, random: np.random.Generator) -> Any:
        """Numbers of the answers of a round, in the order of its steps."""
        if self._options.steps_per_generation == 1:
            return range(count)
        return random.permutation(count)

    def _columns(
        self,
        tokens: np.ndarray,
        counted: np.ndarray,
        values: Mapping[str, np.ndarray] | None = None,
    ) -> tuple:
        """A batch: tokens, what is known of the next one, and whether it counts."""
        if values is None:
            values = {name: np.zeros_like(counted) for name in self.loss.columns}
        return tokens[:, :-1], {"tokens": tokens[:, 1:], **values}, counted

    def _likelihoods(
        self, x: np.ndarray, tokens: np.ndarray, counted: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Log-probabilities by the model as it is, and as it was, where they count."""
        if not self.loss.likelihoods:
            return {}
        trainer = require_trainer(self._model, _OP)
        split = trainer.holder.split
        program = trainer.preparer.programs.further(
            "score_answers", lambda: _make_score(split)
        )
        params, *rest = split.read()
        weights = {"old": params}
        if self.reference is not None:
            if params.keys() != self.reference.keys():
                raise ArgumentError(
                    _OP,
                    "other layers are trained than when the training began, with which "
                    "it is compared (beta)",
                )
            weights["reference"] = self.reference
        arguments = x, tokens, counted, np.float32(self._options.temperature)
        return {
            name: np.asarray(program((weights[name], *rest), *arguments))
            for name in self.loss.likelihoods
        }

    def _height(self) -> int:
        """Rows of a batch: as many as devices can divide; others count nothing."""
        placement = require_trainer(self._model, _OP).holder.placement
        return placement.width(self._options.rows)

    def _width(self, tokens: int) -> int:
        """Tokens of a row: few sizes, for which there are programs."""
        fixed = fixed_length(self._model)
        return fixed or row_size(tokens)


def row_size(tokens: int) -> int:
    """The size that rows are filled up to: powers of two, and halfway between.

    Example:
        >>> row_size(3), row_size(17), row_size(33), row_size(64)
        (16, 24, 48, 64)
    """
    size = _LEAST
    while size < tokens:
        size *= 2
    between = size * 3 // 4
    return between if size > _LEAST and tokens <= between else size


def _make_score(split: Any) -> Any:
    """The program: log-probabilities of the next tokens."""

    def score(
        groups: Any, ids: Any, tokens: Any, counted: Any, temperature: Any
    ) -> Any:
        key = jax.random.key(0)  # of layers that draw at inference
        with split.running(groups, training=False, key=key) as (call, ctx):
            scores = jax.tree.leaves(call((ids,), {}))[0]
            return token_log_probabilities(
                ctx, scores, tokens, counted > 0, temperature
            )[0]

    return score
