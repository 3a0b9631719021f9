import numpy as np

from exburn.serving.http.tensor import Tensor


def test_it_is_told_as_the_protocol_asks():
    tensor = Tensor("x", "FP16", (-1, 2))
    assert tensor.describe() == {"name": "x", "datatype": "FP16", "shape": [-1, 2]}
    assert tensor.dtype == np.float16
    assert Tensor("x", "BYTES", (-1,)).dtype == object
