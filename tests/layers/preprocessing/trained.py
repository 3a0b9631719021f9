"""What the tests of preprocessing share."""

from tests.layers.preprocessing.cases import images

import exburn

X = images(50, 8, 8, 3)
Y = (X[..., 0].mean((1, 2)) > 0.5).astype("int32")


def compiled(layers, **options):
    exburn.set_random_seed(0)
    model = exburn.Sequential(layers)
    model.compile("adam", "cross_entropy", metrics=["accuracy"], seed=1, **options)
    return model
