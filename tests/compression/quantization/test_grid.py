"""Evenly spaced numbers that the weights of a block are rounded to."""

import numpy as np
import pytest

from exburn.compression.quantization.grid import Grid

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
def test_rounding_errs_by_half_a_step_at_most_and_zero_is_exact(
    bits, symmetric, per_channel
):
    blocks = RNG.normal(size=(3, 2, 16)).astype(np.float32) + 0.3
    blocks[..., 0] = 0
    grid = Grid.of(blocks, bits, symmetric, per_channel)
    whole = grid.round(blocks)
    assert whole.min() >= 0 and whole.max() <= 2**bits - 1
    np.testing.assert_array_equal(whole, np.rint(whole))
    read = grid.read(whole)
    assert (read[..., 0] == 0).all()
    # The largest of a symmetric grid lies half a step outside of it.
    steps = np.abs(read - blocks) / grid.scale[..., None]
    assert steps.max() <= (1 if symmetric else 0.5) + 0.51 * (not symmetric) + 1e-3
    rows = {tuple(row) for row in grid.scale.tolist()}
    assert len(rows) == (3 if per_channel else 1)
    if symmetric:
        assert (grid.zero == 2 ** (bits - 1)).all()


def test_a_block_of_zeros_has_a_step():
    grid = Grid.of(np.zeros((1, 1, 4), np.float32), 4)
    assert grid.scale > 0 and (grid.read(grid.round(np.zeros((1, 1, 4)))) == 0).all()
