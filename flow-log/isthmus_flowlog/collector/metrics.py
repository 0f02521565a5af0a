"""Metrics of a collector. Labels are tables and few fixed words."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from isthmus_flowlog.schema import TABLES

CONTENT_TYPE = CONTENT_TYPE_LATEST
_PREFIX = "isthmus_collector_"
REASONS = ("malformed", "forged", "misplaced", "too-long", "too-much", "unfinished", "aborted", "failed")
"""For which messages are rejected."""


class Metrics:
    """Of one process. Each may be raised by any thread."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(_PREFIX + name, text, labels, registry=self.registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(_PREFIX + name, text, registry=self.registry)

        self.connected = gauge("connected", "Whether there is a connection to a router.")
        self.connection_attempts = counter("connection_attempts", "Connections to routers that were begun.")
        self.sources = gauge("sources", "Sources that are heard: runs of routers.")
        self.sources_lost = counter("sources_lost", "Sources that were not heard any more.")
        self.sources_ignored = counter("sources_ignored", "Beacons of sources beyond the limit.")
        self.messages = counter("messages", "Messages from sources.")
        self.malformed = counter("malformed", "Records and rows that are not well-formed.")
        self.rejected = counter(
            "rejected", "Messages that the collector has rejected, by reason.", ("reason",)
        )
        self.records_refused = counter(
            "records_refused", "Records beyond the bounds of their source: its rate, its memory."
        )
        self.missed_messages = counter("missed_messages", "Messages from sources that have not arrived.")
        self.flushes = counter("flushes", "Times that a source was asked to tell everything again.")
        self.records = counter("records", "Records heard, with those told again.")
        self.records_again = counter("records_again", "Records that were known already.")
        self.records_skipped = counter(
            "records_skipped", "Records that the log has no table for, or beyond bounds."
        )
        self.unaccompanied = counter(
            "rows_unaccompanied", "Rows written without what their parents would have said."
        )
        self.paused = gauge(
            "paused", "1: routers are given no credit, as what was heard cannot be written yet."
        )
        self.queued_rows = gauge("queued_rows", "Rows that are in memory only.")
        self.journal_bytes = gauge(
            "journal_bytes", "In the journal: rows that are in no file of the log yet."
        )
        self.journal_errors = counter(
            "journal_errors",
            "Times that the journal could not be written, or a file of it could not be read.",
        )
        self.journal_cut_bytes = counter(
            "journal_cut_bytes", "Half-written ends of the journal, cut off at the start."
        )
        self.oldest_unwritten = gauge(
            "oldest_unwritten_seconds", "Age of the oldest row that is in no file of the log yet."
        )
        self.rotate = gauge("rotate_seconds", "Age at which rows are put into a file, at the latest.")
        self.rows_written = counter("rows_written", "Rows in files of the log.", ("table",))
        self.files_written = counter("files_written", "Files of the log.", ("table",))
        self.bytes_written = counter("written_bytes", "Size of these files.", ("table",))
        self.last_written = gauge(
            "last_written_timestamp_seconds", "When a file of the log was complete last."
        )
        self.sink_errors = counter("sink_errors", "Times that the log could not be written, read or cleaned.")
        self.files_merged = counter("files_merged", "Small files that were made part of others.")
        self.files_deleted = counter("files_deleted", "Files deleted.", ("reason",))
        for table in TABLES:
            for family in (self.rows_written, self.files_written, self.bytes_written):
                family.labels(table.name)
        for reason in REASONS:
            self.rejected.labels(reason)
        for reason in ("merged", "retention"):
            self.files_deleted.labels(reason)

    def value(self, name: str) -> float:
        """Of a metric, all of its labels summed; `name` without the prefix."""
        samples = (sample for family in self.registry.collect() for sample in family.samples)
        return sum(sample.value for sample in samples if sample.name == _PREFIX + name)

    def exposition(self) -> bytes:
        """For Prometheus."""
        return generate_latest(self.registry)
