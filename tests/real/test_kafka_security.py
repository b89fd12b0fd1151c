"""TLS, mutual TLS and SASL of a real broker, seen by a client of another make."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from aiokprod.testing import KafkaCluster
from aiokprod.testing.kafka_cluster import ClusterSecurity

# Of the testing kit; the producer's own tests on real brokers are in every run.
pytestmark = [pytest.mark.real, pytest.mark.slow]

PASSWORD = "a \\ 'b' é="


@pytest.fixture(scope="module")
def cluster(kafka_version: str) -> Iterator[KafkaCluster]:
    security = ClusterSecurity(client_auth="requested", users={"alice": PASSWORD, "bob": "bob-secret"})
    listeners = ("SASL_SSL", "SSL", "SASL_PLAINTEXT", "PLAINTEXT")
    with KafkaCluster(brokers=1, version=kafka_version, listeners=listeners, security=security) as started:
        started.create_topic("orders")
        yield started


def deliver(
    cluster: KafkaCluster, listener: str, oauth: Callable[[str], tuple[str, float]] | None = None, **options: object
) -> None:
    """Send one record; raises if it does not arrive."""
    failures: list[object] = []
    settings: dict[str, object] = {
        "bootstrap.servers": cluster.bootstrap_for(listener),
        "security.protocol": listener,
        "ssl.ca.location": str(cluster.tls.authority),
        "message.timeout.ms": 10_000,
        "error_cb": failures.append,
    }
    if oauth is not None:
        settings["oauth_cb"] = oauth
    producer = Producer(settings | {name.replace("_", "."): value for name, value in options.items()})
    producer.produce("orders", b"value", on_delivery=lambda error, _: failures.append(error) if error else None)
    while len(producer):
        producer.poll(0.1)
        if failures:
            raise KafkaException(failures[0])


@pytest.mark.parametrize("listener", ["SASL_SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("user", "password"), [("alice", PASSWORD), ("bob", "bob-secret")])
def test_a_user_with_the_password_gets_in(
    cluster: KafkaCluster, listener: str, mechanism: str, user: str, password: str
) -> None:
    deliver(cluster, listener, sasl_mechanism=mechanism, sasl_username=user, sasl_password=password)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_with_another_password_does_not(cluster: KafkaCluster, mechanism: str) -> None:
    with pytest.raises(KafkaException, match=r"(?i)auth"):
        deliver(cluster, "SASL_SSL", sasl_mechanism=mechanism, sasl_username="alice", sasl_password="bob-secret")


def test_an_unsigned_token_gets_in(cluster: KafkaCluster) -> None:
    def encoded(part: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")

    expires_s = time.time() + 300
    token = encoded({"alg": "none"}) + "." + encoded({"sub": "alice", "iat": time.time(), "exp": expires_s}) + "."
    deliver(cluster, "SASL_SSL", sasl_mechanism="OAUTHBEARER", oauth=lambda _: (token, expires_s))


def test_plain_tls_gets_in_and_a_stranger_of_an_authority_does_not(cluster: KafkaCluster) -> None:
    deliver(cluster, "SSL")
    with pytest.raises(KafkaException, match=r"(?i)ssl|certificate"):
        deliver(cluster, "SSL", ssl_ca_location="/etc/ssl/certs/ca-certificates.crt")


def test_the_certificate_names_the_host_and_its_address(cluster: KafkaCluster) -> None:
    context = ssl.create_default_context(cafile=cluster.tls.authority)
    context.load_cert_chain(cluster.tls.client_certificate)
    port = int(cluster.bootstrap_for("SSL").rpartition(":")[2])
    for name in ("127.0.0.1", "localhost"):
        with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain, server_hostname=name):
            pass


def test_mutual_tls_wants_a_certificate_of_the_client() -> None:
    with KafkaCluster(brokers=1, listeners=["SSL"], security=ClusterSecurity(client_auth="required")) as cluster:
        cluster.create_topic("orders")
        certificate = str(cluster.tls.client_certificate)
        deliver(cluster, "SSL", ssl_certificate_location=certificate, ssl_key_location=certificate)
        with pytest.raises(KafkaException):
            deliver(cluster, "SSL")
