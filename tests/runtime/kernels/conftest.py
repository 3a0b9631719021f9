"""Fixtures of the tests in this folder."""

from tests.runtime.kernels.interpreted import kernels  # noqa: F401 (a fixture)
from tests.runtime.kernels.rows import kernel  # noqa: F401 (a fixture)
