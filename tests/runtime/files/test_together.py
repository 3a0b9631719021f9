"""Files that change together: a kill or a full disk at each step, and hostile lists."""

import errno
import json
import os
import stat

import pytest
from tests.saving.faults import crashing

from exburn.errors import ArgumentError, ExBurnError, FileFormatError, LoadError
from exburn.runtime.files.together import changing, finish_changes

OLD = {"a.json": b"old a", "b.json": b"old b", "gone.json": b"old c", "mine.txt": b"m"}
NEW = {"a.json": b"new a", "b.json": b"new b", "more.json": b"new d", "mine.txt": b"m"}


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    """No waiting for the disk: operations are counted, and done, all the same."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def old_folder(path):
    path.mkdir()
    for name, data in OLD.items():
        (path / name).write_bytes(data)
    return path


def change(folder):
    with changing(folder) as changes:
        changes.write("a.json", b"new a")
        with changes.staging("b.json") as staged:
            staged.write(b"new b")
        changes.write("more.json", b"new d")
        for name in ("gone.json", "never.json", "a.json"):  # the last one is new
            changes.remove(name)


def total(tmp_path):
    with crashing(None) as faults:
        change(old_folder(tmp_path / "count"))
    assert content(tmp_path / "count") == NEW
    return faults.done


@pytest.mark.parametrize("code", [None, errno.ENOSPC, errno.EIO])
def test_all_of_the_old_or_all_of_the_new_is_there(code, tmp_path):
    done = total(tmp_path)
    assert len(done) > 20
    seen = []
    for at in range(len(done)):
        folder = old_folder(tmp_path / str(at))
        with crashing(at, code) as faults:
            try:
                change(folder)
            except faults.killed:
                pass
            except ExBurnError as error:
                assert "kept" in error.details
        finish_changes(folder, "load")
        assert content(folder) in (OLD, NEW), (done[at], at)
        seen.append(content(folder) == NEW)
        change(folder)  # and the next writer is not disturbed
        assert content(folder) == NEW
    # Once it counts, it counts.
    assert seen == sorted(seen) and seen[-1] and not seen[0]


def test_the_next_writer_finishes_what_a_killed_one_left(tmp_path):
    done = total(tmp_path)
    for at in range(len(done)):
        folder = old_folder(tmp_path / str(at))
        with crashing(at) as faults:
            try:
                change(folder)
            except faults.killed:
                pass
        with changing(folder) as changes:
            changes.write("other.json", b"o")
        found = content(folder)
        assert found.pop("other.json") == b"o" and found in (OLD, NEW), done[at]


def test_an_error_in_the_block_changes_nothing(tmp_path):
    folder = old_folder(tmp_path / "a")
    with pytest.raises(KeyError), changing(folder) as changes:
        changes.write("a.json", b"new")
        raise KeyError("stop")
    assert content(folder) == OLD


def test_permissions_stay_and_links_become_files(tmp_path):
    folder = old_folder(tmp_path / "a")
    (folder / "a.json").chmod(0o640)
    (tmp_path / "elsewhere").write_bytes(b"not ours")
    (folder / "b.json").unlink()
    (folder / "b.json").symlink_to(tmp_path / "elsewhere")
    change(folder)
    assert stat.S_IMODE((folder / "a.json").stat().st_mode) == 0o640
    assert content(folder) == NEW
    assert (tmp_path / "elsewhere").read_bytes() == b"not ours"


def test_what_cannot_be_changed_is_a_typed_error(tmp_path):
    with pytest.raises(ArgumentError, match="does not exist"), changing(tmp_path / "a"):
        pass
    (tmp_path / "config.json").mkdir()
    with (
        pytest.raises(ArgumentError, match="is a folder, not a file"),
        changing(tmp_path) as changes,
    ):
        changes.write("config.json", b"")
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_a_folder_that_cannot_be_finished_says_so(tmp_path, monkeypatch):
    folder = old_folder(tmp_path / "a")
    made = folder / ".exburn-changes"
    made.mkdir()
    (made / ".list").write_text(json.dumps({"new": [], "gone": []}))

    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(os, "rmdir", refuse)
    with pytest.raises(LoadError, match="cut off, and cannot be finished"):
        finish_changes(folder, "load")


@pytest.mark.parametrize(
    "told",
    [
        {"new": ["../out.json"], "gone": []},
        {"new": ["/etc/out.json"], "gone": []},
        {"new": [".."], "gone": []},
        {"new": [".hidden"], "gone": []},
        {"new": [], "gone": ["../out.json"]},
        {"new": [], "gone": ["mine.txt"]},
        {"new": [3], "gone": []},
        {"new": "a.json", "gone": None},
        {"new": []},
        [],
        "{",
        "\ud800",
    ],
)
def test_a_list_of_a_stranger_reaches_nothing_else(told, tmp_path):
    folder = old_folder(tmp_path / "a")
    (tmp_path / "out.json").write_bytes(b"outside")
    made = folder / ".exburn-changes"
    made.mkdir()
    text = told if isinstance(told, str) else json.dumps(told)
    (made / ".list").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(FileFormatError, match=r"\.list"):
        finish_changes(folder, "load")
    assert (tmp_path / "out.json").read_bytes() == b"outside"
    assert (folder / "mine.txt").read_bytes() == b"m"


def test_a_link_to_another_folder_is_none_of_ours(tmp_path):
    folder, other = old_folder(tmp_path / "a"), tmp_path / "other"
    other.mkdir()
    (other / ".list").write_text(json.dumps({"new": ["a.json"], "gone": []}))
    (other / "a.json").write_bytes(b"of the other")
    (folder / ".exburn-changes").symlink_to(other)
    finish_changes(folder, "load")
    assert (folder / "a.json").read_bytes() == b"old a"
    assert (other / "a.json").exists()


# ---------------------------------------------------------------------- a folder within
def test_templates_lie_in_a_folder_within_and_go_together(tmp_path):
    with changing(tmp_path) as changes:
        changes.write("more/a.jinja", b"a")
        changes.write("b.json", b"b")
    with changing(tmp_path) as changes:
        changes.remove("more/")
        changes.write("more/c.jinja", b"c")
    assert {path.name for path in (tmp_path / "more").iterdir()} == {"c.jinja"}
    assert {path.name for path in tmp_path.iterdir()} == {"more", "b.json"}


def test_no_link_leads_templates_out_of_the_folder(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "more").symlink_to(tmp_path / "b")
    with (
        pytest.raises(ArgumentError, match="is no folder"),
        changing(tmp_path / "a") as changes,
    ):
        changes.write("more/a.jinja", b"a")
    assert not any((tmp_path / "b").iterdir())
