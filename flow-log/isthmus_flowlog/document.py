"""Writes the reference page of the flow log's tables from the schema.

`python -m isthmus_flowlog.document > docs/flow-schema.md`
"""

from __future__ import annotations

import sys

from isthmus_flowlog.schema import SCHEMA_VERSION, TABLES, VERSION_KEY, Table

INTRODUCTION = f"""\
# Flow log: files and columns

<!-- Written by `python -m isthmus_flowlog.document`; change the schema, not this page. -->

A flow log is a folder, or a prefix of a bucket, that a [collector](flow-log.md) writes and a
[flow analysis](flow-analysis.md) reads. Each table has a folder of its own, with Parquet files by date and hour (UTC)
of the table's time column:

```
deliveries/date=2026-11-23/hour=08/20261123T081502-5f0c1d2e.parquet
```

- Names that begin with `.` or `_` are no part of the log.
- A file appears whole, and does not change. When an hour is over its small files become large ones (`merged-...`):
  the large one appears first, the small ones are deleted when readers have had time. In between rows are there twice.
- The same row may be there twice for other reasons, too (a collector that was started again): rows with the same
  `identity` are the same, in `deliveries`, `relayed` and `events`. In `records` the rows of an identity are its states.
- Rows of a file are sorted by time; those of a merged one by row group. Pages have checksums, compression is zstd.
- The metadata of each file has `{VERSION_KEY}`, now `{SCHEMA_VERSION}`: raised when a column changes its meaning or
  goes. Further columns do not raise it, so a reader leaves out what it does not know, and takes what is absent in an
  older file as null, or as 0 in counts.

| kind | Parquet |
|---|---|
| string | string |
| long | 64-bit integer |
| time | timestamp, microseconds, UTC |
| flag | boolean |
| sketch | map from [bucket](flow-records.md#sketches) (32-bit integer) to how many numbers are in it (64-bit integer) |

Columns marked *required* are never null.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *map(_table, TABLES)])


def _table(table: Table) -> str:
    lines = [
        f"## `{table.name}`\n",
        f"{table.text} Partitioned by `{table.time}`.\n",
        "| column | kind | |",
        "|---|---|---|",
    ]
    for column in table.columns:
        kind = column.kind.value + (", required" if column.required else "")
        lines.append(f"| `{column.name}` | {kind} | {column.text} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Prints the page."""
    sys.stdout.write(page())


if __name__ == "__main__":
    main()
