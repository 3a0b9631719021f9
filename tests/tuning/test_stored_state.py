"""States of sweeps that no sweep has, with digests that fit: refused before their use.

``tests/saving/test_writers.py`` flips the bits of those that a sweep wrote.
"""

import copy
from types import SimpleNamespace

import numpy as np
import pytest

from exburn.errors import FileFormatError
from exburn.saving.shards import TensorFile, write_tensors
from exburn.tuning.records import LaneRecord
from exburn.tuning.stored_state import (
    ARRAYS,
    StoredArrays,
    check_state,
    saved_provenance,
)

RUN = SimpleNamespace(epochs=4, lanes=[0, 1], variants=["a", "b"])
STATE = {
    "epochs": 2,
    "decided": 1,
    "arrays": "sweep-000002-0123abcd.safetensors",
    "records": [LaneRecord({"rate": r}).get_config() for r in (1, 2)],
    "lanes": [
        {"kept": False, "opt_state": False, "step": 12, "variant": v} for v in (0, 1)
    ],
    "groups": [
        {
            "variant": v,
            "members": [v, v],
            "done": 3,
            "totals": True,
            "names": ["loss"],
            "others": ["hits"],
        }
        for v in (0, 1)
    ],
}
ODD = [None, "x", -1, 99, True, 1.5, [], {}, [None], [-1], [99], 10**400]
FITTING = {  # of the odd values
    ("lanes", "step"): [99],
    ("groups", "done"): [99],
    ("lanes", "kept"): [True],
    ("lanes", "opt_state"): [True],
    ("groups", "totals"): [True],
    ("groups", "names"): [[]],
    ("groups", "others"): [[]],
}
PATHS = [
    *((name,) for name in STATE),
    *(("lanes", name) for name in STATE["lanes"][0]),
    *(("groups", name) for name in STATE["groups"][0]),
    ("records", "epochs"),
]


def test_a_state_of_this_sweep():
    check_state(STATE, RUN, "sweep.json")
    group = STATE["groups"][0] | {"names": None, "others": None}
    check_state(STATE | {"groups": [group]}, RUN, "sweep.json")
    check_state(STATE | {"groups": []}, RUN, "sweep.json")


@pytest.mark.parametrize("path", PATHS, ids=".".join)
def test_an_odd_value_anywhere(path):
    for odd in ODD:
        state = copy.deepcopy(STATE)
        part = state if len(path) == 1 else state[path[0]][-1]
        part[path[-1]] = odd
        if path == ("groups",) and odd == [] or odd in FITTING.get(path, []):
            check_state(state, RUN, "sweep.json")
            continue
        with pytest.raises(FileFormatError):
            check_state(state, RUN, "sweep.json")
    state = copy.deepcopy(STATE)
    part = state if len(path) == 1 else state[path[0]][-1]
    del part[path[-1]]
    with pytest.raises(FileFormatError):
        check_state(state, RUN, "sweep.json")


@pytest.mark.parametrize(
    "name",
    [
        *("../outside.npz", "/etc/passwd", "sweep.json", "", "..", "a/b.safetensors"),
        *("sweep-000002-0123abcd.npz", "sweep-000002-0123abcd.safetensors/x"),
        *(
            "../sweep-000002-0123abcd.safetensors",
            "sweep-000002-0123abcd.safetensors\n",
        ),
    ],
)
def test_files_elsewhere_are_not_followed(name):
    with pytest.raises(FileFormatError, match="arrays"):
        check_state(STATE | {"arrays": name}, RUN, "sweep.json")


@pytest.mark.parametrize("odd", [None, [], "x", {"x": 1}, {"x": None}])
def test_a_provenance_that_is_none(odd):
    assert saved_provenance({"provenance": {"x": "1"}}, "sweep.json") == {"x": "1"}
    with pytest.raises(FileFormatError, match="depends on"):
        saved_provenance({"provenance": odd}, "sweep.json")


def test_a_lane_in_a_group_of_another_program():
    groups = copy.deepcopy(STATE["groups"])
    groups[0]["members"] = [0, 1]
    with pytest.raises(FileFormatError, match="variant"):
        check_state(STATE | {"groups": groups}, RUN, "sweep.json")


def test_arrays_that_are_absent_or_of_another_size(tmp_path):
    path, six = tmp_path / "a.safetensors", np.zeros(6, np.uint8)
    write_tensors(path, {"six": six}, {}, format=ARRAYS)
    with TensorFile(path) as file:
        arrays = StoredArrays(file)
        assert arrays.read_like("six", np.zeros((3, 1), np.int16)).shape == (3, 1)
        with pytest.raises(FileFormatError, match="another size"):
            arrays.read_like("six", np.zeros((3, 1), np.float32))
        with pytest.raises(FileFormatError, match="no array 'seven'"):
            arrays.read("seven")
        assert arrays.read_rows("six", 6).shape == (6,)
        for shape in ((5, None), (6, 1), (6, 0)):
            with pytest.raises(FileFormatError, match="another shape"):
                arrays.read_rows("six", *shape)
    write_tensors(path, {"six": six}, {}, format="exburn-weights-1")
    with TensorFile(path) as file, pytest.raises(FileFormatError, match="no sweep's"):
        StoredArrays(file)
