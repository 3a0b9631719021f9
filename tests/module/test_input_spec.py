"""What layers say about their inputs, beside Keras."""

import numpy as np
import pytest

import exburn

keras = pytest.importorskip("keras")
BOTH = pytest.mark.parametrize("api", [exburn, keras], ids=["exburn", "keras"])


@BOTH
def test_input_specs(api):
    spec = api.InputSpec(dtype="int32", shape=(None, 3), axes={1: 3}, optional=True)
    config = spec.get_config()
    assert config == {
        "dtype": "int32",
        "shape": (None, 3),
        "ndim": 2,
        "max_ndim": None,
        "min_ndim": None,
        "axes": {1: 3},
        "optional": True,
    }
    assert api.InputSpec.from_config(config).get_config() == config
    with pytest.raises(ValueError):
        api.InputSpec(ndim=2, axes={2: 3})

    class Checks(api.layers.Layer):
        def __init__(self, spec):
            super().__init__()
            self.input_spec = spec

        def call(self, x):
            return 1.0

    pictures = api.InputSpec(shape=(None, 8, 1), allow_last_axis_squeeze=True)
    for shape in ((2, 8), (2, 8, 1)):
        Checks(pictures)(np.ones(shape))
    named = [api.InputSpec(ndim=1, name="a"), api.InputSpec(ndim=2, name="b")]
    a, b = np.ones(2), np.ones((2, 2))
    Checks(named)({"b": b, "a": a})
    for spec, wrong in (
        (pictures, np.ones((2, 7))),
        (api.InputSpec(dtype="int32"), np.ones((2, 3), "float32")),
        (named, {"b": b}),
        (named, {"b": a, "a": b}),
        (named, [a]),
    ):
        with pytest.raises(ValueError):
            Checks(spec)(wrong)
