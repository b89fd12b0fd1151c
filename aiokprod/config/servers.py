"""Bootstrap addresses: "host:port, host:port", a list of them, IPv6 in brackets; each may begin with its protocol. Pure.

Java and librdkafka accept "SSL://host:port" and ignore the protocol or compare it. Here it is as good as `security_protocol`:
if the two said different things, and one of them won, a password could be sent unencrypted (`option_rules` refuses that).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast, get_args

from aiokprod.config.option_checks import TLS_NAMES, shown
from aiokprod.config.options import ProtocolName
from aiokprod.errors import ConfigError

DEFAULT_PORT = 9092
PROTOCOLS: tuple[str, ...] = get_args(ProtocolName)
_SCHEME = re.compile(r"([^:/]*)://(.*)", re.DOTALL)
_BRACKETS = re.compile(r"\[([^\[\]]*)\](?::(.*))?", re.DOTALL)
_SEPARATED = re.compile(r"[^\s;][\s;]+[^\s;]")  # two addresses separated by something other than a comma
_LABEL = re.compile(r"[\w-]{1,63}")  # letters of any language: the resolver encodes them
_PORT = re.compile(r"[0-9]{1,9}")
_LOOKS_LIKE_PORT = re.compile(r".*:[0-9]{4,5}")


def parse_servers(servers: str | Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Parse (host, port) pairs in their order, dropping repeated ones, in whatever spelling.

    Raises:
        ConfigError: one of them is not an address, or there is none.
    """
    found: dict[tuple[object, int], tuple[str, int]] = {}
    for part in _parts(servers):
        host, port = _parse(part)
        found.setdefault((same_host(host), port), (host, port))
    if not found:
        raise ConfigError("bootstrap_servers is empty: give at least one host:port")
    return tuple(found.values())


def protocols_in(servers: object) -> list[str]:
    """Return the security protocols that addresses begin with, in their order; what is no address has none."""
    each: list[object] = []
    if isinstance(servers, str):
        each = [servers]
    elif isinstance(servers, Sequence):
        each = list(cast("Sequence[object]", servers))
    schemes = (_SCHEME.fullmatch(part) for part in _parts([text for text in each if isinstance(text, str)]))
    return list(dict.fromkeys(found[1].upper() for found in schemes if found and found[1].upper() in PROTOCOLS))


def _parts(servers: str | Sequence[str]) -> list[str]:
    parts = servers.split(",") if isinstance(servers, str) else [part for item in servers for part in item.split(",")]
    return [part.strip() for part in parts if part.strip()]


def _parse(text: str) -> tuple[str, int]:
    if "@" in text:
        raise ConfigError(
            "bootstrap_servers: an address is host:port, without user and password: set sasl_username and sasl_password"
            " (one has an '@', and is not shown here)"
        )
    if _SEPARATED.search(text):
        raise ConfigError(f"bootstrap_servers: {shown(text)} is not one host:port: a comma separates addresses")
    scheme = _SCHEME.fullmatch(text)
    if scheme is not None:
        text = _without_protocol(scheme[1], scheme[2], text)
    if text.startswith("[") or text.count(":") > 1:
        return _parse_ipv6(text)
    host, colon, port = text.partition(":")
    labels = host.removesuffix(".").split(".")
    if not all(_LABEL.fullmatch(label) for label in labels):
        raise ConfigError(f"bootstrap_servers: {shown(text)} is not host:port: {shown(host)} is not a host name")
    return host, _port(port, text) if colon else DEFAULT_PORT


def _without_protocol(scheme: str, address: str, text: str) -> str:
    if scheme.upper() in PROTOCOLS:
        return address
    name = TLS_NAMES.get(scheme.upper())
    meant = f"Kafka calls it {name}" if name else f"an address begins with {', '.join(PROTOCOLS)} or none of them"
    raise ConfigError(
        f"bootstrap_servers: {shown(text)} begins with {scheme}://, which is no security protocol ({meant}): "
        f"write {shown(address.rstrip('/'))}, and set security_protocol for TLS or SASL"
    )


def _parse_ipv6(text: str) -> tuple[str, int]:
    match = _BRACKETS.fullmatch(text)
    host = match[1] if match else text
    if not _is_ipv6(host):
        raise ConfigError(
            f"bootstrap_servers: {shown(text)} is not host:port: {shown(host)} is not an IPv6 address (such as [::1]:9092)"
        )
    if match is None:
        if _LOOKS_LIKE_PORT.fullmatch(text):
            address, _, port = text.rpartition(":")
            raise ConfigError(
                f"bootstrap_servers: {shown(text)} can be read in two ways: write [{address}]:{port} if it ends in a port, "
                f"[{text}]:{DEFAULT_PORT} if it does not"
            )
        return host, DEFAULT_PORT
    return host, DEFAULT_PORT if match[2] is None else _port(match[2], text)


def _port(digits: str, text: str) -> int:
    if not _PORT.fullmatch(digits) or not 0 < int(digits) < 65536:
        raise ConfigError(
            f"bootstrap_servers: {shown(text)} is not host:port: the port {digits!r} is not a number between 1 and 65535"
        )
    return int(digits)


def _is_ipv6(host: str) -> bool:
    if ":" not in host:
        return False
    from ipaddress import IPv6Address  # most programs have none

    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def same_host(host: str) -> object:
    """Return a key that is equal for two spellings of one host."""
    if not _is_ipv6(host):
        return host.lower()
    from ipaddress import IPv6Address

    return IPv6Address(host)
