"""Reading resources: a manifest (decoded YAML or an API object) becomes a typed resource or a clear error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from .base import API_VERSION, BrokenRuleError, Model
from .connector import Connector
from .flowanalysis import FlowAnalysis
from .flowlog import FlowLog
from .gossiprouter import GossipRouter
from .kinds import KINDS
from .linkroute import LinkRoute
from .relaysite import RelaySite
from .router import Router
from .sslprofile import SslProfile

Resource = Router | Connector | LinkRoute | RelaySite | GossipRouter | SslProfile | FlowLog | FlowAnalysis


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a manifest: where (keys and list indices from its root) and what."""

    path: tuple[str | int, ...]
    message: str
    unknown_field: bool = False

    def __str__(self) -> str:
        text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        return f"{text.lstrip('.') or 'object'}: {self.message}"


class InvalidResourceError(ValueError):
    """A manifest that the schema refuses. The text lists every problem as `path: what is wrong`."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems


def parse(manifest: Mapping[str, Any], *, strict: bool = False) -> Resource:
    """The resource of `manifest`.

    With `strict`, fields the schema does not know are errors; the API server prunes them, a file on disk
    has had nobody to notice the typo. Raises InvalidResourceError.
    """
    kind = manifest.get("kind")
    if manifest.get("apiVersion") != API_VERSION:
        raise InvalidResourceError(
            Problem(("apiVersion",), f"{manifest.get('apiVersion')!r} is not {API_VERSION}")
        )
    models: dict[Any, type[Model]] = {entry.kind: entry.model for entry in KINDS}
    if kind not in models:
        raise InvalidResourceError(Problem(("kind",), f"{kind!r} is not one of {', '.join(sorted(models))}"))
    body = {key: manifest[key] for key in ("metadata", "spec") if key in manifest}
    try:
        resource = models[kind].model_validate(body, extra="forbid" if strict else "ignore")
    except ValidationError as error:
        raise InvalidResourceError(*(_problem(item) for item in error.errors())) from None
    assert isinstance(resource, Resource)
    return resource


def _problem(item: Any) -> Problem:
    unknown = item["type"] == "extra_forbidden"
    message = "unknown field" if unknown else item["msg"].removeprefix("Value error, ")
    cause = item.get("ctx", {}).get("error")
    path = cause.path if isinstance(cause, BrokenRuleError) else ()
    return Problem((*item["loc"], *path), message, unknown)
