"""Settings of Spark for queries of few rows."""

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Expressions are interpreted, as it takes longer to compile them. `isthmus flows report` and the tests on a cluster
compile them, as users do."""
