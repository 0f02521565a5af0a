"""Clients that speak the RPC of Spark, from a JVM of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

Settings = Mapping[str, str]
ANSWERED = "answered"
TIMEOUT_S = 900
VERIFIER = "endpoint-verifier"
"""The endpoint that every server of Spark has."""
_LOOKUP = {"spark.rpc.lookupTimeout": "120s", "spark.rpc.io.maxRetries": "0", "spark.rpc.numRetries": "1"}
_CLIENTS = """
import json, sys
from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import launch_gateway

asked = json.loads(sys.argv[1])
jvm = launch_gateway().jvm
spark = jvm.org.apache.spark
config = getattr(getattr(spark.internal.config, "package$"), "MODULE$")

def environment(settings, client):
    conf = spark.SparkConf(False)
    for key, value in settings.items():
        conf.set(key, value)
    manager = spark.SecurityManager(conf, jvm.scala.Option.empty(), config.AUTH_SECRET_FILE())
    if not client:
        manager.initializeAuth()
    return spark.rpc.RpcEnv.create("test", "127.0.0.1", "127.0.0.1", 0, conf, manager, 1, client)

address = asked["address"]
if asked["server"] is not None:
    address = "127.0.0.1:%d" % environment(asked["server"], False).address().port()
found = {}
for name, settings in asked["clients"].items():
    client = environment(settings, True)
    try:
        client.setupEndpointRefByURI("spark://%s@%s" % (asked["endpoint"], address))
        found[name] = "answered"
    except Py4JJavaError as error:
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        found[name] = cause.toString()
    finally:
        client.shutdown()
print(json.dumps(found))
"""


def ask(address: str, endpoint: str, clients: Mapping[str, Settings]) -> dict[str, str]:
    """Have each of `clients`, which are settings of Spark by name, look an endpoint up at `address` (`host:port`).
    Returns `ANSWERED` or the error for each."""
    return _run(address, None, endpoint, clients)


def ask_own(server: Settings, clients: Mapping[str, Settings]) -> dict[str, str]:
    """The same with a server of its own, which has the settings `server`."""
    return _run(None, server, VERIFIER, clients)


def _run(
    address: str | None, server: Settings | None, endpoint: str, clients: Mapping[str, Settings]
) -> dict[str, str]:
    asked = {
        "address": address,
        "server": server,
        "endpoint": endpoint,
        "clients": {name: {**_LOOKUP, **settings} for name, settings in clients.items()},
    }
    command = [sys.executable, "-c", _CLIENTS, json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def with_secret(secret: str, **others: str) -> Settings:
    """Settings of a client that has `secret`."""
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret,
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.saslFallback": "false",
        **others,
    }
