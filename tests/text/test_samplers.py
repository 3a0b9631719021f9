"""Samplers draw from the distribution that they say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn.text import Greedy, MinP, RandomSampler, Sampler, TopK, TopP

DRAWS = 20_000


def expected(logits, sampler):
    """The distribution by the definitions, in float64."""
    scores = np.asarray(logits, np.float64) / sampler.temperature
    chances = np.exp(scores - scores.max())
    chances /= chances.sum()
    order = np.argsort(-chances)
    kept = np.ones(len(chances), bool)
    if isinstance(sampler, TopK):
        kept[order[sampler.k :]] = False
    if isinstance(sampler, MinP):
        kept = chances >= sampler.p * chances.max()
    if isinstance(sampler, TopP):
        if sampler.k is not None:
            kept[order[sampler.k :]] = False
            chances = np.where(kept, chances, 0) / chances[kept].sum()
        before = np.cumsum(chances[order]) - chances[order]
        kept[order[before >= sampler.p]] = False
    chances = np.where(kept, chances, 0)
    return chances / chances.sum()


@pytest.mark.parametrize(
    "sampler",
    [
        RandomSampler(),
        RandomSampler(temperature=0.5),
        TopK(3),
        TopK(100, temperature=2.0),
        TopP(0.8),
        TopP(0.8, temperature=0.7),
        TopP(0.9, 4),
        MinP(0.2),
    ],
    ids=repr,
)
def test_draws_pass_a_chi_squared_test(sampler):
    stats = pytest.importorskip("scipy.stats")
    logits = np.random.default_rng(0).normal(0, 1.5, 12).astype("float32")
    keys = jax.random.split(jax.random.key(7), DRAWS)
    drawn = jax.jit(lambda s, k: s(jnp.broadcast_to(logits, (DRAWS, 12)), k))
    counts = np.bincount(np.asarray(drawn(sampler, keys)), minlength=12)
    chances = expected(logits, sampler)
    assert counts[chances == 0].sum() == 0
    some = chances > 0
    assert stats.chisquare(counts[some], DRAWS * chances[some]).pvalue > 1e-3


def test_the_likeliest_token_and_the_penalty():
    logits = jnp.array([[1.0, 2.0, -1.0]])
    assert Greedy()(logits, None).tolist() == [1]
    seen = jnp.array([[False, True, True]])
    lower = Greedy(repetition_penalty=4.0).penalize(logits, seen)
    assert lower.tolist() == [[1.0, 0.5, -4.0]]
    assert Greedy().penalize(logits, seen) is logits


def test_numbers_are_leaves_and_sizes_are_not():
    leaves, tree = jax.tree.flatten(TopP(0.9, 4, temperature=0.7))
    assert leaves == [0.7, 0.9] or sorted(leaves) == [0.7, 0.9]
    assert jax.tree.unflatten(tree, leaves) == TopP(0.9, 4, temperature=0.7)
    assert jax.tree.structure(TopP(0.1, 4)) == tree
    assert jax.tree.structure(TopP(0.9, 5)) != tree

    class Second(Sampler):
        def keep(self, logits):
            return jnp.where(jnp.arange(3) == 1, logits, -jnp.inf)

    keys = jax.random.split(jax.random.key(0), 1)
    assert Second()(jnp.array([[1.0, -9.0, 3.0]]), keys).tolist() == [1]


BAD_ARGUMENTS = [
    lambda: TopK(0),
    lambda: TopK(2.5),
    lambda: TopP(0.0),
    lambda: TopP(1.5),
    lambda: TopP("p"),
    lambda: TopP(0.5, 0),
    lambda: MinP(-1),
    lambda: Greedy(temperature=0),
    lambda: RandomSampler(temperature=float("nan")),
    lambda: RandomSampler(repetition_penalty=0),
]
