"""Bootstrap addresses: "host:port, host:port", a list of them, IPv6 in brackets. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aiokprod.errors import ConfigError

DEFAULT_PORT = 9092
_ADDRESS = re.compile(r"(?:[A-Za-z][A-Za-z0-9_]*://)?(?:\[([^\]]+)\]|([^\s:/\[\],]+))(?::(\d+))?")
_BARE_IPV6 = re.compile(r"[0-9A-Fa-f:.%]*:[0-9A-Fa-f:.%]*:[0-9A-Za-z:.%]*")


def parse_servers(servers: str | Sequence[str]) -> tuple[tuple[str, int], ...]:
    """(host, port) pairs, duplicates dropped.

    Raises:
        ConfigError: one of them is no address, or there is none.
    """
    parts = servers.split(",") if isinstance(servers, str) else [part for item in servers for part in item.split(",")]
    found: dict[tuple[str, int], None] = {}
    for part in (part.strip() for part in parts):
        if part:
            found[_parse(part)] = None
    if not found:
        raise ConfigError("bootstrap_servers is empty: give at least one host:port")
    return tuple(found)


def _parse(text: str) -> tuple[str, int]:
    if _BARE_IPV6.fullmatch(text):
        return text, DEFAULT_PORT
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ConfigError(f"bootstrap_servers: {text!r} is not host:port")
    host = match[1] or match[2]
    port = int(match[3]) if match[3] else DEFAULT_PORT
    if not 0 < port < 65536:
        raise ConfigError(f"bootstrap_servers: port {port} of {text!r} is not between 1 and 65535")
    return host, port
