"""Bootstrap addresses: "host:port, host:port", a list of them, IPv6 in brackets. Pure.

Java and librdkafka accept "SSL://host:port" and ignore the scheme or compare it. Here it is refused: if the scheme says one
thing and `security_protocol` another, a password could be sent unencrypted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv6Address

from aiokprod.config.option_checks import shown
from aiokprod.errors import ConfigError

DEFAULT_PORT = 9092
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
    parts = servers.split(",") if isinstance(servers, str) else [part for item in servers for part in item.split(",")]
    found: dict[tuple[object, int], tuple[str, int]] = {}
    for part in (part.strip() for part in parts):
        if part:
            host, port = _parse(part)
            found.setdefault((same_host(host), port), (host, port))
    if not found:
        raise ConfigError("bootstrap_servers is empty: give at least one host:port")
    return tuple(found.values())


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
        raise ConfigError(
            f"bootstrap_servers: {shown(text)} begins with {scheme[1]}://, but an address has no scheme: "
            f"write {shown(scheme[2].rstrip('/'))}, and set security_protocol for TLS or SASL"
        )
    if text.startswith("[") or text.count(":") > 1:
        return _parse_ipv6(text)
    host, colon, port = text.partition(":")
    labels = host.removesuffix(".").split(".")
    if not all(_LABEL.fullmatch(label) for label in labels):
        raise ConfigError(f"bootstrap_servers: {shown(text)} is not host:port: {shown(host)} is not a host name")
    return host, _port(port, text) if colon else DEFAULT_PORT


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
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def same_host(host: str) -> object:
    """Return a key that is equal for two spellings of one host."""
    return IPv6Address(host) if _is_ipv6(host) else host.lower()
