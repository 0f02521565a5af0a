"""Where this machine is reached, and in which networks it is: what a member announces when nobody says otherwise."""

from __future__ import annotations

import fcntl
import socket
import struct
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path

_SIOCGIFADDR = 0x8915
_SIOCGIFNETMASK = 0x891B
_IFREQ = struct.Struct("16s24x")
_IPV6 = Path("/proc/net/if_inet6")
_GLOBAL_SCOPE = "00"
_WILDCARDS = ("", "0.0.0.0", "::")


def own_addresses(host: str) -> tuple[str, ...]:
    """`host` if it is one; else the addresses of the interfaces, IPv4 first; loopback if there is no other."""
    if host not in _WILDCARDS:
        return (host,)
    found = _interfaces()
    outside = [each for each in found if not each.is_loopback]
    return tuple(dict.fromkeys(str(each.ip) for each in outside or found)) or ("127.0.0.1",)


def own_networks() -> tuple[str, ...]:
    """The networks that its interfaces are in, as CIDR."""
    return tuple(dict.fromkeys(str(each.network) for each in _interfaces()))


def _interfaces() -> list[IPv4Interface | IPv6Interface]:
    return [*_ipv4(), *_ipv6()]


def _ipv4() -> list[IPv4Interface]:
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = _IFREQ.pack(name.encode())
            try:
                address, mask = (
                    socket.inet_ntoa(fcntl.ioctl(any_socket, number, request)[20:24])
                    for number in (_SIOCGIFADDR, _SIOCGIFNETMASK)
                )
            except OSError:
                continue  # it has none
            found.append(IPv4Interface(f"{address}/{mask}"))
    return found


def _ipv6() -> list[IPv6Interface]:
    try:
        lines = _IPV6.read_text().splitlines()
    except OSError:
        return []
    return [
        IPv6Interface((int(address, 16), int(bits, 16)))
        for address, _, bits, scope, *_ in map(str.split, lines)
        if scope == _GLOBAL_SCOPE
    ]
