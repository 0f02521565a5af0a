"""Settings of the unit tests."""

import logging
from collections.abc import Iterator

import pytest

from isthmus_router.config.tables.router import LOG_MODULES


@pytest.fixture
def unchanged_logging() -> Iterator[None]:
    """What a test sets of the loggers of its process is undone after it."""
    handlers, root_level = logging.root.handlers, logging.root.level
    yield
    logging.root.handlers = handlers
    logging.root.setLevel(root_level)
    for module in LOG_MODULES:
        logging.getLogger(module).setLevel(logging.NOTSET)
