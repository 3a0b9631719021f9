"""``Model.improve``: answers that are rewarded become likelier."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from exburn.callbacks.contract import Callback, History
from exburn.core.checks import check_count, check_optional
from exburn.core.random_keys import path_hash
from exburn.errors import ArgumentError
from exburn.models.compiling import own_step
from exburn.models.fitting import begin_fit
from exburn.models.generation.generate import prepare_generation
from exburn.models.improving.options import ImproveOptions
from exburn.models.improving.prompts import PromptRows, read_rows
from exburn.models.improving.rewards import read_rewards
from exburn.models.improving.rollouts import Rollouts
from exburn.models.network import Network
from exburn.models.options import weigh_batches
from exburn.models.preparing import on_device
from exburn.models.session import require_trainer
from exburn.training.feed.sampled_feed import SampledDataset
from exburn.training.objective.objective import Objective
from exburn.training.requests import FitRequest

_OP = "improve"
_OWN = (  # arguments of ``fit`` that say nothing here
    "x y batch_size validation_split validation_data shuffle class_weight "
    "sample_weight validation_steps validation_batch_size accuracy resident "
    "batch_tokens length train_on packing"
).split()


def improve(
    self: Network,
    prompts: Any,
    reward: Callable[..., Any] | Sequence[Callable[..., Any]],
    *,
    group: int = 8,
    batch_size: int = 8,
    epochs: int = 1,
    steps_per_epoch: int | None = None,
    max_new_tokens: int = 512,
    reward_weights: Sequence[float] | None = None,
    scale_rewards: str | bool = "group",
    loss: str = "dapo",
    beta: float = 0.0,
    epsilon: float = 0.2,
    epsilon_high: float | None = None,
    mask_truncated: bool = False,
    num_iterations: int = 1,
    steps_per_generation: int = 1,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    slots: int | None = None,
    validation_prompts: Any = None,
    verbose: int | str = "auto",
    callbacks: Any = None,
    **options: Any,
) -> History:
    """Trains on the model's own answers, by how they are rewarded (GRPO).

    In each round the model answers some prompts several times. What an answer's reward
    is above those of the others to its prompt, over their standard deviation, is its
    advantage ``A``, and a step lowers ``-Σ min(r A, clip(r, 1 - ε, 1 + ε') A)`` over
    the tokens, with ``r`` the probability of a token over that when it was drawn, and
    with ``β`` times the divergence from the model before the training. The rest is as
    in ``fit``: history, callbacks, runs, checkpoints, going on after an end. The base
    of a model with adapters is there once: what draws, learns and is compared shares
    it.

    Args:
        prompts: Rows: a list, a path, a frame or a data set as of
            ``exburn.text.DocumentReader``. A row is a text, a chat, token numbers, or
            an object with ``prompt`` and further columns.
        reward: ``reward(texts, **columns)`` returns a number for each text of a list;
            or several such functions. They are given the columns that they name,
            ``prompt`` among them, a list of a value for each text. Without a tokenizer
            texts are token numbers.
        group: Answers of a prompt.
        batch_size: Prompts of a round.
        epochs: Number of times to go through the prompts.
        steps_per_epoch: Steps of an epoch, if not as many as go through all prompts.
        max_new_tokens: Tokens of an answer at most.
        reward_weights: Factors of the functions' numbers in their sum.
        scale_rewards: What advantages are divided by: the standard deviation of the
            ``"group"``, of the whole ``"batch"``, or ``"none"``.
        loss: ``"dapo"``: the mean over the tokens of a round; ``"bnpo"``: of a step;
            ``"grpo"``: the mean over answers of means over their tokens; ``"dr_grpo"``:
            the sum over ``max_new_tokens`` for each answer.
        beta: Factor of the divergence from the model as it was before; 0 for none.
        epsilon, epsilon_high: How far the ratio counts below and above 1; both the
            same by default.
        mask_truncated: Whether answers that did not end by themselves are left out.
        num_iterations: How often each answer is learnt from.
        steps_per_generation: Steps among which the answers of a round are divided.
        temperature, top_k, top_p, min_p, repetition_penalty: How tokens are drawn, as
            of ``exburn.text``'s samplers; all of them by their probability by default.
        slots: Answers that are written at once, by a text engine; by default all of a
            round, by one program, as far as its memory suffices.
        validation_prompts: Rows of other prompts, of which one answer each is rewarded
            after an epoch: ``val_reward``.
        verbose, callbacks: As of ``fit``.
        **options: Other arguments of ``fit``: ``run``, ``resume``, ``may_differ``,
            ``learning_rate``, ``lr_schedule``, ``clip_norm``, ``validation_freq`` …

    Returns:
        The History: ``reward``, ``reward_std``, ``unlike`` (the share of prompts whose
        answers are not all rewarded alike), ``length``, ``truncated``, ``kl``,
        ``clip_fraction``, ``entropy``, and ``reward/name`` where there are several
        functions.

    Raises:
        NotCompiledError: ``compile`` was not called, whose optimizer learns.
        ArgumentError: An argument does not fit, or the model does not write text.
        DataError: Rows cannot be used, which are named; or a reward is no number.
        CheckpointError: As of ``fit``.

    Example:
        >>> from exburn.applications import GPT2
        >>> model = GPT2(vocabulary_size=9, layers=1, width=8, heads=2, positions=32)
        >>> model.compile("adam")
        >>> def evenness(texts):
        ...     return [sum(token % 2 == 0 for token in text) for text in texts]
        >>> prompts, options = [[1, 2], [3]], {"max_new_tokens": 4, "verbose": 0}
        >>> history = model.improve(prompts, evenness, group=4, batch_size=2, **options)
        >>> sorted(history.history)[:3]
        ['clip_fraction', 'entropy', 'length']

    Source: Shao et al., *DeepSeekMath*, 2024 (GRPO); Yu et al., *DAPO*, 2025; Liu et
    al., *Understanding R1-Zero-Like Training*, 2025 (Dr. GRPO). Names and defaults are
    those of TRL's ``GRPOConfig``, but that a round has 8 prompts instead of 8 answers.
    """
    trainer = require_trainer(self, _OP)
    trainer.holder.check_free(_OP, train=True)
    settings = ImproveOptions(
        group=group,
        batch_size=batch_size,
        steps_per_generation=steps_per_generation,
        num_iterations=num_iterations,
        scale_rewards=scale_rewards,
        loss=loss,
        beta=beta,
        epsilon=epsilon,
        epsilon_high=epsilon_high,
        mask_truncated=mask_truncated,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        slots=slots,
    )
    _check_options(self, options)
    with on_device(self):
        _, _, plan = prepare_generation(self, None)
    room = trainer, plan, settings.max_new_tokens
    rows = read_rows(self, prompts, room, "prompts")
    held_out = None
    if validation_prompts is not None:
        held_out = read_rows(self, validation_prompts, room, "validation_prompts")
    shared = rows.columns if held_out is None else _common_columns(rows, held_out)
    rewards = read_rewards(reward, reward_weights, shared)
    rollouts = Rollouts(self, settings, rows, rewards)
    request = FitRequest(
        x=_dataset(rollouts, settings, steps_per_epoch),
        batch_size=settings.rows,
        epochs=epochs,
        verbose=verbose,
        callbacks=callbacks,
        **options,
    )
    if held_out is not None:
        validation = _Validation(rollouts, held_out, request)
        request = dataclasses.replace(request, callbacks=[validation, callbacks])
    with _learning(self, rollouts.loss), begin_fit(self, request) as training:
        for _ in training.events():
            pass
    return self.history


def _check_options(model: Network, options: Mapping[str, Any]) -> None:
    """Raises unless the model and the arguments of ``fit`` are such as can be used.

    Raises:
        ArgumentError: They are not.
    """
    for name in _OWN:
        if name in options:
            raise ArgumentError(
                _OP, f"{name} is an argument of fit, and says nothing here"
            )
    if (own := own_step(model)) is not None:
        raise ArgumentError(
            _OP,
            f"the model computes its loss by itself, in {own}, and here it is another",
        )


def _common_columns(rows: PromptRows, others: PromptRows) -> tuple[str, ...]:
    """Names of the columns that rewards may take: all rows have them."""
    return tuple(name for name in rows.columns if name in others.columns)


def _dataset(
    rollouts: Rollouts, options: ImproveOptions, steps_per_epoch: int | None
) -> SampledDataset:
    rounds = rollouts.rounds
    count = check_optional(check_count, _OP, "steps_per_epoch", steps_per_epoch)
    if count is not None:
        rounds, rest = divmod(count, options.steps)
        if rest or not rounds:
            raise ArgumentError(
                _OP,
                f"steps_per_epoch must be whole rounds, of {options.steps} steps each, "
                f"received {steps_per_epoch}",
            )

    def sample(seed: int, epoch: int, number: int) -> tuple:
        first = (epoch * rounds + number) * options.batch_size
        return rollouts.sample(seed, first, (epoch, number))

    return SampledDataset(
        sample,
        rollouts.like(),
        rounds=rounds,
        steps=options.steps,
        rows=options.rows,
        settings=rollouts.settings(),
        op=_OP,
    )


class _Validation(Callback):
    """Adds the rewards of other prompts to the logs of an epoch."""

    def __init__(self, rollouts: Rollouts, rows: PromptRows, request: FitRequest):
        self._rollouts, self._rows, self._request = rollouts, rows, request

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is None or not self._request.validates(epoch):
            return
        means = self._rollouts.judge(self._rows, path_hash("validation", epoch))
        logs |= {f"val_{name}": value for name, value in means.items()}


@contextlib.contextmanager
def _learning(model: Network, loss: Any) -> Iterator[None]:
    """In the block, the model trains for another loss than that of ``compile``."""
    run = model._training_session
    before = run.objective

    def aim(objective: Objective) -> None:
        run.preparer.aim(objective)
        weigh_batches(run.holder.optimizer, objective.by_tokens)
        run.holder.refit_state()

    aim(Objective(loss))
    try:
        yield
    finally:
        aim(before)
