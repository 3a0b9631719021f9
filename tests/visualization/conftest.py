"""Fixtures of the tests in this folder."""

from tests.visualization.framed import no_screen  # noqa: F401 (a fixture)
