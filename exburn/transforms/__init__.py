"""Changes of a whole model: adapters, quantization."""
