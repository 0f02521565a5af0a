"""A run over a window: the log is read, added up to cubes, and these are told of in tables and a report."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from isthmus_flowlog.schema import DELIVERIES
from isthmus_flows.cubes import Cubes, cubes
from isthmus_flows.log import Window, read_hours, read_log
from isthmus_flows.log.files import LogFolder
from isthmus_flows.output import making
from isthmus_flows.publish import Stages, publish
from isthmus_flows.settings import Settings
from isthmus_flows.store import keep, kept
from isthmus_flows.tables import Inputs


def run(spark: SparkSession, settings: Settings, window: Window, now: datetime) -> dict[str, Any]:
    """One run. Its summary, with `run`, the name of its folder. Raises NoLogError if the log is not there."""
    stages = Stages(spark)
    with stages("read"):
        log = read_log(spark, settings.log, window)
    with making(spark, settings, now) as output:
        with stages("add up"):
            keep(cubes(log.deliveries, settings.bucket_seconds), f"{output.cubes}/window")
            of_window = kept(spark, f"{output.cubes}/window")
        with stages("add up earlier days"):
            earlier = _earlier(spark, settings, window, f"{output.cubes}/earlier")
        inputs = Inputs(
            log, of_window, settings.bucket_seconds, earlier, settings.baseline_days, settings.top
        )
        return publish(inputs, output, settings.log, now, stages)


def _earlier(spark: SparkSession, settings: Settings, window: Window, url: str) -> Cubes | None:
    hours = window.earlier(settings.baseline_days)
    if not hours:
        return None
    rows: DataFrame = read_hours(spark, LogFolder(spark, settings.log), DELIVERIES, hours).rows
    keep(cubes(rows.where(F.col("end_time") < F.lit(window.start)), settings.bucket_seconds), url)
    return kept(spark, url)
