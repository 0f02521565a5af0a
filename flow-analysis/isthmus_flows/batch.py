"""A run over a window: the log is read, added up to cubes, and these are told of in tables and a report."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from isthmus_flowlog.schema import DELIVERIES
from isthmus_flows.cubes import Cubes, cubes
from isthmus_flows.log import Window, read_hours, read_log
from isthmus_flows.log.files import LogFolder
from isthmus_flows.output import Output
from isthmus_flows.publish import Stages, publish
from isthmus_flows.store import keep, kept
from isthmus_flows.tables import Inputs


@dataclass(frozen=True, slots=True)
class Settings:
    """What is asked for, in every mode."""

    log: str
    output: str
    bucket_seconds: int = 60
    baseline_days: int = 7
    top: int = 100
    keep: int | None = None
    """How many runs are kept in `output`; None: all."""


def run(spark: SparkSession, settings: Settings, window: Window, now: datetime) -> dict[str, object]:
    """One run. Its summary, with `run`, the name of its folder. Raises ValueError if the log is not there."""
    stages = Stages(spark)
    with stages("read"):
        log = read_log(spark, settings.log, window)
    output = Output(spark, settings.output, now)
    try:
        with stages("add up"):
            keep(cubes(log.deliveries, settings.bucket_seconds), f"{output.cubes}/window")
            of_window = kept(spark, f"{output.cubes}/window")
        with stages("add up earlier days"):
            earlier = _earlier(spark, settings, window, f"{output.cubes}/earlier")
        inputs = Inputs(
            log, of_window, settings.bucket_seconds, earlier, settings.baseline_days, settings.top
        )
        summary = publish(inputs, output, settings.log, now, stages)
    except BaseException:
        output.abandon()
        raise
    if settings.keep is not None:
        output.keep(settings.keep)
    return summary


def _earlier(spark: SparkSession, settings: Settings, window: Window, url: str) -> Cubes | None:
    hours = window.earlier(settings.baseline_days)
    if not hours:
        return None
    rows: DataFrame = read_hours(spark, LogFolder(spark, settings.log), DELIVERIES, hours).rows
    keep(cubes(rows.where(F.col("end_time") < F.lit(window.start)), settings.bucket_seconds), url)
    return kept(spark, url)
