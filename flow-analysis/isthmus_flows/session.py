"""The Spark session of an analysis."""

from __future__ import annotations

from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    # A damaged page is to be found, not to be taken for numbers.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def spark_session(name: str = "isthmus-flows", master: str | None = None) -> SparkSession:
    """A session with what an analysis needs. `master` is for one that nothing else says, such as `local[*]`; otherwise
    Spark's own configuration (`SPARK_CONF_DIR`, `PYSPARK_SUBMIT_ARGS`) says where it runs and with how much."""
    builder = SparkSession.builder
    if master is not None:
        builder = builder.master(master).appName(name)
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
