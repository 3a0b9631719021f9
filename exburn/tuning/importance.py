"""How much each path matters for the score, by a small model of both."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from exburn.core.checks import check_choice
from exburn.errors import ArgumentError, MissingDependencyError, require
from exburn.tuning.records import LaneRecord, finite_scores

__all__ = ["comparable_scores", "encode", "path_importance", "varied_paths"]

EVALUATORS = ("auto", "forest", "fanova", "ped_anova")


def path_importance(
    records: Sequence[LaneRecord], monitor: str, mode: str, evaluator: str = "auto"
) -> dict[str, float]:
    """The share of each path in what makes scores differ, the largest first.

    ``"forest"`` fits scikit-learn's random forest to the ranks of the scores; a path's
    share is how much worse the forest becomes when the path's values are shuffled.
    ``"fanova"`` and ``"ped_anova"`` are Optuna's evaluators. Lanes are compared at the
    last epoch that all of them have reached; those that turned NaN are the worst.

    Returns:
        Path → share; they add up to 1, or are all 0 where nothing matters.

    Source: Breiman, *Random Forests*, 2001; Hutter et al., *An Efficient Approach for
    Assessing Hyperparameter Importance*, 2014; Watanabe et al., *PED-ANOVA*, 2023.
    """
    check_choice("importance", "evaluator", evaluator, EVALUATORS)
    if len(records) < 4:
        reason = f"importance needs at least 4 lanes, received {len(records)}"
        raise ArgumentError("importance", reason)
    paths = varied_paths(records)
    scores = comparable_scores(records, monitor, mode)  # [lanes]
    ranks = np.searchsorted(np.sort(scores), scores) / len(scores)  # [lanes]
    if evaluator == "auto":
        evaluator = _choose_evaluator()
    if not paths or np.ptp(ranks) == 0:
        return dict.fromkeys(paths, 0.0)
    measure = _forest_shares if evaluator == "forest" else _optuna_shares
    shares = np.maximum(measure(records, paths, ranks, evaluator), 0)
    total = shares.sum()
    shares = shares / total if total > 0 else shares
    order = np.argsort(-shares, kind="stable")
    return {paths[i]: float(shares[i]) for i in order}


def varied_paths(records: Sequence[LaneRecord]) -> list[str]:
    """The paths that do not have the same value in all lanes, in their order."""
    paths = dict.fromkeys(path for record in records for path in record.trial)
    return [path for path in paths if len(set(_texts(records, path))) > 1]


def comparable_scores(
    records: Sequence[LaneRecord], monitor: str, mode: str
) -> np.ndarray:
    """[lanes] What is monitored at the last epoch all have reached, small is best.

    Lanes that turned NaN, or have logged nothing, are infinite.
    """
    logged = [record.history.get(monitor, []) for record in records]
    going = [
        len(values)
        for record, values in zip(records, logged, strict=True)
        if values and record.status != "nan"
    ]
    last = min(going, default=0)
    at = np.full(len(records), math.nan)
    for i, (record, values) in enumerate(zip(records, logged, strict=True)):
        if last and values and record.status != "nan":
            at[i] = values[last - 1]
    return finite_scores(at, mode)


def encode(records: Sequence[LaneRecord], path: str) -> tuple[np.ndarray, list[str]]:
    """[lanes] The values of a path as numbers, and names of them if they are none.

    Where a lane has no value it is NaN; values that are no numbers are counted in the
    order in which they come.
    """
    there = [record.trial[path] for record in records if path in record.trial]
    if all(_is_number(value) for value in there):
        values = [record.trial.get(path, math.nan) for record in records]
        return np.array(values, float), []
    texts = _texts(records, path)
    names = [text for text in dict.fromkeys(texts) if text]
    return np.array([names.index(t) if t else math.nan for t in texts]), names


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _texts(records: Sequence[LaneRecord], path: str) -> list[str]:
    """The values of a path as text; empty where a lane has none."""
    return [str(r.trial[path]) if path in r.trial else "" for r in records]


def _forest_shares(
    records: Sequence[LaneRecord], paths: list[str], ranks: np.ndarray, _: str
) -> np.ndarray:
    reason = "the importance of paths needs scikit-learn"
    ensemble = require("sklearn.ensemble", "importance", reason, package="scikit-learn")
    inspection = require("sklearn.inspection", "importance", reason)
    x = np.stack([encode(records, path)[0] for path in paths], 1)  # [lanes, paths]
    low, high = np.nanmin(x, 0), np.nanmax(x, 0)
    x = np.where(np.isnan(x), low - (high - low) - 1, x)  # beside all other values
    forest = ensemble.RandomForestRegressor(100, min_samples_leaf=2, random_state=0)
    forest.fit(x, ranks)
    importances = inspection.permutation_importance(
        forest, x, ranks, n_repeats=5, random_state=0
    )
    return importances.importances_mean


def _optuna_shares(
    records: Sequence[LaneRecord], paths: list[str], ranks: np.ndarray, evaluator: str
) -> np.ndarray:
    reason = "these evaluators are Optuna's"
    optuna = require("optuna", "importance", reason, extra="optuna")
    of = optuna.distributions
    domains: dict[str, Any] = {}
    texts: dict[str, list[str]] = {}  # of paths whose values are no numbers
    columns = {path: encode(records, path) for path in paths}
    for path, (column, names) in columns.items():
        low, high = float(np.nanmin(column)), float(np.nanmax(column))
        if names or np.isnan(column).any():
            texts[path] = _texts(records, path)
            domains[path] = of.CategoricalDistribution(sorted({*texts[path]}))
        else:
            log = low > 0 and high / low > 100
            domains[path] = of.FloatDistribution(low, high, log=log)
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study()
        for i in range(len(records)):
            params = {
                path: texts[path][i] if path in texts else float(columns[path][0][i])
                for path in paths
            }
            study.add_trial(
                optuna.trial.create_trial(
                    params=params, distributions=domains, value=float(ranks[i])
                )
            )
        measures = optuna.importance
        kinds = {
            "fanova": lambda: measures.FanovaImportanceEvaluator(seed=0),
            "ped_anova": measures.PedAnovaImportanceEvaluator,
        }
        importances = measures.get_param_importances(
            study, evaluator=kinds[evaluator]()
        )
    finally:
        optuna.logging.set_verbosity(verbosity)
    return np.array([importances.get(path, 0.0) for path in paths])


def _choose_evaluator() -> str:
    """The first evaluator whose package is installed."""
    for package, evaluator in (("sklearn", "forest"), ("optuna", "ped_anova")):
        if importlib.util.find_spec(package) is not None:
            return evaluator
    raise MissingDependencyError(
        "importance",
        "the importance of paths needs scikit-learn or Optuna",
        hint="pip install scikit-learn",
    )
