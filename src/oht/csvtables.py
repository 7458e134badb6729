"""CSV tables of numbers: one writer and one reader for the whole package."""

import csv
import io
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from oht.errors import UserError

Columns = dict[str, np.ndarray]
TAIL = 64 * 1024  # bytes from the end of a table in which its last row is looked for


def columns(path: Path) -> Columns:
    """All complete rows, as one array per column; an empty dict where there is no table or no row."""
    header, values = _read(path)
    return dict(zip(header, values.T, strict=True)) if len(values) else {}


def rows(path: Path) -> list[dict[str, float]]:
    """All complete rows, as one dict per row; an empty list where there is no table or no row."""
    header, values = _read(path)
    return [dict(zip(header, row, strict=True)) for row in values.tolist()]


def last_row(path: Path) -> dict[str, float] | None:
    """The last complete row, however long the table is; None where there is none that can be read."""
    rows = last_rows(path, 1)
    return {name: float(column[-1]) for name, column in rows.items()} or None


def last_rows(path: Path, number: int) -> Columns:
    """At most `number` of the last complete rows, fewer where they are long; {} where there is none to be read."""
    try:
        with path.open("rb") as file:
            header = file.readline()
            start = max(file.tell(), os.path.getsize(path) - TAIL)
            file.seek(start)
            lines = file.read().split(b"\n")[:-1]  # what follows the last line end is not complete
        whole = lines if start == len(header) else lines[1:] or lines  # the first may have lost its beginning
        names, values = _parse(b"\n".join([header.rstrip(b"\r\n"), *whole[-number:], b""]))
        return dict(zip(names, values.T, strict=True)) if len(values) else {}
    except (OSError, ValueError, csv.Error):
        return {}


def _read(path: Path) -> tuple[list[str], np.ndarray]:
    try:
        return _parse(path.read_bytes())
    except FileNotFoundError:
        return [], np.empty((0, 0))
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"{path} cannot be read as a table of numbers: {error}.") from None


def _parse(content: bytes) -> tuple[list[str], np.ndarray]:
    """Column names and values (rows, columns). The last line counts only if it is complete: a run may be writing it."""
    complete = content[: content.rfind(b"\n") + 1].decode("utf-8")
    first, _, lines = complete.partition("\n")
    header = next(csv.reader([first]), [])
    if not lines:
        return header, np.empty((0, len(header)))
    try:
        values = np.loadtxt(io.StringIO(lines), delimiter=",", comments=None, ndmin=2)  # twice as fast as csv
    except ValueError as error:
        raise ValueError(str(error).split(";")[0]) from None  # what follows is advice for callers of loadtxt
    if values.shape[1] != len(header):
        raise ValueError(f"it has {len(header)} names but {values.shape[1]} columns")
    return header, values


class GrowingFile:
    """A text file that a run appends lines to."""

    def __init__(self, path: Path, size: int | None = None):
        """Continue at byte `size` (later lines are cut), or start an empty file if `size` is None."""
        self._path = path
        if size is not None:
            truncate(path, size)
        self._file = path.open("a+" if size is not None else "w+", newline="")

    def write(self, text: str) -> None:
        """Append text; if somebody deleted the file, write it again first."""
        self._file = restored(self._path, self._file)
        self._file.write(text)
        self._file.flush()

    def size(self) -> int:
        """Flush to the disk and return the number of bytes."""
        self._file = restored(self._path, self._file)
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        self._file.close()


class Table(GrowingFile):
    """A CSV file that grows by rows; the first row fixes the columns."""

    def __init__(self, path: Path, size: int | None = None):
        super().__init__(path, size)
        self._columns = _header(path)

    def append(self, row: Mapping[str, Any]) -> None:
        lines = io.StringIO(newline="")
        writer = csv.writer(lines)
        if self._columns is None:
            self._columns = list(row)
            writer.writerow(self._columns)
        if set(row) != set(self._columns):
            odd = sorted(set(row) ^ set(self._columns))[0]
            raise UserError(
                f"{self._path} cannot get a row {'with' if odd in row else 'without'} {odd}: its first row "
                f"has {', '.join(self._columns)}."
            )
        writer.writerow([_cell(row[name]) for name in self._columns])
        self.write(lines.getvalue())


def restored(path: Path, file: Any) -> Any:
    """The open file of a table; if somebody deleted or replaced it on disk, write it again and warn."""
    try:
        if os.path.samestat(os.stat(path), os.fstat(file.fileno())):
            return file
        what = "replaced"
    except FileNotFoundError:
        what = "deleted"
    warnings.warn(f"{path} was {what} while the run was training; it is written again.", stacklevel=2)
    file.seek(0)
    content = file.read()
    file.close()
    path.write_text(content, "utf-8", newline="")
    return path.open("a+", newline="")


def truncate(path: Path, size: int) -> None:
    """Cut a file to its size at a checkpoint; if it is shorter, keep its complete lines and warn."""
    content = path.read_bytes() if path.exists() else b""
    if len(content) < size:
        warnings.warn(f"{path} has lost rows; it continues with those that are left.", stacklevel=2)
    if content:
        os.truncate(path, content.rfind(b"\n", 0, size) + 1)


def _cell(value: Any) -> str:
    """Short and exact: reading it back as float32 or int gives the same number; true and false are 1 and 0."""
    plain = int(value) if isinstance(value, bool | np.bool_) else value
    return f"{plain:.9g}" if isinstance(plain, float) else str(plain)


def _header(path: Path) -> list[str] | None:
    with path.open(newline="") as file:
        return next(csv.reader(file), None)
