"""``model.influence`` beside traker: its speed, and how near both are to retraining.

    python benchmarks/influence.py [--work speed,retraining] [--rows 1000] [--json F]

Needs torch and traker, which runs in the same process. ``speed``: gradients of all
rows, projected onto 512 numbers, by two networks; the second of two passes counts.
``retraining``: each of 500 rows is left out of a training of its own, all of which are
the lanes of one sweep; by how much the loss of 100 other rows rises, ranked, beside the
scores, ranked, by several values of what either adds to its second moments. Printed is
one line of JSON a result.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import nn
from trak import TRAKer
from trak.modelout_functions import ImageClassificationModelOutput
from trak.projectors import BasicProjector, ProjectionType

import exburn
from exburn import layers
from exburn.datasets import digits

PROJECTION = 512
BATCH = 50


class ChannelsLast(nn.Module):
    def forward(self, x):
        return x.permute(0, 2, 3, 1).flatten(1)


def networks(work: str) -> tuple[Any, Any, tuple[int, ...]]:
    """The same network of both, with the weights of ours, and the shape of a row."""
    if work == "mlp":
        ours = [layers.Dense(256, "relu"), layers.Dense(10)]
        theirs = [nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)]
        shape = (784,)
    elif work == "linear":
        ours = [layers.Dense(10, kernel_regularizer=exburn.regularizers.L2(5e-3))]
        theirs, shape = [nn.Linear(64, 10)], (64,)
    else:
        ours = [
            layers.Conv2D(16, 3, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(10),
        ]
        theirs = [nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU()]
        theirs += [ChannelsLast(), nn.Linear(12 * 12 * 32, 10)]
        shape = (28, 28, 1)
    model: Any = exburn.Sequential([exburn.Input(shape), *ours])
    model.compile("adam", "cross_entropy", seed=0)
    return model, nn.Sequential(*theirs), shape


def copy_weights(model: Any, network: nn.Module) -> None:
    """Gives a network of torch's the weights of ours."""
    arrays = iter(model.get_weights())
    for module in network:
        if isinstance(module, nn.Linear | nn.Conv2d):
            kernel = next(arrays)
            order = (1, 0) if kernel.ndim == 2 else (3, 2, 0, 1)
            kernel = np.ascontiguousarray(kernel.transpose(order))
            module.weight.data = torch.tensor(kernel)
            module.bias.data = torch.tensor(np.array(next(arrays)))


def traker(network: nn.Module, rows: int, dims: int, regularizer: float = 0.0) -> Any:
    size = sum(p.numel() for p in network.parameters())
    projector = BasicProjector(
        grad_dim=size,
        proj_dim=dims,
        seed=0,
        proj_type=ProjectionType.rademacher,
        device="cpu",
    )
    options: dict[str, Any] = {"use_half_precision": False, "logging_level": 50}
    tracer = TRAKer(
        model=network,
        task=ImageClassificationModelOutput(),
        train_set_size=rows,
        save_dir=tempfile.mkdtemp(),
        device="cpu",
        proj_dim=dims,
        projector=projector,
        lambda_reg=regularizer,
        **options,
    )
    tracer.load_checkpoint(network.state_dict(), model_id=0)
    return tracer


def featurize(tracer: Any, x: torch.Tensor, y: torch.Tensor) -> None:
    for start in range(0, len(x), BATCH):
        part = slice(start, start + BATCH)
        tracer.featurize((x[part], y[part]), num_samples=len(x[part]))


def measure_speed(work: str, rows: int) -> dict[str, Any]:
    """Rows a second of both, of the second pass."""
    model, network, shape = networks(work)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, *shape)).astype(np.float32)
    y = rng.integers(0, 10, rows)
    copy_weights(model, network)
    moved = x.transpose(0, 3, 1, 2).copy() if x.ndim == 4 else x
    seconds = {"exburn": [], "traker": []}
    for _ in range(2):
        begun = time.perf_counter()
        model.influence(x, y, projection=PROJECTION)
        seconds["exburn"].append(time.perf_counter() - begun)
        tracer = traker(network.eval(), rows, PROJECTION)
        begun = time.perf_counter()
        featurize(tracer, torch.tensor(moved), torch.tensor(y))
        seconds["traker"].append(time.perf_counter() - begun)
    rates = {name: round(rows / times[1], 1) for name, times in seconds.items()}
    size = sum(p.numel() for p in network.parameters())
    ratio = round(rates["exburn"] / rates["traker"], 1)
    return {"work": work, "parameters": size, "rows": rows, **rates, "ratio": ratio}


@exburn.register(package="benchmarks")
class WithoutRow(exburn.losses.Loss):
    """The cross entropy, without one row; targets are classes beside row numbers."""

    def __init__(self, left_out: float = -1.0, **options: Any):
        super().__init__(**options)
        self.left_out = left_out

    def call(self, y_true: Any, y_pred: Any) -> Any:
        ops = exburn.ops
        losses = ops.sparse_categorical_crossentropy(
            ops.cast(y_true[:, 0], "int32"), y_pred, from_logits=True
        )
        return losses * ops.cast(y_true[:, 1] != self.left_out, losses.dtype)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"left_out": self.left_out}


def losses_of(weights: list[np.ndarray], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    scores = x @ weights[0] + weights[1]
    shifted = scores - scores.max(1, keepdims=True)
    return np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(x)), y]


def measure_retraining(count: int = 500) -> dict[str, Any]:
    """Mean rank correlations of scores and of what leaving a row out does."""
    (x, y), (x_test, y_test) = digits.load_data()
    x, x_test = (v.reshape(-1, 64).astype(np.float32) / 16 for v in (x, x_test))
    x, y, x_test, y_test = x[:count], y[:count], x_test[:100], y_test[:100]
    model, network, _ = networks("linear")
    rate = exburn.optimizers.schedules.CosineDecay(0.05, 400)
    model.compile(exburn.optimizers.Adam(rate), WithoutRow(), seed=0)
    targets = np.stack([y, np.arange(count)], axis=1).astype(np.float32)
    begun = time.perf_counter()
    result = exburn.sweep(
        model,
        x,
        targets,
        over={"loss/left_out": [-1.0, *map(float, range(count))]},
        epochs=400,
        batch_size=count,
        verbose=0,
    )
    seconds = time.perf_counter() - begun
    lanes = zip(result.order(), result.models(count + 1), strict=True)
    whole, *others = [lane.get_weights() for _, lane in sorted(lanes, key=first_of)]
    base = losses_of(whole, x_test, y_test)
    rises = np.stack([losses_of(one, x_test, y_test) - base for one in others])
    model.set_weights(whole)
    copy_weights(model, network)
    model.compile("adam", "cross_entropy")
    scores = {}
    for method, damping in (("tracin", None), ("trak", 0.1), ("trak", 1.0)):
        rows = model.influence(
            *(x, y),
            on=(x_test, y_test),
            method=method,
            damping=damping,
            projection=1000,
        )
        scores[f"{method} {damping or ''}".strip()] = rows.scores
    test = torch.tensor(x_test), torch.tensor(y_test)
    for added in (0.0, 1.0, 10.0, 100.0):
        tracer = traker(network.eval(), count, 200, added)
        featurize(tracer, torch.tensor(x), torch.tensor(y))
        tracer.finalize_features()
        tracer.start_scoring_checkpoint("test", network.state_dict(), 0, len(x_test))
        tracer.score(test, num_samples=len(x_test))
        scores[f"traker {added}"] = tracer.finalize_scores("test")
    ranks = {
        name: round(float(np.mean(each_rank(value, rises))), 3)
        for name, value in scores.items()
    }
    return {"retrainings": count, "seconds": round(seconds, 1), **ranks}


def first_of(pair: tuple[int, Any]) -> int:
    return pair[0]


def each_rank(scores: np.ndarray, rises: np.ndarray) -> list[float]:
    columns = zip(scores.T, rises.T, strict=True)
    return [np.asarray(spearmanr(*pair)[0]).item() for pair in columns]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--work", default="speed,retraining")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results = []
    if "speed" in args.work:
        results += [measure_speed(work, args.rows) for work in ("mlp", "cnn")]
        print(*map(json.dumps, results), sep="\n")
    if "retraining" in args.work:
        results.append(measure_retraining())
        print(json.dumps(results[-1]))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
