"""Compiled programs on disk: on by default, switched off by name, used by the next."""

import os
import subprocess
import sys

import pytest

from exburn.runtime import compilation_cache

FIT = """
import numpy as np, exburn
model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
model.compile("adam", loss="mse", seed=1)
model.fit(np.ones((64, 4)), np.ones((64, 3)), verbose=0)
print(exburn.runtime.compilation_cache.compilation_cache())
print(model.get_weights()[0].tobytes().hex())
"""


FOLDER = "import exburn; print(exburn.runtime.compilation_cache.compilation_cache())"


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
        ({"EXBURN_COMPILATION_CACHE": "~/own", "HOME": "{}"}, "{}/own"),
        ({"JAX_COMPILATION_CACHE_DIR": "{}/jax"}, "{}/jax"),
        ({"EXBURN_COMPILATION_CACHE": "on"}, "{}/exburn/xla"),
    ],
)
def test_the_user_decides(tmp_path, settings, folder):
    settings = {k: v.format(tmp_path) for k, v in settings.items()}
    assert run(tmp_path, FOLDER, **settings) == [folder.format(tmp_path)]
    assert not (tmp_path / "exburn").exists()  # nothing was compiled


@pytest.mark.parametrize(
    ("given", "found"), [("own", "{}/own"), ("gs://bucket/own", "gs://bucket/own")]
)
def test_the_process_may_go_to_another_folder(tmp_path, monkeypatch, given, found):
    before = compilation_cache.compilation_cache()
    monkeypatch.chdir(tmp_path)
    try:
        compilation_cache.set_compilation_cache(given)
        assert compilation_cache.compilation_cache() == found.format(tmp_path)
    finally:
        compilation_cache.set_compilation_cache(before)


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


TURN = """
exburn.set_compilation_cache({folder!r})
model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense({units})])
model.compile("adam", loss="mse", seed=1)
model.fit(np.ones((64, 4)), np.ones((64, {units})), verbose=0)
"""


def test_another_folder_takes_hold_at_once(tmp_path):
    folders = str(tmp_path / "a"), None, str(tmp_path / "b")
    turns = [TURN.format(folder=f, units=n) for n, f in enumerate(folders, start=1)]
    run(tmp_path, "import numpy as np, exburn\n" + "".join(turns))
    kept = [list((tmp_path / name).glob("jit_exburn_train-*")) for name in ("a", "b")]
    assert [len(files) for files in kept] == [1, 1]


def test_a_folder_given_to_jax_gets_small_programs_too(tmp_path):
    run(tmp_path, JAX_COMPILATION_CACHE_DIR=str(tmp_path))
    assert list(tmp_path.glob("jit_exburn_train-*-cache"))


def test_what_is_too_much_is_removed_once_a_day(tmp_path, monkeypatch):
    """But no file that is not ours, in a folder that the user named."""
    monkeypatch.setattr(compilation_cache, "LARGEST", 250)

    def put(name, size, age=0.0):
        path = tmp_path / name
        path.write_bytes(bytes(size))
        os.utime(path, (1e9 - age, 1e9 - age))
        return path

    key = "0123456789abcdef" * 4
    entries = [put(f"jit_{i}-{key}-cache", 100, age=i) for i in range(4)]
    others = [put(name, 1000, age=9) for name in ("model.exburn", "x-cache")]
    compilation_cache._prune(tmp_path)
    assert [e.exists() for e in entries] == [True, True, False, False]
    assert all(path.exists() for path in others)
    more = put(f"jit_more-{key}-cache", 1000)
    compilation_cache._prune(tmp_path)
    assert more.exists()


def test_a_home_that_may_not_be_entered_is_none(tmp_path, monkeypatch):
    """As with another user's HOME: to ask whether a file is there raises."""
    stat = os.stat

    def refused(path, *args, **options):
        if str(path).startswith(f"{tmp_path}/"):
            raise PermissionError(13, "Permission denied", path)
        return stat(path, *args, **options)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "inside"))
    monkeypatch.setattr(os, "stat", refused)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert compilation_cache._own_folder() is None


def test_an_entry_that_cannot_be_removed_keeps_no_others(tmp_path, monkeypatch):
    names = [f"jit_f-{str(i) * 64}-cache" for i in range(3)]
    for age, name in enumerate(names):
        (tmp_path / name).write_bytes(b"12345678")
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    unlink = os.unlink

    def others(path):
        if names[1] in str(path):
            raise PermissionError(1, "Operation not permitted", path)
        unlink(path)

    monkeypatch.setattr(os, "unlink", others)
    monkeypatch.setattr(compilation_cache, "LARGEST", 10)
    compilation_cache._prune(tmp_path)
    assert {f.name for f in tmp_path.iterdir()} == {".pruned", *names[:2]}
