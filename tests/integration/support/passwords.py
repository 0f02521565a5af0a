"""Users with passwords: a database of Cyrus SASL, made for one test run."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.integration.support.routers import Router

REALM = "isthmus"
PASSWORD = "secret"


def sasldb(folder: Path, *users: str, realm: str = REALM) -> Path:
    """A database of `users`, who log in as `USER@REALM` with PASSWORD."""
    database = folder / "users.sasldb"
    for user in users:
        subprocess.run(
            ["saslpasswd2", "-c", "-p", "-f", str(database), "-u", realm, user],
            input=PASSWORD.encode(),
            check=True,
            timeout=30,
            env={"PATH": "/usr/local/sbin:/usr/sbin:/usr/bin:/bin"},
        )
    return database


def user_database(folder: Path, *users: str) -> Path:
    """A Cyrus SASL configuration in `folder` with `users`, who log in as `USER@isthmus` with PASSWORD."""
    database = sasldb(folder, *users)
    (folder / "isthmus-test.conf").write_text(
        f"pwcheck_method: auxprop\nauxprop_plugin: sasldb\nsasldb_path: {database}\n"
        "mech_list: PLAIN SCRAM-SHA-256 ANONYMOUS EXTERNAL\n"
    )
    return folder


def use_database(router: Router, folder: Path) -> None:
    """Have a router, not started yet, check passwords by the database in `folder`."""
    router.sections[0][1].update(saslConfigDir=str(folder), saslConfigName="isthmus-test")
