"""The Spark session of an analysis."""

from __future__ import annotations

from typing import Any

from pyspark import SparkConf, SparkContext
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
    _make_folder_of_events()
    builder = SparkSession.builder
    if master is not None:
        builder = builder.master(master).appName(name)
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _make_folder_of_events() -> None:
    """Where event logs are kept: Spark wants it to be there before it starts."""
    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    conf: Any = SparkConf()
    folder = (
        conf.get("spark.eventLog.dir", "") if conf.get("spark.eventLog.enabled", "false") == "true" else ""
    )
    if folder:
        hadoop = jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(conf._jconf)
        path = jvm.org.apache.hadoop.fs.Path(folder)
        path.getFileSystem(hadoop).mkdirs(path)
