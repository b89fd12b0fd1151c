"""Host names and addresses as text: checks, and their written form. Pure functions."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

HOST: Final = re.compile(r"[A-Za-z0-9\-._:\[\]%]{1,255}")
"""Names (the longest has 253 characters), IPv4 and IPv6 addresses, with brackets and zone or without (`# faults: H16`)."""


def can_be_host(text: str) -> bool:
    """Return whether a text can be a name or an address; used on hosts from the network before they are dialled or logged."""
    return HOST.fullmatch(text) is not None


def without_brackets(host: str) -> str:
    """Return `::1` for `[::1]`, the form that the resolver and certificates use."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def address_of(host: str, port: int | str) -> str:
    """Return `host:port`, an IPv6 address in brackets: without them its port could not be told from it."""
    return f"[{without_brackets(host)}]:{port}" if ":" in host else f"{host}:{port}"


def is_ip(host: str) -> bool:
    """Return whether this is an address and not a name."""
    try:
        ipaddress.ip_address(without_brackets(host).partition("%")[0])
    except ValueError:
        return False
    return True
