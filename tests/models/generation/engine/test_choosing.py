"""The tokens that rows draw, each by its own numbers: those of ``exburn.text``."""

import jax
import jax.numpy as jnp
import numpy as np

from exburn.models.generation.engine.choosing import Choices, Numbers, choose
from exburn.text import Greedy, MinP, RandomSampler, TopK, TopP

WORDS = 600
# Numbers as of TextRequest: temperature, top_k, top_p, min_p, penalty; and samplers.
ROWS = [
    ((0.0, 0, 1.0, 0.0, 1.0), Greedy()),
    ((0.0, 0, 1.0, 0.0, 1.5), Greedy(repetition_penalty=1.5)),
    ((0.7, 0, 1.0, 0.0, 1.0), RandomSampler(temperature=0.7)),
    ((1.0, 5, 1.0, 0.0, 1.0), TopK(5)),
    ((1.0, 400, 1.0, 0.0, 1.0), TopK(400)),
    ((1.3, 0, 0.6, 0.0, 1.0), TopP(0.6, temperature=1.3)),
    ((1.0, 0, 0.995, 0.0, 1.2), TopP(0.995, repetition_penalty=1.2)),
    ((1.0, 300, 0.8, 0.0, 1.0), TopP(0.8, k=300)),
    ((2.0, 0, 1.0, 0.02, 1.0), MinP(0.02, temperature=2.0)),
]


def draw(seed, rows=ROWS):
    rng = np.random.default_rng(seed)
    scores = jnp.asarray(rng.normal(size=(len(rows), WORDS)) * 2, jnp.float32)
    seen = jnp.asarray(rng.random((len(rows), WORDS)) < 0.3)
    columns = np.array([numbers for numbers, _ in rows], np.float32).T
    numbers = Numbers(
        temperature=jnp.asarray(columns[0]),
        top_k=jnp.asarray(columns[1], jnp.int32),
        top_p=jnp.asarray(columns[2]),
        min_p=jnp.asarray(columns[3]),
        penalty=jnp.asarray(columns[4]),
        seed=jnp.full(len(rows), seed, jnp.uint32),
        index=jnp.arange(len(rows)),
    )
    return scores, seen, numbers


def test_rows_draw_as_their_samplers_do():
    everything = Choices(draws=True, filters=True, penalty=True)
    program = jax.jit(lambda *args: choose(*args, None, everything).token)
    few = [row for row in ROWS if not (row[0][1] > 256 or row[0][2] > 0.9)]
    for rows in (ROWS, few):  # the second are told by the likeliest alone
        for seed in range(40):
            scores, seen, numbers = draw(seed, rows)
            tokens = program(scores, numbers, seen)
            for row, (_, sampler) in enumerate(rows):
                key = jax.random.fold_in(jax.random.key(seed), 0)
                keys = jax.random.fold_in(key, row)[None]
                penalized = sampler.penalize(scores[row : row + 1], seen[row : row + 1])
                assert tokens[row] == sampler(penalized, keys)[0]


def test_masks_leave_what_a_constraint_allows_and_tell_what_is_not_sound():
    scores, seen, numbers = draw(0)
    allowed = np.zeros((len(ROWS), WORDS + 8), bool)
    allowed[:, 3::7] = True
    allowed[1] = False
    masks = jnp.asarray(np.packbits(allowed, axis=1, bitorder="little").view(np.uint32))
    scores = scores.at[2, 5].set(jnp.nan)
    options = Choices(draws=True, filters=True, masks=True, tops=3)
    chosen = choose(scores, numbers, None, masks, options)
    assert chosen.sound.tolist() == [True, False, False, *[True] * (len(ROWS) - 3)]
    for row in (0, *range(3, len(ROWS))):
        assert chosen.token[row] % 7 == 3
    logs = jax.nn.log_softmax(scores)
    picked = logs[jnp.arange(len(ROWS)), chosen.token]
    np.testing.assert_allclose(chosen.logprob[3:], picked[3:], atol=1e-5)
    np.testing.assert_allclose(chosen.top[1][3:], jnp.sort(logs)[3:, :-4:-1], atol=1e-5)
