"""`python -m tests.cluster.rights FOLDER`: whether each right of the chart was used in the tests of the cluster.

The API servers of these tests write audit logs. Each process of tests leaves what its log says in FOLDER, a file each;
see docs/test-cluster.md. Exit status: 1 if a right was never used, or if a request of the operator or of a driver was
forbidden while its rights were in place; 0 also if only some of the tests have run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from .harness.local.binaries import built

CHART = Path(__file__).parents[2] / "charts" / "isthmus"
RELEASE = "isthmus"
ASKED = ("bind", "drive")
"""Verbs of rights that no request has: the API server and admission policies ask for them (`test_rights.py`)."""
ASKED_ABOUT = "/finalizers"
"""Ending of resources of such rights."""
FORBIDDEN = 403
MARGIN = timedelta(seconds=10)
"""The API server may hear of a binding that was made so much later. And of two requests at the same time, such as the
deletion of a namespace and a watch, the log may have the later one first."""
_NEVER = datetime.max.replace(tzinfo=UTC)
_ALLOWED = re.compile(
    r'RBAC: allowed by (?P<binding>\w+) "(?P<name>[^"/]*)(/(?P<place>[^"]*))?" of (?P<kind>\w+) "(?P<role>[^"]*)"'
)
_OURS = re.compile(rf"system:serviceaccount:[^:]+:({RELEASE}-operator|.+-analysis)")
"""Service accounts of operators and of drivers of FlowAnalyses."""
_GIVING = {
    "rolebindings": "RoleBinding",
    "clusterrolebindings": "ClusterRoleBinding",
    "roles": "Role",
    "clusterroles": "ClusterRole",
}

Event = Mapping[str, Any]


@dataclass(frozen=True, order=True)
class Right:
    """One verb on one resource of an API group, by a role."""

    role: str
    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.role}: {self.verb} {self.resource}{f' of {self.group}' * bool(self.group)}"


@dataclass
class Findings:
    """What audit logs say: the rights that were used, and requests that were forbidden."""

    used: set[Right] = field(default_factory=set)
    forbidden: list[str] = field(default_factory=list)
    complete: bool = False
    """Whether all tests of the cluster ran, in one process or in several."""

    def write(self, folder: Path) -> None:
        used = [[right.role, right.group, right.resource, right.verb] for right in sorted(self.used)]
        document = {"used": used, "forbidden": self.forbidden, "complete": self.complete}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{uuid.uuid4()}.json").write_text(json.dumps(document))

    @classmethod
    def read(cls, folder: Path) -> Findings:
        """All that processes have left in a folder, which need not exist."""
        found = cls()
        for document in (json.loads(path.read_text()) for path in folder.glob("*.json")):
            found.used |= {Right(*words) for words in document["used"]}
            found.forbidden += document["forbidden"]
            found.complete |= document["complete"]
        return found


class _Bindings:
    """Which roles and role bindings were deleted when, by the requests of a log in their order."""

    def __init__(self) -> None:
        self._allowed: dict[str, set[tuple[str | None, str]]] = {}
        """To each account, the namespaces (None: all) in which objects of these names have given it rights."""
        self._gone: dict[str, list[tuple[datetime, datetime]]] = {}
        """To each of these objects that was deleted: from when to when it was not there, each time."""

    def have_allowed(self, account: str, found: re.Match[str]) -> None:
        place = found["place"]
        binding = _name(found["binding"], found["name"], place)
        role = _name(found["kind"], found["role"], None if found["kind"] == "ClusterRole" else place)
        self._allowed.setdefault(account, set()).update({(place, binding), (place, role)})

    def changed(self, event: Event) -> None:
        """Take note of a request that may have made or deleted roles or bindings."""
        about = event["objectRef"]
        kind = _GIVING.get(about["resource"])
        if kind is None or event.get("responseStatus", {}).get("code", 0) >= 300:
            return
        place = about.get("namespace")
        name = _name(kind, about.get("name", ""), place)
        if event["verb"] == "create" and name in self._gone:
            began, _ = self._gone[name][-1]
            self._gone[name][-1] = began, _time(event) + MARGIN
        elif event["verb"] == "delete":
            self._deleted(name, event)
        elif event["verb"] == "deletecollection":
            known = {item for items in self._allowed.values() for where, item in items if where == place}
            for item in known:
                if item.startswith(f"{kind} "):
                    self._deleted(item, event)

    def _deleted(self, name: str, event: Event) -> None:
        self._gone.setdefault(name, []).append((_time(event), _NEVER))

    def withdrawn(self, event: Event) -> bool:
        """Whether a request may be forbidden because what gave its account the right had been deleted. To be asked when
        all requests are known."""
        place, account = event["objectRef"].get("namespace"), event["user"]["username"]
        return any(
            began - MARGIN <= _time(event) < end
            for where, name in self._allowed.get(account, ())
            if where in {None, place}
            for began, end in self._gone.get(name, ())
        )


def _name(kind: str, name: str, namespace: str | None) -> str:
    return f"{kind} {namespace}/{name}"


def _time(event: Event) -> datetime:
    return datetime.fromisoformat(event["requestReceivedTimestamp"])


def findings(events: Iterable[Event]) -> Findings:
    """Rights that requests of service accounts have used, and requests of operators and drivers that were forbidden
    although nobody had deleted the role or its binding."""
    found, bindings = Findings(), _Bindings()
    refused: list[tuple[Event, str]] = []
    for event in sorted(events, key=lambda item: str(item["requestReceivedTimestamp"])):
        about = event.get("objectRef")
        if about is None:
            continue
        bindings.changed(event)
        account = event["user"]["username"]
        resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
        notes = event.get("annotations", {})
        if allowed := _ALLOWED.match(notes.get("authorization.k8s.io/reason", "")):
            bindings.have_allowed(account, allowed)
            if event.get("responseStatus", {}).get("code") != FORBIDDEN:
                found.used.add(Right(allowed["role"], about.get("apiGroup", ""), resource, event["verb"]))
        elif notes.get("authorization.k8s.io/decision") == "forbid" and _OURS.fullmatch(account):
            what = " ".join(filter(None, (event["verb"], resource, about.get("name"))))
            where = about.get("namespace", "all namespaces")
            refused.append((event, f"{event['requestReceivedTimestamp']} {account}: {what} in {where}"))
    found.forbidden += [text for event, text in refused if not bindings.withdrawn(event)]
    return found


def events(logs: Iterable[Path], since: datetime) -> Iterator[Event]:
    """The requests in audit logs that came after a time."""
    for log in logs:
        with log.open() as lines:
            for line in lines:
                event = json.loads(line)
                if _time(event) >= since:
                    yield event


def granted(manifests: Iterable[Mapping[str, Any]]) -> set[Right]:
    """The rights that roles of the chart give to service accounts, and that requests have."""
    roles = [item for item in manifests if item["kind"] in {"Role", "ClusterRole"}]
    own = [item for item in roles if not any("aggregate-to" in key for key in item["metadata"]["labels"])]
    rights = {
        Right(role["metadata"]["name"], group, resource, verb)
        for role in own
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    return {item for item in rights if item.verb not in ASKED and not item.resource.endswith(ASKED_ABOUT)}


def verdict(rights: set[Right], found: Findings) -> list[str]:
    """What is wrong, a line each."""
    unused = sorted(rights - found.used)
    return [
        *(f"No request has used a right of the chart: {right}" for right in unused),
        *(f"A request was forbidden: {request}" for request in found.forbidden),
    ]


def rendered(*values: str) -> list[dict[str, Any]]:
    """The objects of the chart."""
    settings = [word for value in values for word in ("--set", value)]
    command = [str(built(["helm"])["helm"]), "template", RELEASE, str(CHART), *settings]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return [item for item in yaml.safe_load_all(text) if item]


def main(folder: Path) -> int:
    found = Findings.read(folder)
    if not found.complete:
        print("rights: not compared, as not all tests of the cluster have run with an audit log")
        return 0
    rights = granted(rendered()) | granted(rendered("watchNamespaces={*}"))
    problems = verdict(rights, found)
    print("\n".join(problems) or f"rights: each of {len(rights)} was used, and no request was forbidden")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
