"""Tests of ``exburn.losses.contract.shapes``."""

import numpy as np
import pytest
from tests.golden import keras
from tests.losses.arrays import spec
from tests.losses.reference import PROBS, REAL, REAL_TRUE

import exburn
from exburn import losses
from exburn.errors import ShapeError, TargetError
from exburn.losses.catalogue import as_loss

MISFITS = [
    ("mse", spec("b", 3), spec("b", 1), ShapeError),
    ("mse", spec("b"), spec("b", 3), ShapeError),
    ("mae", spec("b", 1), spec("b", 3), ShapeError),
    ("huber", spec("b", 4, 3), spec("b", 3), ShapeError),
    ("bce", spec("b"), spec("b", 3), ShapeError),
    ("hinge", spec("b", 2), spec("b", 3), ShapeError),
    ("dice", spec("b", 8, 8), spec("b", 8, 8, 3), ShapeError),
    ("categorical_crossentropy", spec("b", dtype="int32"), spec("b", 3), TargetError),
    ("categorical_crossentropy", spec("b", 1), spec("b", 3), TargetError),
    ("categorical_crossentropy", spec("b", 2), spec("b", 3), ShapeError),
    ("categorical_crossentropy", spec("b", 1), spec("b", 1), ShapeError),
    ("categorical_focal_crossentropy", spec("b"), spec("b", 3), TargetError),
    ("sparse_categorical_crossentropy", spec("b", 3), spec("b", 3), TargetError),
    ("sparse_categorical_crossentropy", spec("b", 7), spec("b", 7, 7, 2), ShapeError),
    ("sparse_categorical_crossentropy", spec("b"), spec("b", 1), ShapeError),
    ("categorical_generalized_cross_entropy", spec("b", 3), spec("b", 3), TargetError),
    ("cross_entropy", spec("b", 2), spec("b", 3), ShapeError),
    ("crossentropy", spec("b", 3), spec("b", 1), ShapeError),
    ("ctc", spec("b", 5), spec("b", 5), ShapeError),
    ("circle", spec("b", 5), spec("b", 5), TargetError),
    ("circle", spec("b"), spec("b", 5, 5), ShapeError),
]

FITS = [
    ("mse", spec("b"), spec("b", 1)),
    ("mse", spec("b", 1), spec("b")),
    ("mse", spec("b", "t"), spec("b", "t", 1)),
    ("mse", spec("b", "t", 2), spec("b", 8, 2)),
    ("bce", spec("b"), spec("b")),
    ("sparse_categorical_crossentropy", spec("b", 1), spec("b", 3)),
    ("sparse_categorical_crossentropy", spec("b", "t"), spec("b", "t", 3)),
    ("cross_entropy", spec("b", "t"), spec("b", "t", 3)),
    ("cross_entropy", spec("b", 3), spec("b", 3)),
]

ALONG_AXES = [
    *(("CosineSimilarity", {"axis": axis}) for axis in (0, -1)),
    *(("KLDivergence", {}), ("CategoricalHinge", {})),
]


def test_vector_targets_have_one_value_per_sample():
    loss = losses.MeanSquaredError(reduction="none")
    assert loss(np.zeros(3), np.arange(3.0)).tolist() == [0, 1, 4]
    assert loss(np.zeros(3), np.arange(3.0)[:, None]).tolist() == [0, 1, 4]
    assert loss(np.zeros((3, 1)), np.arange(3.0)).tolist() == [0, 1, 4]


@pytest.mark.parametrize(("name", "y_true", "y_pred", "error"), MISFITS)
def test_misfits_are_errors(name, y_true, y_pred, error):
    with pytest.raises(error) as caught:
        as_loss(name).check_shapes(y_true, y_pred)
    assert len(str(caught.value).splitlines()) <= 12
    with pytest.raises((ShapeError, TargetError)):  # and again when it is called
        fixed = [
            np.zeros([4 if not isinstance(n, int) else n for n in s.shape], s.dtype)
            for s in (y_true, y_pred)
        ]
        as_loss(name)(*fixed)


@pytest.mark.parametrize(("name", "y_true", "y_pred"), FITS)
def test_fits_are_not(name, y_true, y_pred):
    as_loss(name).check_shapes(y_true, y_pred)


def test_message_of_a_misfit():
    with pytest.raises(ShapeError) as caught:
        as_loss("mse").check_shapes(spec("b", 3), spec("b", 1))
    assert str(caught.value) == (
        "mean_squared_error: targets must have the shape of the predictions\n"
        "  y_true: float32[b, 3]\n"
        "  y_pred: float32[b, 1]\n"
        "  → Give the last layer as many units as the targets have columns."
    )


@pytest.mark.parametrize(("name", "options"), ALONG_AXES)
@pytest.mark.parametrize("vectors", [PROBS, PROBS[0]], ids=["matrix", "vector"])
def test_what_an_axis_is_of(name, vectors, options, golden):
    true = vectors[::-1].copy()
    for kind in ("losses", "metrics"):
        ours = getattr(getattr(exburn, kind), name)(**options)
        peer = lambda kind=kind: getattr(getattr(keras, kind), name)(**options)  # noqa: E731
        theirs = golden(lambda peer=peer: peer()(true, vectors))
        np.testing.assert_allclose(ours(true, vectors), theirs, 1e-5)


@pytest.mark.parametrize("axis", [0, 1])
def test_cosines_along_an_axis_in_short_batches(axis, golden):
    def train(m):
        model = m.Sequential([m.Input((4,)), m.layers.Dense(4, "relu", False, "ones")])
        model.compile(
            m.optimizers.SGD(0.1, momentum=0.0),
            m.losses.CosineSimilarity(axis=axis),
            metrics=[m.metrics.CosineSimilarity(axis=axis)],
        )
        options = {"batch_size": 4, "verbose": 0}
        history = model.fit(REAL, REAL_TRUE, shuffle=False, **options).history
        both = [history[key][0] for key in ("loss", "cosine_similarity")]
        return both + model.evaluate(REAL, REAL_TRUE, **options)

    np.testing.assert_allclose(train(exburn), golden(lambda: train(keras)), 1e-4)
