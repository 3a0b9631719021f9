"""Tests of ``exburn.layers.core.wrapper``."""

from tests.layers.inputs import FLAT

from exburn import layers as L

CONTRACT = {
    "Wrapper": (
        lambda *a, **k: L.Wrapper(L.Dense(3, dtype=k.get("dtype")), **k),
        (),
        FLAT,
        {},
    ),
}

BAD_ARGUMENTS = [
    (lambda: L.Wrapper(3), "a layer is needed"),
]
