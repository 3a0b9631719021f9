"""Rows of unlike lengths: filled up in buckets, by hand, and rows that are all full.

    python benchmarks/ragged.py [--work recurrent] [--rows 2000] [--json FILE]

Each model is trained on the same number of real tokens in three ways. ``full`` are rows
of the longest length alone, ``ragged`` rows of log-normal lengths as lists, which
``fit`` cuts into buckets, ``by hand`` the same rows filled up to the longest, with a
mask. Printed are real tokens a second, of the best epoch of all rounds, which go
through the ways in turn; behind the slash the ratio to ``full`` by the process' time,
for busy machines. ``positions`` is the share of computed positions that are real,
``programs`` how many training programs were compiled. ``predict`` is the same of
`predict`, the calls as a whole.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import exburn
from exburn import layers
from exburn.data.buckets import choose_buckets

VOCABULARY, SHORTEST, LONGEST = 5_000, 10, 256
WAYS = ("full", "ragged", "by hand")


def embed(mask: bool) -> Any:
    return layers.Embedding(VOCABULARY, 64, mask_zero=mask)


def recurrent(mask: bool) -> Any:
    return exburn.Sequential([embed(mask), layers.LSTM(64), layers.Dense(1)])


def attention(mask: bool) -> Any:
    ids = exburn.Input((None,), dtype="int32")
    x = embed(mask)(ids)
    x = layers.add([x, layers.PositionEmbedding(LONGEST)(x)])
    for _ in range(2):
        x = layers.LayerNormalization()(
            layers.add([x, layers.MultiHeadAttention(4, 16)(x, x)])
        )
        hidden = layers.Dense(64)(layers.Dense(256, activation="relu")(x))
        x = layers.LayerNormalization()(layers.add([x, hidden]))
    return exburn.Model(ids, layers.Dense(1)(layers.GlobalAveragePooling1D()(x)))


def convolution(mask: bool) -> Any:
    parts = [embed(mask)]
    parts += [layers.Conv1D(64, 5, padding="same", activation="relu") for _ in range(3)]
    return exburn.Sequential([*parts, layers.GlobalMaxPooling1D(), layers.Dense(1)])


MODELS = {"recurrent": recurrent, "attention": attention, "convolution": convolution}


def data(rows: int, batch: int) -> Iterator[tuple[str, Any, np.ndarray, float]]:
    """Each way with its rows, targets, and the share of positions that are real."""
    rng = np.random.default_rng(0)
    lengths = np.exp(rng.normal(np.log(60), 0.7, rows)).round().astype(int)
    lengths = lengths.clip(SHORTEST, LONGEST)
    ragged = [rng.integers(1, VOCABULARY, n).astype(np.int32) for n in lengths]
    targets = rng.integers(0, 2, rows).astype(np.float32)
    by_hand = np.zeros((rows, LONGEST), np.int32)
    for row, ids in zip(by_hand, ragged, strict=True):
        row[: len(ids)] = ids
    whole = -(-int(lengths.sum()) // LONGEST)
    full = rng.integers(1, VOCABULARY, (whole, LONGEST)).astype(np.int32)
    computed = sum(
        -(-len(part) // batch) * batch * width
        for part, (width,) in choose_buckets([lengths], batch)
    )
    yield "full", full, targets[:whole], 1.0
    yield "ragged", ragged, targets, lengths.sum() / computed
    yield "by hand", by_hand, targets, lengths.sum() / by_hand.size


class Best:
    """The shortest of several times, by the clock and of the process."""

    def __init__(self) -> None:
        self.seconds = [np.inf, np.inf]

    def time(self, call: Callable[[], Any]) -> None:
        begun = time.perf_counter(), time.process_time()
        call()
        self.note(begun)

    def note(self, begun: tuple[float, float]) -> None:
        now = time.perf_counter(), time.process_time()
        spans = (end - begin for end, begin in zip(now, begun, strict=True))
        self.seconds = [min(pair) for pair in zip(self.seconds, spans, strict=True)]


class Epochs(exburn.callbacks.Callback):
    """Times epochs, but for the first one of a fit."""

    def __init__(self, best: Best):
        super().__init__()
        self._best = best

    def on_epoch_begin(self, epoch, logs=None):
        self._begun = time.perf_counter(), time.process_time()

    def on_epoch_end(self, epoch, logs=None):
        if epoch:
            self._best.note(self._begun)


def measure(
    make: Callable, rows: int, batch: int, rounds: int, epochs: int
) -> dict[str, dict[str, Any]]:
    ways = {}
    for way, x, y, real in data(rows, batch):
        exburn.set_random_seed(0)
        model = make(mask=way == "by hand")
        model.compile("adam", exburn.losses.BinaryCrossentropy(from_logits=True))
        ways[way] = model, x, y, real, Best(), Best()
    for _ in range(rounds):
        for model, x, y, _, training, prediction in ways.values():
            options = {"batch_size": batch, "epochs": epochs, "verbose": 0}
            model.fit(x, y, callbacks=[Epochs(training)], **options)
            run = lambda m=model, x=x: m.predict(x, batch_size=batch, verbose=0)  # noqa: E731
            run()
            prediction.time(run)
    results = {}
    for way, (model, x, _, real, training, prediction) in ways.items():
        tokens = sum(int((np.asarray(row) > 0).sum()) for row in x)
        results[way] = {
            "positions": real,
            "programs": model.trace_counts["train"],
            "train": [tokens / seconds for seconds in training.seconds],
            "predict": [tokens / seconds for seconds in prediction.seconds],
        }
    return results


def show(name: str, results: dict[str, dict[str, Any]]) -> None:
    full = results["full"]
    for way, one in results.items():
        cells = [f"{name:12} {way:8} positions {one['positions']:.2f}"]
        cells.append(f"programs {one['programs']}")
        for what in ("train", "predict"):
            ratios = [a / b for a, b in zip(one[what], full[what], strict=True)]
            cells.append(
                f"{what} {one[what][0]:,.0f} tokens/s, "
                f"{ratios[0]:.2f} / {ratios[1]:.2f} × full"
            )
        print(" · ".join(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", default=",".join(MODELS))
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    every = {}
    for name in args.work.split(","):
        sizes = args.rows, args.batch, args.rounds, args.epochs
        every[name] = measure(MODELS[name], *sizes)
        show(name, every[name])
        if args.json is not None:
            args.json.write_text(json.dumps(every, indent=1))


if __name__ == "__main__":
    main()
