"""SASL of listeners and connectors."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from .base import Model, Rule, SecretKeyRef, SecretRef, Text

Mechanism = Literal[
    "ANONYMOUS",
    "EXTERNAL",
    "PLAIN",
    "SCRAM-SHA-1",
    "SCRAM-SHA-224",
    "SCRAM-SHA-256",
    "SCRAM-SHA-384",
    "SCRAM-SHA-512",
]
PLAIN_NEEDS_TLS = (
    "sasl mechanism PLAIN without TLS exposes passwords: set tls, use SCRAM-SHA-256 in place of PLAIN,"
    " or set sasl.allowPlainWithoutTls"
)
NO_PLAIN_IN_CLEAR = (
    "!has(self.sasl) || !has(self.sasl.mechanisms) || !self.sasl.mechanisms.exists(m, m == 'PLAIN')"
    " || (has(self.sasl.allowPlainWithoutTls) && self.sasl.allowPlainWithoutTls)"
    " || (has(self.tls) && (!has(self.tls.disabled) || !self.tls.disabled))"
)
"""In CEL, for what has `sasl` and `tls`."""


class ListenerSasl(Model):
    """Authentication of the peers of a listener."""

    mechanisms: Annotated[
        list[Mechanism],
        Field(min_length=1, max_length=8, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ]
    """Mechanisms offered. Without `ANONYMOUS` every peer must authenticate."""

    users_secret_ref: SecretRef | None = None
    """Secret whose key `sasldb` is a database of users and passwords for `PLAIN` and `SCRAM-*`, as
    `saslpasswd2 -c -f FILE -u REALM USER` makes it; users log in as `USER@REALM`. A Router has one for all
    of its listeners. Changed users take effect at once; naming another Secret restarts the routers."""

    allow_plain_without_tls: bool = False
    """Offer `PLAIN` on a listener without TLS, where others can read the passwords on their way. The condition
    `Insecure` shows it."""

    rules: ClassVar = (
        Rule(
            "!self.mechanisms.exists(m, m == 'PLAIN' || m.startsWith('SCRAM')) || has(self.usersSecretRef)",
            "usersSecretRef is required when mechanisms contains PLAIN or SCRAM",
            ".usersSecretRef",
            lambda self: self.users_secret_ref is not None or not self.passwords,
        ),
        Rule(
            "self.mechanisms.all(m, self.mechanisms.exists_one(n, n == m))",
            "mechanisms must not repeat",
            ".mechanisms",
            lambda self: len(set(self.mechanisms)) == len(self.mechanisms),
        ),
    )

    @property
    def passwords(self) -> bool:
        """Some mechanism checks passwords."""
        return any(mechanism not in {"ANONYMOUS", "EXTERNAL"} for mechanism in self.mechanisms)

    @property
    def plain_allowed(self) -> bool:
        """PLAIN is offered in clear text as well."""
        return "PLAIN" in self.mechanisms and self.allow_plain_without_tls


class ConnectorSasl(Model):
    """How the connector authenticates itself."""

    mechanisms: (
        Annotated[
            list[Mechanism],
            Field(min_length=1, max_length=8, json_schema_extra={"x-kubernetes-list-type": "set"}),
        ]
        | None
    ) = None
    """Mechanisms that may be used; when absent whatever the peer offers and the credentials allow."""

    credentials_secret_ref: SecretRef | None = None
    """User name and password for `PLAIN` and `SCRAM-*`: a Secret of type `kubernetes.io/basic-auth`, or another one
    with the keys `username` and `password`. Changed ones count from the next connection on."""

    username: Text | None = None
    """User name, where only the password is in a Secret."""

    password_secret_ref: SecretKeyRef | None = None
    """Password of `username`."""

    allow_plain_without_tls: bool = False
    """Use `PLAIN` on connections without TLS, where others can read the password on its way. By default such
    connections use `PLAIN` only with peers on the same machine, and `SCRAM-*` with others. The condition `Insecure` of
    a Connector shows it."""

    rules: ClassVar = (
        Rule(
            "!has(self.credentialsSecretRef) || (!has(self.username) && !has(self.passwordSecretRef))",
            "sasl.credentialsSecretRef has user name and password; remove username and passwordSecretRef",
            ".credentialsSecretRef",
            lambda self: (
                self.credentials_secret_ref is None
                or (self.username is None and self.password_secret_ref is None)
            ),
        ),
        Rule(
            "has(self.username) == has(self.passwordSecretRef)",
            "sasl.username and sasl.passwordSecretRef go together",
            ".passwordSecretRef",
            lambda self: (self.username is None) == (self.password_secret_ref is None),
        ),
        Rule(
            "has(self.credentialsSecretRef) || has(self.username) || has(self.mechanisms)",
            "sasl needs credentialsSecretRef, username or mechanisms",
            ".mechanisms",
            lambda self: (
                self.credentials_secret_ref is not None
                or self.username is not None
                or self.mechanisms is not None
            ),
        ),
    )

    @property
    def has_password(self) -> bool:
        """It names a password."""
        return self.credentials_secret_ref is not None or self.password_secret_ref is not None

    @property
    def needs_tls(self) -> bool:
        """It names PLAIN, and does not allow it in clear text."""
        return "PLAIN" in (self.mechanisms or ()) and not self.allow_plain_without_tls
