"""Bootstrap addresses: what is one, what is not, and what the error says."""

from __future__ import annotations

from typing import Any

import pytest

from aiokprod.config import ProducerConfig
from aiokprod.config.servers import parse_servers, protocols_in
from aiokprod.errors import ConfigError


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("kafka", [("kafka", 9092)]),
        ("kafka:1, kafka:1,kafka:2", [("kafka", 1), ("kafka", 2)]),
        (["a:1", "b:2"], [("a", 1), ("b", 2)]),
        (["a:1,b:2", "c:3"], [("a", 1), ("b", 2), ("c", 3)]),
        ("a:1,,b:2,", [("a", 1), ("b", 2)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
        ("::1", [("::1", 9092)]),
        ("[fe80::1%eth0]:9093", [("fe80::1%eth0", 9093)]),
        ("kafka.example.:9092", [("kafka.example.", 9092)]),
        ("kafka_1.my-net:09092", [("kafka_1.my-net", 9092)]),
        ("bücher.example:9092", [("bücher.example", 9092)]),
    ],
)
def test_servers_are_read(servers: Any, addresses: list[tuple[str, int]]) -> None:
    assert list(parse_servers(servers)) == addresses


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("Kafka:9092,kafka:9092,KAFKA", [("Kafka", 9092)]),
        ("Kafka:9092,kafka:9093", [("Kafka", 9092), ("kafka", 9093)]),
        ("[::1]:9092,[0:0:0:0:0:0:0:1]:9092", [("::1", 9092)]),
        ("[FE80::1]:1,[fe80::1]:1", [("FE80::1", 1)]),
    ],
)
def test_one_server_spelt_in_two_ways_is_one(servers: str, addresses: list[tuple[str, int]]) -> None:
    assert list(parse_servers(servers)) == addresses


@pytest.mark.parametrize("scheme", ["kafka", "tcp", "http", "kafka+ssl", "INTERNAL", "TLS", "SASL"])
def test_a_scheme_that_is_no_protocol_is_refused_with_the_way_to_write_it(scheme: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_servers(f"{scheme}://broker:9092")
    assert "bootstrap_servers" in str(raised.value)
    assert f"{scheme}://" in str(raised.value)
    assert "'broker:9092'" in str(raised.value)
    assert "security_protocol" in str(raised.value)


@pytest.mark.parametrize(
    "server",
    [
        "[zz]:1",
        "[kafka]:9092",
        "[1.2.3.4]:9092",
        "[]:9092",
        "[::1",
        "::1]",
        "[::1]9092",
        "1:2:3",
        "1::2::3",
        "[::1%]:1",
    ],
)
def test_what_looks_like_ipv6_and_is_none_is_refused(server: str) -> None:
    with pytest.raises(ConfigError, match="IPv6"):
        parse_servers(server)


def test_an_ipv6_address_that_may_end_in_a_port_wants_brackets() -> None:
    with pytest.raises(ConfigError, match=r"\[::1\]:9092"):
        parse_servers("::1:9092")


@pytest.mark.parametrize(
    "port",
    [
        "\u0669\u0660\u0669\u0662",
        "\uff19\uff10\uff19\uff12",
        "\u00b2",
        "0",
        "65536",
        "99999999999999999999",
        "-1",
        "+1",
        "1.5",
        "x",
        "",
    ],
)
def test_a_port_is_a_number_in_ascii_digits(port: str) -> None:
    with pytest.raises(ConfigError, match="port"):
        parse_servers(f"kafka:{port}")


@pytest.mark.parametrize(
    "server",
    ["a b", "a;b", "kafka/path", "kafka:9092/", "'kafka:9092'", '"kafka"', "kafka:9092:9092", "a..b:1",
     ".a:1", ":9092", "a" * 64 + ":1", "a\x00b:1", "a\nb:1", "[b'kafka:9092']", "kafka?:1"],
)  # fmt: skip
def test_what_is_no_host_is_refused_and_shown(server: str) -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers") as raised:
        parse_servers(server)
    assert "host:port" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("servers", ["", " ", ",", [], [""]])
def test_no_server_at_all_is_refused(servers: Any) -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers is empty"):
        parse_servers(servers)


@pytest.mark.parametrize("servers", ["a:1 b:2", "a:1;b:2", "a:1; b:2", "a\tb"])
def test_it_is_told_that_a_comma_separates_addresses(servers: str) -> None:
    with pytest.raises(ConfigError, match="a comma separates addresses"):
        parse_servers(servers)


def test_what_is_advised_in_place_of_an_url_is_an_address() -> None:
    with pytest.raises(ConfigError, match=r"write 'broker:9092', and"):
        parse_servers("http://broker:9092/")


PROTOCOLS = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
LOGIN: dict[str, Any] = {"sasl_mechanism": "PLAIN", "sasl_username": "me", "sasl_password": "canary"}


@pytest.mark.parametrize("scheme", [*PROTOCOLS, *(each.lower() for each in PROTOCOLS)])
def test_an_address_may_begin_with_its_protocol(scheme: str) -> None:
    servers = f"{scheme}://broker:9093, {scheme}://[::1]:1,{scheme}://b"
    assert list(parse_servers(servers)) == [("broker", 9093), ("::1", 1), ("b", 9092)]
    assert protocols_in(servers) == protocols_in(servers.split(",")) == [scheme.upper()]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_protocol_in_the_servers_is_the_security_protocol_that_was_left_out(protocol: Any) -> None:
    login = LOGIN if protocol.startswith("SASL_") else {}
    for servers in (f"{protocol}://a:1", f"{protocol.lower()}://a:1,{protocol}://b:1", ["c:1", f"{protocol}://a:1"]):
        config = ProducerConfig.of(bootstrap_servers=servers, **login)
        assert config.security_protocol == protocol
        assert config.bootstrap_addresses == tuple(parse_servers(servers))
        same = ProducerConfig.of(bootstrap_servers=servers, security_protocol=protocol, **login)
        assert same == config
    assert (
        ProducerConfig.of(bootstrap_servers="SSL://a:1").replace(bootstrap_servers="a:1").security_protocol
        == "PLAINTEXT"
    )


def test_a_protocol_in_the_servers_that_needs_a_login_says_so() -> None:
    with pytest.raises(ConfigError, match="security_protocol is SASL_SSL and sasl_mechanism is missing"):
        ProducerConfig(bootstrap_servers="SASL_SSL://a:1")


@pytest.mark.parametrize(
    ("servers", "protocol"),
    [("SSL://a:1", "PLAINTEXT"), ("PLAINTEXT://a:1", "SSL"), (["SSL://a:1", "b:1"], "SASL_SSL")],
)
def test_a_protocol_in_the_servers_and_another_security_protocol_are_refused(servers: Any, protocol: Any) -> None:
    with pytest.raises(ConfigError, match=rf"begin with \w+:// and security_protocol is {protocol}: give one of them"):
        ProducerConfig.of(
            bootstrap_servers=servers, security_protocol=protocol, **(LOGIN if "SASL" in protocol else {})
        )


def test_servers_of_two_protocols_are_refused() -> None:
    given: list[dict[str, Any]] = [{}, {"security_protocol": "SSL"}]
    for options in given:
        with pytest.raises(ConfigError, match="begin with SSL:// and PLAINTEXT://: a producer has one"):
            ProducerConfig.of(bootstrap_servers="SSL://a:1,PLAINTEXT://b:1", **options)


def test_the_name_of_a_listener_is_no_protocol() -> None:
    with pytest.raises(ConfigError, match=r"begins with INTERNAL://, which is no security protocol .* write 'a:1'"):
        ProducerConfig(bootstrap_servers="INTERNAL://a:1", security_protocol="SSL")
    with pytest.raises(ConfigError, match="Kafka calls it SASL_SSL"):
        ProducerConfig(bootstrap_servers="SASL_TLS://a:1")
    assert protocols_in(5) == protocols_in("INTERNAL://a:1") == []
