"""What a layer is told when it is called: whether it is training."""

import numpy as np
import pytest

import exburn
from exburn import layers as L

X = np.ones((2, 1), "float32")


class Doubling(L.Layer):
    """Twice its input in training, which it takes a call for."""

    def call(self, x, training=True):
        return x * (2.0 if training else 1.0)


class Plain(L.Layer):
    def call(self, x, training=None):
        return x * (2.0 if training else 1.0)


class Needing(L.Layer):
    def call(self, x, training):
        return x * (2.0 if training else 1.0) + (training is None)


class Around(exburn.Model):
    """Ten times what a layer makes of the input in training."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, x, training=None):
        return self.layer(x) * (10.0 if training else 1.0)


class AroundInTraining(Around):
    def call(self, x, training=True):
        return super().call(x, training)


class AroundInInference(Around):
    def call(self, x, training=False):
        return super().call(x, training)


def functional(layer):
    inputs = exburn.Input((1,))
    return exburn.Model(inputs, layer(inputs))


# ----------------------------------------------------------------- the training flag
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (Doubling, 2),
        (lambda: exburn.Sequential([Doubling()]), 2),
        (lambda: functional(Doubling()), 2),
        (lambda: L.TimeDistributed(Doubling()), 2),
        (lambda: Around(Doubling()), 2),
        (lambda: AroundInTraining(Plain()), 20),  # the inner layer is told
        (lambda: AroundInInference(Doubling()), 1),
        (Plain, 1),
        (Needing, 1),
        (lambda: Around(Plain()), 1),
        (lambda: functional(AroundInTraining(Plain())), 20),
    ],
)
def test_the_default_of_the_signature_is_what_no_caller_said(make, expected):
    x = X[:, None] if isinstance(layer := make(), L.TimeDistributed) else X
    assert float(np.ravel(layer(x))[0]) == expected
    assert float(np.ravel(layer(x, training=False))[0]) == 1


def test_what_one_layer_resolved_is_not_told_to_the_next():
    model = exburn.Sequential([AroundInInference(Plain()), Doubling()])
    assert float(np.ravel(model(X))[0]) == 2


@pytest.mark.parametrize("layer", [Doubling, Plain])
def test_fit_trains_and_predict_does_not_whatever_the_default(layer):
    model = AroundInTraining(layer())
    model.compile("sgd", "mse")
    assert model.fit(X, X, verbose=0).history["loss"] == [19.0**2]
    assert model.evaluate(X, X, verbose=0) == 0
    assert model.predict(X, verbose=0).tolist() == X.tolist()


def test_a_stateless_call_takes_the_default():
    layer = Doubling()
    layer(X)
    assert layer.stateless_call([], [], X)[0].tolist() == (2 * X).tolist()
    out, _ = layer.stateless_call([], [], X, training=False)
    assert out.tolist() == X.tolist()
