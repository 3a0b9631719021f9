"""How often conformal sets and intervals hold the target, over splits of six data sets.

    python benchmarks/conformal.py [--splits 20] [--shares 5] [--json F]

Needs scikit-learn. Half of the rows of each split train a model of one hidden layer;
the others are shared out ``--shares`` times between a calibration and a test. The
calibration has as many rows as make ``(n + 1) · level`` whole, since the share that is
to be held is ``ceil((n + 1) · level) / (n + 1)``. With mapie installed, its sets beside
the same probabilities are compared. Printed is one line of JSON a method and data set.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn import datasets

import exburn
from exburn import layers

LEVEL = 0.9
CLASS_METHODS: Mapping[str, dict[str, Any]] = {
    "lac": {"score": "lac"},
    "lac by class": {"score": "lac", "by_class": True},
    "aps": {"score": "aps"},
    "aps, randomized": {"score": "aps", "randomized": True},
    "raps, randomized": {"score": "raps", "randomized": True},
    "temperature": {"method": "temperature"},
}
VALUE_METHODS: Mapping[str, dict[str, Any]] = {
    "absolute": {"score": "absolute", "output": "value"},
    "normalized": {"score": "normalized", "output": "value", "spread": "spread"},
    "quantile": {"score": "quantile", "output": "quantiles"},
}


class Rows(NamedTuple):
    x: np.ndarray
    y: np.ndarray


def load() -> Iterator[tuple[str, Rows, int]]:
    """Name, rows, and the number of classes, 0 of values."""
    for name in ("digits", "iris", "wine", "breast_cancer", "diabetes"):
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        classes = 0 if name == "diabetes" else int(y.max()) + 1
        yield name, Rows(x, y), classes
    rng = np.random.default_rng(0)
    x, y = datasets.make_friedman1(2000, random_state=0)
    yield "friedman1", Rows(x, y + x[:, 0] * rng.normal(size=2000, scale=4)), 0


def standardized(rows: Rows, classes: int) -> Rows:
    x = (rows.x - rows.x.mean(0)) / np.maximum(rows.x.std(0), 1e-6)
    y = rows.y if classes else (rows.y - rows.y.mean()) / rows.y.std()
    return Rows(x.astype(np.float32), y if classes else y.astype(np.float32)[:, None])


def pinball(y: Any, quantiles: Any) -> Any:
    """The loss of the quantiles 0.05 and 0.95."""
    difference = y - quantiles
    share = np.array([0.05, 0.95], np.float32)
    return exburn.ops.mean(
        exburn.ops.maximum(share * difference, (share - 1) * difference), axis=-1
    )


def residual(y: Any, both: Any) -> Any:
    """The squared error, and the likelihood of a normal error, which fits a spread."""
    mean, spread = both[..., :1], both[..., 1:]
    error = exburn.ops.stop_gradient(exburn.ops.abs(y - mean))
    return exburn.ops.mean((y - mean) ** 2 + (spread - error) ** 2, axis=-1)


def model_for(width: int, classes: int) -> Any:
    inputs = exburn.Input((width,))
    hidden = layers.Dense(32, "relu")(inputs)
    if classes:
        model = exburn.Model(inputs, layers.Dense(classes, "softmax")(hidden))
        model.compile("adam", "sparse_categorical_crossentropy", seed=0)
        return model
    value = layers.Dense(1, name="mean")(hidden)
    spread = layers.Dense(1, "softplus", name="positive")(hidden)
    both = layers.Concatenate(name="both")([value, spread + 0.05])
    quantiles = layers.Dense(2, name="quantiles")(hidden)
    model = exburn.Model(inputs, {"both": both, "quantiles": quantiles})
    model.compile("adam", {"both": residual, "quantiles": pinball}, seed=0)
    return model


def answers(model: Any, classes: int) -> Any:
    """The model that is asked: of values, with the spread as an output of its own."""
    if classes:
        return model
    both, quantiles = model.output["both"], model.output["quantiles"]
    outputs = {"value": both[:, :1], "spread": both[:, 1:], "quantiles": quantiles}
    return exburn.Model(model.input, outputs)


def calibration_rows(rest: int) -> int:
    """About half of the rows, so many that ``(n + 1) · level`` is whole."""
    return rest // 2 // 10 * 10 - 1


def compare(name: str, rows: Rows, classes: int, splits: int, shares: int) -> None:
    """Prints coverage and size of each method on one data set."""
    model = model_for(rows.x.shape[1], classes)
    asked, initial = answers(model, classes), model.get_weights()
    methods = CLASS_METHODS if classes else VALUE_METHODS
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    alike: list[float] = []
    begun = time.perf_counter()
    for split in range(splits):
        rng = np.random.default_rng(split)
        order = rng.permutation(len(rows.x))
        train, rest = np.split(order, [len(order) // 2])
        model.set_weights(initial)
        model.optimizer.learning_rate = 3e-3
        y = rows.y[train]
        targets = y if classes else {"both": y, "quantiles": y}
        model.fit(rows.x[train], targets, epochs=40, verbose=0)
        for _ in range(shares):
            rng.shuffle(rest)
            cal, test = np.split(rest, [calibration_rows(len(rest))])
            for method, options in methods.items():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of scaling without an end
                    try:
                        sure = asked.uncertainty(
                            rows.x[cal], rows.y[cal], batch_size=512, **options
                        )
                        report = sure.report(
                            rows.x[test], rows.y[test], level=LEVEL, batch_size=512
                        )
                    except exburn.errors.ArgumentError:
                        continue  # a class has too few rows for the level
                found[method].append((report.coverage, report.size))
            if classes and importlib.util.find_spec("mapie"):
                alike.append(same_as_mapie(asked, rows, cal, test))
    cal_rows = calibration_rows(len(rows.x) - len(rows.x) // 2)
    for method, values in found.items():
        coverage, size = np.mean(values, 0)
        result = {"data": name, "method": method, "calibration rows": cal_rows}
        result |= {"runs": len(values), "coverage": round(float(coverage), 4)}
        result |= {"size": round(float(size), 3)}
        if method == "lac" and alike:
            result["sets that are mapie's"] = round(float(np.mean(alike)), 6)
        RESULTS.append(result)
        print(json.dumps(result), flush=True)
    print(f"# {name}: {time.perf_counter() - begun:.0f} s", flush=True)


def same_as_mapie(model: Any, rows: Rows, cal: Any, test: Any) -> float:
    """The share of sets by ``"lac"`` that are mapie's, by the same probabilities."""
    from mapie.classification import SplitConformalClassifier
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Ours(ClassifierMixin, BaseEstimator):
        classes_ = np.arange(rows.y.max() + 1)
        n_features_in_ = rows.x.shape[1]

        def fit(self, x: Any, y: Any) -> Any:
            return self

        def predict_proba(self, x: Any) -> np.ndarray:
            p = model.predict(x.astype(np.float32), batch_size=512, verbose=0)
            return p.astype(np.float64)

        def predict(self, x: Any) -> np.ndarray:
            return self.predict_proba(x).argmax(1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = SplitConformalClassifier(Ours(), LEVEL, "lac", prefit=True)
        theirs.conformalize(rows.x[cal], rows.y[cal])
        sets = theirs.predict_set(rows.x[test])[1][..., 0]
    sure = model.uncertainty(rows.x[cal], rows.y[cal], batch_size=512)
    own = sure.predict(rows.x[test], LEVEL, batch_size=512).sets
    return float((own == sets).all(1).mean())


RESULTS: list[dict[str, Any]] = []


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--shares", type=int, default=5)
    parser.add_argument("--work", default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    for name, rows, classes in load():
        if not options.work or name in options.work.split(","):
            ready = standardized(rows, classes)
            compare(name, ready, classes, options.splits, options.shares)
    if options.json:
        options.json.write_text(json.dumps(RESULTS, indent=1) + "\n")


if __name__ == "__main__":
    main()
