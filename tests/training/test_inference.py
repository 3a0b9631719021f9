"""The loops of evaluation and prediction."""

import numpy as np
import pytest
from tests.training.iterators import LABELS, ROWS, Restarting, classifier

import exburn


def test_evaluate_and_predict_on_many_sizes_compile_a_handful(blobs, classifier):
    x, y = blobs
    model = classifier()
    whole = model.predict(x, verbose=0)
    for n in range(1, 51):
        loss, accuracy = model.evaluate(x[:n], y[:n], verbose=0)
        out = model.predict(x[:n], verbose=0)
        assert out.shape == (n, 3)
        np.testing.assert_allclose(out, whole[:n], rtol=1e-5, atol=1e-6)
        assert accuracy == pytest.approx((out.argmax(-1) == y[:n]).mean())
        normaliser = np.log(np.exp(out).sum(-1))
        expected = (normaliser - out[np.arange(n), y[:n]]).mean()
        assert loss == pytest.approx(expected, rel=1e-5)
    assert model.trace_counts["evaluate"] <= 8
    assert model.trace_counts["predict"] <= 8


def test_validation_steps_go_through_all_rows_unless_a_batch_size_is_given(blobs):
    import keras

    def losses(library, **sizes):
        x = library.Input((blobs[0].shape[1],))
        model = library.Model(x, library.layers.Dense(3, activation="softmax")(x))
        model.set_weights([np.eye(*w.shape) if w.ndim > 1 else w for w in weights])
        sgd = library.optimizers.SGD(0.0, momentum=0.0)
        model.compile(sgd, "sparse_categorical_crossentropy")
        held = {"validation_data": blobs, "validation_steps": 2}
        return model.fit(*blobs, **held, **sizes, verbose=0).history["val_loss"]

    weights = [np.empty((blobs[0].shape[1], 3)), np.zeros(3)]
    for sizes in ({}, {"batch_size": 8}, {"validation_batch_size": 16}):
        ours, theirs = losses(exburn, **sizes), losses(keras, **sizes)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    assert losses(exburn) != losses(exburn, batch_size=8)


def test_evaluation_of_fewer_batches_than_steps_warns_and_is_kept():
    model = classifier()
    with pytest.warns(UserWarning, match="ended after 4 of 10"):
        made = model.predict((b for b in Restarting()), steps=10, verbose=0)
    np.testing.assert_array_equal(made, model.predict(ROWS, batch_size=16, verbose=0))
    with pytest.warns(UserWarning, match="ended after 4 of 10"):
        loss = model.evaluate((b for b in Restarting()), steps=10, verbose=0)
    assert loss == pytest.approx(model.evaluate(ROWS, LABELS, verbose=0))
