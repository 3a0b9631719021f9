"""Sequences of unequal length as one array."""

from exburn.utils import pad_sequences as pad_sequences
