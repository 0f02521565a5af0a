"""The secret by which the driver and the executors of one run authenticate each other.

The operator mounts a random key, the same for all runs of a FlowAnalysis, in the pods of driver and executors. Both
derive the secret of their run from it, so that a run refuses executors of other runs.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

KEY_FILE, SECRET_FILE = "ISTHMUS_SPARK_KEY_FILE", "ISTHMUS_SPARK_SECRET_FILE"
"""Names of variables: the path of the key, and the path at which Spark reads the secret."""
MIN_KEY_BYTES = 32
_PURPOSE = b"isthmus spark.authenticate "


def secret_of(key: bytes, run: str) -> bytes:
    """Return the secret of `run`, which is the id of its Spark application. `key` has at least 32 bytes."""
    return hmac.digest(key, _PURPOSE + run.encode(), hashlib.sha256)


def write_secret(environment: Mapping[str, str], run: str) -> None:
    """Write the secret of `run` to the file that `environment` names, readable by this user only. Without the two
    variables, as on one machine, nothing is written. Raises ValueError, also if the key cannot be read."""
    key_file, secret_file = environment.get(KEY_FILE), environment.get(SECRET_FILE)
    if not key_file or not secret_file:
        return
    try:
        key = Path(key_file).read_bytes()
        if len(key) < MIN_KEY_BYTES:
            raise ValueError(
                f"{key_file} ({KEY_FILE}) has {len(key)} bytes; it needs at least {MIN_KEY_BYTES}"
            )
        descriptor, unfinished = tempfile.mkstemp(dir=Path(secret_file).parent)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o400)
            file.write(secret_of(key, run))
        os.replace(unfinished, secret_file)
    except OSError as error:
        raise ValueError(f"the secret of the run cannot be made: {error}") from None
