"""Exceptions in the middle of a run, and what a callback may do to the weights."""

import numpy as np
import pytest

from exburn.callbacks import Callback


class Boom(Exception):
    pass


@pytest.mark.parametrize("error", [Boom, KeyboardInterrupt])
@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_epoch_end", "on_test_end"])
def test_an_exception_leaves_the_latest_parameters(blobs, classifier, error, hook):
    x, y = blobs
    model = classifier()
    start = model.get_weights()

    class Fail(Callback):
        calls = 0

        def fail(self, *args):
            self.calls += 1
            if self.calls == 2:
                raise error

    setattr(Fail, hook, Fail.fail)
    with pytest.raises(error):
        model.fit(x, y, epochs=4, validation_split=0.2, callbacks=[Fail()], verbose=0)
    after = model.get_weights()
    assert not np.array_equal(start[0], after[0])
    assert all(np.isfinite(w).all() for w in after)
    lengths = {len(v) for v in model.history.history.values()}
    assert len(lengths) <= 1
    assert model.evaluate(x, y, verbose=0)[1] >= 0
    model.fit(x, y, epochs=1, verbose=0)


def test_data_that_fail_midway_leave_the_model_usable(blobs, classifier):
    x, y = blobs
    model = classifier()

    def generator():
        for i in range(3):
            yield x[i * 32 : i * 32 + 32], y[i * 32 : i * 32 + 32]
        raise Boom("the disk is gone")

    with pytest.raises(Boom):
        model.fit(generator(), epochs=1, verbose=0, steps_per_epoch=5)
    assert np.isfinite(model.predict(x, verbose=0)).all()


@pytest.mark.parametrize("call", ["evaluate", "predict"])
def test_an_exception_in_evaluate_or_predict_keeps_the_model(blobs, classifier, call):
    x, y = blobs
    model = classifier()
    expected = model.predict(x, verbose=0)

    class Fail(Callback):
        def on_test_batch_end(self, batch, logs=None):
            raise Boom

        def on_predict_batch_end(self, batch, logs=None):
            raise Boom

    data = (x, y) if call == "evaluate" else (x,)
    with pytest.raises(Boom):
        getattr(model, call)(*data, callbacks=[Fail()], verbose=0)
    np.testing.assert_array_equal(expected, model.predict(x, verbose=0))


def test_a_callback_may_replace_weights_during_a_fit(blobs, classifier):
    x, y = blobs
    model = classifier()
    zeros = [np.zeros_like(w) for w in model.get_weights()]

    class Reset(Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.set_weights(zeros)

    model.fit(x, y, epochs=2, callbacks=[Reset()], verbose=0)
    for w in model.get_weights():
        np.testing.assert_array_equal(w, np.zeros_like(w))
