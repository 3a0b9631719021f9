"""Narrower models: whole units of layers go.

`units.py` has what is known of a model's units. `following.py` walks through the model
with a rule for each kind of layer: those in `feedforward.py`, `shapes.py`
and `sequences.py`, each of which takes a `LayerCall`. `narrowing.py` chooses the units
that go and makes the model.

Source: Li et al., *Pruning Filters for Efficient ConvNets*, 2017.
"""

from exburn.compression.channels.narrowing import narrow

__all__ = ["narrow"]
