"""Writes the tables' part of a page from what is declared of them; the rest of the page stays as it is.

`python -m isthmus_flows.document docs/flow-analysis.md`
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from isthmus_flows.tables import TABLES, OutputTable

BEGIN = "<!-- From here on written by `python -m isthmus_flows.document`; change isthmus_flows/tables, not this. -->\n"
END = "<!-- To here. -->\n"


def document(page: str) -> str:
    """The page with its part about tables as they are declared now. Raises ValueError if it has no place for it."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the lines {BEGIN.strip()!r} and {END.strip()!r}")
    return before + BEGIN + "\n" + "\n".join(_tables()) + "\n" + END + after


def _tables() -> Iterator[str]:
    for table in TABLES:
        yield from _table(table)


def _table(table: OutputTable) -> Iterator[str]:
    yield f"### `{table.name}`\n"
    yield f"{table.text}\n"
    if table.caution:
        yield f"*To be careful about:* {table.caution}\n"
    yield "| column | kind | |"
    yield "|---|---|---|"
    for column in table.columns:
        yield f"| `{column.name}` | {column.kind.value} | {column.text} |"
    yield ""


def main() -> None:
    """Rewrites the page that is named."""
    path = Path(sys.argv[1])
    path.write_text(document(path.read_text()))


if __name__ == "__main__":
    main()
