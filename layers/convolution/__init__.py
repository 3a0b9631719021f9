"""Convolutions: plain, transposed, depthwise and separable."""
