"""From what is known of a window to the folder that people read: tables, summary, report."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

from isthmus_flows.findings import findings
from isthmus_flows.output import Output
from isthmus_flows.parallel import each
from isthmus_flows.report import collect, render
from isthmus_flows.summary import summary
from isthmus_flows.tables import TABLES, Inputs, OutputTable


class Stages:
    """What a run does, and how long that takes: Spark's jobs are described by it, and the summary tells it."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic()

    @property
    def total(self) -> float:
        """Seconds since the run began; stages may run at the same time."""
        return round(time.monotonic() - self._began, 3)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """A stage."""
        began = time.monotonic()
        self.spark.sparkContext.setJobDescription(name)
        try:
            yield
        finally:
            self.spark.sparkContext.setJobDescription("")
            self.seconds[name] = round(time.monotonic() - began, 3)


def publish(inputs: Inputs, output: Output, log: str, now: datetime, stages: Stages) -> dict[str, Any]:
    """Write tables, summary and report, and complete the output. The summary."""

    def write(table: OutputTable) -> None:
        with stages(f"table {table.name}"):
            table.build(inputs).write.mode("overwrite").parquet(output.table(table.name))

    try:
        each(stages.spark, write, TABLES)
    finally:
        inputs.release()
    tables = {
        table.name: stages.spark.read.schema(table.schema).parquet(output.table(table.name))
        for table in TABLES
    }
    with stages("findings"):
        found = findings(tables)
        told = summary(log, inputs.log.window, inputs.bucket_seconds, now, tables, found)
    told = {"run": output.run, **told, "seconds": stages.total, "durations": stages.seconds}
    with stages("report"):
        output.write("report.html", render(collect(told, tables, inputs.cubes.addresses)))
    output.write("summary.json", json.dumps(told, indent=1))
    output.complete()
    return told
