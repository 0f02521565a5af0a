"""What a connection says and demands at its start: limits, TLS, SASL, and the open frame."""

from __future__ import annotations

from cproton_ffi import ffi, lib

from isthmus_router import __version__, openssl
from isthmus_router.amqp.checked import MOST_ITEMS, read_data
from isthmus_router.amqp.engine import Pointer, capability, cstring, text, write_data
from isthmus_router.amqp.settings import Settings
from isthmus_router.amqp.terminus import capabilities_of
from isthmus_router.core.mesh import PROPERTY_MESH_KEY
from isthmus_router.core.roles import Role
from isthmus_router.core.router import RouterCore
from isthmus_router.core.terms import CAPABILITY_LINK_ROUTES, CAPABILITY_STREAMING_LINKS, CAPABILITY_TRUNKING
from isthmus_router.message.types import Int, Symbol, ULong, encode
from isthmus_router.policy.grant import Grant

PRODUCT = "isthmus-router"
CAPABILITY_ANONYMOUS_RELAY = "ANONYMOUS-RELAY"
PROPERTY_INSTANCE = "isthmus.instance"
"""By which a router notices that it has connected to itself."""
MOST_VALUES_OF_CLIENT = 100
"""In each field of the open frame of a client. The engine retains them decoded as long as the connection is open, 72
bytes for each."""
MOST_PROPERTY_BYTES = 4096
"""Of the properties of a connection that the router retains."""


def prepare_transport(
    transport: Pointer, settings: Settings, *, incoming: bool, local: bool
) -> openssl.Session | None:
    """Limits, SASL and TLS of a new `pn_transport_t`. OSError when TLS cannot be set up.

    `local`: the peer is on this machine.

    Returns the TLS session if names of the peer's certificate are to be compared, or if it may be revoked later.
    """
    if incoming:
        lib.pn_transport_set_server(transport)
    lib.pn_transport_set_max_frame(transport, settings.max_frame_size)
    lib.pn_transport_set_channel_max(transport, min(settings.max_sessions, 32768) - 1)
    lib.pn_transport_set_idle_timeout(transport, settings.idle_timeout_seconds * 1000)
    sasl = lib.pn_sasl(transport)
    if settings.sasl_config_dir:
        lib.pn_sasl_config_path(sasl, cstring(settings.sasl_config_dir))
    lib.pn_sasl_config_name(sasl, cstring(settings.sasl_config_name))
    if settings.mechanisms:
        lib.pn_sasl_allowed_mechs(sasl, cstring(" ".join(settings.mechanisms)))
    if incoming:
        lib.pn_transport_require_auth(transport, settings.authenticate_peer)
        if settings.require_encryption:
            lib.pn_transport_require_encryption(transport, True)
    # On encrypted connections proton allows PLAIN anyway.
    lib.pn_sasl_set_allow_insecure_mechs(sasl, settings.allow_plain_without_tls or local)
    if settings.tls is not None:
        ssl = lib.pn_ssl(transport)
        session = None
        if settings.peer_names or settings.tls.ca_cert_file:
            session = _watched_session(ssl, settings.tls.pn, needed=bool(settings.peer_names))
        else:
            _init_session(ssl, settings.tls.pn)
        if not incoming and settings.hostname:
            lib.pn_ssl_set_peer_hostname(ssl, cstring(settings.hostname))
        return session
    return None


def password_hint(transport: Pointer, settings: Settings, *, local: bool) -> str:
    """What to do where this router may have used no mechanism because PLAIN is not used in clear text; else empty."""
    withheld = settings.password is not None and settings.tls is None and not settings.allow_plain_without_tls
    chosen = text(lib.pn_sasl_get_mech(lib.pn_sasl(transport)))
    if not withheld or local or chosen is not None:
        return ""
    return "; PLAIN is not used without TLS, unless allowPlainWithoutTls is set"


def is_local(address: object) -> bool:
    """Whether the address of a peer, as `getpeername` returns it, is one of this machine that no other one has."""
    if not isinstance(address, tuple):
        return True  # not a socket of the internet family
    host = str(address[0])  # in the one form that the system gives it
    return host.startswith("127.") or host == "::1"


def _init_session(ssl: Pointer, domain: Pointer) -> None:
    if lib.pn_ssl_init(ssl, domain, ffi.NULL) != 0:
        raise OSError("the TLS session could not be set up")


def _watched_session(ssl: Pointer, domain: Pointer, *, needed: bool) -> openssl.Session | None:
    try:
        with openssl.made_sessions() as made:
            _init_session(ssl, domain)
    except openssl.OpenSslError as error:
        if needed:
            raise OSError(f"peerNames cannot be compared: {error}") from error
        _init_session(ssl, domain)
        return None
    if len(made) == 1:
        return openssl.Session(made[0])
    if needed:
        raise OSError("peerNames cannot be compared: the TLS session cannot be told apart")
    return None


def read_open(pn: Pointer, *, is_client: bool) -> tuple[dict[str, object], frozenset[str]]:
    """Return the properties of an open frame, and the offered capabilities that the router acts on.

    DecodeError if a value is not valid or exceeds a limit.
    """
    most = MOST_VALUES_OF_CLIENT if is_client else MOST_ITEMS
    properties = read_data(lib.pn_connection_remote_properties(pn), most)
    offered = read_data(lib.pn_connection_remote_offered_capabilities(pn), most)
    read_data(lib.pn_connection_remote_desired_capabilities(pn), most)
    properties = properties if isinstance(properties, dict) else {}
    return {str(key): value for key, value in properties.items()}, capabilities_of(offered)


def retained_properties(properties: dict[str, object]) -> dict[str, object]:
    """Return those that fit into the bound, in their order."""
    left, retained = MOST_PROPERTY_BYTES, {}
    for key, value in properties.items():
        size = len(encode(key)) + len(encode(value))
        if size <= left:
            left -= size
            retained[key] = value
    return retained


def limit_transport(transport: Pointer, grant: Grant) -> None:
    """The policy's limits, in place of the listener's; before the open frame is sent."""
    if grant.max_frame_size:
        lib.pn_transport_set_max_frame(transport, grant.max_frame_size)
    if grant.max_sessions:
        lib.pn_transport_set_channel_max(transport, grant.max_sessions - 1)


def name_client(pn: Pointer, settings: Settings) -> None:
    """Who this router says it is, and whom it calls, on a connection of its own."""
    if settings.username:
        lib.pn_connection_set_user(pn, cstring(settings.username))
    if settings.password is not None:
        lib.pn_connection_set_password(pn, cstring(settings.password))
    if settings.hostname:
        lib.pn_connection_set_hostname(pn, cstring(settings.hostname))


def send_open(pn: Pointer, settings: Settings, number: int, core: RouterCore) -> None:
    """Fill and send the open frame. Integers of router properties are AMQP ints, as peers insist."""
    properties: dict[object, object] = {
        Symbol("product"): PRODUCT,
        Symbol("version"): __version__,
        Symbol("qd.conn-id"): Int(number),
        Symbol(PROPERTY_INSTANCE): core.instance,
    }
    if settings.role.is_between_routers:
        properties[Symbol("qd.annotations-version")] = Int(2)
        if settings.cost > 1:
            properties[Symbol("qd.inter-router-cost")] = Int(settings.cost)
    if settings.role is Role.INTER_ROUTER_DATA:
        properties[Symbol("qd.inter-router-role")] = Int(Role.INTER_ROUTER_DATA)
    if core.mesh_key is not None and settings.role is Role.EDGE:
        properties[Symbol(PROPERTY_MESH_KEY)] = core.mesh_key
    if settings.group_correlator is not None:
        properties[Symbol("qd.group-correlator")] = settings.group_correlator
        if settings.tls is not None:
            properties[Symbol("qd.group-ordinal")] = ULong(settings.tls.ordinal)
    if settings.failover_servers:
        properties[Symbol("failover-server-list")] = [
            {Symbol(key): text for key, text in server.items()} for server in settings.failover_servers
        ]
    properties.update({Symbol(key): value for key, value in settings.open_properties.items()})
    offered = [CAPABILITY_ANONYMOUS_RELAY, CAPABILITY_STREAMING_LINKS]
    if settings.role is Role.INTER_ROUTER:
        offered.append(CAPABILITY_TRUNKING)
    if settings.role is Role.EDGE:
        offered.append(CAPABILITY_LINK_ROUTES)
    write_data(lib.pn_connection_properties(pn), properties)
    write_data(lib.pn_connection_offered_capabilities(pn), capability(*offered))
    write_data(lib.pn_connection_desired_capabilities(pn), capability(*offered))
    lib.pn_connection_open(pn)
