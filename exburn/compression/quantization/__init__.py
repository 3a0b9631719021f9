"""Weights in few bits: what is stored how, and layers that compute with it."""
