"""The options of ``improve``, as an object that checks itself."""

from __future__ import annotations

import dataclasses
from typing import Any

from exburn.core.checks import (
    check_choice,
    check_count,
    check_flag,
    check_number,
    check_optional,
)
from exburn.errors import ArgumentError
from exburn.models.improving.policy_loss import FORMS
from exburn.models.improving.rewards import SCALES
from exburn.text.defaults import GenerationDefaults

_OP = "improve"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImproveOptions:
    """How answers are drawn, compared, and learnt from.

    Attributes: as the arguments of ``improve``.
    """

    group: int
    batch_size: int
    steps_per_generation: int
    num_iterations: int
    scale_rewards: str | bool
    loss: str
    beta: float
    epsilon: float
    epsilon_high: float | None
    mask_truncated: bool
    max_new_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    slots: int | None

    def __post_init__(self) -> None:
        least = {"group": 2}
        counts = "group", "batch_size", "steps_per_generation", "num_iterations"
        for name in (*counts, "max_new_tokens"):
            check_count(_OP, name, getattr(self, name), least.get(name, 1))
        named: dict[Any, str] = {True: "group", False: "none"}
        scale = named.get(self.scale_rewards, self.scale_rewards)
        scale = check_choice(_OP, "scale_rewards", scale, SCALES)
        object.__setattr__(self, "scale_rewards", scale)
        check_choice(_OP, "loss", self.loss, FORMS)
        check_number(_OP, "beta", self.beta)
        check_number(_OP, "epsilon", self.epsilon, high=1)
        if self.epsilon_high is not None:
            check_number(_OP, "epsilon_high", self.epsilon_high)
        check_flag(_OP, "mask_truncated", self.mask_truncated)
        check_optional(check_count, _OP, "slots", self.slots)
        self.sampling()
        if self.samples % self.steps_per_generation:
            raise ArgumentError(
                _OP,
                "the answers of a round must be divided evenly among its steps",
                {
                    "answers": f"{self.samples} (batch_size × group)",
                    "steps_per_generation": self.steps_per_generation,
                },
            )

    @property
    def samples(self) -> int:
        """Answers of a round."""
        return self.batch_size * self.group

    @property
    def rows(self) -> int:
        """Answers of a step."""
        return self.samples // self.steps_per_generation

    @property
    def steps(self) -> int:
        """Steps that learn from the answers of a round."""
        return self.steps_per_generation * self.num_iterations

    def sampling(self) -> GenerationDefaults:
        """How tokens are drawn."""
        return GenerationDefaults(
            do_sample=True,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            max_new_tokens=self.max_new_tokens,
        )

    def settings(self) -> dict[str, Any]:
        """The options by name."""
        return dataclasses.asdict(self)
