"""Folds equal scikit-learn's; intervals equal SciPy's."""

import numpy as np
import pytest
from scipy import stats
from sklearn import model_selection

from exburn.errors import ArgumentError, DataError
from exburn.tuning.folds import Folds, confidence_interval, fold_masks

RNG = np.random.default_rng(0)
LABELS = RNG.choice([3, 7, 1], 41, p=[0.6, 0.3, 0.1])


def masks_of(splitter, y, groups=None):
    train = np.zeros((splitter.get_n_splits(groups=groups), len(y)), bool)
    validation = train.copy()
    x = np.zeros((len(y), 1))
    for fold, (rows, others) in enumerate(splitter.split(x, y, groups)):
        train[fold, rows], validation[fold, others] = True, True
    return train, validation


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(
    ("y", "kind"),
    [
        (LABELS, "StratifiedKFold"),
        (LABELS[:, None], "StratifiedKFold"),
        (np.array(["b", "a"])[LABELS % 2], "StratifiedKFold"),
        (LABELS > 2, "StratifiedKFold"),
        (RNG.random(41), "KFold"),
        (np.arange(41), "KFold"),  # ids, no classes
    ],
)
def test_folds_are_those_of_scikit_learn(y, kind, shuffle):
    splitter = getattr(model_selection, kind)(
        4, shuffle=shuffle, random_state=5 if shuffle else None
    )
    found = fold_masks(Folds(4, shuffle=shuffle, seed=5), len(y), y)
    given = fold_masks(splitter, len(y), y)
    pairs = fold_masks(list(splitter.split(y, y)), len(y))
    for expected, *others in zip(
        masks_of(splitter, y.ravel()), found, given, pairs, strict=False
    ):
        for other in others:
            np.testing.assert_array_equal(other, expected)


def test_a_number_of_folds_and_one_hot_targets():
    splitter = model_selection.KFold(5, shuffle=True, random_state=0)
    train, validation = fold_masks(5, 23)
    np.testing.assert_array_equal(validation, masks_of(splitter, np.zeros(23))[1])
    assert (train ^ validation).all() and (validation.sum(0) == 1).all()
    one_hot = np.eye(8)[LABELS]
    found = fold_masks(Folds(3, stratified=True), 41, one_hot)[1]
    np.testing.assert_array_equal(found, fold_masks(3, 41, LABELS)[1])
    plain = fold_masks(Folds(3, stratified=False), 41, LABELS)[1]
    np.testing.assert_array_equal(plain, fold_masks(3, 41)[1])


def test_splitters_whose_folds_are_not_all_other_rows():
    splitter = model_selection.TimeSeriesSplit(3)
    train, validation = fold_masks(splitter, 12)
    expected = masks_of(splitter, np.zeros(12))
    np.testing.assert_array_equal(train, expected[0])
    np.testing.assert_array_equal(validation, expected[1])
    assert not (train | validation)[0].all()
    groups = np.repeat(np.arange(6), 2)
    _, validation = fold_masks(model_selection.GroupKFold(3), 12, groups=groups)
    assert (validation[:, ::2] == validation[:, 1::2]).all()


REFUSALS = [
    (lambda: fold_masks(1, 10), ArgumentError, "folds must be an integer ≥ 2"),
    (lambda: fold_masks(2.5, 10), ArgumentError, "folds must be an integer ≥ 2"),
    (lambda: fold_masks("ab", 10), ArgumentError, "folds must be an integer ≥ 2"),
    (lambda: fold_masks([], 10), ArgumentError, "pairs of indices"),
    (lambda: fold_masks([[1, 2, 3]], 10), ArgumentError, "pairs of indices"),
    (lambda: fold_masks([([0.5], [1])], 10), ArgumentError, "must be indices"),
    (lambda: fold_masks([([0], [10])], 10), DataError, "from 0 to 9"),
    (
        lambda: fold_masks([([0], np.array([], int))], 10),
        DataError,
        "no validation rows",
    ),
    (lambda: fold_masks([([0, 1], [1])], 10), DataError, "fold 0 trains on rows"),
    (lambda: fold_masks(11, 10), DataError, "11 folds need as many rows"),
    (lambda: fold_masks(Folds(3, stratified=True), 9), DataError, "need targets"),
    (
        lambda: fold_masks(Folds(3, stratified=True), 4, [0, 0, 1, 1]),
        DataError,
        "no class has 3 rows",
    ),
    (lambda: Folds(3, shuffle="no"), ArgumentError, "shuffle must be True or"),
    (lambda: Folds(3, seed=-1), ArgumentError, "seed must be an integer ≥ 0"),
    (lambda: confidence_interval([]), ArgumentError, "at least one score"),
    (lambda: confidence_interval([1, 2], 1), ArgumentError, "level must be"),
]


def test_the_interval_is_students():
    scores = RNG.random(7)
    found = confidence_interval(scores, 0.9)
    low, high = stats.t.interval(0.9, 6, loc=scores.mean(), scale=stats.sem(scores))
    np.testing.assert_allclose([found.low, found.high], [low, high], rtol=1e-12)
    assert found.n == 7 and found.std == pytest.approx(scores.std(ddof=1))
    wider = confidence_interval(scores, 0.9, folds=7)
    ratio = (wider.high - wider.mean) / (found.high - found.mean)
    assert ratio == pytest.approx(np.sqrt((1 / 7 + 1 / 6) * 7))
    assert str(confidence_interval([0.5])) == "0.5"
    assert np.isnan(confidence_interval([0.5]).low)


def test_an_interval_has_the_true_mean_as_often_as_it_says():
    draws = RNG.normal(3.0, 2.0, (2_000, 5))
    found = [confidence_interval(row) for row in draws]
    share = np.mean([one.low <= 3.0 <= one.high for one in found])
    assert abs(share - 0.95) < 0.02


@pytest.mark.parametrize(
    ("folds", "groups", "says"),
    [
        (model_selection.GroupKFold(3), None, "Pass groups="),
        (model_selection.GroupKFold(3), [0, 1], "one entry for each of the 12 rows"),
        (model_selection.GroupKFold(5), [0, 1, 2] * 4, "cannot split"),
        (3, [0, 1, 2] * 4, "only a splitter knows groups"),
    ],
)
def test_groups_that_do_not_fit_are_refused(folds, groups, says):
    with pytest.raises((ArgumentError, DataError), match=says):
        fold_masks(folds, 12, groups=groups)
