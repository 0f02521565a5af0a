"""The operator's log can be read together with the routers'."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from io import StringIO
from typing import Any

import pytest

from isthmus_operator.logs import JsonFormatter
from isthmus_router.logs import RouterLog


def written(handler: logging.Handler, stream: StringIO, **record: Any) -> dict[str, Any]:
    handler.handle(logging.makeLogRecord({"levelno": logging.WARNING, "levelname": "WARNING", **record}))
    (line,) = stream.getvalue().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_line_has_the_keys_of_a_routers_line(unchanged_logging: None) -> None:
    stream, router_stream = StringIO(), StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    record = {"name": "SERVER", "msg": "lost %s", "args": ("Zoë",), "created": 1700000000.5}
    ours = written(handler, stream, **record)
    routers = written(RouterLog(router_stream), router_stream, **record)
    assert ours["ts"] == "2023-11-14T22:13:20.500Z"
    assert ours == routers


def test_exceptions_and_objects_are_fields() -> None:
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    try:
        raise ValueError("broken")
    except ValueError:
        found = written(handler, stream, name="x", msg="m", exc_info=sys.exc_info(), k8s_ref={"name": "west"})
    assert found["object"] == {"name": "west"}
    assert found["exception"].endswith("ValueError: broken")


@pytest.mark.parametrize("style", ["json", "plain"])
def test_long_texts_are_cut(style: str) -> None:
    program = (
        "import logging, sys; from isthmus_operator.logs import configure;"
        f"configure({style!r}, 'info'); log = logging.getLogger('isthmus_operator');"
        "\ntry: raise ValueError('x' * 1_000_000)\nexcept ValueError: log.exception('y' * 1_000_000);"
        "\nlogging.getLogger('kopf._cogs.clients.watching').warning('Ignoring an unsupported event type')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=True)
    assert 16_384 < len(done.stderr) < 40_000
    assert b"more characters)" in done.stderr
    assert b"Ignoring" not in done.stderr


HIDDEN = "a\x1b[2J\x9b31m\u202eb\n\ufeffc"


@pytest.mark.parametrize("style", ["json", "plain"])
def test_texts_of_others_are_escaped(style: str) -> None:
    program = (
        "import logging, sys; from isthmus_operator.logs import configure;"
        f"configure({style!r}, 'info'); log = logging.getLogger('isthmus_operator');"
        f"text = {HIDDEN!r};"
        "log.warning('told %s', text);"
        "\ntry: raise ValueError(text)\nexcept ValueError: log.exception('failed')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=True)
    output = done.stderr.decode()
    told, *failed = output.splitlines()
    assert r"a\u001b[2J\u009b31m\u202eb\u000a\ufeffc" in told.replace(r"\n", r"\u000a")
    assert failed
    assert not [character for character in output if character != "\n" and not character.isprintable()]
    if style == "json":
        assert json.loads(told)["message"] == f"told {HIDDEN}"
        assert len(failed) == 1


def test_the_process_writes_such_lines() -> None:
    program = (
        "import logging; from isthmus_operator.logs import configure;"
        "configure('json', 'info'); logging.getLogger('isthmus_operator').info('hello');"
        "logging.getLogger('kopf.objects').info('an event')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=True)
    (line,) = done.stderr.decode().splitlines()
    assert set(json.loads(line)) == {"ts", "level", "module", "message"}
