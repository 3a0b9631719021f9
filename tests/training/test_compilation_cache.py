"""Compiled programs on disk: on by default, switched off by name, used by the next."""

import os
import subprocess
import sys

import pytest

from exburn import compilation_cache

FIT = """
import numpy as np, exburn
model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
model.compile("adam", loss="mse", seed=1)
model.fit(np.ones((64, 4)), np.ones((64, 3)), verbose=0)
print(exburn.compilation_cache.compilation_cache())
print(model.get_weights()[0].tobytes().hex())
"""


FOLDER = "import exburn; print(exburn.compilation_cache.compilation_cache())"


def run(home, code=FIT, **settings):
    names = ("EXBURN_COMPILATION_CACHE", "JAX_COMPILATION_CACHE_DIR")
    env = {k: v for k, v in os.environ.items() if k not in names}
    env |= {"XDG_CACHE_HOME": str(home), "PYTHONSAFEPATH": "1", **settings}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert not done.stderr.strip()
    return done.stdout.split()


def test_a_second_process_reads_what_the_first_compiled(tmp_path):
    folder, first = run(tmp_path)
    assert folder == str(tmp_path / "exburn" / "xla")
    train = list((tmp_path / "exburn" / "xla").glob("jit_exburn_train-*-cache"))
    assert len(train) == 1
    written = train[0].stat().st_mtime_ns
    assert run(tmp_path) == [folder, first]
    assert train[0].stat().st_mtime_ns == written


@pytest.mark.parametrize(
    ("settings", "folder"),
    [
        ({"EXBURN_COMPILATION_CACHE": "off"}, "None"),
        ({"EXBURN_COMPILATION_CACHE": "{}/own"}, "{}/own"),
        ({"JAX_COMPILATION_CACHE_DIR": "{}/jax"}, "{}/jax"),
    ],
)
def test_the_user_decides(tmp_path, settings, folder):
    settings = {k: v.format(tmp_path) for k, v in settings.items()}
    assert run(tmp_path, FOLDER, **settings) == [folder.format(tmp_path)]
    assert not (tmp_path / "exburn").exists()


@pytest.mark.parametrize("home", ["a file", "nowhere"])
def test_without_a_home_there_is_none(tmp_path, monkeypatch, home):
    """As for a user whom the machine does not know, in a container."""
    (tmp_path / "file").touch()
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    path = f"{tmp_path}/file" if home == "a file" else "~"  # what `expanduser` leaves
    monkeypatch.setattr(os.path, "expanduser", lambda name: name.replace("~", path))
    assert compilation_cache._own_folder() is None
    monkeypatch.setattr(os.path, "expanduser", lambda name: f"{tmp_path}/{name[2:]}")
    assert compilation_cache._own_folder() == tmp_path / ".cache" / "exburn" / "xla"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert compilation_cache._own_folder() is None


def test_what_is_too_much_is_removed_once_a_day(tmp_path, monkeypatch):
    monkeypatch.setattr(compilation_cache, "LARGEST", 250)
    for age, name in enumerate(["new", "old", "older", "oldest"]):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    compilation_cache._prune(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".pruned", "new", "old"]
    (tmp_path / "more").write_bytes(bytes(1000))
    compilation_cache._prune(tmp_path)
    assert (tmp_path / "more").exists()
