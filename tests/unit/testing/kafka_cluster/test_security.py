"""The brokers' settings of TLS and SASL."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from aiokprod.testing.kafka_cluster.errors import KafkaClusterError
from aiokprod.testing.kafka_cluster.security import ClusterSecurity, TlsFiles

SASL = ("SASL_PLAINTEXT",)


def test_plaintext_needs_nothing() -> None:
    security = ClusterSecurity()
    assert security.properties(("PLAINTEXT",)) == {}
    assert security.scram_arguments(("PLAINTEXT",)) == []


def test_passwords_do_not_show_in_the_repr() -> None:
    assert "hidden" not in repr(ClusterSecurity(users={"alice": "hidden"}))


def test_plain_users_are_quoted_for_jaas() -> None:
    properties = ClusterSecurity(users={"alice": "a\\b"}, mechanisms=("PLAIN",)).properties(SASL)
    assert properties["sasl.enabled.mechanisms"] == "PLAIN"
    assert properties["listener.name.sasl_plaintext.plain.sasl.jaas.config"].endswith(
        'PlainLoginModule required user_alice="a\\\\b";'
    )


def test_scram_users_are_made_by_the_storage_tool_for_each_mechanism_offered() -> None:
    security = ClusterSecurity(users={"alice": "x\\y"}, mechanisms=("PLAIN", "SCRAM-SHA-512"))
    assert security.scram_arguments(SASL) == ['--add-scram=SCRAM-SHA-512=[name="alice",password="x\\y"]']


@pytest.mark.parametrize("users", [{"a,b": "c"}, {"a": 'b"'}, {"a": "b\n"}, {"a=b": "c"}])
def test_what_kafkas_tools_cannot_take_is_refused(users: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="Kafka's tools take no"):
        ClusterSecurity(users=users)


def test_an_unknown_mechanism_is_refused_by_name() -> None:
    with pytest.raises(KafkaClusterError, match="unknown SASL mechanism 'CRAM'"):
        ClusterSecurity(mechanisms=("CRAM",)).properties(SASL)


def test_tls_listeners_need_certificates() -> None:
    with pytest.raises(KafkaClusterError, match="TlsFiles"):
        ClusterSecurity().properties(("SSL",))


def test_issued_certificates_are_what_kafka_and_python_read(tmp_path: Path) -> None:
    files = TlsFiles.issue(tmp_path)
    properties = ClusterSecurity(tls=files, client_auth="required").properties(("SSL",))
    assert properties["ssl.keystore.location"] == str(files.broker_certificate)
    assert properties["ssl.client.auth"] == "required"
    assert b"BEGIN PRIVATE KEY" in files.broker_certificate.read_bytes()  # PKCS 8, the only form Kafka reads
    context = ssl.create_default_context(cafile=files.authority)
    context.load_cert_chain(files.client_certificate)


def test_a_scope_may_be_required_of_tokens() -> None:
    name = "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"
    assert "Scope" not in ClusterSecurity().properties(SASL)[name]
    required = ClusterSecurity(oauth_scope="kafka").properties(SASL)[name]
    assert 'unsecuredLoginStringClaim_sub="broker" unsecuredValidatorRequiredScope="kafka";' in required
