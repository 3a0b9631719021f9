"""ExBurn: Keras-style deep learning whose programs are JAX."""

__version__ = "0.1.0"
