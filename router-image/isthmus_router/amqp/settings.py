"""What a `listener` or `connector` section lays down for its connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from isthmus_router.amqp.tls import TlsDomain, client_domain, names_of_users, server_domain
from isthmus_router.config.failover import failover_servers
from isthmus_router.config.model import (
    Configuration,
    ConnectorConfig,
    ListenerConfig,
    SslProfileConfig,
)
from isthmus_router.core.access import Access, ManagementLevel
from isthmus_router.core.roles import Role, StripAnnotations

EXTERNAL = "EXTERNAL"
HANDSHAKE_TIMEOUT_SECONDS = 15
EDGE_CONNECTIONS, ROUTER_CONNECTIONS = 16_384, 4_096
"""Open ones of a listener of role `edge`, and of role `inter-router`, with those for streams."""
ROUTER_SHARE = 64
"""Open ones that one user, or one host without login, may always have at a listener of role `inter-router`. Of more, it
may have as many as are free for others."""
CLIENT_LINKS, ROUTER_LINKS = 16_384, 262_144
"""On a connection of role `normal`, and of another role. The engine searches all links of a session for one."""
SHARED_LINKS = 16
"""As many times the capacity of a client's link have those between routers, which carry what many clients send."""
MOST_CAPACITY = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Settings:
    """For every connection of one listener or connector."""

    role: Role
    name: str
    cost: int
    max_frame_size: int
    max_sessions: int
    max_session_frames: int | None
    idle_timeout_seconds: int
    handshake_timeout_seconds: int
    link_capacity: int
    max_message_size: int
    strip_annotations: StripAnnotations
    open_properties: Mapping[str, object]
    mechanisms: tuple[str, ...] | None
    max_connections: int = 0
    """Most open connections of a listener; 0: any number."""
    max_links: int = 0
    """Most that the peer may attach on a connection; 0: any number."""
    failover_servers: Sequence[Mapping[str, str]] = ()
    """What clients of a listener may connect to instead."""
    policy_vhost: str | None = None
    """The vhost that decides what the peer may do, whatever the peer says."""
    allow_peer_links: bool = True
    """The peer may attach links of its own; what matters for a server to which the router has connected."""
    allow_plain_without_tls: bool = False
    authenticate_peer: bool = False
    require_encryption: bool = False
    hostname: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    verify_hostname: bool = True
    uid_format: str | None = None
    user_names: Mapping[str, str] = field(default_factory=dict)
    """By user as `uid_format` makes it."""
    sasl_config_dir: str | None = None
    sasl_config_name: str = "isthmus-router"
    tls: TlsDomain | None = None
    peer_names: tuple[str, ...] = ()
    """One of these names the certificate of a peer of a listener must have; empty: any."""
    group_correlator: str | None = None
    """Names the group that a connector's inter-router connections belong to."""
    allow_flow_records: bool = False
    management: ManagementLevel | None = None

    def access(self, *, authenticated: bool) -> Access:
        """What the peer of a connection, who has proven who it is or not, may use of the router itself."""
        level = self.management
        if level is None:
            known = authenticated or self.role.is_between_routers
            level = ManagementLevel.READ if known else ManagementLevel.BASIC
        return Access(self.allow_flow_records, level)


def listener_settings(config: ListenerConfig, configuration: Configuration, *, tls: bool = True) -> Settings:
    """What a `listener` section asks for; TlsError when its sslProfile cannot be used, unless without `tls`."""
    profile = _profile(config, configuration) if tls else None
    domain: TlsDomain | None = None
    encrypted = config.require_ssl or config.require_encryption or config.demands_certificate
    if profile is not None:
        external = config.sasl_mechanisms is not None and EXTERNAL in config.sasl_mechanisms
        domain = server_domain(
            profile,
            demand_certificate=config.demands_certificate
            or external
            or (config.authenticate_peer and config.sasl_mechanisms is None),
            allow_clear=not encrypted,
        )
    router = configuration.router
    timeout = config.initial_handshake_timeout_seconds or HANDSHAKE_TIMEOUT_SECONDS
    return replace(
        _settings(config, config.sasl_mechanisms, domain),
        handshake_timeout_seconds=timeout,
        max_connections=config.max_connections or _most_connections(config.role),
        max_links=config.max_links or (CLIENT_LINKS if config.role is Role.NORMAL else ROUTER_LINKS),
        authenticate_peer=config.authenticate_peer,
        require_encryption=encrypted,
        peer_names=config.peer_names,
        allow_flow_records=config.allow_flow_records,
        failover_servers=failover_servers(config.failover_urls or ""),
        uid_format=profile.uid_format if profile else None,
        user_names=names_of_users(profile) if profile else {},
        sasl_config_dir=router.sasl_config_dir,
        sasl_config_name=router.sasl_config_name,
    )


def connector_settings(
    config: ConnectorConfig, configuration: Configuration, *, tls: bool = True
) -> Settings:
    """What a `connector` section asks for; TlsError when its sslProfile cannot be used, unless without `tls`."""
    profile = _profile(config, configuration) if tls else None
    mechanisms = config.sasl_mechanisms
    if mechanisms is None and config.sasl_username is None:
        # A client certificate speaks for itself; without one there is nobody to be.
        mechanisms = (EXTERNAL, "ANONYMOUS") if profile and profile.cert_file else ("ANONYMOUS",)
    domain = client_domain(profile, verify_hostname=config.verify_hostname) if profile else None
    return replace(
        _settings(config, mechanisms, domain),
        max_links=ROUTER_LINKS,
        hostname=config.host,
        username=config.sasl_username,
        password=config.sasl_password,
        verify_hostname=config.verify_hostname,
        allow_peer_links=config.role.is_between_routers or config.allow_peer_links,
    )


def _most_connections(role: Role) -> int:
    return {Role.EDGE: EDGE_CONNECTIONS, Role.INTER_ROUTER: ROUTER_CONNECTIONS}.get(role, 0)


def _link_capacity(config: ListenerConfig | ConnectorConfig) -> int:
    if config.role not in {Role.INTER_ROUTER, Role.EDGE}:
        return config.link_capacity
    return min(config.link_capacity * SHARED_LINKS, MOST_CAPACITY)


def _settings(
    config: ListenerConfig | ConnectorConfig, mechanisms: tuple[str, ...] | None, tls: TlsDomain | None
) -> Settings:
    """What both kinds of section say in the same words."""
    return Settings(
        role=config.role,
        name=config.name,
        cost=config.cost,
        max_frame_size=config.max_frame_size,
        max_sessions=config.max_sessions,
        max_session_frames=config.max_session_frames,
        idle_timeout_seconds=config.idle_timeout_seconds,
        handshake_timeout_seconds=HANDSHAKE_TIMEOUT_SECONDS,
        link_capacity=_link_capacity(config),
        max_message_size=config.max_message_size,
        strip_annotations=config.strip_annotations,
        open_properties=config.open_properties,
        mechanisms=mechanisms,
        allow_plain_without_tls=config.allow_plain_without_tls,
        policy_vhost=config.policy_vhost,
        management=config.management,
        tls=tls,
    )


def _profile(
    config: ListenerConfig | ConnectorConfig, configuration: Configuration
) -> SslProfileConfig | None:
    return configuration.ssl_profiles[config.ssl_profile] if config.ssl_profile else None
