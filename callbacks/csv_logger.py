"""The epochs' logs as a CSV file."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping
from typing import Any

from exburn.callbacks.contract import Callback
from exburn.callbacks.contract.every import Every, check_every
from exburn.core.checks import check_path
from exburn.errors import CallbackError
from exburn.runtime.files.atomic import telling_refusals


class CSVLogger(Callback):
    """Writes one row for each epoch to a CSV file.

    The columns are `epoch` (counted from 0) and the logged names in alphabetical
    order; `NA` stands for a value that an epoch did not log. A name that appears
    later gets a column of its own at the end. The file is complete after every epoch.

    Args:
        filename: File to write; its folder is made if needed.
        separator: One character between the values.
        append: Go on with an existing file instead of overwriting it.
        every: Which epochs get a row: all by default. With a filter of steps, seconds
            or chunks the running means within an epoch get rows, too, and there is a
            column `step`.

    Raises:
        CallbackError: If `separator` is not one character, or the file that should be
            gone on with has no `epoch` column.
        SaveError: The system refuses: the disk is full, read-only, or it is no file.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "log.csv"
        >>> logger = CSVLogger(path)
        >>> logger.on_train_begin()
        >>> logger.on_epoch_end(0, {"loss": 0.5, "accuracy": 0.9})
        >>> print(path.read_text().strip())
        epoch,accuracy,loss
        0,0.9,0.5
    """

    light = True

    def __init__(
        self,
        filename: str | os.PathLike[str],
        separator: str = ",",
        append: bool = False,
        *,
        every: int | str | Every | None = None,
    ):
        if len(separator) != 1:
            raise CallbackError(
                "CSVLogger",
                "separator must be one character",
                {"separator": repr(separator)},
            )
        self.filename = check_path(
            "CSVLogger", "filename", filename, error=CallbackError
        )
        self.sep = separator
        self.append = append
        self.every = check_every("CSVLogger", every)
        if self.every is not None and self.every.unit != "epochs":
            # Set on the object: a class with batch hooks asks for single steps.
            self.on_train_batch_end = self._after_batch
        self._columns: list[str] = []
        self._rows = 0  # in the file
        self._epoch = 0
        self._restored = False

    @property
    def keys(self) -> list[str] | None:
        """The columns beside ``epoch``; ``None`` before the first line."""
        return self._columns[1:] or None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if self.writes:
            with telling_refusals("CSVLogger", self.filename):
                self._begin()

    def _begin(self) -> None:
        os.makedirs(os.path.dirname(self.filename) or ".", exist_ok=True)
        if os.path.exists(self.filename) and not os.path.isfile(self.filename):
            raise CallbackError(
                "CSVLogger",
                "filename must be a file, which is replaced as a whole",
                {"filename": self.filename},
            )
        self._columns = []
        restored, self._restored = self._restored, False
        count = self._rows if restored else None  # later epochs come once more
        if (self.append and count is None or count) and os.path.exists(self.filename):
            rows = self._read()[:count]
            if restored:
                self._write(rows)
            self._rows = len(rows)
        else:
            open(self.filename, "w").close()
            self._rows = 0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._add({"epoch": epoch}, logs)

    def _after_batch(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._add({"epoch": self._epoch, "step": batch + 1}, logs)

    def _add(self, place: dict[str, int], logs: dict[str, Any] | None) -> None:
        """Writes a row; a name that is new makes a column."""
        if self.writes:
            with telling_refusals("CSVLogger", self.filename):
                self._add_row(place, logs or {})

    def _add_row(self, place: dict[str, int], logs: dict[str, Any]) -> None:
        names = *place, *sorted(logs)
        new = [name for name in names if name not in self._columns]
        if new:
            rows = self._read()
            self._columns += [name for name in new if name not in self._columns]
            self._write(rows)
        with open(self.filename, "a", newline="") as file:
            row = {name: _text(value) for name, value in logs.items()}
            self._writer(file).writerow({**row, **place})
        self._rows += 1

    def _read(self) -> list[dict[str, str]]:
        """Returns the file's rows and takes over its columns."""
        with open(self.filename, newline="") as file:
            reader = csv.DictReader(file, delimiter=self.sep)
            rows = list(reader)
            self._columns = list(reader.fieldnames or [])
        if self._columns and "epoch" not in self._columns:
            raise CallbackError(
                "CSVLogger",
                "the file to go on with must have a column 'epoch'",
                {"filename": self.filename, "columns": ", ".join(self._columns)},
            )
        return rows

    def _write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Replaces the file, which is whole at any moment."""
        temporary = f"{self.filename}.new"
        with open(temporary, "w", newline="") as file:
            writer = self._writer(file)
            writer.writeheader()
            writer.writerows(rows)
        os.replace(temporary, self.filename)

    def _writer(self, file: Any) -> csv.DictWriter:
        return csv.DictWriter(file, self._columns, restval="NA", delimiter=self.sep)

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self._rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._rows = state["rows"]
        self._restored = True


def _text(value: Any) -> Any:
    if isinstance(value, str) or not isinstance(value, Iterable):
        return value
    if getattr(value, "ndim", 1) == 0:
        return value
    return f"[{', '.join(map(str, value))}]"
