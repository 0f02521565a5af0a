"""The `SslProfile` kind: the certificates of one Secret, numbered by generation, so that they can be rotated."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from .base import SECRET_KEY, Condition, ListMap, Metadata, Model, SecretName, Time

MAX_ORDINAL = 2_147_483_647
MAX_POD_STATUSES = 256
MAX_ORDINAL_STATUSES = 64

Ordinal = Annotated[int, Field(ge=0, le=MAX_ORDINAL)]


class Retention(Model):
    """How long connections made with older certificates may stay."""

    policy: Literal["Automatic", "Manual"] = "Automatic"
    """`Automatic`: `status.oldestValidOrdinal` follows the ordinal as the other fields say. `Manual`: it moves
    with `spec.oldestValidOrdinal` and `spec.rotation` only."""

    old_ordinals: Annotated[int, Field(ge=0, le=16)] = 1
    """Number of ordinals before the newest one that stay valid. Routers close the connections of earlier ordinals, and
    no longer trust authorities that only these had."""

    delay_seconds: Annotated[int, Field(ge=0, le=31_536_000)] = 600
    """Time in seconds between the moment when all connections between routers use the newest ordinal and the retirement
    of older ordinals. In this time clients can open new connections."""


class Rotation(Model):
    """Requests for a rotation, which `isthmus rotate` writes."""

    request: Ordinal = 0
    """Number of the request. A greater number raises the ordinal once, although the certificate is the same. A request
    waits while the Secret cannot be used. A number less than `status.handledRequest` has no effect, and the condition
    `Questionable` reports it."""

    revoke: bool = False
    """A request also makes the new ordinal the oldest valid one: routers close older connections immediately."""


class SslProfileSpec(Model):
    """Desired state of a set of certificates."""

    secret_name: SecretName
    """Name of a Secret with `tls.crt` and `tls.key`, `ca.crt`, or all three, as cert-manager makes it. Each new
    certificate in it gets the next ordinal; a change of `ca.crt` alone takes effect under the same one."""

    crl_key: Annotated[str, Field(min_length=1, max_length=253, pattern=SECRET_KEY)] | None = None
    """Key of the Secret, such as `ca.crl`, with the certificate revocation lists of the authorities in `ca.crt` in PEM,
    at most 256 KiB, also those of intermediate authorities. Listeners, Connectors, RelaySites and GossipRouters refuse
    peers with a revoked certificate in their chain, and every certificate of an authority without a list that is valid
    now. A changed list takes effect immediately, under the same ordinal: routers close connections with certificates
    that it revokes. Default: revocation is not checked."""

    retention: Retention = Retention()
    """How long connections made with older certificates may stay."""

    rotation: Rotation = Rotation()
    """Requests for a rotation, which `isthmus rotate` writes."""

    uid_format: Annotated[str, Field(max_length=9, pattern="^[125csloun]+$")] | None = None
    """How listeners name the user of a client's certificate, for the policy and in logs: one letter per field, joined
    by `;`: `n` (common name), `o` (organisation), `u` (unit), `c` (country), `s` (state), `l` (locality),
    fingerprints by `1` (SHA-1), `2` (SHA-256) and `5` (SHA-512). By default the whole subject."""

    expiring_days: Annotated[int, Field(ge=1, le=3650)] = 30
    """Days before the end of the certificate at which the condition `Expiring` becomes true; at most a third of the
    lifetime of the certificate."""

    oldest_valid_ordinal: Ordinal = 0
    """Oldest valid ordinal, whatever `retention` states: routers close the connections of older ordinals. A number
    above the present ordinal counts as the present one, and the condition `Questionable` reports it."""


class OrdinalConnections(Model):
    """Connections by ordinal."""

    ordinal: Ordinal
    """The ordinal of the certificates they were made or accepted with."""

    connections: Annotated[int, Field(ge=0)]
    """Open connections."""


class OrdinalStatus(Model):
    """A valid ordinal."""

    ordinal: Ordinal
    """The ordinal."""

    connections: Annotated[int, Field(ge=0)] = 0
    """Open connections that were made or accepted with its certificate."""

    since: Time | None = None
    """When it was adopted."""

    fingerprint: Annotated[str, Field(max_length=128)] | None = None
    """SHA-256 of its certificate."""

    not_after: Time | None = None
    """When its certificate expires."""


class PodUse(Model):
    """The use that one router makes of the profile."""

    pod: Annotated[str, Field(max_length=253)]
    """Pod, and id of the router."""

    router: Annotated[str, Field(max_length=253)]
    """Name of the Router."""

    listeners: Annotated[list[Annotated[str, Field(max_length=24)]], Field(max_length=16)] | None = None
    """Listeners that present the certificate."""

    connectors: Annotated[list[Annotated[str, Field(max_length=253)]], Field(max_length=64)] | None = None
    """Connectors that use it, by Connector; `mesh` for the links between the replicas of the Router."""

    connections: (
        Annotated[list[OrdinalConnections], Field(max_length=MAX_ORDINAL_STATUSES), ListMap("ordinal")] | None
    ) = None
    """Open connections made or accepted with it, by ordinal."""

    message: Annotated[str, Field(max_length=1024)] | None = None
    """Why it does not use the newest ordinal yet."""


class SslProfileStatus(Model):
    """Observed state of an SslProfile, from its Secret and the routers that use it."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation of the specification that this status describes."""

    conditions: Annotated[list[Condition], Field(max_length=16), ListMap("type")] | None = None
    """`Valid` (the certificates in service are valid now), `Rotating` (some router, or some connection between
    routers, does not use the newest ordinal yet), `Expiring` (see `spec.expiringDays`), `Questionable` (a setting or a
    certificate takes effect, but is probably a mistake), `Degraded` (the Secret cannot be used; the earlier
    certificates stay in service), `Ready` (valid and not degraded)."""

    ordinal: Ordinal | None = None
    """Ordinal of the certificates in service, for new connections. It never falls."""

    oldest_valid_ordinal: Ordinal | None = None
    """Connections of older ordinals are closed. It never falls."""

    handled_request: Ordinal | None = None
    """The last `spec.rotation.request` that was carried out."""

    fingerprint: Annotated[str, Field(max_length=128)] | None = None
    """SHA-256 of the certificate in service."""

    issuer: Annotated[str, Field(max_length=1024)] | None = None
    """Who issued it."""

    not_before: Time | None = None
    """When it became valid."""

    not_after: Time | None = None
    """When it expires."""

    authorities: Annotated[int, Field(ge=0)] | None = None
    """Number of trusted authorities, of all valid ordinals."""

    connections: Annotated[int, Field(ge=0)] | None = None
    """Open connections of listeners and connectors made or accepted with the profile. Those of RelaySites and
    GossipRouters are not counted: `relaySites` and `gossipRouters` name them, `users` the pods of the former."""

    ordinals: (
        Annotated[list[OrdinalStatus], Field(max_length=MAX_ORDINAL_STATUSES), ListMap("ordinal")] | None
    ) = None
    """The valid ordinals, and older ones with connections that are about to be closed; the newest last."""

    users: Annotated[list[PodUse], Field(max_length=MAX_POD_STATUSES), ListMap("pod")] | None = None
    """The routers that use it."""

    relay_sites: Annotated[list[Annotated[str, Field(max_length=253)]], Field(max_length=64)] | None = None
    """RelaySites that use it, between members, towards other sites or towards gossip routers."""

    gossip_routers: Annotated[list[Annotated[str, Field(max_length=253)]], Field(max_length=64)] | None = None
    """GossipRouters that use it."""


class SslProfile(Model):
    """Certificates for listeners and connectors, rotated without interruption whenever their Secret changes."""

    kind_name: ClassVar = "SslProfile"

    metadata: Metadata
    spec: SslProfileSpec
    """Desired state."""

    status: SslProfileStatus | None = None
    """Observed state, written by the operator only."""

    @property
    def name(self) -> str:
        return self.metadata.name
