"""Layers made from configurations."""

import json

from exburn.core import registry


def again(layer):
    """The layer made from the JSON of its configuration."""
    copy = registry.deserialize(json.loads(json.dumps(registry.serialize(layer))))
    assert copy.get_config() == layer.get_config()
    return copy
