"""What the image has for s3a:// fits the Hadoop that PySpark brings."""

from __future__ import annotations

import re
from pathlib import Path

import pyspark

POM = Path(__file__).parents[3] / "flow-analysis" / "object-store.pom.xml"


def test_it_is_of_the_same_version() -> None:
    (version,) = re.findall(r"<hadoop\.version>(.*)</hadoop\.version>", POM.read_text())
    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    assert client.name == f"hadoop-client-api-{version}.jar"
