"""Fixtures: members that end with the test; each test runs with asyncio's event loop and with uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest_asyncio
import uvloop
from tests.integration.transport.recorder import Members


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Both event loops."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest_asyncio.fixture
async def members() -> AsyncIterator[Members]:
    """Members of one test."""
    started = Members()
    yield started
    await started.close()
