"""Where this machine is reached: what a member announces when nobody says otherwise."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

_SIOCGIFADDR = 0x8915
_IFREQ = struct.Struct("16s24x")
_IPV6 = Path("/proc/net/if_inet6")
_GLOBAL_SCOPE = "00"
_WILDCARDS = ("", "0.0.0.0", "::")


def own_addresses(host: str) -> tuple[str, ...]:
    """`host` if it is one; else the addresses of the interfaces, IPv4 first; loopback if there is no other."""
    if host not in _WILDCARDS:
        return (host,)
    found = [*_ipv4(), *_ipv6()]
    outside = [each for each in found if not ipaddress.ip_address(each).is_loopback]
    return tuple(dict.fromkeys(outside or found or ["127.0.0.1"]))


def _ipv4() -> list[str]:
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, _IFREQ.pack(name.encode()))
            except OSError:
                continue  # it has none
            found.append(socket.inet_ntoa(answer[20:24]))
    return found


def _ipv6() -> list[str]:
    try:
        lines = _IPV6.read_text().splitlines()
    except OSError:
        return []
    return [
        str(ipaddress.IPv6Address(int(address, 16)))
        for address, _, _, scope, *_ in map(str.split, lines)
        if scope == _GLOBAL_SCOPE
    ]
