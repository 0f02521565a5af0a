"""Transport security of listeners and connectors: certificates from a Secret, or from an SslProfile."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeVar

from .base import Model, ObjectName, Rule, SecretName

_ONE_SOURCE_OR_DISABLED = Rule(
    "[has(self.secretName), has(self.sslProfile), has(self.disabled) && self.disabled].filter(x, x).size() == 1",
    "exactly one of secretName, sslProfile and disabled must be set",
    ".secretName",
    lambda self: [self.secret_name is not None, self.ssl_profile is not None, self.disabled].count(True) == 1,
)


class ListenerTls(Model):
    """Transport security of a listener."""

    secret_name: SecretName | None = None
    """Name of a Secret of type `kubernetes.io/tls` (`tls.crt`, `tls.key`), with `ca.crt` when clients
    present certificates, or when replicas of a Router connect to each other through the listener. Replaced certificates
    count for new connections."""

    ssl_profile: ObjectName | None = None
    """Name of an SslProfile in place of a Secret, which rotates the certificates of all its users."""

    require_client_certificate: bool = False
    """Refuse clients without a certificate signed by `ca.crt`; the authenticated user is the
    certificate's subject (SASL EXTERNAL)."""

    minimum_version: Literal["TLSv1.2", "TLSv1.3"] = "TLSv1.2"
    """Oldest protocol version accepted."""

    disabled: bool = False
    """Clear text, where certificates of the namespace's own authority would secure the connections otherwise. The
    condition `Insecure` shows it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        _ONE_SOURCE_OR_DISABLED,
        Rule(
            "!has(self.disabled) || !self.disabled || !has(self.requireClientCertificate)"
            " || !self.requireClientCertificate",
            "requireClientCertificate contradicts disabled",
            ".requireClientCertificate",
            lambda self: not (self.disabled and self.require_client_certificate),
        ),
    )


class MembersTls(ListenerTls):
    """Transport security of the port of a gossip router for members."""

    require_client_certificate: bool = True
    """Refuse members without a certificate that `ca.crt` verifies. With `false`, anyone who reaches the port can
    register, and read what the gossip router passes on. The condition `Insecure` shows it (`AnonymousMembers`). Without
    effect with `disabled`."""

    rules: ClassVar = (_ONE_SOURCE_OR_DISABLED,)


class ConnectorTls(Model):
    """Transport security of a connector."""

    secret_name: SecretName | None = None
    """Name of a Secret with `ca.crt`, the authorities trusted for the peer's certificate, and for client
    authentication `tls.crt` and `tls.key`."""

    ssl_profile: ObjectName | None = None
    """Name of an SslProfile in place of a Secret, which rotates the certificates of all its users: a new one
    makes the router connect anew."""

    verify_hostname: bool = True
    """Require that the peer's certificate names the host connected to. With `false`, every server with a certificate of
    the authorities is accepted, and the condition `Insecure` reports it."""

    disabled: bool = False
    """Use clear text. The condition `Insecure` reports it."""

    rules: ClassVar = (_ONE_SOURCE_OR_DISABLED,)


class PeerTls(Model):
    """Transport security between peers: each end presents a certificate and verifies the other's."""

    secret_name: SecretName | None = None
    """Name of a Secret of type `kubernetes.io/tls` with `tls.crt`, `tls.key` and `ca.crt`, the authorities that the
    peers' certificates are verified against."""

    ssl_profile: ObjectName | None = None
    """Name of an SslProfile in place of a Secret, which rotates the certificates of all its users."""

    disabled: bool = False
    """Clear text, where certificates of the namespace's own authority would secure the connections otherwise: anyone
    who reaches the port can read messages and take part. Routers log a warning and list the connections in
    `relay.plainText` of `/status`."""

    rules: ClassVar = (
        Rule(
            "[has(self.secretName), has(self.sslProfile), has(self.disabled) && self.disabled]"
            ".filter(x, x).size() == 1",
            "exactly one of secretName, sslProfile and disabled must be set",
            ".secretName",
            lambda self: (
                [self.secret_name is not None, self.ssl_profile is not None, self.disabled].count(True) == 1
            ),
        ),
    )


class GossipTls(Model):
    """Transport security towards gossip routers."""

    secret_name: SecretName | None = None
    """Name of a Secret of type `kubernetes.io/tls` with `tls.crt`, `tls.key` and `ca.crt`, the authorities that their
    certificates are verified against."""

    ssl_profile: ObjectName | None = None
    """Name of an SslProfile in place of a Secret, which rotates the certificates of all its users."""

    disabled: bool = False
    """Clear text. The condition `Insecure` shows it."""

    rules: ClassVar = (_ONE_SOURCE_OR_DISABLED,)


_Tls = TypeVar("_Tls", ListenerTls, ConnectorTls, PeerTls, GossipTls)


def given(tls: _Tls | None) -> _Tls | None:
    """`tls`, if it names certificates."""
    return None if tls is None or tls.disabled else tls
