"""What of TensorFlow layers need inside ``tf.data``, for tests without TensorFlow.

``test_with_tensorflow`` in ``test_tensorflow_graphs.py`` runs the same cases with the
real one.
"""

import types

import numpy as np


class Shape(list):
    rank = property(len)
    as_list = property(lambda self: lambda: list(self))


class DType(types.SimpleNamespace):
    pass


class GraphTensor:
    """A tensor without a value; ``function`` gives it from those of the inputs."""

    def __init__(self, shape, dtype, function=None):
        self.shape, self.function = None if shape is None else Shape(shape), function
        self.dtype = DType(as_numpy_dtype=np.dtype(dtype).type)

    def set_shape(self, shape):
        self.shape = Shape(shape)

    def __array__(self, dtype=None, copy=None):
        raise NotImplementedError("a symbolic tensor has no value")


def numpy_function(function, inputs, dtypes):
    def compute(values):
        arrays = [np.asarray(value) for value in values]
        results = function(*arrays)
        for result, dtype in zip(results, dtypes, strict=True):
            assert result.dtype == np.dtype(dtype), (result.dtype, dtype)
        return results

    return [
        GraphTensor(None, dtype, lambda values, i=i: compute(values)[i])
        for i, dtype in enumerate(dtypes)
    ]


def module():
    tensorflow = types.ModuleType("tensorflow")
    tensorflow.is_symbolic_tensor = lambda value: isinstance(value, GraphTensor)
    tensorflow.numpy_function = numpy_function
    tensorflow.as_dtype = np.dtype
    return tensorflow
