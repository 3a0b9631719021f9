"""Models of two outputs, in Keras and here, and what they log."""

import numpy as np

RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 3)).astype(np.float32)
Y = [RNG.standard_normal((8, n)).astype(np.float32) for n in (1, 2)]
BY_NAME = {"z": Y[0], "y": Y[1]}


def functional(keras, outputs):
    x = keras.Input((3,))
    ends = [keras.layers.Dense(n + 1, name="ba"[n])(x) for n in range(2)]
    return keras.Model(x, outputs(ends))


def subclass(keras, outputs):
    class Two(keras.Model):
        def __init__(self):
            super().__init__()
            self.first, self.second = keras.layers.Dense(1), keras.layers.Dense(2)

        def call(self, x):
            return outputs([self.first(x), self.second(x)])

    return Two()


def named(ends):
    return {"z": ends[0], "y": ends[1]}


def logs(keras, make, outputs, targets, settings):
    model = make(keras, outputs)
    model(X)
    rng = np.random.default_rng(1)
    model.set_weights([rng.random(tuple(w.shape)) for w in model.weights])
    model.compile("sgd", **settings)
    asked = model.evaluate(X, targets, verbose=0, return_dict=True)
    return asked, model.evaluate(X, targets, verbose=0)
