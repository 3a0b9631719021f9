"""Tests of the tables that the files of preprocessing layers state."""

from tests.layers.preprocessing.image.beside import check_colours_as_in_keras
from tests.tables import table

from exburn import layers


@table("KERAS_CONFIGS", "name", "config")
def test_configurations_of_keras(name, config):
    layer = getattr(layers, name).from_config(config)
    again = getattr(layers, name).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()


@table("COLOURS", "name", "options", "highest")
def test_colours_as_in_keras(name, options, highest):
    check_colours_as_in_keras(name, options, highest)
