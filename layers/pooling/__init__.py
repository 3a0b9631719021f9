"""Pooling over windows, over everything, and to a fixed size."""
