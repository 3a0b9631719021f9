"""A sweep that is killed goes on from its folder, to the same bits.

States that no sweep has, with digests that fit, are refused before their use;
``tests/saving/test_writers.py`` flips the bits of those that a sweep wrote.
"""

import copy
import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.tuning.models import X, Y, make_model

import exburn
from exburn.errors import ArgumentError, CheckpointError, FileFormatError, SaveError
from exburn.saving.shards import TensorFile, write_tensors
from exburn.tuning import PBT, Halving, SweepCallback, sweep
from exburn.tuning import checkpoint as module
from exburn.tuning.checkpoint import SweepArrays, check_state, saved_provenance
from exburn.tuning.groups import Group
from exburn.tuning.records import LaneRecord

FIT = {"epochs": 4, "batch_size": 8, "validation_split": 0.25, "verbose": 0}


class Kill(SweepCallback):
    """Raises after an epoch, or after the decision that follows so many epochs."""

    def __init__(self, epoch=None, decision=None, error: Any = KeyboardInterrupt):
        self.epoch, self.decision, self.error = epoch, decision, error

    def on_epoch_end(self, epoch):
        if epoch == self.epoch:
            raise self.error

    def on_rung_end(self, epochs, stopped):
        if epochs == self.decision:
            raise self.error


def interrupt_chunks(monkeypatch, count, interrupt):
    """Interrupts the sweep after so many chunks of its groups."""
    train, left = Group.train, [count]

    def counting(self, *args, after_chunk, **options):
        def after():
            after_chunk()
            left[0] -= 1
            if not left[0]:
                interrupt()
                after_chunk()

        return train(self, *args, after_chunk=after, **options)

    monkeypatch.setattr(Group, "train", counting)


def same_bits(one, two):
    told = [[repr(r.get_config()) for r in x.records] for x in (one, two)]
    assert told[0] == told[1]
    for number in range(len(one.records)):
        pairs = (result._build(number).get_weights() for result in (one, two))
        for a, b in zip(*pairs, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "options",
    [
        {
            "over": {"seed": [0, 1], "learning_rate": [0.01, 1e38]},
            "halving": Halving(2),
        },
        {"over": {"learning_rate": exburn.uniform(0.001, 0.1, 4)}, "scheduler": PBT()},
    ],
    ids=["halving", "PBT"],
)
def test_a_killed_sweep_goes_on_to_the_same_bits(options, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SECONDS", 0.0)
    whole = sweep(make_model(), X, Y, **FIT, **options)
    again = {**FIT, **options, "checkpoint": tmp_path / "sweep"}
    with pytest.raises(KeyboardInterrupt):
        sweep(make_model(), X, Y, **again, callbacks=Kill(2))
    same_bits(sweep(make_model(), X, Y, **again), whole)
    same_bits(sweep(make_model(), X, Y, **again), whole)  # there is nothing left to do
    assert len(list((tmp_path / "sweep").iterdir())) == 2

    with pytest.raises(CheckpointError, match="epochs: 4 → 8"):
        sweep(make_model(), X, Y, **{**again, "epochs": 8})
    with pytest.raises(CheckpointError, match="seed: 9 → 1; weights"):
        sweep(make_model(seed=1), X, Y, **again)
    (arrays,) = (tmp_path / "sweep").glob("*.safetensors")
    arrays.write_bytes(arrays.read_bytes()[:-1] + b"!")
    with pytest.raises(CheckpointError, match="does not fit its digest"):
        sweep(make_model(), X, Y, **again)


HALVED = {
    "over": {"seed": [0, 1], "learning_rate": [0.01, 1e38]},
    "halving": Halving(2),
}
# Two programs of lanes whose chunks are single steps: seven in an epoch of each.
GROUPS = {"over": {"hidden/activation": ["relu", "tanh"], "seed": [0, 1]}}


@pytest.mark.parametrize(
    "kill",
    [Kill(2), Kill(2, error=RuntimeError("a bug")), Kill(decision=1)],
    ids=["Ctrl-C", "an error", "the decision"],
)
def test_a_sweep_that_is_ended_is_kept_whatever_ends_it(kill, tmp_path):
    """A minute has not passed: nothing but the end writes."""
    again = {**FIT, **HALVED, "checkpoint": tmp_path / "sweep"}
    with pytest.raises((KeyboardInterrupt, RuntimeError)):
        sweep(make_model(), X, Y, **again, callbacks=kill)
    told = json.loads((tmp_path / "sweep" / "sweep.json").read_bytes())
    assert told["epochs"] == (3 if kill.epoch else 1)
    assert told["decided"] == (2 if kill.epoch else 0)
    assert {r["status"] for r in told["records"]} >= {"running"}
    whole = sweep(make_model(), X, Y, **FIT, **HALVED)
    same_bits(sweep(make_model(), X, Y, **again), whole)


@pytest.mark.parametrize("chunks", [3, 13, 14, 24])
@pytest.mark.parametrize("order", ["own", "shared"])
def test_an_epoch_under_way_goes_on_where_it_was(chunks, order, tmp_path, monkeypatch):
    """In the first group of the first epoch, the second one of it, and at its end."""
    model = make_model(steps_per_execution=1)
    options = {**FIT, **GROUPS, "order": order, "lanes": 4}
    options |= {"validation_split": 0.0, "validation_data": (X[:9], Y[:9])}
    again = {**options, "batch_size": 6, "checkpoint": tmp_path / "sweep"}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt_chunks(patch, chunks, lambda: signal.raise_signal(signal.SIGINT))
        sweep(model, X, Y, **again)
    told = json.loads((tmp_path / "sweep" / "sweep.json").read_bytes())
    epochs, steps = divmod(chunks - 1, 14)  # the last chunk's epoch is not noted yet
    assert told["epochs"] == epochs
    expected = [min(steps + 1, 7), max(steps - 6, 0)]
    assert [group["done"] for group in told["groups"]] == expected
    whole = sweep(model, X, Y, **{**options, "batch_size": 6})
    same_bits(sweep(model, X, Y, **again), whole)


PREEMPTED = """
import signal
from tests.tuning.models import X, Y, make_model
from exburn.tuning import SweepCallback, sweep

class Preempt(SweepCallback):
    def on_epoch_end(self, epoch):
        if epoch == 1:
            signal.raise_signal(signal.SIGTERM)

options = {"epochs": 4, "batch_size": 8, "verbose": 0, "over": {"seed": [0, 1]}}
sweep(make_model(), X, Y, checkpoint="sweep", callbacks=Preempt(), **options)
"""


def test_a_preempted_sweep_is_kept(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-c", PREEMPTED]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, timeout=300)
    assert ended.returncode == 143
    told = json.loads((tmp_path / "sweep" / "sweep.json").read_bytes())
    assert told["epochs"] == 2 and told["groups"][0]["done"] > 0


def test_a_disk_that_refuses_does_not_hide_what_ended_the_sweep(tmp_path, monkeypatch):
    def refuse(self, run):
        raise SaveError("sweep", "the disk is full")

    monkeypatch.setattr(module.SweepCheckpoint, "save", refuse)
    options = {**FIT, "over": {"seed": [0]}, "checkpoint": tmp_path / "sweep"}
    with pytest.raises(KeyboardInterrupt) as told:
        sweep(make_model(), X, Y, **options, callbacks=Kill(0))
    assert any("the disk is full" in note for note in told.value.__notes__)


def test_what_cannot_be_taken_up_is_refused(tmp_path):
    class Study:
        def ask(self, space, n):
            return []

        def tell(self, records):
            pass

    options = {"over": {"seed": [1]}, "checkpoint": tmp_path}
    with pytest.raises(ArgumentError, match="known before"):
        sweep(make_model(), X, Y, sampler=Study(), **options)
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match="no folder"):
        sweep(make_model(), X, Y, **{**options, "checkpoint": tmp_path / "file"})


MANIFEST = "sweep.json"
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
    check_state(STATE, RUN, MANIFEST)
    group = STATE["groups"][0] | {"names": None, "others": None}
    check_state(STATE | {"groups": [group]}, RUN, MANIFEST)
    check_state(STATE | {"groups": []}, RUN, MANIFEST)


@pytest.mark.parametrize("path", PATHS, ids=".".join)
def test_an_odd_value_anywhere(path):
    for odd in ODD:
        state = copy.deepcopy(STATE)
        part = state if len(path) == 1 else state[path[0]][-1]
        part[path[-1]] = odd
        if path == ("groups",) and odd == [] or odd in FITTING.get(path, []):
            check_state(state, RUN, MANIFEST)
            continue
        with pytest.raises(FileFormatError):
            check_state(state, RUN, MANIFEST)
    state = copy.deepcopy(STATE)
    part = state if len(path) == 1 else state[path[0]][-1]
    del part[path[-1]]
    with pytest.raises(FileFormatError):
        check_state(state, RUN, MANIFEST)


@pytest.mark.parametrize(
    "name",
    [
        *("../outside.npz", "/etc/passwd", MANIFEST, "", "..", "a/b.safetensors"),
        *("sweep-000002-0123abcd.npz", "sweep-000002-0123abcd.safetensors/x"),
        *(
            "../sweep-000002-0123abcd.safetensors",
            "sweep-000002-0123abcd.safetensors\n",
        ),
    ],
)
def test_files_elsewhere_are_not_followed(name):
    with pytest.raises(FileFormatError, match="arrays"):
        check_state(STATE | {"arrays": name}, RUN, MANIFEST)


@pytest.mark.parametrize("odd", [None, [], "x", {"x": 1}, {"x": None}])
def test_a_provenance_that_is_none(odd):
    assert saved_provenance({"provenance": {"x": "1"}}, MANIFEST) == {"x": "1"}
    with pytest.raises(FileFormatError, match="depends on"):
        saved_provenance({"provenance": odd}, MANIFEST)


def test_a_lane_in_a_group_of_another_program():
    groups = copy.deepcopy(STATE["groups"])
    groups[0]["members"] = [0, 1]
    with pytest.raises(FileFormatError, match="variant"):
        check_state(STATE | {"groups": groups}, RUN, MANIFEST)


def test_arrays_that_are_absent_or_of_another_size(tmp_path):
    path, six = tmp_path / "a.safetensors", np.zeros(6, np.uint8)
    write_tensors(path, {"six": six}, {}, format=module._ARRAYS)
    with TensorFile(path) as file:
        arrays = SweepArrays(file)
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
        SweepArrays(file)
