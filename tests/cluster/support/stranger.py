"""In a pod: goes to ports of routers and members without a certificate, in clear text and with TLS.

    stranger.py GROUP SITE HOST:PORT...

Says what a client says, and in another connection what a member of that group and site says, and prints one JSON object
as its report: for each port, how many connections were made, and how many of them were answered as if the peer belonged
there. Only what the router image has.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import sys
from collections.abc import Callable

from isthmus_router.groups.identity import GroupName, MemberInfo, PhysicalAddress, member_id
from isthmus_router.message.types import Described, Symbol, ULong, encode
from isthmus_router.transport.framing import PREFIX
from isthmus_router.transport.hello import HELLO, Hello, encode_hello

WAIT_SECONDS = 60
OPENED = b"\x00\x53\x10"
"""The beginning of an OPEN."""


def amqp(code: int, *fields: object) -> bytes:
    body = encode(Described(ULong(code), list(fields)))
    return (len(body) + 8).to_bytes(4) + bytes((2, int(code >= 0x40), 0, 0)) + body


def client() -> bytes:
    login = b"AMQP\x03\x01\x00\x00" + amqp(0x41, Symbol("ANONYMOUS"), b"stranger")
    return login + b"AMQP\x00\x01\x00\x00" + amqp(0x10, "stranger", "router")


def member(group: str, site: str) -> bytes:
    info = MemberInfo(member_id(os.urandom(16)), "stranger", (PhysicalAddress("127.0.0.1", 9),))
    frame = encode_hello(Hello(GroupName(group, site, f"{group}/{site}"), info))
    return PREFIX.pack(len(frame)) + frame


def opened(heard: bytes) -> bool:
    return OPENED in heard


def greeted(heard: bytes) -> bool:
    return heard[PREFIX.size : PREFIX.size + 1] == bytes((HELLO,))


def belongs(host: str, port: int, said: bytes, answers: Callable[[bytes], bool], *, encrypted: bool) -> bool:
    """Whether it is answered as if it belonged there, before the other side ends the connection."""
    heard = b""
    with socket.create_connection((host, port), WAIT_SECONDS) as connection:
        try:
            if encrypted:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                connection = context.wrap_socket(connection)
            connection.sendall(said)
            while not answers(heard) and (more := connection.recv(1 << 16)):
                heard += more
        except (ssl.SSLError, ConnectionError):
            pass
    return answers(heard)


def main() -> None:
    group, site, *places = sys.argv[1:]
    report = {}
    for place in places:
        host, _, port = place.rpartition(":")
        at, ways = (host, int(port)), (False, True)
        clients = [belongs(*at, client(), opened, encrypted=way) for way in ways]
        members = [belongs(*at, member(group, site), greeted, encrypted=way) for way in ways]
        report[place] = {
            "connections": len(clients) + len(members),
            "opened": sum(clients),
            "greeted": sum(members),
        }
    print(json.dumps({"report": True, **report}))


if __name__ == "__main__":
    main()
