"""The whole producer over TLS and SASL, on the in-process cluster."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme
from rig import run, until, values

from aiokprod import Producer
from aiokprod.errors import DeliveryTimeoutError, TlsError
from aiokprod.testing import MockCluster

CA = trustme.CA()
STRANGER = trustme.CA()


def test_a_certificate_that_turns_bad_keeps_records_waiting_and_open_connections_open(tmp_path: Path) -> None:
    # faults: S6
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("127.0.0.1").configure_cert(server)
    ca_file = tmp_path / "ca.pem"
    CA.cert_pem.write_to_path(str(ca_file))

    async def scenario() -> None:
        async with MockCluster(brokers=1, ssl_context=server) as cluster:
            cluster.create_topic("t")
            options = {"reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 20, "retry_backoff_ms": 5}
            async with Producer(
                cluster.bootstrap_servers, security_protocol="SSL", ssl_cafile=str(ca_file), linger_ms=0,
                request_timeout_ms=1_000, delivery_timeout_ms=1_000, **options,
            ) as producer:  # fmt: skip
                await producer.send("t", b"0")
                STRANGER.issue_cert("127.0.0.1").configure_cert(server)  # for connections to come
                assert (await producer.send("t", b"1")).offset == 1
                cluster.close_connections()
                with pytest.raises(DeliveryTimeoutError) as late:
                    await producer.send("t", b"2")
                assert isinstance(late.value.__cause__, TlsError)
                assert "certificate" in str(late.value.__cause__)
                CA.issue_cert("127.0.0.1").configure_cert(server)
                assert (await producer.send("t", b"3")).offset == 2
                assert values(cluster, "t") == [b"0", b"1", b"3"]

    run(scenario())


def test_credentials_that_are_rotated_are_used_at_the_next_connection() -> None:  # faults: S17
    async def scenario() -> None:
        users = {"alice": "old"}
        async with MockCluster(brokers=1, sasl_mechanisms=["SCRAM-SHA-256"], users=users) as cluster:
            cluster.create_topic("t")
            broker = cluster.broker(1)
            producer = Producer(
                cluster.bootstrap_servers, security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256",
                sasl_username="alice", sasl_password="old", reconnect_backoff_ms=5, reconnect_backoff_max_ms=20,
            )  # fmt: skip
            async with producer:
                await producer.send("t", b"0")
                broker.users["alice"] = "new"  # type: ignore[index]
                assert (await producer.send("t", b"1")).offset == 1, "an open connection stays"
                cluster.close_connections()
                delivery = producer.send("t", b"2")
                await until(lambda: "credentials" in (producer.health().last_error or "").lower() or delivery.done())
                assert not delivery.done()
                broker.users["alice"] = "old"  # type: ignore[index]
                assert (await delivery).offset == 2

    run(scenario())
