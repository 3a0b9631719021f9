"""Models that take fewer bytes: trained for it, or made so."""

from exburn.compression.quantization_aware import quantize_aware

__all__ = ["quantize_aware"]
