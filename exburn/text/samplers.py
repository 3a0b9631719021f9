"""How the next token is chosen from the scores of all.

A sampler is plain data whose numbers are arguments of the compiled loop, so another
temperature is no other program. One of your own is a subclass of :class:`Sampler` with
``keep``, or any function of ``(logits, keys)``.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from exburn.core.checks import check_count, check_number, check_optional
from exburn.errors import ArgumentError
from exburn.errors.boundary import guard_methods

_STATIC = "static"  # of a field: it decides shapes


def _register(cls: type[Sampler]) -> None:
    """Makes the numbers of a class leaves of JAX's trees, and the rest their structure.

    Without the constructor's checks: leaves may be anything there.
    """

    def names(static: bool) -> list[str]:
        fields = dataclasses.fields(cls)
        return [f.name for f in fields if bool(f.metadata.get(_STATIC)) is static]

    def flatten(sampler: Any) -> tuple[list, tuple]:
        leaves = [getattr(sampler, name) for name in names(False)]
        return leaves, tuple(getattr(sampler, name) for name in names(True))

    def unflatten(fixed: tuple, leaves: Any) -> Any:
        sampler = object.__new__(cls)
        for group, values in ((names(True), fixed), (names(False), leaves)):
            for name, value in zip(group, values, strict=True):
                object.__setattr__(sampler, name, value)
        return sampler

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)


@guard_methods
@dataclasses.dataclass(frozen=True)
class Sampler:
    """Draws from the softmax of the scores that ``keep`` leaves.

    Args:
        temperature: The scores are divided by it: below 1 likely tokens become more
            likely.
        repetition_penalty: Scores of tokens that the row has had, in its prompt or
            since, are divided by it if positive, and multiplied if not; above 1 they
            come less often.

    Raises:
        ArgumentError: A number is not positive.

    Example:
        >>> class Likely(Sampler):  # tokens of a tenth of the probability at least
        ...     def keep(self, logits):
        ...         share = jax.nn.softmax(logits)
        ...         return jnp.where(share >= 0.1, logits, -jnp.inf)
        >>> Likely(temperature=0.5).keep(jnp.array([0.0, 5.0])).tolist()
        [-inf, 5.0]
    """

    temperature: Any = dataclasses.field(default=1.0, kw_only=True)
    repetition_penalty: Any = dataclasses.field(default=None, kw_only=True)

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        _register(cls)

    def __post_init__(self):
        op = type(self).__name__
        check_number(op, "temperature", self.temperature, open_low=True)
        penalty = self.repetition_penalty
        check_optional(check_number, op, "repetition_penalty", penalty, open_low=True)

    def keep(self, logits: jax.Array) -> jax.Array:
        """Scores, with ``-inf`` for tokens that may not come.

        Args:
            logits: ``[batch, vocabulary]`` in float32, divided by the temperature.
        """
        return logits

    def penalize(self, logits: jax.Array, seen: jax.Array | None) -> jax.Array:
        """Scores after the repetition penalty.

        Args:
            logits: ``[batch, vocabulary]``.
            seen: Booleans of that shape: tokens that the row has had.
        """
        if self.repetition_penalty is None or seen is None:
            return logits
        penalty = self.repetition_penalty
        lower = jnp.where(logits > 0, logits / penalty, logits * penalty)
        return jnp.where(seen, lower, logits)

    def __call__(self, logits: jax.Array, keys: jax.Array) -> jax.Array:
        """The next tokens, ``[batch]``.

        Args:
            logits: ``[batch, vocabulary]`` in float32.
            keys: ``[batch]``: a key of JAX for each row.
        """
        return jax.vmap(jax.random.categorical)(
            keys, self.keep(logits / self.temperature)
        )


_register(Sampler)


@guard_methods
class RandomSampler(Sampler):
    """Draws any token by its probability.

    Args:
        temperature: The scores are divided by it: below 1 likely tokens become more
            likely.
        repetition_penalty: Scores of tokens that the row has had are divided by it if
            positive, and multiplied if not; above 1 they come less often.

    Example:
        >>> RandomSampler(temperature=0.5).temperature
        0.5
    """


@guard_methods
class Greedy(Sampler):
    """Takes the most likely token.

    Args:
        temperature: Kept for code that sets it for all samplers: it changes no maximum.
        repetition_penalty: Scores of tokens that the row has had are divided by it if
            positive, and multiplied if not; above 1 they come less often.

    Example:
        >>> Greedy()(jnp.array([[0.0, 2.0, 1.0]]), jax.random.split(jax.random.key(0)))
        Array([1], dtype=int32)
    """

    def __call__(self, logits, keys):
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)


@guard_methods
@dataclasses.dataclass(frozen=True)
class TopK(Sampler):
    """Draws from the ``k`` most likely tokens.

    Args:
        k: How many; tokens as likely as the last of them may come, too.
        temperature: The scores are divided by it: below 1 likely tokens become more
            likely.
        repetition_penalty: Scores of tokens that the row has had are divided by it if
            positive, and multiplied if not; above 1 they come less often.

    Raises:
        ArgumentError: ``k`` is no integer >= 1.

    Example:
        >>> TopK(2).keep(jnp.array([[0.0, 3.0, 1.0]])).tolist()
        [[-inf, 3.0, 1.0]]

    Source: Fan et al., *Hierarchical Neural Story Generation*, 2018.
    """

    k: int = dataclasses.field(metadata={_STATIC: True})

    def __post_init__(self):
        super().__post_init__()
        check_count("TopK", "k", self.k)

    def keep(self, logits):
        least = lax.top_k(logits, min(self.k, logits.shape[-1]))[0][..., -1:]
        return jnp.where(logits < least, -jnp.inf, logits)


@guard_methods
@dataclasses.dataclass(frozen=True)
class TopP(Sampler):
    """Draws from the nucleus: the fewest tokens that have ``p`` of the probability.

    Args:
        p: The share, above 0 and at most 1; tokens as likely as the last one that is
            needed may come, too.
        k: Draws from the ``k`` most likely tokens at most, which is quicker.
        temperature: The scores are divided by it: below 1 likely tokens become more
            likely.
        repetition_penalty: Scores of tokens that the row has had are divided by it if
            positive, and multiplied if not; above 1 they come less often.

    Raises:
        ArgumentError: ``p`` is not in (0, 1], or ``k`` no integer >= 1.

    Example:
        >>> logits = jnp.log(jnp.array([[0.5, 0.3, 0.15, 0.05]]))
        >>> jnp.isfinite(TopP(0.7).keep(logits)).tolist()
        [[True, True, False, False]]

    Source: Holtzman et al., *The Curious Case of Neural Text Degeneration*, 2020.
    """

    p: Any = 0.9
    k: int | None = dataclasses.field(default=None, metadata={_STATIC: True})

    def __post_init__(self):
        super().__post_init__()
        check_number("TopP", "p", self.p, high=1, open_low=True)
        check_optional(check_count, "TopP", "k", self.k)

    def keep(self, logits):
        if self.k is None:
            ordered = jnp.sort(logits, axis=-1, descending=True)
        else:
            ordered = lax.top_k(logits, min(self.k, logits.shape[-1]))[0]
        shares = jax.nn.softmax(ordered, axis=-1)
        # A token is needed if those before it have less than p; the first always is.
        needed = jnp.cumsum(shares, axis=-1) - shares < self.p
        least = jnp.where(needed, ordered, jnp.inf).min(axis=-1, keepdims=True)
        return jnp.where(logits < least, -jnp.inf, logits)


@guard_methods
@dataclasses.dataclass(frozen=True)
class MinP(Sampler):
    """Draws from the tokens that are at least ``p`` times as likely as the likeliest.

    Args:
        p: The share, above 0 and at most 1.
        temperature: The scores are divided by it: below 1 likely tokens become more
            likely.
        repetition_penalty: Scores of tokens that the row has had are divided by it if
            positive, and multiplied if not; above 1 they come less often.

    Raises:
        ArgumentError: ``p`` is not in (0, 1].

    Example:
        >>> logits = jnp.log(jnp.array([[0.6, 0.3, 0.1]]))
        >>> jnp.isfinite(MinP(0.25).keep(logits)).tolist()
        [[True, True, False]]

    Source: Nguyen et al., *Turning Up the Heat: Min-p Sampling for Creative and
    Coherent LLM Outputs*, 2024.
    """

    p: Any = 0.05

    def __post_init__(self):
        super().__post_init__()
        check_number("MinP", "p", self.p, high=1, open_low=True)

    def keep(self, logits):
        least = logits.max(axis=-1, keepdims=True) + jnp.log(self.p)
        return jnp.where(logits < least, -jnp.inf, logits)


@guard_methods
@dataclasses.dataclass(frozen=True)
class Contrastive(Sampler):
    """Takes the likely token that repeats the least: contrastive search.

    Of the ``k`` likeliest tokens the one with the greatest ``(1 - alpha) * p - alpha *
    s``, where ``s`` is the greatest cosine between the vector that the model makes of
    it and those of the tokens before. Nothing is drawn. Each token costs a pass over
    ``k`` rows. ``model.generate`` alone can do so.

    Args:
        k: Number of candidates.
        alpha: How much repetition counts, from 0 (the likeliest token) to 1.
        temperature: The scores are divided by it: below 1 likely tokens become more
            likely.
        repetition_penalty: Scores of tokens that the row has had are divided by it if
            positive, and multiplied if not; above 1 they come less often.

    Raises:
        ArgumentError: ``k`` is no integer >= 1, or ``alpha`` not in [0, 1].

    Example:
        >>> from exburn.applications import GPT2
        >>> model = GPT2(vocabulary_size=9, layers=1, width=8, heads=2, positions=32)
        >>> model.generate([1, 2, 3], 4, sampler=Contrastive(k=3)).shape
        (4,)

    Source: Su et al., *A Contrastive Framework for Neural Text Generation*, 2022.
    """

    k: int = dataclasses.field(default=5, metadata={_STATIC: True})
    alpha: Any = 0.6

    def __post_init__(self):
        super().__post_init__()
        check_count("Contrastive", "k", self.k)
        check_number("Contrastive", "alpha", self.alpha, high=1)

    def __call__(self, logits, keys):
        raise ArgumentError(
            "Contrastive",
            "scores alone do not tell what repeats",
            hint="model.generate(prompt, sampler=Contrastive()) runs the model on the "
            "candidates.",
        )
