"""Tests of ``exburn.models.improving.rewards``."""

import jax.numpy as jnp
import numpy as np
import pytest

from exburn.errors import ArgumentError, DataError, places_of
from exburn.models.improving.rewards import advantages, read_rewards

TEXTS, PLACES = ["so", "it", "was"], ["row 4", "row 4", "row 7"]


def length(texts):
    return [len(text) for text in texts]


def ask(function, columns=None, texts=TEXTS):
    [reward] = read_rewards(function, None, list(columns or ()))
    return reward.of(texts, columns or {}, PLACES)


def test_functions_are_given_the_columns_that_they_name():
    def by_name(texts, answer, scale=2, *, prompt):
        return [
            scale * (t == a) + len(p)
            for t, a, p in zip(texts, answer, prompt, strict=True)
        ]

    columns = {"prompt": ["", "a", "ab"], "answer": ["so", "x", "was"]}
    assert ask(by_name, columns).tolist() == [2, 1, 4]
    assert ask(lambda texts, **rest: [len(rest)] * 3, columns).tolist() == [2] * 3
    assert ask(length, columns).tolist() == [2, 2, 3]


def test_arrays_and_truth_values_are_numbers():
    assert ask(lambda texts: np.arange(3)).tolist() == [0, 1, 2]
    assert ask(lambda texts: jnp.arange(3.0)).tolist() == [0, 1, 2]
    assert ask(lambda texts: (True, False, np.float32(2))).tolist() == [1, 0, 2]


def test_a_function_may_do_with_its_lists_what_it_likes():
    columns = {"answer": ["a", "b", "c"]}

    def clears(texts, answer):
        texts.clear()
        answer.sort(reverse=True)
        return [1.0] * 3

    ask(clears, columns)
    assert columns == {"answer": ["a", "b", "c"]}
    with pytest.raises(DataError, match="gives 2 values for 3 texts"):
        ask(lambda texts: [texts.clear(), 1.0])


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([1.0, 2.0], "gives 2 values for 3 texts"),
        (None, "gives NoneType for 3 texts"),
        (1.0, "gives float for 3 texts"),
        (np.ones((3, 1)), "gives ndarray for 3 texts"),
        ([1.0, 2.0, float("nan")], "gives nan for an answer to row 7"),
        ([1.0, float("inf"), 0.0], "gives inf for an answer to row 4"),
        ([None, 2.0, 1.0], "gives None for an answer to row 4"),
        (["1", 2.0, 1.0], "gives '1' for an answer to row 4"),
        ([1.0, 2.0, 1j], "gives 1j for an answer to row 7"),
        ([1.0, -1e31, 0.0], "gives -1e+31 for an answer to row 4"),
        ([10**400, 1.0, 0.0], "gives 1000000"),
    ],
    ids=range(11),
)
def test_what_is_no_reward_names_its_row_and_its_function(values, problem):
    def odd(texts):
        return values

    with pytest.raises(DataError, match="'odd'") as caught:
        ask(odd)
    assert problem in str(caught.value)


def test_an_exception_names_the_row_that_raises_it():
    def strict(texts, answer):
        return [float(answer[i]) for i in range(len(texts))]

    with pytest.raises(
        ValueError, match="reward 'strict' of an answer to row 7, 'was'"
    ):
        ask(strict, {"answer": ["1", "2", "x"]})

    def together(texts):
        if len(texts) > 1:
            raise KeyError("nothing")
        return [0.0]

    with pytest.raises(KeyError) as caught:
        ask(together)
    assert "row 4 to row 7, together" in places_of(caught.value)[0]


@pytest.mark.parametrize(
    ("reward", "weights", "problem"),
    [
        ([], None, "no reward function"),
        ("length", None, "function of texts"),
        ([length, 3], None, "function of texts"),
        (length, [1.0, 2.0], "a number for each of the 1 reward"),
        (length, [float("nan")], "reward_weights"),
        (lambda texts, gone: texts, None, "'gone', which is no column"),
    ],
    ids=range(6),
)
def test_bad_functions_are_refused_before_anything_runs(reward, weights, problem):
    with pytest.raises(ArgumentError, match=problem):
        read_rewards(reward, weights, ["prompt"])


def test_several_functions_have_names_and_weights():
    one, two = read_rewards([length, length], [0.5, -2], [])
    assert (one.name, one.weight) == ("length", 0.5)
    assert (two.name, two.weight) == ("length_2", -2)


def test_advantages_are_those_of_the_formula():
    rewards = np.array([0.0, 1, 1, 2, 5, 5, 5, 5])
    groups = rewards.reshape(2, 4)
    centred = groups - groups.mean(1, keepdims=True)
    by_group, alike = advantages(rewards, 4, "group")
    expected = centred / (groups.std(1, ddof=1, keepdims=True) + 1e-4)
    np.testing.assert_allclose(by_group.reshape(2, 4), expected)
    assert alike.tolist() == [False, True]
    by_batch, _ = advantages(rewards, 4, "batch")
    expected = centred / (rewards.std(ddof=1) + 1e-4)
    np.testing.assert_allclose(by_batch.reshape(2, 4), expected)
    np.testing.assert_array_equal(advantages(rewards, 4, "none")[0], centred.ravel())
