"""The typed result of reading a configuration.

One frozen dataclass per section. Every field is the snake_case form of an attribute in `schema.py`,
where its meaning, default and limits are described.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from isthmus_router.config.relay_model import RelayAddressConfig, RelayRemoteConfig, RelaySiteConfig
from isthmus_router.core.access import ManagementLevel
from isthmus_router.core.roles import Role, StripAnnotations


class Mode(StrEnum):
    """Part the router plays in the network."""

    STANDALONE = "standalone"
    INTERIOR = "interior"
    EDGE = "edge"


class Distribution(StrEnum):
    """How deliveries to an address are spread over its consumers."""

    MULTICAST = "multicast"
    CLOSEST = "closest"
    BALANCED = "balanced"
    UNAVAILABLE = "unavailable"


class Direction(StrEnum):
    """Direction of an auto-link, seen from the network: `in` brings messages into it."""

    IN = "in"
    OUT = "out"


class LinkRouteDirection(StrEnum):
    """Which links of clients a link route is about: `in` those of senders, `out` those of receivers."""

    IN = "in"
    OUT = "out"
    BOTH = "both"


class AddressFamily(StrEnum):
    """Socket address family a listener or connector insists on."""

    IPV4 = "IPv4"
    IPV6 = "IPv6"


AUTO_DATA_CONNECTIONS = 2
MOST_CONNECTIONS = 65535


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """Section `router`."""

    mode: Mode
    id: str
    default_distribution: Distribution
    hello_interval_seconds: int
    hello_max_age_seconds: int
    ra_interval_seconds: int
    ra_interval_flux_seconds: int
    remote_ls_max_age_seconds: int
    unreachable_holdoff_seconds: int
    data_connection_count: str
    """`auto` or a decimal number of data connections per inter-router connector."""
    worker_threads: int
    sasl_config_dir: str | None
    sasl_config_name: str
    timestamps_in_utc: bool
    timestamp_format: str | None
    metadata: str | None
    van_id: str | None
    debug_dump_file: str | None
    allow_resumable_link_route: bool
    allow_unsettled_multicast: bool
    drop_tcp_connections: bool
    flow_records: bool
    flow_interval_seconds: int
    management_read_only: bool
    max_failed_logins_per_minute: int
    stalled_message_timeout_seconds: int
    slow_receiver_timeout_seconds: int

    @property
    def data_connections(self) -> int:
        """For each inter-router connector that does not say itself."""
        return (
            AUTO_DATA_CONNECTIONS if self.data_connection_count == "auto" else int(self.data_connection_count)
        )


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Section `network`."""

    network_id: str | None = None
    tenant_id: str | None = None


@dataclass(frozen=True, slots=True)
class SiteConfig:
    """Section `site`."""

    name: str | None = None
    location: str | None = None
    provider: str | None = None
    platform: str | None = None
    namespace: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class SslProfileConfig:
    """Section `sslProfile`: one generation (`ordinal`) of credentials."""

    name: str
    ciphers: str | None
    protocols: tuple[str, ...] | None
    """Allowed protocol versions, e.g. `("TLSv1.2", "TLSv1.3")`; None leaves it to OpenSSL."""
    ca_cert_file: str | None
    crl_file: str | None
    cert_file: str | None
    private_key_file: str | None
    password: str | None = field(repr=False)
    uid_format: str | None
    uid_name_mapping_file: str | None
    ordinal: int
    oldest_valid_ordinal: int
    files_digest: str = ""
    """SHA-256 (hex) over the contents of the referenced files; empty when they were not read."""


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """Section `listener`."""

    name: str
    host: str
    """Empty string: every local address."""
    port: int
    socket_address_family: AddressFamily | None
    role: Role
    cost: int
    ssl_profile: str | None
    sasl_mechanisms: tuple[str, ...] | None
    """None: every mechanism the SASL implementation offers."""
    allow_plain_without_tls: bool
    authenticate_peer: bool
    require_encryption: bool
    require_ssl: bool
    require_client_certificate: bool
    peer_names: tuple[str, ...]
    """One of these names the certificate of a peer must have; empty: any."""
    max_frame_size: int
    max_sessions: int
    max_session_frames: int | None
    max_links: int | None
    max_connections: int | None
    max_handshakes: int
    max_handshakes_per_host: int
    idle_timeout_seconds: int
    initial_handshake_timeout_seconds: int
    strip_annotations: StripAnnotations
    link_capacity: int
    max_message_size: int
    http: bool
    healthz: bool
    metrics: bool
    websockets: bool
    http_root_dir: str | None
    failover_urls: str | None
    message_logging_components: str
    policy_vhost: str | None
    management: ManagementLevel | None
    """None: `read` for routers and for peers that have authenticated, else `basic`."""
    allow_flow_records: bool
    open_properties: Mapping[str, object]

    @property
    def identity(self) -> str:
        """Management identity: `listener/<host>:<port>`, followed by `:<name>` when a name was given."""
        return _identity("listener", self.host, self.port, self.name)

    @property
    def demands_certificate(self) -> bool:
        """Whether a peer without a valid certificate is refused, whatever the SASL mechanism."""
        return self.require_client_certificate or bool(self.peer_names)


@dataclass(frozen=True, slots=True)
class ConnectorConfig:
    """Section `connector`."""

    name: str
    host: str
    port: int
    socket_address_family: AddressFamily | None
    role: Role
    cost: int
    ssl_profile: str | None
    sasl_mechanisms: tuple[str, ...] | None
    allow_plain_without_tls: bool
    max_frame_size: int
    max_sessions: int
    max_session_frames: int | None
    idle_timeout_seconds: int
    strip_annotations: StripAnnotations
    link_capacity: int
    max_message_size: int
    verify_hostname: bool
    sasl_username: str | None
    sasl_password: str | None = field(repr=False)
    allow_redirect: bool
    message_logging_components: str
    policy_vhost: str | None
    allow_peer_links: bool
    management: ManagementLevel | None
    open_properties: Mapping[str, object]
    data_connection_count: int | None

    @property
    def identity(self) -> str:
        """Management identity: `connector/<host>:<port>`, followed by `:<name>` when a name was given."""
        return _identity("connector", self.host, self.port, self.name)


@dataclass(frozen=True, slots=True)
class AddressConfig:
    """Section `address` (`router.config.address`); exactly one of `prefix` and `pattern` is set."""

    name: str | None
    prefix: str | None
    pattern: str | None
    distribution: Distribution
    priority: int | None
    waypoint: bool
    ingress_phase: int | None
    egress_phase: int | None
    resend_released: bool

    @property
    def phases(self) -> tuple[int, int]:
        """The phase of senders and the phase of receivers."""
        return self.ingress_phase or 0, int(self.waypoint) if self.egress_phase is None else self.egress_phase


@dataclass(frozen=True, slots=True)
class LinkRouteConfig:
    """Section `linkRoute` (`router.config.linkRoute`); exactly one of `prefix` and `pattern` is set."""

    name: str | None
    prefix: str | None
    pattern: str | None
    direction: LinkRouteDirection
    container_id: str | None
    connection: str | None
    distribution: str
    add_external_prefix: str | None
    del_external_prefix: str | None


@dataclass(frozen=True, slots=True)
class AutoLinkConfig:
    """Section `autoLink` (`router.config.autoLink`)."""

    name: str | None
    address: str | None
    direction: Direction
    container_id: str | None
    connection: str | None
    external_address: str | None
    phase: int | None


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """Section `policy`."""

    max_connections: int = MOST_CONNECTIONS
    max_message_size: int = 0
    enable_vhost_policy: bool = False
    enable_vhost_name_patterns: bool = False
    policy_dir: str = ""
    default_vhost: str = "$default"


@dataclass(frozen=True, slots=True)
class UserGroupConfig:
    """A value of `groups` in a section `vhost`."""

    users: tuple[str, ...]
    remote_hosts: tuple[str, ...]
    max_connections_per_user: int | None
    max_connections_per_host: int | None
    max_message_size: int | None
    max_frame_size: int | None
    max_session_window: int | None
    max_sessions: int | None
    max_senders: int
    max_receivers: int
    allow_dynamic_source: bool
    allow_anonymous_sender: bool
    allow_user_id_proxy: bool
    allow_waypoint_links: bool
    allow_dynamic_link_routes: bool
    allow_fallback_links: bool
    allow_admin_status_update: bool
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    source_pattern: tuple[str, ...]
    target_pattern: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VhostConfig:
    """Section `vhost`."""

    hostname: str
    aliases: tuple[str, ...]
    max_connections: int
    max_message_size: int | None
    max_connections_per_user: int
    max_connections_per_host: int
    allow_unknown_user: bool
    groups: Mapping[str, UserGroupConfig]
    name: str | None


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Section `log`: what one module writes."""

    module: str
    enable: str
    """Comma-separated levels, e.g. `info+` or `debug,error+`; `none`; `default`."""
    include_timestamp: bool
    include_source: bool | None
    output_file: str | None


@dataclass(frozen=True, slots=True)
class Configuration:
    """A valid configuration. Sections that can occur more than once are in the order of the file."""

    router: RouterConfig
    network: NetworkConfig = field(default_factory=NetworkConfig)
    site: SiteConfig = field(default_factory=SiteConfig)
    listeners: tuple[ListenerConfig, ...] = ()
    connectors: tuple[ConnectorConfig, ...] = ()
    ssl_profiles: Mapping[str, SslProfileConfig] = field(default_factory=dict)
    addresses: tuple[AddressConfig, ...] = ()
    auto_links: tuple[AutoLinkConfig, ...] = ()
    link_routes: tuple[LinkRouteConfig, ...] = ()
    relay_site: RelaySiteConfig | None = None
    relay_remotes: tuple[RelayRemoteConfig, ...] = ()
    """None without a `relay_site`, like `relay_addresses`."""
    relay_addresses: tuple[RelayAddressConfig, ...] = ()
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    vhosts: tuple[VhostConfig, ...] = ()
    logs: tuple[LogConfig, ...] = ()
    config_hash: str = field(default="", compare=False)
    """SHA-256 (hex) of the text this was read from."""
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """One line per attribute that is accepted for compatibility and has no effect."""


def _identity(section: str, host: str, port: int, name: str) -> str:
    default = f"{section}/{host}:{port}"
    return default if name == default else f"{default}:{name}"
