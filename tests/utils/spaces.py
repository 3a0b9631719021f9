"""What the tests of namespaces share."""

import numpy as np

from exburn.utils import FeatureSpace

TABLE = {
    "age": [20.0, 40.0, 30.0, 22.0],
    "town": ["Delft", "Ghent", "Delft", "Bonn"],
    "id": np.array([7, 9, 7, 2**40]),
}

NUMBERS = {
    "age": np.array([20.0, 40.0, 30.0, 22.0], np.float32),
    "rooms": np.array([1, 2, 2, 5]),
    "height": np.array([0.0, 1.0, 2.0, 3.0], np.float32),
}

KINDS = {
    "age": "float_normalized",
    "rooms": "integer_categorical",
    "height": FeatureSpace.float_discretized(4),
}


def one_hot(numbers, depth):
    return np.eye(depth, dtype=np.float32)[np.asarray(numbers).reshape(-1)]
