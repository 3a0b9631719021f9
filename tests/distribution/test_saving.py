"""Checkpoints and models that two processes write: whole, exact, and for any mesh."""

import functools
import shutil
import signal

import numpy as np
import pytest
from tests.distribution.processes import DATA, Processes, run

import exburn as keras
from exburn.errors import CheckpointError, CheckpointWarning
from exburn.saving.checkpoint import CheckpointDirectory

BEGIN = (
    DATA
    + """
import os, time, zlib
from exburn.callbacks import Callback, ModelCheckpoint


def make(mesh, **options):
    layers = [
        keras.Input((8,)),
        keras.layers.Dense(64, "relu", name="up"),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(64, "relu"),
        keras.layers.Dense(2),
    ]
    model = keras.Sequential(layers)
    metrics = ["accuracy"]
    model.compile("adam", "cross_entropy", metrics=metrics, mesh=mesh, **options)
    return model


def tell(model, history):
    weights = model.get_weights()
    report(
        loss=history.history["loss"],
        weights=[w.tolist() for w in weights],
        bits=[zlib.crc32(np.ascontiguousarray(w)) for w in weights],
        step=int(model.optimizer.iterations),
    )
"""
)
TRAIN = """
model = make({mesh}, **{options})
saver = ModelCheckpoint(os.path.join(FOLDER, "runs"), keep=20, save_freq={every})
history = model.fit(
    x, y, batch_size=60, epochs={epochs}, verbose=0, callbacks=[saver], resume="auto"
)
tell(model, history)
"""


def train(folder, mesh="fsdp", epochs=4, every="epoch", options=None, **given):
    script = TRAIN.format(
        mesh=repr(mesh), epochs=epochs, every=repr(every), options=options or {}
    )
    return run(BEGIN + script, folder=folder, **given)


def in_this_process(script, folder=None):
    space = {"np": np, "report": lambda **values: told.update(values)}
    told = {}
    space["FOLDER"] = str(folder)
    exec(BEGIN + script, space)
    return told


@functools.cache
def whole():
    script = """
model = make(None)
history = model.fit(x, y, batch_size=60, epochs=4, verbose=0)
tell(model, history)
"""
    return in_this_process(script)


def close(found, expected):
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-5)
    for one, other in zip(found["weights"], expected["weights"], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
    assert found["step"] == expected["step"]


def test_a_run_of_two_processes_goes_on_anywhere(tmp_path):
    first, second = train(tmp_path / "whole")
    assert first == second
    close(first, whole())
    folder = tmp_path / "parts"
    train(folder, epochs=2)
    names = [c.path.name for c in CheckpointDirectory(folder / "runs").checkpoints()]
    assert names == ["000001-step-17", "000002-step-34"]
    again, _ = train(folder)
    assert (again["bits"], again["loss"]) == (first["bits"], first["loss"])
    taken = folder / "runs" / "000002-step-34"
    # On one device of this process, and on four of another one, along other axes.
    go_on = f"""
model = make(None)
history = model.fit(x, y, batch_size=60, epochs=4, verbose=0, resume={str(taken)!r})
tell(model, history)
"""
    close(in_this_process(go_on), first)
    axes = {"data": 2, "model": 2}
    options = {"layout": {"up/kernel": (None, "model")}}
    for mesh, more in (("data", {}), (axes, options)):
        elsewhere = go_on.replace("make(None)", f"make({mesh!r}, **{more!r})")
        [found] = run(BEGIN + elsewhere, count=1, devices=4)
        close(found, first)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with two checkpoints of two processes, and what the run ended with."""
    folder = tmp_path_factory.mktemp("written")
    first, _ = train(folder, epochs=2)
    return folder, first


def test_a_checkpoint_has_the_very_bytes_of_all_processes(written):
    folder, first = written
    saved = CheckpointDirectory(folder / "runs").latest()
    found = [v for n, v in saved.arrays.items() if n.startswith("state/params/")]
    assert len(found) == len(first["weights"])
    known = {np.float32(w).tobytes() for w in first["weights"]}
    assert {array.tobytes() for array in found} == known
    script = """
two = keras.distribution.FSDP(devices=jax.devices()[:2], min_size=1)
for mesh in (None, {"data": 2}, two, "data", "fsdp"):
    model = make(mesh)
    model.fit(x[:8], y[:8], verbose=0)
    model.load_checkpoint(os.path.join(FOLDER, "runs"))
    bits = [zlib.crc32(np.ascontiguousarray(w)) for w in model.get_weights()]
    report(**{str(mesh): bits})
"""
    [found] = run(BEGIN + script, folder=folder, count=1, devices=8)
    assert len(found) == 5
    assert all(bits == first["bits"] for bits in found.values())


def test_a_flipped_bit_in_the_part_of_one_process_is_refused(written, tmp_path):
    directory = CheckpointDirectory(
        shutil.copytree(written[0], tmp_path / "a") / "runs"
    )
    older, newest = directory.checkpoints()
    parts = [p for p in newest.path.rglob("ocdbt.process_1/d/*") if p.is_file()]
    assert parts  # the second process has written some
    for part in parts:
        data = bytearray(part.read_bytes())
        data[len(data) // 2] ^= 1
        part.write_bytes(data)
        with pytest.raises(CheckpointError, match="is not what was saved"):
            directory.read(newest)
        data[len(data) // 2] ^= 1
        part.write_bytes(data)
    directory.read(newest)
    parts[0].unlink()
    with pytest.warns(CheckpointWarning, match="The one before it is tried"):
        assert directory.latest().checkpoint.step == older.step


def test_models_and_logs_are_written_once(tmp_path):
    first, second = run(
        BEGIN
        + """
model = make("fsdp")
place = lambda name: os.path.join(FOLDER, name)
callbacks = [
    ModelCheckpoint(place("best-{epoch}.exburn"), monitor="loss", keep=1, verbose=1),
    keras.callbacks.CSVLogger(place("log.csv")),
    keras.callbacks.BackupAndRestore(place("backup")),
]
history = model.fit(x, y, batch_size=60, epochs=3, verbose=0, callbacks=callbacks)
model.save(place("model.exburn"))
model.save_weights(place("weights.safetensors"))
report(predicted=model.predict(x[:7], verbose=0).tolist())
report(names=sorted(os.listdir(FOLDER)))
try:
    model.save(place("model.exburn"), overwrite=False)
except Exception as error:
    report(refused=type(error).__name__)
try:
    model.save(os.path.join(FOLDER, "missing", "folder", "model.exburn"))
except Exception as error:
    report(missing=type(error).__name__)
other = make("data")
other.build((None, 8))
other.load_weights(place("weights.safetensors"))
report(again=other.predict(x[:7], verbose=0).tolist())
""",
        folder=tmp_path,
    )
    assert first == second
    names = ["best-3.exburn", "log.csv", "model.exburn", "weights.safetensors"]
    assert first["names"] == names
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 4
    assert first["refused"] == "ArgumentError"
    rows = np.random.default_rng(0).normal(size=(1000, 8)).astype("float32")[:7]
    for name in ("model.exburn", "best-3.exburn"):
        found = keras.load_model(tmp_path / name).predict(rows, verbose=0)
        np.testing.assert_allclose(found, first["predicted"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(first["again"], first["predicted"], rtol=1e-5, atol=1e-6)


def test_what_only_one_process_calls_is_an_error_not_a_wait(tmp_path):
    script = """
model = make("fsdp")
model.fit(x, y, batch_size=60, verbose=0)
try:
    if NUMBER == 0:
        model.save(os.path.join(FOLDER, "model.exburn"))
    else:
        model.evaluate(x, y, verbose=0)
except Exception as error:
    report(error=f"{type(error).__name__}: {error}")
"""
    with Processes(BEGIN + script, folder=tmp_path) as started:
        for ended in started.wait():
            assert "at different places of the program" in ended.values["error"]
            assert "process 1: evaluate" in ended.values["error"]


def test_a_disk_that_refuses_one_process_ends_all(tmp_path):
    script = """
from exburn.saving.checkpoint import directory

if NUMBER == 1:
    def refuse(*_):
        raise OSError(28, "No space left on device")

    directory.digest_files = refuse
model = make("data")
saver = ModelCheckpoint(os.path.join(FOLDER, "runs"))
try:
    model.fit(x, y, batch_size=60, epochs=50, verbose=0, callbacks=[saver])
except Exception as error:
    report(error=f"{type(error).__name__}: {error}")
report(left=os.listdir(os.path.join(FOLDER, "runs")))
"""
    with Processes(BEGIN + script, folder=tmp_path) as started:
        first, second = started.wait()
    assert "process 1 of 2" in first.values["error"]
    assert "No space left on device" in second.values["error"]
    assert not [name for name in first.values["left"] if name.startswith("0")]


SLOW = """
class Slow(Callback):
    light = True

    def on_train_batch_end(self, batch, logs=None):
        report(batch=batch)
        time.sleep(0.05)


saver = ModelCheckpoint(os.path.join(FOLDER, "runs"), keep=3, save_freq=5)
model = make({mesh!r})
history = model.fit(
    x,
    y,
    batch_size=60,
    epochs=4,
    verbose=0,
    callbacks=[saver, *([Slow()] if {slow} else [])],
    resume="auto",
)
tell(model, history)
"""


def test_a_sigterm_to_one_process_saves_in_all_and_ends_them(tmp_path):
    script = SLOW.format(mesh="data", slow=True)
    with Processes(BEGIN + script, folder=tmp_path) as started:
        started.wait_for(1, "batch")
        started.send(1, signal.SIGTERM)
        first, second = started.wait()
    assert (first.code, second.code) == (143, 143), first.errors + second.errors
    assert len(first.reports) == len(second.reports) < 4 * 17
    newest = CheckpointDirectory(tmp_path / "runs").latest().checkpoint
    assert newest.step == len(first.reports)
    found, _ = run(BEGIN + SLOW.format(mesh="data", slow=False), folder=tmp_path)
    close(found, whole())


def killed_and_resumed(tmp_path, who, moments, mesh="data"):
    """Kills one process after so many of its batches, and starts both again."""
    for moment in moments:
        script = BEGIN + SLOW.format(mesh=mesh, slow=True)
        with Processes(script, folder=tmp_path, heartbeat=5) as started:
            while len(started.reports(who)) < moment:
                started.wait_for(who, "batch")
            started.send(who, signal.SIGKILL)
            ended = started.wait()
        assert ended[who].code == -9
        if who == 1:
            assert ended[0].code == 75, ended[0].errors
            assert "process 1 of 2 is lost" in ended[0].errors
        else:  # JAX ends all processes when the one that leads is gone
            assert ended[1].code != 0 and "leader" in ended[1].errors


def test_a_killed_process_costs_no_more_than_the_last_batches(tmp_path):
    killed_and_resumed(tmp_path, 1, [12])
    newest = CheckpointDirectory(tmp_path / "runs").latest().checkpoint
    assert newest.step >= 5
    found, _ = run(BEGIN + SLOW.format(mesh="data", slow=False), folder=tmp_path)
    close(found, whole())


@pytest.mark.parametrize("who", [0, 1])
def test_kills_at_random_moments(tmp_path, who):
    """Ten times each: the same bits on as many devices, and close to it on two."""
    whole_run, _ = run(
        BEGIN + SLOW.format(mesh="data", slow=False), folder=tmp_path / "whole"
    )
    moments = np.random.default_rng(who).integers(1, 20, 10)
    for number, moment in enumerate(moments):
        folder = tmp_path / f"run-{number}"
        killed_and_resumed(folder, who, [int(moment)])
        script = BEGIN + SLOW.format(mesh="data", slow=False)
        if number % 2:
            [found] = run(script, folder=folder, count=1, devices=2)
            close(found, whole_run)
        else:
            found, _ = run(script, folder=folder)
            assert found["bits"] == whole_run["bits"]
