"""The operator's log: one JSON object per line, with the keys that routers use too.

{"ts": "2026-11-21T17:00:00.123Z", "level": "info", "module": "isthmus_operator.reconcile",
 "message": "router west: apply Secret west-config"}
"""

from __future__ import annotations

import copy
import json
import logging
from datetime import UTC, datetime

import kopf

from isthmus_router.printable import printable

MOST_CHARACTERS = 16 * 1024
"""Of a message, and of the end of a traceback. kopf logs what the API server has sent, whatever its length."""


def _cut(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}... ({len(text) - MOST_CHARACTERS} more characters)"


class JsonFormatter(logging.Formatter):
    """Records as JSON. `module` is the name of the logger; what kopf says about an object has `object`."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat("T", "milliseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
            "module": record.name,
            "message": _cut(record.getMessage()),
        }
        reference = getattr(record, "k8s_ref", None)
        if reference is not None:
            entry["object"] = reference
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)[-MOST_CHARACTERS:]
        return printable(json.dumps(entry, default=str, ensure_ascii=False, separators=(",", ":")))


class PlainFormatter(logging.Formatter):
    """What another formatter makes of records, without control and invisible characters. Only the traceback of an
    exception has further lines."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        shown = copy.copy(record)
        shown.msg, shown.args = printable(_cut(record.getMessage())), None
        return printable(self._inner.format(shown)[: 2 * MOST_CHARACTERS], lines=True)


def configure(log_format: str, level: str) -> None:
    """Sets up logging to stderr for the whole process; `log_format` is `json` or `plain`."""
    kopf.configure(log_format=kopf.LogFormat.FULL)
    for handler in logging.root.handlers:
        handler.setFormatter(
            JsonFormatter()
            if log_format == "json"
            else PlainFormatter(handler.formatter or logging.Formatter())
        )
    logging.root.setLevel(level.upper())
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # one line per event of every object
    logging.getLogger("kopf._cogs.clients.watching").setLevel(
        logging.ERROR
    )  # its warnings contain whole objects
