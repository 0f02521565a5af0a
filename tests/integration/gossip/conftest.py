"""Gossip routers and members that end with the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.gossip.support import GossipRouter, Member
from tests.integration.support.certificates import Identity

from isthmus_router.gossip.client import ClientSettings

StartRouter = Callable[..., Awaitable[GossipRouter]]
StartMember = Callable[..., Member]


@pytest.fixture
def start_router(tmp_path: Path) -> Iterator[StartRouter]:
    """Starts a router with these options."""
    started: list[GossipRouter] = []

    async def start(*options: str, identity: Identity | None = None) -> GossipRouter:
        router = GossipRouter(tmp_path, *options, identity=identity)
        started.append(router)
        return await router.start()

    yield start
    for router in started:
        router.kill()


@pytest.fixture
async def start_member() -> AsyncIterator[StartMember]:
    """Starts a member of these routers."""
    started: list[Member] = []

    def start(name: str, *routers: GossipRouter, settings: ClientSettings | None = None) -> Member:
        member = Member(name, [router.endpoint for router in routers], settings)
        started.append(member)
        return member

    yield start
    for member in started:
        await member.end()
