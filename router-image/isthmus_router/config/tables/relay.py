"""Sections about sites that multicast to each other: relaySite, relayRemote, relayAddress.

They are not sections of qdrouterd and skrouterd.
"""

from __future__ import annotations

from isthmus_router.config.attributes import Attribute, Kind, Section, Update
from isthmus_router.config.relay_model import BRIDGE_PORT, GOSSIP_PORT, MEMBER_PORT, Discovery, PhysicalChoice

MOST_BYTES = 2**40
MOST_MESSAGE_BYTES = 15 * 1024 * 1024
"""A router takes 16 MiB at once for itself, with what is around a message between sites."""

_SITE_NAME = "lower case letters, digits and `-`, at most 63"

RELAY_SITE = Section(
    "relaySite",
    "Makes the router a member of a site of a group. What is sent to `relay/<group>`, and to the addresses of "
    "`relayAddress` sections, reaches the receivers at all members of all sites. Not for edge routers.",
    (
        Attribute("group", Kind.STRING, f"Name of the group: {_SITE_NAME}.", required=True),
        Attribute("site", Kind.STRING, f"Name of the site within the group: {_SITE_NAME}.", required=True),
        Attribute(
            "domain",
            Kind.STRING,
            "What tells this site from another one of the same name: members of other domains are not let in.",
            default="",
        ),
        Attribute("memberName", Kind.STRING, "Logical name of this member. Absent: the router's id."),
        Attribute(
            "memberHost",
            Kind.STRING,
            "Address that listens for the other members of the site. Empty: every local address.",
            default="",
        ),
        Attribute("memberPort", Kind.PORT, "Port that listens for them.", default=MEMBER_PORT),
        Attribute(
            "announce",
            Kind.ENDPOINTS,
            "Where the other members reach this one, best first: `host` or `host:port`, separated by commas. "
            "Empty: `memberHost`, or the addresses of the machine.",
            default=(),
        ),
        Attribute(
            "addressChoice",
            Kind.ENUM,
            "Which address of a member with several is used: the `first` that it announces, one after the other "
            "(`rotate`), or one in a network of this machine (`same-network`).",
            default=PhysicalChoice.FIRST,
            choices=tuple(PhysicalChoice),
            result=PhysicalChoice,
        ),
        Attribute(
            "discovery",
            Kind.ENUM,
            "How members find each other: addresses of a name (`dns`), fixed hosts (`hostList`), UDP multicast "
            "(`multicast`), gossip routers that tell addresses (`gossipRouter`) or carry everything (`tunnel`).",
            default=Discovery.HOST_LIST,
            choices=tuple(Discovery),
            result=Discovery,
        ),
        Attribute(
            "discoveryHosts",
            Kind.ENDPOINTS,
            "The name with discovery `dns`, the members with `hostList`, the gossip routers with `gossipRouter` and "
            f"`tunnel`: `host` or `host:port`. Ports not given are `memberPort`, of gossip routers {GOSSIP_PORT}.",
            default=(),
        ),
        Attribute(
            "portRange",
            Kind.INTEGER,
            "With `hostList`: ports after each one given that are tried as well.",
            default=0,
            minimum=0,
            maximum=100,
        ),
        Attribute(
            "initialMembers",
            Kind.INTEGER,
            "Members that the site starts with: the first one does not meet other sites before there are so many, but "
            "for 10 s at most, so that what those have kept for the site gets to all.",
            default=1,
            minimum=1,
            maximum=1_000,
            update=Update.LIVE,
        ),
        Attribute(
            "multicastAddress",
            Kind.STRING,
            "With `multicast`: IPv4 group.",
            default="239.192.78.0",
        ),
        Attribute("multicastPort", Kind.PORT, "With `multicast`: UDP port.", default=MEMBER_PORT),
        Attribute(
            "multicastHops",
            Kind.INTEGER,
            "With `multicast`: networks that requests reach (TTL); 0 is this machine.",
            default=1,
            minimum=0,
            maximum=255,
        ),
        Attribute(
            "multicastInterfaces",
            Kind.LIST,
            "With `multicast`: names of the interfaces to use. Empty: all.",
            default=(),
        ),
        Attribute(
            "plainText",
            Kind.BOOLEAN,
            "Allow connections without TLS where no sslProfile is named. Anyone who reaches such a port can read "
            "messages and take part as a member or as a site. The router logs a warning, and lists such connections in "
            "`/status`. Without this attribute `sslProfile`, `bridgeSslProfile` and, with gossip routers, "
            "`gossipSslProfile` are required.",
            default=False,
            update=Update.LIVE,
        ),
        Attribute(
            "sslProfile",
            Kind.STRING,
            "Name of the sslProfile between the members of the site; both ends show certificates.",
        ),
        Attribute(
            "peerNames",
            Kind.LIST,
            "Names, one of which a member's certificate must have; `*.` stands for one label. Empty: any "
            "certificate of the authorities. With discovery `tunnel` also that of `gossipSslProfile`.",
            default=(),
        ),
        Attribute(
            "bindNames",
            Kind.BOOLEAN,
            "Bind identities to certificates. The certificate of a member must have its logical name: as common name "
            "or DNS name, as first label of a DNS name, or without the number of the replica (`nyc` for `nyc-0`). The "
            "certificate of a relay of another site must have one of the `peerNames` of its `relayRemote`, or the "
            "site's name where there are none. With discovery `tunnel` the certificate of `gossipSslProfile` must have "
            "the logical name of the member as well. `no`: any certificate of the authorities that `peerNames` allows.",
            default=True,
        ),
        Attribute(
            "gossipSslProfile",
            Kind.STRING,
            "Name of the sslProfile towards gossip routers.",
        ),
        Attribute(
            "bridgeHost",
            Kind.STRING,
            "Address that listens for other sites. Empty: every local address.",
            default="",
        ),
        Attribute("bridgePort", Kind.PORT, "Port that listens for them.", default=BRIDGE_PORT),
        Attribute(
            "announceBridge",
            Kind.ENDPOINTS,
            "Where relays of other sites reach this router while it is a relay: `host` or `host:port`. Empty: the "
            "hosts of `announce`, with `bridgePort`.",
            default=(),
        ),
        Attribute(
            "bridgeSslProfile",
            Kind.STRING,
            "Name of the sslProfile between sites; both ends show certificates.",
        ),
        Attribute(
            "relays",
            Kind.INTEGER,
            "Members, the oldest ones, that carry the site's messages to other sites at the same time.",
            default=1,
            minimum=1,
            maximum=8,
            update=Update.LIVE,
        ),
        Attribute(
            "copies",
            Kind.INTEGER,
            "Members that must have a message before its sender learns that it is accepted. Where the site has not so "
            "many, another site must have it.",
            default=2,
            minimum=1,
            maximum=3,
            update=Update.LIVE,
        ),
        Attribute(
            "bufferMessages",
            Kind.INTEGER,
            "Messages kept for sites that have not acknowledged them. Of more, the oldest are dropped, counted and "
            "told to those sites as a gap.",
            default=65536,
            minimum=1,
            maximum=2**31 - 1,
            update=Update.LIVE,
        ),
        Attribute(
            "bufferBytes",
            Kind.INTEGER,
            "Bytes kept at most for them.",
            default=64 * 1024 * 1024,
            minimum=1024,
            maximum=MOST_BYTES,
            update=Update.LIVE,
        ),
        Attribute(
            "bufferSeconds",
            Kind.INTEGER,
            "Seconds that they are kept at most; 0 is as long as there is room.",
            default=60,
            minimum=0,
            maximum=7 * 86400,
            update=Update.LIVE,
        ),
        Attribute(
            "maxMessageBytes",
            Kind.INTEGER,
            "Greatest message taken for the group; a larger one is rejected.",
            default=1024 * 1024,
            minimum=1024,
            maximum=MOST_MESSAGE_BYTES,
            update=Update.LIVE,
        ),
        Attribute(
            "stateAddress",
            Kind.STRING,
            "Address at which applications receive that give their state to others: what is multicast, as at "
            "`relay/<group>`, and requests for the state. Receivers with the capability `isthmus.relay-state` get the "
            "state first. Absent: no state is asked for or given.",
            update=Update.LIVE,
        ),
    ),
    singleton=True,
)

RELAY_REMOTE = Section(
    "relayRemote",
    "Another site of the group of `relaySite`. Without endpoints and over, that site dials this one, and its "
    "connections carry both directions.",
    (
        Attribute(
            "site",
            Kind.STRING,
            "Name of the site.",
            required=True,
        ),
        Attribute(
            "endpoints",
            Kind.ENDPOINTS,
            f"Where its relays are reached: `host` or `host:port`, separated by commas; port {BRIDGE_PORT} if not "
            "given. All addresses of a name are tried.",
            default=(),
            update=Update.LIVE,
        ),
        Attribute(
            "over",
            Kind.STRING,
            "Address of the network of routers that both sites are in, where their relays meet in place of endpoints; "
            "the other site names the same one. Protect it and what is below it by a policy.",
            update=Update.LIVE,
        ),
        Attribute(
            "peerNames",
            Kind.LIST,
            "Names, one of which the certificate of a relay of that site must have; `*.` stands for one label, `*` "
            "alone accepts every certificate of the authorities. Empty: the name of the site, or any with "
            "`bindNames: no` in `relaySite`.",
            default=(),
            update=Update.LIVE,
        ),
    ),
)

RELAY_ADDRESS = Section(
    "relayAddress",
    "Addresses that are multicast to sites beside `relay/<group>`, and to which. The most specific match counts.",
    (
        Attribute(
            "pattern",
            Kind.STRING,
            "Address pattern of tokens separated by `.` or `/`; `*` is one token, `#` any number.",
            required=True,
            keeps_hash=True,
            update=Update.LIVE,
        ),
        Attribute(
            "sites",
            Kind.LIST,
            "Names of the sites, separated by commas, that get the messages besides the own one: those of "
            "`relayRemote` sections; `*` is all of them. Empty: they stay in the own site.",
            default=("*",),
            update=Update.LIVE,
        ),
    ),
)
