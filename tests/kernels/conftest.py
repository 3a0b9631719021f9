"""Fixtures of the tests in this folder."""

from tests.kernels.interpreted import kernels  # noqa: F401 (a fixture)
from tests.kernels.rows import kernel  # noqa: F401 (a fixture)
