"""Which `Host` headers are answered: a web page must not read a router through a name that it has pointed at it.

A browser that is made to resolve a foreign name to the address of a router (DNS rebinding) sends that name as `Host`.
Addresses, the name of the machine, names without a dot and names that no registry gives out are none of those. Others
have to be stated in `ISTHMUS_HTTP_HOSTS`, separated by commas; `*` answers all. In a pod all are answered unless the
variable is set: the proxy of the API server passes on the name that its client has used for it, and browsers do not
reach pods.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping

VARIABLE = "ISTHMUS_HTTP_HOSTS"
ANY = "*"
_IN_A_POD = "KUBERNETES_SERVICE_HOST"
_LOCAL_SUFFIXES = (".localhost", ".svc", ".cluster.local")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?")

AnswersHost = Callable[[str | None], bool]


def hosts(environment: Mapping[str, str] = os.environ, *own: str) -> AnswersHost:
    """Whether a request with a `Host` header, None without one, is answered; `own` are names of the listener."""
    stated = environment.get(VARIABLE)
    if stated is None and _IN_A_POD in environment:
        stated = ANY
    given = (*(stated or "").split(","), *own, os.uname().nodename)
    names = {name.strip().lower().rstrip(".") for name in given} - {""}
    if ANY in names:
        return lambda _: True
    return lambda header: header is None or _answered(header.strip(), names)


def _answered(header: str, names: set[str]) -> bool:
    match = _HOST.fullmatch(header)
    if match is None:
        return False
    name = match[1].lower().rstrip(".")
    if name in names or "." not in name.strip("[]") or name.endswith(_LOCAL_SUFFIXES):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
