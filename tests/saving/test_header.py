"""Files that attack: every one is a typed error, and nothing else happens.

Every twelfth file is tried in the ordinary run, all of them in the slow one.
"""

import encodings.cp437  # noqa: F401 - which zipfile would import for names

import h5py  # noqa: F401 - which a file that is none of ours would import
import numpy as np
import pytest
from tests.saving import corpus, gadgets
from tests.saving.watch import Watch, attack

import exburn
import exburn.ops
import exburn.saving.keras_model
from exburn import layers
from exburn.core import lazy_names
from exburn.errors import ModelFormatError

SHARE = 12
CORPORA = (
    corpus.containers,
    corpus.entries,
    corpus.descriptions,
    corpus.indices,
    gadgets.architectures,
)


@pytest.fixture(scope="module")
def watch():
    return Watch()


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A trained model's file; all that loading a file imports is imported."""
    for name in (
        *lazy_names.catalogue_names(),
        *(f"{p}>" for p in lazy_names.PREFIXES),
    ):
        lazy_names.import_registered(name)
    model = exburn.Sequential(
        [
            exburn.Input((8,)),
            layers.Dense(4, activation="relu"),
            layers.Dense(2),
        ]
    )
    model.compile("adam", "mse", metrics=["mae"], seed=1)
    model.fit(np.ones((8, 8)), np.ones((8, 2)), verbose=0)
    path = tmp_path_factory.mktemp("good") / "m.exburn"
    model.save(path)
    assert exburn.load_model(path).count_params() == model.count_params()
    return path.read_bytes()


def refused(names_and_files, tmp_path, watch):
    wrong = {}
    for name, data in names_and_files:
        found = attack(data, tmp_path / "m.exburn", watch)
        if found:
            wrong[name] = found
        assert [p.name for p in tmp_path.iterdir()] == ["m.exburn"], name
    return wrong


def test_there_are_three_hundred_different_attacks(good):
    files = {data for make in CORPORA for _, data in make(good)}
    assert len(files) >= 300


@pytest.mark.parametrize("make", CORPORA, ids=lambda f: f.__name__)
def test_a_share_of_the_attacks_is_refused(make, good, tmp_path, watch):
    files = [item for i, item in enumerate(make(good)) if i % SHARE == 5]
    assert refused(files, tmp_path, watch) == {}


@pytest.mark.parametrize("make", CORPORA, ids=lambda f: f.__name__)
def test_every_attack_is_refused(make, good, tmp_path, watch):
    assert refused(make(good), tmp_path, watch) == {}


def test_the_watch_sees_what_it_should(tmp_path, watch):
    watch.path, watch.events, watch.on = "m.exburn", [], True
    try:
        with open(tmp_path / "other", "w"):
            pass
        eval("1 + 1")
    finally:
        watch.on = False
    assert {event for event, _ in watch.events} == {"open", "compile", "exec"}


# ---------------------------------------------------------------------- bits
def loaded(path):
    try:
        return exburn.load_model(path).get_weights()
    except ModelFormatError:
        return None


def damage(good, path, count, seed):
    """How many of the flipped bits and cuts gave other arrays, or another error."""
    rng = np.random.default_rng(seed)
    path.write_bytes(good)
    whole = loaded(path)
    wrong = []
    for _ in range(count):
        data = bytearray(good)
        place = int(rng.integers(len(good)))
        data[place] ^= 1 << int(rng.integers(8))
        cut = good[: int(rng.integers(len(good)))]
        for kind, bad in (("flip", bytes(data)), ("cut", cut)):
            path.write_bytes(bad)
            found = loaded(path)
            if found is not None and not all(map(np.array_equal, found, whole)):
                wrong.append((kind, place, len(cut)))
    return wrong


def test_flipped_bits_and_cuts_are_seen(good, tmp_path):
    assert damage(good, tmp_path / "m.exburn", 60, seed=0) == []


def test_a_thousand_flipped_bits_and_cuts_are_seen(good, tmp_path):
    assert damage(good, tmp_path / "m.exburn", 1000, seed=1) == []


def test_every_byte_of_the_header_is_covered(good, tmp_path):
    path, length = tmp_path / "m.exburn", int.from_bytes(good[:8], "little")
    for place in range(0, 8 + length, 37):
        data = bytearray(good)
        data[place] ^= 16
        path.write_bytes(data)
        with pytest.raises(ModelFormatError):
            exburn.load_model(path)
