"""Records sets and intervals of mapie and crepes, and scaling by netcal.

``/path/to/judges/bin/python tests/insight/judges/uncertainty.py`` writes
``tests/insight/recorded/uncertainty.npz``.
"""

from pathlib import Path

import numpy as np
from crepes import ConformalClassifier, ConformalRegressor
from crepes.extras import hinge
from mapie.classification import SplitConformalClassifier
from mapie.conformity_scores import RAPSConformityScore
from mapie.regression import ConformalizedQuantileRegressor
from netcal.metrics import ECE
from netcal.scaling import TemperatureScaling
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.model_selection import StratifiedShuffleSplit

LEVELS = (0.6, 0.9, 0.95)
# crepes' sets have all classes with p >= 1 - level: one more where (n + 1) * level is
# whole, which is more than the level asks for.
LEVELS_BY_CLASS = (0.613, 0.887, 0.941)
SEED, CLASSES = 5, 5


class Table(ClassifierMixin, BaseEstimator):
    """A classifier whose probabilities are those of a table, by the row's number."""

    def __init__(self, p=None):
        self.p = p

    def fit(self, x, y):
        return self

    @property
    def classes_(self):
        return np.arange(self.p.shape[1])

    def __sklearn_is_fitted__(self):
        return True

    def predict_proba(self, x):
        return self.p[x[:, 0].astype(int)]

    def predict(self, x):
        return self.predict_proba(x).argmax(1)


class Column(RegressorMixin, BaseEstimator):
    """A regressor whose values are those of a column, by the row's number."""

    def __init__(self, values=None):
        self.values = values

    def fit(self, x, y):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def predict(self, x):
        return self.values[x[:, 0].astype(int)]


def draw_classes(rng, rows):
    z = rng.normal(size=(rows, CLASSES)) * 2
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    flat = np.exp(0.6 * z) / np.exp(0.6 * z).sum(1, keepdims=True)
    y = (flat.cumsum(1) > rng.uniform(size=(rows, 1))).argmax(1)
    return p, y


def main():
    rng = np.random.default_rng(3)
    p, y = draw_classes(rng, 450)
    cal, new = slice(0, 301), slice(301, 450)
    rows = np.arange(450)[:, None]
    out = {"p": p, "y": y, "cal": 301, "levels": LEVELS}
    out["u_cal"] = np.random.RandomState(SEED).uniform(size=301)
    out["u_new"] = np.random.RandomState(SEED).uniform(size=149)

    def mapie(score, last, level):
        model = SplitConformalClassifier(
            Table(p), level, score, prefit=True, random_state=SEED
        )
        model.conformalize(rows[cal], y[cal])
        params = {"include_last_label": last} if score != "lac" else {}
        return model.predict_set(rows[new], conformity_score_params=params)[1][..., 0]

    for level in LEVELS:
        out[f"lac/{level}"] = mapie("lac", None, level)
        out[f"aps/{level}"] = mapie("aps", "randomized", level)
        out[f"aps_without/{level}"] = mapie("aps", False, level)
        for last in (True, False):
            model = SplitConformalClassifier(
                Table(p), level, RAPSConformityScore(0.1), prefit=True,
                random_state=SEED,
            )  # fmt: skip
            model.conformalize(rows[cal], y[cal])
            sets = model.predict_set(
                rows[new], conformity_score_params={"include_last_label": last}
            )[1][..., 0]
            out[f"raps_{last}/{level}"] = sets
            score = model._mapie_classifier.conformity_score_function_
            out[f"raps_settings/{level}"] = [score.lambda_star, score.k_star[0]]
            out[f"raps_bound/{level}"] = score.quantiles_

    split = StratifiedShuffleSplit(1, test_size=0.1, random_state=SEED)
    out["raps_rows"] = next(split.split(rows[cal], y[cal]))[0]
    out["raps_scores"] = np.ravel(model._mapie_classifier.conformity_scores_)

    crepes = ConformalClassifier()
    alphas = hinge(p[cal], np.arange(CLASSES), y[cal])
    crepes.fit(alphas, bins=y[cal])
    tables = hinge(p[new])
    for level in LEVELS_BY_CLASS:
        out[f"by_class/{level}"] = np.stack(
            [
                crepes.predict_set(
                    tables, bins=np.full(149, c), confidence=level, smoothing=False
                )[:, c]
                for c in range(CLASSES)
            ],
            1,
        )  # fmt: skip

    values = rng.normal(size=450)
    sigma = 0.2 + rng.uniform(size=450)
    truth = values + sigma * rng.normal(size=450)
    out |= {"values": values, "sigma": sigma, "truth": truth}
    low, high = values - sigma, values + 1.3 * sigma
    out |= {"low": low, "high": high}
    for level in LEVELS:
        one = ConformalRegressor()
        one.fit(truth[cal] - values[cal])
        out[f"absolute/{level}"] = one.predict_int(values[new], confidence=level)
        one = ConformalRegressor()
        one.fit(truth[cal] - values[cal], sigmas=sigma[cal])
        out[f"normalized/{level}"] = one.predict_int(
            values[new], sigmas=sigma[new], confidence=level
        )
        three = [Column(low), Column(high), Column((low + high) / 2)]
        one = ConformalizedQuantileRegressor(three, level, prefit=True)
        one.conformalize(rows[cal], truth[cal])
        out[f"quantile/{level}"] = one.predict_interval(
            rows[new], symmetric_correction=True
        )[1][..., 0]

    scaling = TemperatureScaling()
    scaling.fit(p[cal], y[cal])
    out["temperature/p"] = scaling.transform(p[new])
    out["ece"] = ECE(15).measure(p, y)
    np.savez_compressed(
        Path(__file__).parents[1] / "recorded" / "uncertainty.npz", **out
    )


if __name__ == "__main__":
    main()
