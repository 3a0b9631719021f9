"""Losses of preferences by themselves: their numbers, arguments and configurations.

What they compute in a model is compared in ``tests/models/test_preference.py``.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn import losses
from exburn.errors import ArgumentError
from exburn.losses.contract.likelihood import TokenLikelihoods

BAD_ARGUMENTS = [
    (lambda: losses.DPO(0.0), "beta must be a number"),
    (lambda: losses.IPO(-1.0), "beta must be a number"),
    (lambda: losses.ORPO(float("nan")), "beta must be a number"),
    (lambda: losses.KTO(undesirable_weight=-1), "undesirable_weight must be a number"),
    (lambda: losses.DPO(label_smoothing=0.5), "label_smoothing must be a number"),
    (lambda: losses.DPO(loss_type="ipo"), "a class of its own"),
    (lambda: losses.DPO(loss_type=["sigmoid", "sft"]), "loss_type is one name"),
    (lambda: losses.DPO(loss_type="aot"), "loss_type is one of .* received 'aot'"),
    (lambda: losses.DPO(loss_type="hinge", label_smoothing=0.1), "is not read by"),
    (lambda: losses.DPO(loss_type="exo_pair"), "needs a label_smoothing above 0"),
    (lambda: losses.DPO()([1], [[0.0, 1.0]]), "packed into rows"),
]


@pytest.mark.parametrize("number", range(len(BAD_ARGUMENTS)))
def test_bad_arguments(number):
    call, text = BAD_ARGUMENTS[number]
    with pytest.raises(ArgumentError, match=text):
        call()


@pytest.mark.parametrize(
    "loss",
    [
        losses.DPO(0.3, "robust", 0.2),
        losses.IPO(0.2),
        losses.KTO(0.2, 2.0, 3.0),
        losses.ORPO(0.4),
    ],
)
def test_configurations(loss):
    again = losses.deserialize(losses.serialize(loss))
    assert type(again) is type(loss) and again.get_config() == loss.get_config()
    assert type(losses.get(type(loss).__name__.lower())) is type(loss)


def rows(likely, reference, labels=((1, 1),)):
    """A row of two pairs, each answer with two tokens of which the last is counted."""
    segments = jnp.repeat(jnp.arange(1, 5), 2)[None]
    counted = jnp.tile(jnp.array([1.0, 0.0]), 4)[None]
    spread = [
        jnp.repeat(jnp.asarray(v, jnp.float32), 2)[None] for v in (likely, reference)
    ]
    return TokenLikelihoods(*spread, segments, counted, {"labels": jnp.array(labels)})


def test_conservative_dpo_takes_a_share_of_pairs_for_exchanged():
    chosen, rejected = np.array([0.4, -0.2]), np.array([0.1, 0.9])
    numbers = np.stack([chosen, rejected], 1).ravel()
    result = losses.DPO(2.0, label_smoothing=0.1).of_tokens(rows(numbers, 0 * numbers))
    z = 2 * (chosen - rejected)
    expected = 0.9 * np.log1p(np.exp(-z)) + 0.1 * np.log1p(np.exp(z))
    np.testing.assert_allclose(result.loss, expected.mean(), rtol=1e-6)
    figures = {name: float(value) for name, (value, _) in result.figures.items()}
    np.testing.assert_allclose(figures["rewards/margins"], z.mean(), rtol=1e-6)
    assert figures["rewards/accuracies"] == 0.5 and float(result.weight) == 2


def test_answers_of_one_kind_alone_have_no_figures_of_the_other():
    numbers = np.array([-1.0, -2, -3, -1])
    result = losses.KTO().of_tokens(rows(numbers, numbers - 0.5))
    value, weight = result.figures["rewards/rejected"]
    assert (float(value), float(weight)) == (0, 0)
    assert float(result.figures["rewards/margins"][1]) == 0
    np.testing.assert_allclose(result.figures["rewards/chosen"][0], 0.05, rtol=1e-5)
    assert float(result.figures["kl"][0]) == 0.5


@pytest.mark.parametrize(
    "loss", [losses.DPO(), losses.IPO(), losses.ORPO(), losses.KTO()]
)
def test_rows_that_fill_up_a_batch_change_nothing(loss):
    numbers = jnp.array([-1.0, -2, -3, -1e-9])
    one = rows(numbers, numbers - 0.5)

    def value(likely, more):
        def join(array):
            return jnp.concatenate([array, jnp.zeros_like(array)][: 1 + more])

        both = TokenLikelihoods(*map(join, one._replace(likely=likely)[:4]), {})
        labels = join(one.columns["labels"])
        return loss.of_tokens(both._replace(columns={"labels": labels})).loss

    alone, filled = (
        jax.value_and_grad(value)(one.likely, more) for more in (False, True)
    )
    for a, b in zip(alone, filled, strict=True):
        assert np.isfinite(a).all()
        np.testing.assert_allclose(b, a, rtol=1e-6)
