"""The run folder: files, tables, events, checkpoints.

What is named here needs no JAX; `oht.runs.checkpoints` and `oht.runs.recorder` do, and are imported by name.
"""

from oht.csvtables import Columns, Table, columns, last_row, last_rows, rows
from oht.runs.eventlog import Event, events
from oht.runs.folder import (
    EVENTS,
    FACTS,
    FORMAT,
    LOCK,
    NO_METHOD,
    TABLES,
    below,
    check,
    created,
    fresh_folder,
    locked,
    refused,
    vacant,
    writable,
    write_aside,
)

__all__ = [
    "EVENTS",
    "FACTS",
    "FORMAT",
    "LOCK",
    "NO_METHOD",
    "TABLES",
    "Columns",
    "Event",
    "Table",
    "below",
    "check",
    "columns",
    "created",
    "events",
    "fresh_folder",
    "last_row",
    "last_rows",
    "locked",
    "refused",
    "rows",
    "vacant",
    "writable",
    "write_aside",
]
