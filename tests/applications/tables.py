"""Tests of the tables that the files of applications state: names, and a ``SIZE``."""

from tests.applications.beside_keras import check, check_training
from tests.tables import table


@table("NAMES", "name")
def test_it_has_the_names_weights_and_outputs_of_keras(name, tmp_path, request):
    first = name == request.module.NAMES[0]
    every = (".weights.h5", ".h5", ".keras") if first else (".weights.h5",)
    check(name, request.module.SIZE, tmp_path, every)


@table("NAMES", "name", rows=lambda names: names[:1])
def test_the_smallest_is_trained(name, request):
    check_training(name, request.module.SIZE)
