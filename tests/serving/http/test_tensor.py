import jax.numpy as jnp
import numpy as np
import pytest

from exburn.errors import DTypeError
from exburn.serving.http.tensor import DATATYPES, Tensor, datatype_of, kind_of


def test_it_is_told_as_the_protocol_asks():
    tensor = Tensor("x", "FP16", (-1, 2))
    assert tensor.describe() == {"name": "x", "datatype": "FP16", "shape": [-1, 2]}
    assert tensor.dtype == np.float16
    assert Tensor("x", "BYTES", (-1,)).dtype == object


def test_every_datatype_is_that_of_its_dtype():
    assert {name: datatype_of(dtype) for name, dtype in DATATYPES.items()} == {
        name: name for name in DATATYPES
    }
    assert datatype_of(np.dtype(jnp.bfloat16)) == "BF16"
    assert datatype_of(np.array(["a", "bc"]).dtype) == "BYTES"
    assert {kind_of(name) for name in (*DATATYPES, "BYTES")} == {
        "boolean",
        "integer",
        "float",
        "text",
    }


def test_a_dtype_that_the_protocol_lacks_is_an_error():
    with pytest.raises(DTypeError, match="complex64"):
        datatype_of(np.dtype("complex64"))
