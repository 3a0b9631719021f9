"""Tests of ``exburn.callbacks.csv_logger``."""

import csv
import errno

import pytest

from exburn.callbacks import CSVLogger
from exburn.errors import CallbackError, SaveError

ROWS = [{"loss": 0.5, "accuracy": 0.25}, {"loss": 0.25, "accuracy": 0.5}]


def read(path, **options):
    with open(path, newline="") as file:
        return list(csv.reader(file, **options))


def test_csv_is_what_keras_writes(model, drive, tmp_path):
    keras = pytest.importorskip("keras")
    rows = [{**row, "val_loss": 1.0, "list": [1, 2]} for row in ROWS]
    ours, theirs = tmp_path / "runs" / "ours.csv", tmp_path / "theirs.csv"
    drive([CSVLogger(ours, separator=";")], model, rows)
    logger = keras.callbacks.CSVLogger(theirs, separator=";")
    logger.on_train_begin()
    for epoch, row in enumerate(rows):
        logger.on_epoch_end(epoch, row)
    logger.on_train_end()
    expected = read(theirs, delimiter=";")
    for row in expected[1:]:  # Keras puts quotation marks around lists twice
        row[2] = row[2].strip('"')
    assert read(ours, delimiter=";") == expected


def test_csv_gets_a_column_for_what_appears_later(model, drive, tmp_path):
    path = tmp_path / "log.csv"
    rows = [ROWS[0], {**ROWS[1], "val_loss": 0.75}, {"loss": 0.125}]
    drive([CSVLogger(path)], model, rows)
    assert read(path) == [
        ["epoch", "accuracy", "loss", "val_loss"],
        ["0", "0.25", "0.5", "NA"],
        ["1", "0.5", "0.25", "0.75"],
        ["2", "NA", "0.125", "NA"],
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["log.csv"]


def test_csv_appends_under_the_existing_columns(model, drive, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("epoch,loss\n0,0.9\n")
    drive([CSVLogger(path, append=True)], model, ROWS[1:], start=1)
    assert read(path) == [
        ["epoch", "loss", "accuracy"],
        ["0", "0.9", "NA"],
        ["1", "0.25", "0.5"],
    ]
    drive([CSVLogger(path)], model, ROWS[:1])
    assert read(path) == [["epoch", "accuracy", "loss"], ["0", "0.25", "0.5"]]
    path.write_text("a,b\n1,2\n")
    with pytest.raises(CallbackError, match="must have a column 'epoch'"):
        drive([CSVLogger(path, append=True)], model, ROWS)
    with pytest.raises(CallbackError, match="one character"):
        CSVLogger(path, separator="::")


def test_csv_of_a_resumed_run_has_every_epoch_once(model, drive, tmp_path):
    path = tmp_path / "log.csv"
    first = CSVLogger(path)
    drive([first], model, ROWS)
    state = first.state_dict()
    with open(path, "a") as file:  # an epoch after the checkpoint, before the kill
        file.write("2,0,0\n")
    resumed = CSVLogger(path)
    resumed.load_state_dict(state)
    drive([resumed], model, ROWS, start=2)
    assert [row[0] for row in read(path)] == ["epoch", "0", "1", "2", "3"]
    assert read(path)[3] == ["2", "0.25", "0.5"]


def test_csv_file_is_complete_after_an_exception(model, drive, tmp_path):
    def broken(logs):
        raise RuntimeError("oops")

    with pytest.raises(RuntimeError):
        drive([CSVLogger(tmp_path / "log.csv"), broken], model, ROWS)
    assert len(read(tmp_path / "log.csv")) == 2


@pytest.mark.parametrize("place", ["/proc/log.csv", "/proc/folder/log.csv"])
def test_a_file_that_cannot_be_written(place, model, drive):
    with pytest.raises(SaveError, match=f"CSVLogger(.|\n)*{place}") as told:
        drive([CSVLogger(place)], model, ROWS)
    assert told.value.__suppress_context__


def test_a_disk_that_gets_full(model, drive, tmp_path, monkeypatch):
    logger = CSVLogger(tmp_path / "log.csv")

    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(CSVLogger, "_write", refuse)
    with pytest.raises(SaveError, match="CSVLogger: the disk is full"):
        drive([logger], model, ROWS)


@pytest.mark.parametrize("place", ["/dev/null", "/dev"])
def test_what_is_no_file_is_not_replaced(place, model, drive):
    with pytest.raises(CallbackError, match="must be a file"):
        drive([CSVLogger(place)], model, ROWS)
