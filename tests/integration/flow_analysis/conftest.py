"""One Spark session for all tests of the flow analysis: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from isthmus_flows.session import spark_session

_SMALL = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "2",
    "spark.sql.catalogImplementation": "in-memory",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, small shuffles, no user interface."""
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        **_SMALL,
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    arguments = " ".join(f'--conf "{name}={value}"' for name, value in settings.items())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"{arguments} pyspark-shell")
        session = spark_session("isthmus-flows-tests", "local[2]")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    yield session
    session.stop()
