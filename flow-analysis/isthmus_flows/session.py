"""The Spark session of an analysis."""

from __future__ import annotations

from collections.abc import Mapping
from subprocess import Popen, TimeoutExpired
from threading import Lock
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A damaged page is to be found, not to be taken for numbers.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    # Hadoop's default is of a library that would be as large as all others for s3a together.
    "spark.hadoop.fs.s3a.input.stream.type": "classic",
}
ROWS_PER_PARTITION = 250_000
"""Of a shuffle. Spark joins partitions that are too small, but only after it has made them; it cannot divide one."""
_PARTITIONS = "spark.sql.shuffle.partitions"
COMPILED_ROWS = 100_000
"""With fewer rows, to compile expressions takes longer than to interpret them: a fifth of the CPU of a small run."""
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
_LOCK = Lock()
_SECONDS_TO_END = 5.0
_TOO_MANY_LOST = 11
"""Exit code EXCEED_MAX_EXECUTOR_FAILURES of Spark."""
_OUT_OF_MEMORY = (52, -9)
"""That of Spark, and a kill by the kernel."""


def spark_session(
    name: str = "isthmus-flows", master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session with what an analysis needs. `master` and `settings` are for one that nothing else says; otherwise
    Spark's own configuration (`SPARK_CONF_DIR`, `PYSPARK_SUBMIT_ARGS`) says where it runs and with how much."""
    asked = {**_SETTINGS, **(settings or {})}
    if master is not None:
        asked |= {"spark.master": master, "spark.app.name": name}
    _make_folder_of_events(asked)
    builder = SparkSession.builder
    for key, value in asked.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if session.sparkContext.getConf().get(_PARTITIONS) is None:
        session.conf.set(_PARTITIONS, 1)
    _set_unless_configured(session, _INTERPRETED)
    return session


def prepare_for(spark: SparkSession, rows: int) -> None:
    """Give shuffles of so many rows enough partitions, and compile expressions if that is worth its time. What the
    configuration says is left as it is."""
    if rows >= COMPILED_ROWS:
        _set_unless_configured(spark, _COMPILED)
    if spark.sparkContext.getConf().get(_PARTITIONS) is None:
        needed = -(-rows // ROWS_PER_PARTITION)
        with _LOCK:
            if needed > int(spark.conf.get(_PARTITIONS) or 1):
                spark.conf.set(_PARTITIONS, needed)


def _set_unless_configured(spark: SparkSession, settings: Mapping[str, str]) -> None:
    configured = spark.sparkContext.getConf()
    for name, value in settings.items():
        if configured.get(name) is None:
            spark.conf.set(name, value)


def end_of_spark() -> str | None:
    """Why Spark's own process has ended; None if it runs, or has ended as it was told to."""
    process: Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        code = process.wait(_SECONDS_TO_END)
    except TimeoutExpired:
        return None
    if code == _TOO_MANY_LOST:
        return "Spark has given up, as its executors end again and again: their logs, or their pods' states, say why"
    if code in _OUT_OF_MEMORY:
        return f"Spark's driver needs more memory: its process has ended with {code}"
    return f"Spark's driver has ended with {code}: its log says why" if code else None


def _make_folder_of_events(asked: Mapping[str, str]) -> None:
    """Where event logs are kept: Spark wants it to be there before it starts. This starts the JVM, whose memory is
    among what is `asked`."""
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(asked.items())))
    jvm: Any = SparkContext._jvm
    conf: Any = SparkConf()
    folder = (
        conf.get("spark.eventLog.dir", "") if conf.get("spark.eventLog.enabled", "false") == "true" else ""
    )
    if folder:
        hadoop = jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(conf._jconf)
        path = jvm.org.apache.hadoop.fs.Path(folder)
        path.getFileSystem(hadoop).mkdirs(path)
