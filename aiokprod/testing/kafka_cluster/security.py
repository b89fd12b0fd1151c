"""`ClusterSecurity`: TLS and SASL of a real broker's client listeners. Pure settings; certificates are made elsewhere.

Passwords never show in a repr. The brokers talk among themselves, and with our admin client, over a plaintext listener
of 127.0.0.1, so a test of a client's security never depends on the broker's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from aiokprod.testing.kafka_cluster.errors import KafkaClusterError

SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SASL_MECHANISMS = ("PLAIN", *SCRAM_MECHANISMS, "OAUTHBEARER")
CLIENT_NAME = "aiokprod-client"  # the common name of a client's certificate: Kafka calls it User:CN=aiokprod-client
_PACKAGE = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files: a certificate authority, the brokers' key and certificate, a client's key and certificate.

    `issue` makes them; a test that wants others (expired, wrong name) makes its own and names them here.
    """

    authority: Path
    broker_certificate: Path  # private key (PKCS 8) and certificate chain in one file, as Kafka wants it
    client_certificate: Path  # the same, for a client of ours: `ssl.SSLContext.load_cert_chain(path)`

    @classmethod
    def issue(cls, directory: Path, *, names: Sequence[str] = ("localhost", "127.0.0.1")) -> TlsFiles:
        """Make an authority and certificates for these host names in the directory.

        Raises:
            KafkaClusterError: the `trustme` package is missing.
        """
        try:
            import trustme
        except ImportError as missing:
            raise KafkaClusterError("TLS listeners need certificates: pip install trustme") from missing
        authority = trustme.CA()
        files = cls(
            authority=directory / "authority.pem",
            broker_certificate=directory / "broker.pem",
            client_certificate=directory / "client.pem",
        )
        authority.cert_pem.write_to_path(files.authority)
        files.broker_certificate.write_bytes(_key_and_chain(authority.issue_cert(*names)))
        files.client_certificate.write_bytes(_key_and_chain(authority.issue_cert(CLIENT_NAME, common_name=CLIENT_NAME)))
        return files


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSecurity:
    """The certificates and credentials of the SSL and SASL listeners.

    Attributes:
        tls: certificates; needed for the SSL and SASL_SSL listeners (`KafkaCluster` makes them if there are none).
        client_auth: does the broker want a certificate of the client: "none", "requested" or "required" (mutual TLS).
        users: name to password, for PLAIN and SCRAM.
        mechanisms: those that the SASL listeners offer. OAUTHBEARER is Kafka's unsecured one: it takes any unsigned token.
        oauth_scope: the scope that such a token must have; empty for none.
    """

    tls: TlsFiles | None = None
    client_auth: Literal["none", "requested", "required"] = "none"
    users: Mapping[str, str] = field(default_factory=lambda: {"alice": "alice-secret"}, repr=False)
    mechanisms: tuple[str, ...] = SASL_MECHANISMS
    oauth_scope: str = ""

    def __post_init__(self) -> None:
        # Neither the storage tool nor JAAS has a way to quote these.
        if any(each in text for text in (*self.users, *self.users.values()) for each in '",\n'):
            raise ValueError("users: Kafka's tools take no comma, double quote or line end in a name or password")
        if any("=" in name for name in self.users):
            raise ValueError("users: Kafka's tools take no equals sign in a name")

    def properties(self, listeners: Sequence[str]) -> dict[str, str]:
        """Return the broker's properties for these listeners."""
        properties: dict[str, str] = {}
        if any(name.endswith("SSL") for name in listeners):
            if self.tls is None:
                raise KafkaClusterError("SSL and SASL_SSL listeners need ClusterSecurity(tls=TlsFiles...)")
            properties |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.tls.broker_certificate),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.tls.authority),
                "ssl.client.auth": self.client_auth,
            }
        for name in listeners:
            if name.startswith("SASL_"):
                properties["sasl.enabled.mechanisms"] = ",".join(self.mechanisms)
                prefix = f"listener.name.{name.lower()}"
                for mechanism in self.mechanisms:
                    properties[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = self._login(mechanism)
        return properties

    def scram_arguments(self, listeners: Sequence[str]) -> list[str]:
        """Return arguments of the storage tool that create the SCRAM users; none if no listener needs them."""
        if not any(name.startswith("SASL_") for name in listeners):
            return []
        return [
            f'--add-scram={mechanism}=[name="{user}",password="{password}"]'  # taken as it stands, unlike in JAAS
            for mechanism in SCRAM_MECHANISMS
            if mechanism in self.mechanisms
            for user, password in self.users.items()
        ]

    def _login(self, mechanism: str) -> str:
        if mechanism == "PLAIN":
            users = " ".join(f"user_{user}={_quoted(password)}" for user, password in self.users.items())
            return f"{_PACKAGE}.plain.PlainLoginModule required {users};"
        if mechanism in SCRAM_MECHANISMS:
            return f"{_PACKAGE}.scram.ScramLoginModule required;"
        if mechanism == "OAUTHBEARER":
            login = f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule required"
            scope = f" unsecuredValidatorRequiredScope={_quoted(self.oauth_scope)}" if self.oauth_scope else ""
            return f'{login} unsecuredLoginStringClaim_sub="broker"{scope};'
        raise KafkaClusterError(f"unknown SASL mechanism {mechanism!r}: one of {', '.join(SASL_MECHANISMS)}")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\") + '"'


def _key_and_chain(certificate: object) -> bytes:
    """Return private key in PKCS 8 (the only form Kafka reads) and the chain."""
    import trustme
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    assert isinstance(certificate, trustme.LeafCert)
    key = load_pem_private_key(certificate.private_key_pem.bytes(), password=None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem + b"".join(each.bytes() for each in certificate.cert_chain_pems)
