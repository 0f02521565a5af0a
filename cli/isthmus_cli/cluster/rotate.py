"""Asks for a rotation and follows it to its end."""

from __future__ import annotations

import asyncio

from isthmus_cli.errors import CliError
from isthmus_cli.progress import Say, follow, refusal, wanted
from isthmus_cli.view import Manifest
from isthmus_operator.cluster import ApiError

from .access import Access, Connection, connected

_KIND = "SslProfile"
_ATTEMPTS = 5


def rotate(access: Access, name: str, *, revoke: bool, timeout: float, say: Say) -> None:
    """Raises the ordinal of the SslProfile `name`, and waits at most `timeout` seconds (0: not at all) until
    all its users have followed. Raises CliError when they have not, or when nothing can be rotated."""
    asyncio.run(_rotate(access, name, revoke=revoke, seconds=timeout, say=say))


async def _rotate(access: Access, name: str, *, revoke: bool, seconds: float, say: Say) -> None:
    async with connected(access) as connection:
        request, ordinal = await _ask(connection, name, revoke=revoke)
        say(f"asked for a rotation of SslProfile {name} (request {request})")
        if seconds:
            revoked = ordinal if revoke else None
            await follow(lambda: _get(connection, name), request, revoked=revoked, seconds=seconds, say=say)


async def _ask(connection: Connection, name: str, *, revoke: bool) -> tuple[int, int]:
    """Writes the request; returns its number, and the ordinal before it."""
    for attempt in range(1, _ATTEMPTS + 1):
        manifest = await _get(connection, name)
        refused = refusal(manifest, revoke=revoke)
        if refused is not None:
            raise CliError(refused)
        patch = {
            "metadata": {"resourceVersion": manifest["metadata"]["resourceVersion"]},
            "spec": {"rotation": wanted(manifest, revoke=revoke)},
        }
        try:
            await connection.cluster.merge(_KIND, connection.namespace, name, patch)
        except ApiError as error:
            if error.status == 403:
                raise CliError(
                    f"not allowed to change SslProfiles in namespace {connection.namespace}: {error}"
                ) from None
            if error.status != 409 or attempt == _ATTEMPTS:
                raise
        else:
            break
    return int(patch["spec"]["rotation"]["request"]), int(manifest["status"]["ordinal"])


async def _get(connection: Connection, name: str) -> Manifest:
    manifest = await connection.cluster.get(_KIND, connection.namespace, name)
    if manifest is None:
        raise CliError(f"there is no SslProfile {name!r} in namespace {connection.namespace}")
    return manifest
