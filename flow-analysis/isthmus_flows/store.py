"""Cubes on disk, so that they are computed once: of one run, or of the hours that a stream has seen."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from isthmus_flowlog.schema import DELIVERIES
from isthmus_flows.cubes import CUBES, Cubes, cubes
from isthmus_flows.log.places import HOUR
from isthmus_flows.parallel import each
from isthmus_flows.spark_schema import spark_schema

_VERSION, _HOUR = "version", "hour"


def keep(found: Cubes, url: str) -> None:
    """Write them to a folder."""

    def write(name: str) -> None:
        found.named()[name].write.mode("overwrite").parquet(f"{url}/{name}")

    each(found.traffic.sparkSession, write, CUBES)


def kept(spark: SparkSession, url: str) -> Cubes:
    """What `keep` has written."""
    return Cubes(**{name: spark.read.schema(_schema(spark, name)).parquet(f"{url}/{name}") for name in CUBES})


def keep_hours(rows: DataFrame, bucket_seconds: int, url: str, version: int) -> None:
    """Compute the cubes of rows (with `HOUR`), each hour for itself, and write them as what is true of these hours from
    this version on."""
    found = cubes(rows, bucket_seconds, HOUR).named()

    def write(name: str) -> None:
        frame = found[name].withColumnRenamed(HOUR, _HOUR).hint("rebalance", _HOUR)
        frame.write.mode("overwrite").partitionBy(_HOUR).parquet(f"{url}/{name}/{_VERSION}={version}")

    each(rows.sparkSession, write, CUBES)


def kept_hours(spark: SparkSession, url: str, versions: Mapping[int, int]) -> Cubes:
    """The cubes of some hours, of each by its version."""
    wanted = [f"{version}/{hour}" for hour, version in versions.items()]

    def read(name: str) -> DataFrame:
        schema = _schema(spark, name)
        if not wanted:
            return spark.createDataFrame([], schema)
        schema = schema.add(_VERSION, T.LongType()).add(_HOUR, T.LongType())
        rows = spark.read.schema(schema).parquet(f"{url}/{name}")
        return rows.where(F.concat_ws("/", _VERSION, _HOUR).isin(wanted)).drop(_VERSION, _HOUR)

    return Cubes(**{name: read(name) for name in CUBES})


def version_in(folder: str) -> int | None:
    """The version that a folder below a cube's is of."""
    name, _, number = folder.partition("=")
    return int(number) if name == _VERSION and number.isdigit() else None


def _schema(spark: SparkSession, name: str) -> T.StructType:
    empty = spark.createDataFrame([], spark_schema(DELIVERIES))
    return cubes(empty, 60).named()[name].schema
