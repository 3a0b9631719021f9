"""``method="swag"``: weights as a normal distribution, fitted along a training."""

from __future__ import annotations

import copy
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.callbacks import SWAG
from exburn.compression.masking import apply_masks
from exburn.core.checks import check_count, check_number, check_seed
from exburn.errors import ArgumentError, DataError
from exburn.insight.uncertainty.outputs import LabelledRows, find_head, rows_of_step
from exburn.insight.uncertainty.posterior import OP, check_noise, check_samples
from exburn.insight.uncertainty.samples import (
    SampledPredictor,
    make_sampled,
    read_rows,
)
from exburn.models.averaging import update_batch_statistics
from exburn.models.fitting import fit
from exburn.models.network import Network
from exburn.models.session import require_trainer
from exburn.module.traversal import iter_weights
from exburn.training.averaging import find_statistics
from exburn.training.module import SplitModule


def swag(
    model: Network,
    x: Any,
    y: Any = None,
    *,
    collected: SWAG | None = None,
    epochs: int | None = None,
    learning_rate: float | None = None,
    rank: int | None = None,
    samples: int = 30,
    noise: float | None = None,
    seed: int = 0,
    output: int | str | None = None,
    batch_size: int | None = None,
) -> SampledPredictor:
    """``method="swag"``: samples of a normal distribution of all trained weights.

    Its mean, variances and main directions are those of the weights along some epochs
    of training at a constant rate. The moving statistics of ``BatchNormalization`` are
    computed anew for each sample, from ``x``.

    Args:
        x, y: The rows that the model was trained on.
        collected: The callback `SWAG` that was at a ``fit`` of the model.
        epochs: Instead of it: a copy of the model is trained so long, and this one
            stays as it is.
        learning_rate: Of those epochs; the optimizer's by default.
        rank: Of those epochs: deviations that are kept, 20 by default.
        samples: Number of samples.
        noise: The variance of values around their mean; found by the rows.
        seed: Of the samples.
        output: The name or number of an output, of a model with several.
        batch_size: Rows of a step; 32 by default.

    Source: W. J. Maddox et al., "A Simple Baseline for Bayesian Uncertainty in Deep
    Learning", 2019.
    """
    samples, seed = check_samples(OP, samples, 2), check_seed(OP, seed) or 0
    if (collected is None) == (epochs is None):
        raise ArgumentError(
            OP,
            "'swag' takes collected=…, a callback of fit, or epochs=… of training",
            hint='model.uncertainty(x, y, method="swag", epochs=20)',
        )
    if collected is not None and (learning_rate is not None or rank is not None):
        raise ArgumentError(
            OP, "learning_rate and rank are of epochs, not of collected"
        )
    head = find_head(model, output, OP)
    batch_size = rows_of_step(model, batch_size, OP)
    noise = check_noise(noise, head)
    rows = read_rows(model, head, x, y, noise, batch_size)
    if not model.trainable_weights:
        raise ArgumentError(
            OP,
            f"{model.name!r} trains no weight, so that all samples are alike",
            hint="model.unfreeze(…), or layer.trainable = True.",
        )
    require_trainer(model, OP)
    statistics = find_statistics(SplitModule(model))
    if rows is None and (statistics or epochs is not None):
        raise DataError(
            OP,
            "'swag' needs the rows of the training"
            + ("" if epochs else ", for the statistics of BatchNormalization"),
            hint="Pass x and y.",
        )
    inputs: Any = None
    if rows is not None:
        parts = [part.tree[0] for part in rows.parts]
        inputs = jax.tree.map(lambda *values: np.concatenate(values), *parts)
    other = copy.deepcopy(model)
    if epochs is not None:
        assert rows is not None
        epochs = check_count(OP, "epochs", epochs, 2)
        rank = 20 if rank is None else check_count(OP, "rank", rank, 2)
        collected = _train(other, inputs, rows, epochs, learning_rate, rank, batch_size)
    assert collected is not None
    weights = _draw_samples(
        other, check_collected(collected, model), statistics, inputs, samples, seed
    )
    fields = {"way": "swag", "samples": samples, "seed": seed, "weights": weights}
    return make_sampled(model, head, rows, noise, batch_size, **fields)


def _train(
    model: Network,
    inputs: Any,
    rows: LabelledRows,
    epochs: int,
    learning_rate: float | None,
    rank: int,
    batch_size: int,
) -> SWAG:
    """What was collected along epochs of training at a constant rate."""
    schedule = model.optimizer.schedule
    if schedule is not None:
        raise ArgumentError(
            OP,
            "a constant learning rate is needed: the optimizer's schedule computes it",
            {"schedule": schedule},
            hint="Compile the model with a number before, or collect by the callback "
            "exburn.callbacks.SWAG.",
        )
    if rows.targets is None:
        raise DataError(OP, "there are no targets to train on", hint="Pass y beside x.")
    if learning_rate is not None:
        learning_rate = check_number(
            OP, "learning_rate", learning_rate, 0, open_low=True
        )
    swag = SWAG(0, learning_rate=learning_rate, rank=rank)
    fit(
        model,
        inputs,
        rows.targets,
        sample_weight=rows.weights,
        epochs=epochs,
        batch_size=batch_size,
        callbacks=[swag],
        verbose=0,
    )
    return swag


def check_collected(collected: Any, model: Network) -> SWAG:
    """The callback, whose weights are those of a model.

    Raises:
        ArgumentError: It is none, or was at the fit of another model.
        CallbackError: It has collected fewer than two epochs.
    """
    if not isinstance(collected, SWAG):
        raise ArgumentError(
            OP,
            "collected must be the callback exburn.callbacks.SWAG of a fit",
            {"received": type(collected)},
        )
    shapes = [tuple(mean.shape) for mean in collected.mean]
    own = [tuple(weight.shape) for weight in model.trainable_weights]
    if shapes != own:
        raise ArgumentError(
            OP,
            "the callback has collected the weights of another model",
            {"model": own, "callback": shapes},
        )
    return collected


def _draw_samples(
    model: Network,
    collected: SWAG,
    statistics: list[str],
    inputs: Any,
    samples: int,
    seed: int,
) -> dict[str, np.ndarray]:
    """Samples ``[samples, …]`` by the names of weights, and of batch statistics.

    Args:
        model: A copy, whose weights are overwritten.
        inputs: For the statistics.
    """
    moments = collected.mean, collected.variance, collected.deviations
    places = {id(weight): path for path, weight, _ in iter_weights(model)}
    names = [places[id(weight)] for weight in model.trainable_weights]
    each = []
    for number in range(samples):
        key = jax.random.fold_in(jax.random.key(seed), number)
        draw = _draw(key, *moments)
        for weight, value in zip(model.trainable_weights, draw, strict=True):
            weight.assign(value)
        apply_masks(model)
        if statistics:
            update_batch_statistics(model, inputs)
        params, frozen, others = SplitModule(model).read()
        arrays = params | frozen | others
        each.append({n: np.asarray(arrays[n]) for n in (*names, *statistics)})
    return {name: np.stack([one[name] for one in each]) for name in each[0]}


@jax.jit
def _draw(key: Any, mean: list[Any], variance: list[Any], away: list[Any]) -> list[Any]:
    """A sample: the mean, half of the variance by entries, half by deviations."""
    rank = away[0].shape[0]
    key, common = jax.random.split(key)
    factors = jax.random.normal(common, (rank,)) / math.sqrt(2 * (rank - 1))
    keys = jax.random.split(key, len(mean))
    return [
        m
        + jnp.sqrt(v / 2) * jax.random.normal(k, m.shape, m.dtype)
        + jnp.tensordot(factors.astype(m.dtype), d, 1)
        for k, m, v, d in zip(keys, mean, variance, away, strict=True)
    ]
