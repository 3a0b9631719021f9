"""Batches as chunks on the device: from arrays and from streams."""
