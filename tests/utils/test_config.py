"""Tests of ``exburn.utils.config``."""

import copy
import json
import pickle

import pytest
from tests.golden import keras

import exburn

BOTH = pytest.mark.parametrize(
    "api",
    [exburn, keras],
    ids=["exburn", "keras"],
)


@BOTH
def test_entries_are_attributes(api):
    config = api.utils.Config(rate=0.1, momentum=0.9)
    config.seed = 7
    config["steps"] = [1, 2]
    assert config.rate == config["rate"] == 0.1 and config.seed == config["seed"]
    assert list(config) == ["momentum", "rate", "seed", "steps"]  # sorted
    assert len(config) == 4 and "seed" in config and "other" not in config
    assert list(config.keys()) == ["rate", "momentum", "seed", "steps"]
    assert dict(config.items()) == config.as_dict()
    assert list(config.values())[:2] == [0.1, 0.9]
    assert config.get("seed") == 7 and config.get("other", 3) == 3
    assert config.pop("seed") == 7 and config.pop("seed", None) is None
    config.update({"a": 1}, b=2)
    del config["a"]
    assert json.loads(config.to_json()) == config.as_dict()
    assert repr(config) == f"<Config {config.as_dict()}>"
    config.as_dict().clear()
    assert len(config) == 4
    with pytest.raises(AttributeError, match="momentum"):
        _ = config.momentun
    with pytest.raises(KeyError):
        config["momentun"]


@BOTH
@pytest.mark.parametrize(
    "change",
    [
        lambda c: setattr(c, "rate", 1),
        lambda c: c.__setitem__("new", 1),
        lambda c: c.__delitem__("rate"),
        lambda c: c.pop("rate"),
        lambda c: c.update(rate=2),
    ],
)
def test_frozen_entries_stay(api, change):
    config = api.utils.Config(rate=0.1)
    config.freeze()
    assert config.frozen
    with pytest.raises(ValueError, match="frozen"):
        change(config)
    assert config.as_dict() == {"rate": 0.1}
    config.unfreeze()
    change(config)
    assert config.as_dict() != {"rate": 0.1}


def test_copies_and_names_of_methods():
    config = exburn.utils.Config(rate=0.1)
    config.freeze()
    for other in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert other.rate == 0.1 and other.frozen
    config.unfreeze()
    with pytest.raises(exburn.errors.ArgumentError, match="is a method"):
        config.update = 3
    config["update"] = 3
    assert config["update"] == 3 and callable(config.update)
