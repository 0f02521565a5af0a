"""Failed logins: how many passwords a host may try before the router refuses further ones unchecked.

A host has an allowance for each user name, and a larger one for all names together. So a host that tries passwords
takes no allowance from other hosts, and a name that many passwords were tried for stays usable from other hosts. A name
that has logged in from a host does not depend on the allowance for all names of that host: behind one network address
there may be many clients.

Successful logins restore no allowance: otherwise each login of a client would permit further attempts to an attacker
behind the same address.

Logins that a host begins and does not finish have allowances of their own. They are larger, because a connection may
break at any time, and nothing is guessed. A login takes its part of them when it costs something, and gives it back
when it has an outcome. So those under way count as well.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

NAMES_AT_ONCE = 10
"""The allowance of a host for all names, in those for one name."""
BEGUN_FOR_NAME, BEGUN_FOR_HOST = 5, 10
"""The allowances of a host for logins without an outcome, for one name and for all, in failures for one name."""
MOST_HOSTS = 4096
MOST_NAMES = 8192
"""Pairs of host and name."""
LONGEST_NAME = 128
"""Characters of a name that is remembered as it is; of a longer one a hash is."""
WHITE_SPACE = " \t\n\v\f\r"
"""What Cyrus SASL removes at both ends of a name (`canonusr.c`)."""
MINUTE = 60.0

_Key = TypeVar("_Key", bound=Hashable)


class _Allowances(Generic[_Key]):
    """Failures that each key may still have; beyond `most_keys` the one without a failure for longest is forgotten."""

    def __init__(self, per_minute: int, most_keys: int) -> None:
        self._per_minute = per_minute
        self._most_keys = most_keys
        self._left: OrderedDict[_Key, tuple[float, float]] = OrderedDict()
        """What was left, and when."""

    def __len__(self) -> int:
        return len(self._left)

    def left(self, key: _Key, now: float) -> float:
        found = self._left.get(key)
        if found is None:
            return self._per_minute
        left, at = found
        return min(self._per_minute, left + (now - at) * self._per_minute / MINUTE)

    def take(self, key: _Key, now: float) -> None:
        self._left[key] = (max(0.0, self.left(key, now) - 1), now)
        self._left.move_to_end(key)
        if len(self._left) > self._most_keys:
            self._left.popitem(last=False)

    def give_back(self, key: _Key, now: float) -> None:
        if key in self._left:
            self._left[key] = (min(self._per_minute, self.left(key, now) + 1), now)


class LoginThrottle:
    """What the hosts of one router have tried. Times are seconds of a monotonic clock."""

    def __init__(self, per_minute: int) -> None:
        """`per_minute`: failures for one name from one host, at once and in each minute; 0 refuses nobody."""
        self._limited = per_minute > 0
        self._names: _Allowances[tuple[str, str]] = _Allowances(per_minute, MOST_NAMES)
        self._hosts: _Allowances[str] = _Allowances(per_minute * NAMES_AT_ONCE, MOST_HOSTS)
        self._begun_names: _Allowances[tuple[str, str]] = _Allowances(per_minute * BEGUN_FOR_NAME, MOST_NAMES)
        self._begun_hosts: _Allowances[str] = _Allowances(per_minute * BEGUN_FOR_HOST, MOST_HOSTS)
        self._under_way: Counter[str] = Counter()
        """Logins by host, of those that have a connection."""
        self._proven: OrderedDict[tuple[str, str], None] = OrderedDict()

    def __len__(self) -> int:
        """Entries of all tables."""
        allowances = len(self._names) + len(self._hosts) + len(self._begun_names) + len(self._begun_hosts)
        return allowances + len(self._under_way) + len(self._proven)

    def admits(self, host: str, user: str, now: float) -> bool:
        """Whether a password of `user` from `host` may be checked."""
        if not self._limited:
            return True
        key = host, _name(user)
        if self._names.left(key, now) < 1:
            return False
        return key in self._proven or self._hosts.left(host, now) >= 1

    def failed(self, host: str, user: str, now: float) -> None:
        """A password was checked and is wrong, or the user does not exist."""
        if self._limited:
            self._names.take((host, _name(user)), now)
            self._hosts.take(host, now)

    def may_begin(self, host: str, user: str, now: float) -> bool | None:
        """Whether a login may go on to what costs much; None if that depends on others of the host, which are under
        way."""
        if not self._limited:
            return True
        key = host, _name(user)
        if self._begun_names.left(key, now) >= 1 and (
            key in self._proven or self._begun_hosts.left(host, now) >= 1
        ):
            return True
        return None if host in self._under_way else False

    def begun(self, host: str, user: str, now: float) -> None:
        """A login has cost much, and has no outcome yet."""
        if self._limited:
            self._begun_names.take((host, _name(user)), now)
            self._begun_hosts.take(host, now)
            self._under_way[host] += 1

    def ended(self, host: str, user: str, now: float, *, judged: bool) -> None:
        """A login that has begun is over, with or without an outcome."""
        if not self._limited:
            return
        self._under_way[host] -= 1
        if not self._under_way[host]:
            del self._under_way[host]
        if judged:
            self._begun_names.give_back((host, _name(user)), now)
            self._begun_hosts.give_back(host, now)

    def succeeded(self, host: str, user: str) -> None:
        """The password of `user` was right."""
        if self._limited:
            key = host, _name(user)
            self._proven[key] = None
            self._proven.move_to_end(key)
            if len(self._proven) > MOST_NAMES:
                self._proven.popitem(last=False)


def _name(user: str) -> str:
    """By which a user is remembered, whatever spelling of the name was sent."""
    name = user.strip(WHITE_SPACE)
    if len(name) <= LONGEST_NAME:
        return name
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
