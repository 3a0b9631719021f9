"""Layers that are made within a block take what it gives."""

from exburn import layers
from exburn.core.making import Making, making
from exburn.core.precision import default_precision
from exburn.core.substitution import making_clone
from exburn.module.remat import RematScope


def test_blocks_of_several_kinds_go_together():
    with default_precision("mixed_bfloat16"), RematScope("full"), making_clone():
        inside, layer = making.get(), layers.Dense(2)
    assert layer.compute_dtype == "bfloat16" and layer.rematerialized
    assert layer._meta.value.clone is inside.clone is not None
    assert making.get() == Making() and not layers.Dense(2).rematerialized
