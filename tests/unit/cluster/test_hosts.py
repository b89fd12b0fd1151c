"""Hosts as text: what can be a name or an address, and which is which."""

from __future__ import annotations

import pytest

from aiokprod.cluster.hosts import address_of, can_be_host, is_ip, without_brackets


@pytest.mark.parametrize(
    ("host", "answer"),
    [("127.0.0.1", True), ("::1", True), ("[::1]", True), ("fe80::1%eth0", True), ("a.example", False), ("1.2", False)],
)
def test_addresses_are_told_from_names(host: str, answer: bool) -> None:
    assert is_ip(host) is answer


def test_brackets_are_taken_away() -> None:
    assert without_brackets("[::1]") == "::1"
    assert without_brackets("::1") == "::1"


@pytest.mark.parametrize(
    "host",
    ["a", "kafka-1.example.org.", "k_1", "10.0.0.1", "::1", "[fe80::1%eth0]", "x" * 255, "xn--bcher-kva.example"],
)
def test_names_and_addresses_can_be_hosts(host: str) -> None:
    assert can_be_host(host)


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("a", "a:9"),
        ("127.0.0.1", "127.0.0.1:9"),
        ("::1", "[::1]:9"),
        ("[::1]", "[::1]:9"),
        ("fe80::1%e0", "[fe80::1%e0]:9"),
    ],
)
def test_the_port_of_an_address_can_be_told_from_it(host: str, text: str) -> None:
    assert address_of(host, 9) == text


ABSURD = [
    "",
    " ",
    "a b",
    "a\0b",
    "a\nERROR forged",
    "\x1b[2J",
    "b\u00fccher",
    "\u202etxt",
    "x" * 256,
    "x" * 5_000_000,
    "a/b",
]


@pytest.mark.parametrize("host", ABSURD, ids=[f"{host[:10]!a}{len(host)}" for host in ABSURD])
def test_what_is_no_name_and_no_address_can_be_no_host(host: str) -> None:  # faults: H16
    assert not can_be_host(host)
    assert not can_be_host(host + "\n")
