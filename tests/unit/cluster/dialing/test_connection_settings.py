"""From options to what a dial needs."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
import trustme

from aiokprod.cluster.dialing.connection_settings import ConnectionSettings
from aiokprod.cluster.dialing.sasl.plain import Plain
from aiokprod.cluster.dialing.sasl.scram import ScramSha256, ScramSha512
from aiokprod.config import ProducerConfig, Secret
from aiokprod.errors import ConfigError
from aiokprod.logs import KINDS_LIMIT

CA_PEM = trustme.CA().cert_pem.bytes().decode()


def settings_of(**options: Any) -> ConnectionSettings:
    return ConnectionSettings.from_config(ProducerConfig(bootstrap_servers="localhost:9092", **options))


def test_milliseconds_become_seconds_and_defaults_are_kept() -> None:
    settings = settings_of(client_id="me")
    assert settings.client_id == "me"
    assert settings.setup_timeout_s == 10.0
    assert settings.request_timeout_s == 30.0
    assert settings.max_frame_bytes == 104_857_600
    assert (settings.send_buffer_bytes, settings.receive_buffer_bytes) == (-1, -1)
    assert settings.ssl_context is None
    assert settings.new_mechanism is None
    assert settings.dialer is None


def test_options_are_taken_over() -> None:
    async def dialer(*_: object) -> Any:
        raise AssertionError

    settings = settings_of(
        send_buffer_bytes=1000, receive_buffer_bytes=2000, socket_connection_setup_timeout_ms=500, dialer=dialer
    )
    assert (settings.send_buffer_bytes, settings.receive_buffer_bytes) == (1000, 2000)
    assert settings.setup_timeout_s == 0.5
    assert settings.dialer is dialer


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_tls_protocols_verify_certificates_and_names(protocol: str) -> None:
    sasl = {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "p"} if "SASL" in protocol else {}
    settings = settings_of(security_protocol=protocol, ssl_ca_pem=CA_PEM, **sasl)
    assert settings.ssl_context is not None
    assert settings.ssl_context.check_hostname
    assert settings.ssl_context.verify_mode is ssl.CERT_REQUIRED
    assert len(settings.ssl_context.get_ca_certs()) == 1


def test_a_given_context_is_used_as_it_is(caplog: pytest.LogCaptureFixture) -> None:  # faults: S3
    context = ssl.create_default_context()
    context.check_hostname = False
    assert settings_of(security_protocol="SSL", ssl_context=context).ssl_context is context
    assert caplog.text.count("not verified") == 1


@pytest.mark.parametrize("kind", [Plain, ScramSha256, ScramSha512])
def test_each_mechanism_is_made_for_each_authentication(kind: type[Plain | ScramSha256 | ScramSha512]) -> None:
    settings = settings_of(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism=kind.name, sasl_username="u", sasl_password="p"
    )
    assert settings.new_mechanism is not None
    one, two = settings.new_mechanism(), settings.new_mechanism()
    assert isinstance(one, kind)
    assert one is not two


def test_a_secret_may_be_given_as_such() -> None:
    settings = settings_of(
        security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="u", sasl_password=Secret("canary")
    )
    assert settings.new_mechanism is not None
    assert settings.new_mechanism().start() == b"\0u\0canary"
    assert "canary" not in repr(settings)


def test_credentials_no_mechanism_can_carry_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="NUL"):
        settings_of(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="u", sasl_password="a\0b")


def test_tokens_are_taken_from_the_provider() -> None:
    settings = settings_of(
        security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=lambda: "canary"
    )
    assert settings.new_mechanism is None
    assert settings.tokens is not None
    assert "canary" not in repr(settings)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_token_in_the_open_is_warned_of_once(protocol: str, caplog: pytest.LogCaptureFixture) -> None:  # faults: S19
    settings_of(security_protocol=protocol, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=lambda: "canary")
    assert caplog.text.count("can read the token and use it") == (protocol == "SASL_PLAINTEXT")
    assert "canary" not in caplog.text


@pytest.mark.parametrize(
    ("mechanism", "words"),
    [
        ("PLAIN", "can read the password"),
        ("SCRAM-SHA-256", "can guess the password"),
        ("SCRAM-SHA-512", "can guess the password"),
    ],
)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_credentials_in_the_open_are_warned_of_once(
    protocol: str, mechanism: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:  # faults: S19
    settings = settings_of(
        security_protocol=protocol, sasl_mechanism=mechanism, sasl_username="u", sasl_password="canary"
    )
    assert settings.new_mechanism is not None
    settings.new_mechanism()
    assert caplog.text.count("an eavesdropper") == caplog.text.count(words) == (protocol == "SASL_PLAINTEXT")
    assert "canary" not in caplog.text


def test_connections_to_one_endpoint_share_a_limit_of_lines(caplog: pytest.LogCaptureFixture) -> None:  # faults: N16
    settings = ConnectionSettings()
    with caplog.at_level("INFO", logger="aiokprod"):
        for endpoint in ("a:1", "b:1", "a:1", "b:1"):
            log = settings.log_of(endpoint)
            log.moved("CONNECTING", "OPEN", "it answered")
            log.moved("OPEN", "CLOSED", "it was reset")
    assert [record.getMessage().partition(" because")[0] for record in caplog.records] == [
        f"connection to {endpoint} [aiokprod]: {move}"
        for endpoint in ("a:1", "b:1")
        for move in ("CONNECTING -> OPEN", "OPEN -> CLOSED")
    ]


def test_the_lines_of_all_endpoints_are_bounded_together(caplog: pytest.LogCaptureFixture) -> None:  # faults: H16
    settings = ConnectionSettings()
    with caplog.at_level("INFO", logger="aiokprod"):
        for _ in range(3):
            for number in range(2_000):
                settings.log_of(f"a:{number}").moved("CONNECTING", "CLOSED", "it refused")
    assert len(caplog.records) == KINDS_LIMIT + 1
