"""What Keras keeps of its second version under ``keras.legacy``."""

from exburn.legacy import saving as saving

__all__ = ["saving"]
