"""The file system fails at the n-th operation of a save or a load, for every n."""

import errno
import os
import stat

import pytest
from tests.saving.faults import failing
from tests.saving.small import equal, small_model

import exburn
from exburn.errors import ArgumentError, ExBurnError, LoadError, SaveError

CODES = (errno.ENOSPC, errno.EIO, errno.EACCES)


@pytest.fixture(scope="module")
def models():
    old, new = small_model(), small_model()
    new.set_weights([w + 1 for w in new.get_weights()])
    return old, new


SAVES = {
    "save": lambda m, path: m.save(path),
    "save in parts": lambda m, path: m.save(path, max_shard_size="64B"),
    "save_weights": lambda m, path: m.save_weights(path),
}


def reads(path, kind):
    if kind == "save_weights":
        model = small_model()
        model.load_weights(path)
        return model
    return exburn.load_model(path)


EVERYWHERE = [  # the way is the same for each code
    pytest.param(
        kind,
        code,
        id=f"{kind}-{errno.errorcode[code]}",
    )
    for kind in SAVES
    for code in CODES
]


@pytest.mark.parametrize(("kind", "code"), EVERYWHERE)
def test_a_save_that_fails_anywhere_keeps_the_old_file(kind, code, models, tmp_path):
    old, new = models
    save, path = SAVES[kind], tmp_path / "m.safetensors"
    save(old, path)
    many = len(os.listdir(tmp_path))
    assert (many > 2) is (kind == "save in parts")
    with failing(tmp_path) as faults:
        save(new, path)
    total = len(faults.done)
    assert {"write", "fsync", "replace"} <= set(faults.done)
    for at in range(total):
        save(old, path)
        failed = False
        with failing(tmp_path, at, code) as faults:
            try:
                save(new, path)
            except ExBurnError:
                failed = True
        where = faults.done[at]
        model = reads(path, kind)  # and this removes what is left
        assert equal(model, new) or (failed and equal(model, old)), where
        files = os.listdir(tmp_path)
        assert len(files) == many, (where, files)


@pytest.mark.parametrize(("kind", "code"), EVERYWHERE)
def test_a_first_save_that_fails_leaves_nothing(kind, code, models, tmp_path):
    save, path = SAVES[kind], tmp_path / "m.safetensors"
    with failing(tmp_path) as faults:
        save(models[0], path)
    total = len(faults.done)
    for at in range(total):
        for name in os.listdir(tmp_path):
            os.unlink(tmp_path / name)
        with failing(tmp_path, at, code) as faults:
            try:
                save(models[0], path)
            except SaveError:
                pass
        if not path.exists():
            assert os.listdir(tmp_path) == [], faults.done[at]
        else:
            assert equal(reads(path, kind), models[0])


@pytest.mark.parametrize("code", (errno.EIO, errno.EACCES), ids=errno.errorcode.get)
@pytest.mark.parametrize("kind", SAVES)
def test_a_load_that_fails_anywhere_is_a_typed_error(kind, code, models, tmp_path):
    save, path = SAVES[kind], tmp_path / "m.safetensors"
    save(models[0], path)
    with failing(tmp_path) as faults:
        reads(path, kind)
    assert {"open", "pread", "preadv"} <= set(faults.done)
    for at in range(len(faults.done)):
        with failing(tmp_path, at, code) as faults:
            try:
                model = reads(path, kind)
            except (ExBurnError, OSError) as error:
                assert isinstance(error, LoadError | ArgumentError), faults.done[at]
                continue
        assert equal(model, models[0])


def test_the_texts_say_what_to_do(models, tmp_path):
    path = tmp_path / "m.exburn"
    models[0].save(path)
    texts = {}
    for code in CODES:
        with failing(tmp_path) as faults:
            models[1].save(path)
        at = faults.done.index("fsync")
        with failing(tmp_path, at, code), pytest.raises(SaveError) as info:
            models[1].save(path)
        texts[code] = str(info.value).replace(str(tmp_path), "")
    assert texts[errno.ENOSPC] == (
        "save: the disk is full\n"
        "  file: /m.exburn\n"
        "  cause: [Errno 28] No space left on device\n"
        "  kept: the file that was there before\n"
        "  → Free some space, or save elsewhere."
    )
    assert "writing is not permitted" in texts[errno.EACCES]
    assert "could not be written" in texts[errno.EIO]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to(models, tmp_path):
    path = tmp_path / "m.exburn"
    models[0].save(path)
    os.chmod(tmp_path, 0o500)
    try:
        with pytest.raises(SaveError, match="not permitted"):
            models[1].save(path)
        assert equal(exburn.load_model(path), models[0])
    finally:
        os.chmod(tmp_path, 0o700)


def test_permissions_are_those_of_an_ordinary_file_and_are_kept(models, tmp_path):
    path = tmp_path / "m.exburn"
    mask = os.umask(0o027)
    try:
        models[0].save(path)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    os.chmod(path, 0o604)
    models[1].save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_a_link_goes_on_pointing_where_it_did(models, tmp_path):
    (tmp_path / "store").mkdir()
    real, link = tmp_path / "store" / "v1.exburn", tmp_path / "latest.exburn"
    models[0].save(real)
    link.symlink_to("store/v1.exburn")
    models[1].save(link)
    assert link.is_symlink() and not real.is_symlink()
    assert equal(exburn.load_model(real), models[1])


@pytest.mark.parametrize("what", ["folder", "fifo"])
def test_what_is_no_file_is_not_replaced(what, models, tmp_path):
    path = tmp_path / "m.exburn"
    path.mkdir() if what == "folder" else os.mkfifo(path)
    with pytest.raises(ArgumentError, match="not a file"):
        models[0].save(path)
    with pytest.raises(ArgumentError, match="there is no file"):
        exburn.load_model(path)
    assert [p.name for p in tmp_path.iterdir()] == ["m.exburn"]


def test_leftovers_of_killed_writers_go_and_living_ones_stay(models, tmp_path):
    from exburn.runtime.files.atomic import Staged

    path = tmp_path / "m.exburn"
    models[0].save(path)
    for mark in ("0" * 16, "f" * 16):
        (tmp_path / f".m.exburn.{mark}.tmp").write_bytes(b"half a model")
    others = ["m.exburn.bak", ".m.exburn.tmp", ".other.exburn.0123456789abcdef.tmp"]
    for name in others:
        (tmp_path / name).write_text("of somebody else")
    alive = Staged(path)
    alive.write(b"being written")
    exburn.load_model(path)
    names = {p.name for p in tmp_path.iterdir()}
    assert names >= {"m.exburn", *others} and len(names) == len(others) + 2
    models[1].save(path)  # while the other still writes
    alive.discard()
    assert {p.name for p in tmp_path.iterdir()} == {"m.exburn", *others}
