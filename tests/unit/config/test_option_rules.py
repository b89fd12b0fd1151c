"""Refused combinations of options: the error names both, and the way out."""

from __future__ import annotations

import ssl
from dataclasses import fields
from typing import Any

import pytest

from aiokprod.config import ProducerConfig
from aiokprod.config.option_rules import conflicts
from aiokprod.errors import ConfigError

SASL: dict[str, Any] = {"sasl_mechanism": "PLAIN", "sasl_username": "me", "sasl_password": "canary"}
TLS: dict[str, Any] = {
    "ssl_cafile": "ca.pem",
    "ssl_certfile": "cert.pem",
    "ssl_keyfile": "key.pem",
    "ssl_key_password": "canary",
    "ssl_ca_pem": "canary",
    "ssl_cert_pem": "canary",
    "ssl_key_pem": "canary",
    "ssl_context": ssl.create_default_context(),
    "ssl_check_hostname": False,
}


def config(**options: Any) -> ProducerConfig:
    return ProducerConfig.of(**{"bootstrap_servers": "kafka:9092", **options})


def refused(*named: str, **options: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        config(**options)
    for name in named:
        assert name in str(raised.value)
    assert "canary" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("missing", list(SASL))
def test_sasl_needs_mechanism_user_and_password(missing: str) -> None:
    refused(missing, security_protocol="SASL_SSL", **{name: SASL[name] for name in SASL if name != missing})


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
@pytest.mark.parametrize("option", list(SASL))
def test_credentials_under_a_protocol_that_does_not_authenticate_are_refused(protocol: str, option: str) -> None:
    refused(option, protocol, "SASL_SSL", security_protocol=protocol, **{option: SASL[option]})
    refused(option, **{option: SASL[option]})


@pytest.mark.parametrize("mechanism", ["GSSAPI", "oauthbearer", "plain", "SCRAM-SHA-1"])
def test_a_mechanism_we_do_not_have_names_those_we_have(mechanism: str) -> None:
    refused(
        "sasl_mechanism",
        mechanism,
        "SCRAM-SHA-512",
        **{**SASL, "sasl_mechanism": mechanism},
        security_protocol="SASL_SSL",
    )
    assert "security_protocol" not in refused(mechanism, "SCRAM-SHA-512", sasl_mechanism=mechanism)


def a_token() -> str:
    return "canary"


def test_oauthbearer_needs_a_provider_and_nothing_else() -> None:
    oauth: dict[str, Any] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
    assert config(**oauth, sasl_oauth_token_provider=a_token).sasl_oauth_token_provider is a_token
    refused("needs sasl_oauth_token_provider: set it to a function that returns a token", **oauth)
    for option in ("sasl_username", "sasl_password"):
        refused(
            f"{option} is set and sasl_mechanism is OAUTHBEARER",
            **oauth,
            sasl_oauth_token_provider=a_token,
            **{option: SASL[option]},
        )


def test_a_provider_of_tokens_is_given_only_if_it_is_used() -> None:
    refused(
        "sasl_oauth_token_provider is set and sasl_mechanism is PLAIN",
        security_protocol="SASL_SSL",
        sasl_oauth_token_provider=a_token,
        **SASL,
    )
    refused("sasl_oauth_token_provider", "PLAINTEXT", "SASL_SSL", sasl_oauth_token_provider=a_token)


def test_amazons_mechanism_for_java_names_the_one_that_does_the_same() -> None:
    refused(
        "'AWS_MSK_IAM': set it to OAUTHBEARER",
        "sasl_oauth_token_provider",
        security_protocol="SASL_SSL",
        sasl_mechanism="AWS_MSK_IAM",
    )


@pytest.mark.parametrize(("protocol", "better"), [("PLAINTEXT", "SSL"), ("SASL_PLAINTEXT", "SASL_SSL")])
@pytest.mark.parametrize("option", list(TLS))
def test_tls_options_need_a_protocol_with_tls(protocol: str, better: str, option: str) -> None:
    sasl = SASL if "SASL" in protocol else {}
    refused(option, protocol, f"to {better},", security_protocol=protocol, **{option: TLS[option]}, **sasl)


def test_checking_host_names_is_no_contradiction_where_there_are_none() -> None:
    assert config(ssl_check_hostname=True).ssl_check_hostname


@pytest.mark.parametrize(
    ("one", "other"),
    [("ssl_cafile", "ssl_ca_pem"), ("ssl_certfile", "ssl_cert_pem"), ("ssl_keyfile", "ssl_key_pem")],
)
def test_a_certificate_or_key_is_given_in_one_way(one: str, other: str) -> None:
    refused(one, other, "give one", security_protocol="SSL", **{one: TLS[one], other: TLS[other]})


@pytest.mark.parametrize("option", [name for name in TLS if name != "ssl_context"])
def test_a_context_stands_alone(option: str) -> None:
    refused("ssl_context", option, security_protocol="SSL", ssl_context=TLS["ssl_context"], **{option: TLS[option]})


def test_a_context_that_checks_no_names_contradicts_the_wish_to() -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    refused("ssl_check_hostname", "ssl_context", security_protocol="SSL", ssl_context=context, ssl_check_hostname=True)
    assert config(security_protocol="SSL", ssl_context=context).ssl_context is context


@pytest.mark.parametrize("option", ["ssl_keyfile", "ssl_key_pem", "ssl_key_password"])
def test_a_key_needs_its_certificate(option: str) -> None:
    refused(option, "ssl_certfile", "ssl_cert_pem", security_protocol="SSL", **{option: TLS[option]})
    assert config(security_protocol="SSL", ssl_certfile="both.pem", ssl_key_password="canary")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"transactional_id": "t", "acks": 1, "retries": 0, "enable_idempotence": False},
            ["acks=1", "enable_idempotence=False", "retries=0"],
        ),
        ({**SASL, "sasl_mechanism": "GSSAPI"}, ["sasl_mechanism is 'GSSAPI'", "does not authenticate"]),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, ["set sasl_username and sasl_password"]),
        (
            {**SASL, "security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
            ["needs sasl_oauth_token_provider", "sasl_username is set", "sasl_password is set"],
        ),
        (
            {"security_protocol": "SASL_SSL", "ssl_cafile": "ca.pem", "ssl_ca_pem": "ca", "ssl_keyfile": "key.pem"},
            ["sasl_mechanism is missing", "ssl_cafile and ssl_ca_pem", "ssl_keyfile is set without"],
        ),
        (
            {"security_protocol": "SSL", "ssl_context": TLS["ssl_context"], "ssl_cafile": "ca.pem", "ssl_certfile": "c.pem"},
            ["ssl_context and ssl_cafile", "ssl_context and ssl_certfile"],
        ),
        (
            {"security_protocol": "SSL", "ssl_keyfile": "key.pem", "ssl_key_password": "canary"},
            ["ssl_keyfile is set without", "ssl_key_password is set without"],
        ),
    ],
)  # fmt: skip
def test_all_conflicts_are_found_and_a_config_tells_the_first(options: dict[str, Any], told: list[str]) -> None:
    values = {item.name: options.get(item.name, item.default) for item in fields(ProducerConfig)}
    found = conflicts(values, options)
    assert len(found) == len(told)
    for error, text in zip(found, told, strict=True):
        assert type(error) is ConfigError and text in error.message
    assert refused(told[0], **options) == found[0].message


def test_a_level_needs_a_codec_that_has_levels() -> None:
    for codec in ("none", "snappy"):
        refused("compression_level", codec, "gzip, lz4, zstd", compression_type=codec, compression_level=1)


def test_retries_of_zero_turn_idempotence_off_unless_it_was_asked_for() -> None:
    assert not config(retries=0).idempotent
    assert config(retries=1).idempotent
    refused("retries=0", "enable_idempotence=True", retries=0, enable_idempotence=True)
    refused("acks=1", "enable_idempotence=True", acks=1, retries=0, enable_idempotence=True)
    assert not config(retries=0, max_in_flight_requests_per_connection=100).idempotent
