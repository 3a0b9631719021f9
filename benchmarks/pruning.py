"""The cost of pruning in accuracy, and its gain in time.

    python benchmarks/pruning.py [--data digits] [--seeds 0,1,2] [--width 32] [--json F]
    python benchmarks/pruning.py --model transformer         # or gru: rows are steps
    python benchmarks/pruning.py --products                  # 2:4 on a GPU, or a CPU

A network is trained on Fashion-MNIST (or scikit-learn's digits) and then, for as many
further epochs each: trained on as it is, pruned to 80 % by magnitude, pruned to 2:4,
and made narrower by half of its units. Accuracies are of the test set, as points
beside the model that was trained as long. ``predict`` of all models is timed in turn,
round after round, on data on the device, in this process.

``--products`` times large matrix products of a model pruned to 2:4, and of the dense
one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import jax
import jax.numpy as jnp
import numpy as np
from int8_files import load
from process import versions

import exburn
from exburn import layers
from exburn.compression import PolynomialSparsity, sparsity

BATCH = 128


def convnet(shape: tuple[int, ...], width: int) -> Any:
    return exburn.Sequential(
        [
            exburn.Input(shape),
            layers.Conv2D(width, 3, padding="same", use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.ReLU(),
            layers.MaxPooling2D(2),
            layers.Conv2D(2 * width, 3, padding="same", use_bias=False, name="second"),
            layers.BatchNormalization(momentum=0.9),
            layers.ReLU(),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(128, activation="relu", name="hidden"),
            layers.Dropout(0.3),
            layers.Dense(10, activation="softmax", name="head"),
        ]
    )


def transformer(shape: tuple[int, ...], width: int) -> Any:
    """Two blocks that read the rows of an image."""
    image = exburn.Input(shape)
    x = layers.Dense(width, name="rows")(layers.Reshape(shape[:2])(image))
    x = x + layers.PositionEmbedding(shape[0])(x)
    for number in range(2):
        y = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(8, width // 8, name=f"heads_{number}")(y, y)
        y = layers.LayerNormalization()(x)
        y = layers.Dense(4 * width, "gelu", name=f"up_{number}")(y)
        x = x + layers.Dense(width, name=f"down_{number}")(y)
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return exburn.Model(image, layers.Dense(10, "softmax", name="head")(x))


def gru(shape: tuple[int, ...], width: int) -> Any:
    """Reads the rows of an image from both ends, and what it made of them again."""
    return exburn.Sequential(
        [
            exburn.Input(shape),
            layers.Reshape(shape[:2]),
            layers.Bidirectional(layers.GRU(2 * width, return_sequences=True)),
            layers.GRU(2 * width),
            layers.Dense(10, activation="softmax", name="head"),
        ]
    )


NETWORKS = {"convnet": convnet, "transformer": transformer, "gru": gru}


def fit(model: Any, x: Any, y: Any, epochs: int, rate: float, seed: int) -> Any:
    steps = epochs * -(-len(x) // BATCH)
    cosine = exburn.optimizers.schedules.CosineDecay(rate, steps)
    adam = exburn.optimizers.Adam(cosine)
    model.compile(adam, "cross_entropy", metrics=["accuracy"], seed=seed)
    model.fit(x, y, batch_size=BATCH, epochs=epochs, verbose=0)
    return model


def variants(model: Any, steps: int) -> dict[str, Any]:
    """The models that are trained on, each from the same weights."""
    # A first convolution reads one channel, of which no four are neighbours.
    first = isinstance(model.layers[0], layers.Conv2D)
    fits = ["second", "hidden", "head"] if first else None
    # Of a transformer heads and hidden units; its residual stream stays as wide.
    blocks = any(layer.name.startswith("heads_") for layer in model.layers)
    inner = ["heads_*", "up_*"] if blocks else None
    schedule = PolynomialSparsity(0, steps // 2, every=max(1, steps // 50))
    return {
        "dense": model,
        "80 % magnitude": exburn.prune(model, 0.8, schedule),
        "2:4": exburn.prune(model, None, schedule, "2:4", filters=fits),
        "50 % units": exburn.prune(
            model, 0.5, pattern="channels", scope="layer", filters=inner
        ),
    }


def accuracy(model: Any, x: Any, y: Any) -> float:
    classes = model.predict(x, batch_size=1000, verbose=0).argmax(-1)
    return 100 * float((classes == y).mean())


def rows_a_second(models: dict[str, Any], x: Any, rounds: int) -> dict[str, list]:
    x = jnp.asarray(x)
    rates: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(rounds + 1):
        for name, model in models.items():
            start = time.perf_counter()
            model.predict(x, batch_size=500, verbose=0)
            if turn:  # the first one compiles
                rates[name].append(len(x) / (time.perf_counter() - start))
    return rates


def compare(args: argparse.Namespace) -> dict[str, Any]:
    (x, y), (x_test, y_test) = load(args.data, args.folder)
    x, y = x[: args.rows], y[: args.rows]
    results: dict[str, Any] = {}
    models: dict[str, Any] = {}
    for seed in map(int, args.seeds.split(",")):
        exburn.set_random_seed(seed)
        net = NETWORKS[args.model](x.shape[1:], args.width)
        base = fit(net, x, y, args.epochs, 2e-3, seed)
        models = variants(base, args.more * -(-len(x) // BATCH))
        for name, model in models.items():
            before = accuracy(model, x_test, y_test)
            fit(model, x, y, args.more, 1e-3, seed)
            entry = results.setdefault(name, {"accuracy": [], "before": []})
            entry["before"].append(before)
            entry["accuracy"].append(accuracy(model, x_test, y_test))
            entry["parameters"] = model.count_params()
            entry["zeros"] = sparsity(model).total
            cost = results["dense"]["accuracy"][-1] - entry["accuracy"][-1]
            print(
                f"seed {seed} {name:>15}: {entry['accuracy'][-1]:.2f} % "
                f"({cost:+.2f} points lost), {entry['zeros']:.1%} zeros, "
                f"{entry['parameters']:,} parameters",
                flush=True,
            )
    images = x_test[: args.images]
    for name, speeds in rows_a_second(models, images, args.rounds).items():
        results[name]["rows_per_s"] = speeds
    first = results["dense"]["rows_per_s"]
    for name, entry in results.items():
        ratios = [b / a for a, b in zip(first, entry["rows_per_s"], strict=True)]
        entry["faster"] = statistics.median(ratios)
        middle = statistics.median(entry["rows_per_s"])
        print(f"{name:>15}: {middle:,.0f} images/s, {entry['faster']:.2f} x dense")
    return results


def products(rounds: int) -> dict[str, Any]:
    """Milliseconds of three products of 8192 x 8192, in bfloat16 on a GPU."""
    gpu = jax.default_backend() == "gpu"
    width, rows = (8192, 8192) if gpu else (1024, 1024)
    dense = exburn.Sequential(
        [
            exburn.Input((width,)),
            *(layers.Dense(width, use_bias=False) for _ in range(3)),
        ]
    )
    if gpu:
        dense = dense.quantize("bfloat16")
    models = {"dense": dense, "2:4": exburn.prune(dense, pattern="2:4")}
    x = jnp.asarray(np.random.default_rng(0).normal(size=(rows, width)), "float32")
    times: dict[str, list[float]] = {name: [] for name in models}
    calls = {}
    for name, model in models.items():
        trained, rest = (
            [w.get_value() for w in ws]
            for ws in (model.trainable_variables, model.non_trainable_variables)
        )
        run = jax.jit(lambda t, r, x, m=model: m.stateless_call(t, r, x)[0])
        calls[name] = (run, trained, rest)
    for turn in range(rounds + 2):
        for name, (run, trained, rest) in calls.items():
            start = time.perf_counter()
            for _ in range(10):
                out = run(trained, rest, x)
            jax.block_until_ready(out)
            if turn > 1:
                times[name].append(100 * (time.perf_counter() - start))
    for name, milliseconds in times.items():
        print(f"{name:>6}: {statistics.median(milliseconds):.3f} ms for three products")
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", choices=NETWORKS, default="convnet")
    parser.add_argument("--data", default="fashion_mnist")
    parser.add_argument("--folder", help="where Fashion-MNIST's files are")
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--more", type=int, default=4, help="epochs after pruning")
    parser.add_argument("--seeds", default="0")
    parser.add_argument(
        "--width",
        type=int,
        default=64,
        help="filters of the first convolution; the width, half of the GRU's",
    )
    parser.add_argument("--images", type=int, default=10_000, help="that are timed")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--products", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results = products(args.rounds) if args.products else compare(args)
    if args.json:
        text = json.dumps({"versions": versions(), "results": results}, indent=1)
        args.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
