"""What of the log could be used."""

from __future__ import annotations

from pyspark.sql import DataFrame

from isthmus_flows.tables.inputs import Inputs
from isthmus_flows.tables.spec import OutputTable, count, text

_QUARANTINE = "table string, file string, reason string, rows long"
_COUNTS = ("files", "rows", "duplicates", "late", "quarantined_files", "quarantined_rows")
_QUALITY = ", ".join(["table string", *[f"{name} long" for name in _COUNTS]])


def _quarantine(inputs: Inputs) -> DataFrame:
    rows = [(item.table, item.file, item.reason, item.rows) for item in inputs.log.quarantine]
    return inputs.log.events.sparkSession.createDataFrame(rows, _QUARANTINE)


def _quality(inputs: Inputs) -> DataFrame:
    rows = [(item.table, *[getattr(item, name) for name in _COUNTS]) for item in inputs.log.quality.values()]
    return inputs.log.events.sparkSession.createDataFrame(rows, _QUALITY)


QUARANTINE = OutputTable(
    "quarantine",
    "Files, and rows of files, that were left out of all other tables.",
    (
        text("table"),
        text("file"),
        text("reason"),
        count("rows", "How many; null: the file cannot tell."),
    ),
    _quarantine,
    ("table", "file", "reason"),
    "The rest of a file with impossible rows counts; a damaged file is left out as a whole.",
)

QUALITY = OutputTable(
    "quality",
    "Of each table of the log, what was read.",
    (
        text("table"),
        count("files", "That were read."),
        count("rows", "In these, of all hours that some of the window is in."),
        count("duplicates", "Rows in the window that were there before: told again, or written again."),
        count("late", "Rows that came when their hour was closed (of a stream); not among `rows`."),
        count("quarantined_files"),
        count("quarantined_rows", "As far as that is known."),
    ),
    _quality,
    ("table",),
    "Duplicates are no fault: collectors write at least once. `records` has none, as its rows are states.",
)
