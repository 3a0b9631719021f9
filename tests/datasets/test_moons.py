"""Tests of ``exburn.datasets.moons``."""

import pytest
from tests.datasets.given import check_generated_sets_honour_their_seed

from exburn import datasets
from exburn.errors import (
    ArgumentError,
)

GENERATED = [
    "moons",
]


@pytest.mark.parametrize("name", GENERATED)
def test_generated_sets_honour_their_seed(name):
    check_generated_sets_honour_their_seed(name)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("moons", {"noise": -1}),
    ],
)
def test_options_of_the_generated_sets(name, options):
    with pytest.raises(ArgumentError, match=name):
        getattr(datasets, name).generate(10, **options)
