import jax
import numpy as np

from exburn.data import PackedTokens, has_packed, leaves, map_leaves, plain_values
from exburn.data.packed import check_packed
from exburn.errors import ArgumentError

TOKENS = np.array([[5, 6, 7, 0]])
ROWS = PackedTokens(TOKENS, np.array([[1, 1, 2, 0]]))


def refused(rows):
    return (
        lambda: check_packed("fit", rows),
        ArgumentError,
        "need tokens and segments, both",
    )


REFUSALS = [
    refused(PackedTokens(TOKENS, np.array([1, 1, 2, 0]))),
    refused(PackedTokens(TOKENS * 1.0, ROWS.segments)),
    refused(PackedTokens(TOKENS[0], ROWS.segments[0])),
    refused(PackedTokens([[1, 2]], [[1, 1]])),
]


def test_leaves_have_names():
    names = [name for name, _ in leaves({"a": ROWS}, "x")]
    assert names == ["x['a']", "segments of x['a']"]
    doubled = map_leaves(lambda _, leaf: 2 * leaf, ROWS, "x")
    assert doubled.tokens[0, 0] == 10 and doubled.segments[0, 2] == 4


def test_it_is_a_tree():
    assert len(jax.tree.leaves(ROWS)) == 2
    assert has_packed([ROWS]) and not has_packed(jax.tree.leaves(ROWS))
    assert plain_values([ROWS])[0] is TOKENS
