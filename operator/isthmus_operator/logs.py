"""The operator's log: one JSON object per line, with the keys that routers use too.

{"ts": "2026-11-21T17:00:00.123Z", "level": "info", "module": "isthmus_operator.reconcile",
 "message": "router west: apply Secret west-config"}
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

import kopf


class JsonFormatter(logging.Formatter):
    """Records as JSON. `module` is the name of the logger; what kopf says about an object has `object`."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat("T", "milliseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
            "module": record.name,
            "message": record.getMessage(),
        }
        reference = getattr(record, "k8s_ref", None)
        if reference is not None:
            entry["object"] = reference
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False, separators=(",", ":"))


def configure(log_format: str, level: str) -> None:
    """Sets up logging to stderr for the whole process; `log_format` is `json` or `plain`."""
    kopf.configure(log_format=kopf.LogFormat.FULL)
    if log_format == "json":
        for handler in logging.root.handlers:
            handler.setFormatter(JsonFormatter())
    logging.root.setLevel(level.upper())
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # one line per event of every object
