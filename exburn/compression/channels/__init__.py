"""Narrower models: whole units of Dense layers and channels of convolutions go.

`units.py` has what is known of a model's units, `following.py` the rules by which they
go from layer to layer, `narrowing.py` chooses those that go and makes the model.

Source: Li et al., *Pruning Filters for Efficient ConvNets*, 2017.
"""

from exburn.compression.channels.narrowing import narrow

__all__ = ["narrow"]
