"""Status of a RelaySite, from the routers that are its members. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..names import bridge_service
from ..render import SiteInstance
from ..report import RelayReport, RemoteReport
from ..resources import RelaySite
from ..untrusted import total
from .conditions import INSECURE, Verdict, conditions, joined, no, ready, unknown, yes
from .inputs import PodView, RouterFacts
from .insecure import relay_site_insecure, until_in_effect

_STATES = ("up", "suspect", "unreachable", "left", "unknown")
"""Of what several relays say, what is first here counts."""
_MANY = 1024
OLD, FULL = 0.5, 0.8
"""Parts of the age and of the size of the buffer, beyond which messages will be dropped before long."""


def relaysite_status(
    site: RelaySite,
    source: RouterFacts | None,
    previous: Mapping[str, Any] | None,
    now: str,
    *,
    blocked: Verdict | None = None,
    complaint: Verdict | None = None,
    instance: SiteInstance | None = None,
) -> dict[str, Any]:
    """The complete `status` of a RelaySite. `blocked` says why it is not in effect, `complaint` what is wrong though it
    is; `source` are the facts about its Router, None when there is no such Router, and `instance` is what its routers
    are to have of it, None when it is not in effect."""
    reports = _reports(site, source) if blocked is None else {}
    configured = blocked or complaint or _configured(site, source, reports)
    formed = _formed(site, blocked, source, reports)
    remotes = _remotes(site, reports.values())
    bridged = _bridged(site, blocked, reports, remotes)
    verdicts = {
        "Configured": configured,
        "Formed": formed,
        "Bridged": bridged,
        "Ready": ready([configured, formed, bridged]),
    }
    if configured.reason == "ConfigPending":
        verdicts["Ready"] = ready([formed, configured, bridged])
    elif formed.reason == "SendersWait":  # another site in reach would do
        verdicts["Ready"] = ready([configured, bridged, formed])
    if verdicts["Ready"].holds:
        verdicts["Ready"] = yes("Ready", joined(_lost(remotes)))
    verdicts[INSECURE] = until_in_effect(
        relay_site_insecure(instance), previous, behind=source is not None and source.is_behind
    )
    generation = site.metadata.generation
    view = _view(reports.values())
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": conditions(verdicts, previous, generation, now),
        "formed": f"{len(view.members) if view is not None else 0}/{_wanted(source)}",
        "lagMessages": max((item["lagMessages"] for item in remotes), default=0),
        "lagMilliseconds": max((item["lagMilliseconds"] for item in remotes), default=0),
    }
    if view is not None and view.members:
        status["coordinator"] = view.members[0].name
        status["view"] = _named(view)[:64]
        status["members"] = [
            {"id": item.id, "name": item.name, "relay": item.relay} for item in view.members[:64]
        ]
    if remotes:
        status["remotes"] = ", ".join(f"{item['site']} {item['state']}" for item in remotes)[:2048]
        status["remoteSites"] = remotes
    if blocked is None and site.spec.bridge.expose != "None":
        host = f"{bridge_service(site.name)}.{site.metadata.namespace}.svc"
        status["bridge"] = f"{host}:{site.spec.bridge.port}"
    return status


def _reports(site: RelaySite, source: RouterFacts | None) -> dict[str, RelayReport]:
    """What the members say, by pod."""
    if source is None:
        return {}
    found = {pod.name: report.relay for pod in source.serving if (report := source.report(pod)) is not None}
    own = (site.spec.group, site.spec.site)
    return {name: item for name, item in found.items() if item is not None and (item.group, item.site) == own}


def _configured(site: RelaySite, source: RouterFacts | None, reports: Mapping[str, RelayReport]) -> Verdict:
    if source is None:
        return no("Pending", f'Router "{site.spec.router_ref.name}" (spec.routerRef) does not exist')
    if source.router.metadata.paused:
        return unknown("ReconciliationPaused", f'reconciliation of Router "{source.router.name}" is paused')
    if source.problems:
        return no(source.problems[0].reason, (problem.message for problem in source.problems))
    outdated = [
        *source.outdated,
        *(
            f"{pod.name} is not a member of the site yet"
            for pod in source.serving
            if source.report(pod) is not None and pod.name not in reports
        ),
    ]
    if outdated:
        return no("ConfigPending", dict.fromkeys(outdated))
    return yes("Applied")


def _formed(
    site: RelaySite, blocked: Verdict | None, source: RouterFacts | None, reports: Mapping[str, RelayReport]
) -> Verdict:
    """All replicas are in one view. Routers are asked one after the other, so views that differ are those of a change
    that some had not got when they were asked, unless two of them lead one each."""
    if blocked is not None:
        return no(blocked.reason, blocked.message)
    wanted = _wanted(source)
    if source is None or wanted == 0:
        return no("NoMembers", "its Router is scaled to zero" if source is not None else "there is no Router")
    problems = [f"{pod}: {text}" for pod, report in reports.items() for text in report.problems]
    complete = len(reports) == wanted and all(len(item.members) == wanted for item in reports.values())
    if problems and not complete:  # anybody may try to connect; it matters where a member is missing
        names = all(text.startswith("host ") for report in reports.values() for text in report.problems)
        return no("NameUnresolved" if names else "MembersRefused", problems)
    joined = {pod: item for pod, item in reports.items() if item.members}
    silent = [_silence(source, pod) for pod in source.serving if pod.name not in joined]
    if not joined:
        return no("NoMembers", silent or "no router has started yet")
    views = Counter((item.view, tuple(member.id for member in item.members)) for item in joined.values())
    if len(views) > 1:
        told = [
            f"{pod} is in view {_named(item)} with {len(item.members)} of {wanted} members"
            for pod, item in joined.items()
        ]
        leaders = sum(item.members[0].name == pod for pod, item in joined.items())
        return no("Divided", told) if leaders > 1 else unknown("ViewChanging", "; ".join(told))
    (_, members), count = next(iter(views)), len(joined)
    waits = [] if any(item.accepts for item in joined.values()) else [_WAITS.format(site.spec.copies)]
    if len(members) < wanted:
        return no("MembersMissing", [f"{len(members)} of {wanted} members", *waits, *silent])
    if waits:
        return no("SendersWait", waits)
    if count < wanted:
        return unknown("MembersSilent", f"{len(members)} members; {'; '.join(silent)}")
    return yes("Formed", f"{len(members)} of {wanted} members")


_WAITS = (
    "senders wait: {} members (spec.copies), or another site, must have a message before it is accepted; "
    "have more replicas of the Router, or set copies to 1"
)


def _silence(source: RouterFacts, pod: PodView) -> str:
    return source.silence(pod) if source.report(pod) is None else f"{pod.name} is not a member yet"


def _wanted(source: RouterFacts | None) -> int:
    return source.router.spec.replicas if source is not None else 0


def _named(report: RelayReport) -> str:
    """A view as people read it: number and coordinator."""
    return f"{report.view} of {report.members[0].name}"


def _view(reports: Iterable[RelayReport]) -> RelayReport | None:
    """The report of the largest view, of equally large ones the newest."""
    return max(reports, key=lambda item: (len(item.members), item.view), default=None)


def _remotes(site: RelaySite, reports: Iterable[RelayReport]) -> list[dict[str, Any]]:
    """Each remote site, of what all members say. Only relays have lag. What relays count is added up; what was
    dropped each holder has counted for itself."""
    told: dict[str, list[RemoteReport]] = {}
    for report in reports:
        for item in report.remotes:
            told.setdefault(item.site, []).append(item)
    return [_remote(item.site, told.get(item.site, [])) for item in site.spec.remote_sites or ()]


def _remote(name: str, told: Sequence[RemoteReport]) -> dict[str, Any]:
    state = min((item.state for item in told), key=_rank, default="unknown")
    members = max((item.members for item in told), key=len, default=())
    problem = next((item.problem for item in told if item.problem), "") if state != "up" else ""
    return {
        "site": name,
        "state": state,
        **({"members": [member[:255] for member in members[:128]]} if members else {}),
        "lagMessages": max((item.lag_messages for item in told), default=0),
        "lagMilliseconds": max((item.lag_milliseconds for item in told), default=0),
        "bufferedBytes": max((item.lag_bytes for item in told), default=0),
        "dropped": max((item.dropped for item in told), default=0),
        "replayed": total(item.replayed for item in told),
        "duplicates": total(item.duplicates for item in told),
        "gaps": total(item.gaps for item in told),
        **({"message": problem[:_MANY]} if problem else {}),
    }


def _rank(state: str) -> int:
    return _STATES.index(state) if state in _STATES else len(_STATES)


def _bridged(
    site: RelaySite,
    blocked: Verdict | None,
    reports: Mapping[str, RelayReport],
    remotes: Sequence[Mapping[str, Any]],
) -> Verdict:
    """Every remote site is up, and none is far behind. What was dropped stays in the message until its relays start
    anew."""
    if blocked is not None:
        return no(blocked.reason, blocked.message)
    if not site.spec.remote_sites:
        return yes("NoRemoteSites", "no remote sites are named")
    if not reports:
        return unknown("NoMembers", "no member has reported yet")
    down = [item for item in remotes if item["state"] not in ("up", "suspect")]
    if down:
        reason = "SiteLeft" if all(item["state"] == "left" for item in down) else "SiteUnreachable"
        return no(reason, [*(_down(item) for item in down), *_lost(remotes)])
    behind = [text for item in remotes if (text := _behind(site, item)) is not None]
    if behind:
        return no("RelayLagging", [*behind, *_lost(remotes)])
    count = f"{len(remotes)} remote site{'' if len(remotes) == 1 else 's'} up"
    return yes("AllSitesUp", joined([count, *_lost(remotes)]))


def _lost(remotes: Iterable[Mapping[str, Any]]) -> list[str]:
    return [
        f"{item['dropped']} messages for {item['site']} were dropped from the buffer"
        for item in remotes
        if item["dropped"]
    ]


def _behind(site: RelaySite, item: Mapping[str, Any]) -> str | None:
    """Which bound of the buffer a site that is up comes near, if it does."""
    bounds, seconds = site.spec.buffer, item["lagMilliseconds"] / 1000
    near = []
    if bounds.seconds and seconds > bounds.seconds * OLD:
        near.append(f"the oldest message has waited {seconds:.0f} of {bounds.seconds} s")
    if item["lagMessages"] > bounds.messages * FULL:
        near.append(f"{item['lagMessages']} of {bounds.messages} messages wait")
    if item["bufferedBytes"] > bounds.bytes * FULL:
        near.append(f"{item['bufferedBytes']} of {bounds.bytes} bytes wait")
    return f"site {item['site']} is behind: {', '.join(near)} (spec.buffer)" if near else None


def _down(item: Mapping[str, Any]) -> str:
    waiting = f", {item['lagMessages']} messages wait for it" if item["lagMessages"] else ""
    why = f": {item['message']}" if "message" in item else ""
    return f"site {item['site']} is {_WORDS.get(item['state'], item['state'])}{why}{waiting}"


_WORDS = {"unknown": "not connected yet", "left": "gone: it said goodbye"}
