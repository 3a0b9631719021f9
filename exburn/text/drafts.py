"""What proposes tokens that a model then checks, several in one pass: drafts.

A draft changes how fast a text is written, and not the text: each token is still chosen
by the model's own scores, with the sampler and the key that it has without a draft. A
pass goes on behind a proposed token only where that is the one that was chosen.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

from exburn.core.checks import check_count
from exburn.errors import ArgumentError
from exburn.errors.boundary import guard_methods


@guard_methods
class DraftStatistics:
    """How many drafted tokens were accepted, in all calls that a draft was given to.

    Attributes:
        drafted: Tokens that were proposed.
        accepted: Those of them that were written.
        passes: Passes of the model over a row.
        written: Tokens that these wrote; without a draft there is one for each pass.

    Example:
        >>> statistics = DraftStatistics()
        >>> statistics.add(drafted=8, accepted=6, passes=2, written=8)
        >>> statistics
        DraftStatistics(drafted=8, accepted=6, passes=2, written=8)
        >>> statistics.acceptance, statistics.tokens_per_pass
        (0.75, 4.0)
    """

    def __init__(self):
        self.drafted = self.accepted = self.passes = self.written = 0
        self._lock = threading.Lock()

    @property
    def acceptance(self) -> float:
        """The share of the drafted tokens that was accepted; 0 if there are none."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def tokens_per_pass(self) -> float:
        """Tokens that a pass wrote on average; 0 before the first."""
        return self.written / self.passes if self.passes else 0.0

    def add(self, drafted: int, accepted: int, passes: int, written: int) -> None:
        """Counts more of them; several threads may."""
        with self._lock:
            self.drafted += drafted
            self.accepted += accepted
            self.passes += passes
            self.written += written

    def __repr__(self) -> str:
        return (
            f"DraftStatistics(drafted={self.drafted}, accepted={self.accepted}, "
            f"passes={self.passes}, written={self.written})"
        )


def _statistics() -> Any:
    return dataclasses.field(
        default_factory=DraftStatistics, init=False, repr=False, compare=False
    )


@guard_methods
@dataclasses.dataclass(frozen=True)
class PromptLookup:
    """Proposes what followed the last tokens where they stood before in the text.

    It costs nearly nothing, and pays where texts repeat: code that is changed,
    summaries, answers that quote. ``generate(…, draft="ngrams")`` takes its defaults.

    Args:
        tokens: How many are proposed at once. Where the repetition is shorter, it is
            gone through again.
        min_ngram: Fewest last tokens that must have stood before; else nothing is
            proposed.
        max_ngram: Most of them that are compared. Of several places the one where most
            agree counts, and of those the last.

    Attributes:
        statistics: How many were accepted, as ``DraftStatistics``.

    Raises:
        ArgumentError: A number is no integer >= 1, or ``min_ngram`` is greater than
            ``max_ngram``.

    Example:
        >>> import exburn
        >>> from exburn.applications import GPT2
        >>> model = GPT2(vocabulary_size=9, layers=1, width=8, heads=2, positions=64)
        >>> draft = exburn.text.PromptLookup(tokens=4)
        >>> text = model.generate([1, 2, 3, 1, 2, 3], 20, draft=draft)
        >>> text.tolist() == model.generate([1, 2, 3, 1, 2, 3], 20).tolist()
        True
        >>> draft.statistics.written  # the prompt's pass has written the first
        19

    Source: Saxena, *Prompt Lookup Decoding*, 2023; Yang et al., *Inference with
    Reference: Lossless Acceleration of Large Language Models*, 2023.
    """

    tokens: int = 8
    min_ngram: int = 2
    max_ngram: int = 4
    statistics: DraftStatistics = _statistics()

    def __post_init__(self):
        for name in ("tokens", "min_ngram", "max_ngram"):
            check_count("PromptLookup", name, getattr(self, name))
        if self.min_ngram > self.max_ngram:
            raise ArgumentError(
                "PromptLookup",
                f"min_ngram <= max_ngram, received {self.min_ngram} and "
                f"{self.max_ngram}",
            )


@guard_methods
@dataclasses.dataclass(frozen=True)
class DraftModel:
    """Proposes what a smaller model writes: speculative sampling.

    The draft draws by the same sampler with the same keys, so that it proposes the
    token that the model will draw as often as their probabilities are alike, and texts
    are those without a draft, for the same seed.

    Args:
        model: A model of the same vocabulary, which must keep keys and values in a
            cache; or ``"int4"``: the model itself, with weights in 4 bits, which are
            made at the first call and kept until its weights change.
        tokens: How many are proposed at once.

    Attributes:
        statistics: How many were accepted, as ``DraftStatistics``.

    Raises:
        ArgumentError: ``model`` is neither, or ``tokens`` no integer >= 1.

    Example:
        >>> import exburn
        >>> from exburn.applications import GPT2
        >>> sizes = {"vocabulary_size": 9, "heads": 2, "positions": 32}
        >>> model = GPT2(layers=2, width=16, **sizes)
        >>> small = GPT2(layers=1, width=8, **sizes)
        >>> draft = exburn.text.DraftModel(small, tokens=2)
        >>> text = model.generate([1, 2, 3], 8, draft=draft)
        >>> text.tolist() == model.generate([1, 2, 3], 8).tolist()
        True

    Source: Leviathan et al., *Fast Inference from Transformers via Speculative
    Decoding*, 2023; Chen et al., *Accelerating Large Language Model Decoding with
    Speculative Sampling*, 2023; with common random numbers Daliri et al., *Coupling
    without Communication and Drafter-Invariant Speculative Decoding*, 2024.
    """

    model: Any
    tokens: int = 4
    statistics: DraftStatistics = _statistics()

    def __post_init__(self):
        check_count("DraftModel", "tokens", self.tokens)
        if self.model != "int4" and not hasattr(self.model, "generate"):
            raise ArgumentError(
                "DraftModel",
                f'model must be a model or "int4", received {self.model!r}',
            )
