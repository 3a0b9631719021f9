"""Where a run goes, and that several processes write one."""

from tests.distribution.processes import DATA, run

from exburn import runs
from exburn.runs.beginning import _goes_on, describe_environment, hide_secrets


def test_what_goes_on_in_a_folder(tmp_path):
    place = tmp_path / "a"
    assert _goes_on("auto", place) and _goes_on(place / "checkpoints" / "1", place)
    assert not _goes_on(None, place) and not _goes_on(tmp_path / "b", place)


def test_secrets_are_not_written(monkeypatch):
    words = ["t.py", "--hub-token", "abc", "--password=x", "-n", "3", "--author", "me"]
    shown = ["t.py", "--hub-token", "(hidden)", "--password=(hidden)", *words[4:]]
    assert hide_secrets(words) == shown
    monkeypatch.setenv("JAX_API_KEY", "abc")
    monkeypatch.setenv("WANDB_API_KEY", "abc")
    monkeypatch.setenv("XLA_FLAGS", "--a")
    found = describe_environment()["variables"]
    assert found["XLA_FLAGS"] == "--a" and "abc" not in str(found)


def test_several_processes_write_one_run(tmp_path):
    script = (
        DATA
        + """
layers = [keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(2)]
model = keras.Sequential(layers)
model.compile("adam", "cross_entropy", metrics=["accuracy"], mesh="data")
for epochs in (2, 4):
    history = model.fit(x, y, batch_size=60, epochs=epochs, verbose=0,
                        run=f"{FOLDER}/run", resume="auto")
report(run=str(history.run), loss=history.history["loss"])
other = model.fit(x, y, batch_size=60, verbose=0, run=f"{FOLDER}/run")
report(other=str(other.run))
"""
    )
    ended = run(script, folder=tmp_path)
    assert ended[0] == ended[1]
    found = runs.read(tmp_path / "run")
    assert [e["logs"]["loss"] for e in found.epochs] == ended[0]["loss"]
    assert found.state == "finished" and found.damaged == 0 and found.checkpoints
    assert ended[0]["other"].endswith("run-2")
    assert found.environment["processes"] == 2
