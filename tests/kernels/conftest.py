"""Fixtures of the tests in this folder."""

from tests.kernels.rows import kernel  # noqa: F401 (a fixture)
