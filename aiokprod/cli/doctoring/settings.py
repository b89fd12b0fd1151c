"""Settings: options that cannot work, and variables that Kubernetes injects. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from aiokprod.cli.common.running import message_of
from aiokprod.cli.doctoring.finding import Finding
from aiokprod.config import ProducerConfig
from aiokprod.config.environment import ALIASES, SERVICE_LINK
from aiokprod.config.unknown import SERVERS
from aiokprod.errors import CodecUnavailableError, ConfigError

_INJECTED: Final = re.compile(r"KAFKA_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_[0-9]+_(TCP|UDP)(_\w+)?)")
_SUGGESTED: Final = re.compile(r"(?:did you mean|it is called) '([\w.]+)'")
_ADDRESS: Final = re.compile(r"begins with \w+://.*?write '([^']+)'", re.DOTALL)
_CHOICE: Final = re.compile(r"^(\w+) is .* \(did you mean '([\w-]+)'\?\)")
_OF_PROGRAMS: Final = re.compile(r"option '([^']+)' is for programs")


def of_variables(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is odd about the environment."""
    environ = {name: text for name, text in environ.items() if text}
    injected = sorted(name for name in environ if _INJECTED.fullmatch(name) or SERVICE_LINK.fullmatch(name))
    if injected:
        yield Finding(
            "kubernetes-variables",
            f"Kubernetes set {listed(injected, 3)} for a Service; they are ignored here, and break broker images and programs"
            " that read every KAFKA_ variable",
            "enableServiceLinks: false  (in the pod's spec)",
            is_trouble=False,
        )
    ignored = sorted(
        name for name in environ if name.startswith("KAFKA_") and name not in ALIASES and not _INJECTED.fullmatch(name)
    )
    meant = [name for name in ignored if _ours(name) is not None]
    for name in meant:
        yield Finding(
            "ignored-variable",
            f"{name} is set, and not read: only {len(ALIASES)} KAFKA_ variables are",
            f"{_ours(name)}=...",
            is_trouble=False,
        )


def _ours(variable: str) -> str | None:
    option = variable.removeprefix("KAFKA_").lower()
    if option in SERVERS:
        return "AIOKPROD_BOOTSTRAP_SERVERS"
    return f"AIOKPROD_{option.upper()}" if option in ProducerConfig.names() else None


def of_error(error: ConfigError) -> Finding:
    """Return what to change after an error of the options."""
    message = message_of(error)
    if isinstance(error, CodecUnavailableError):
        return Finding("codec", message, "compression.type=gzip  (or install the package that is named)")
    address = _ADDRESS.search(message)
    if address is not None:
        return Finding("server-with-scheme", message, f"bootstrap.servers={address[1]}")
    if message.startswith("no cluster is named"):
        return Finding("no-server", message, "bootstrap.servers=HOST:PORT")
    of_programs = _OF_PROGRAMS.match(message)
    if of_programs is not None:
        return Finding("option", message, f"delete {of_programs[1]}")
    choice = _CHOICE.search(message)
    if choice is not None:
        return Finding("option", message, f"{choice[1].replace('_', '.')}={choice[2]}")
    suggested = _SUGGESTED.search(message)
    if suggested is not None:
        return Finding("unknown-option", message, f"{suggested[1].replace('_', '.')}=...")
    named = _first_option(message)
    if named is None:
        return Finding("option", message, "aiokprod config explain --all  (lists the options)")
    if named.startswith("ssl_"):
        return Finding("tls-files", message, f"{named.replace('_', '.')}=PATH")
    return Finding("option", message, f"{named.replace('_', '.')}=...  (see: aiokprod config explain {named})")


def _first_option(message: str) -> str | None:
    """Return the option that the text names first."""
    places = [(at, -len(name), name) for name in ProducerConfig.names() if (at := message.find(name)) >= 0]
    return min(places)[2] if places else None


def listed(names: Sequence[object], limit: int = 8) -> str:
    """Return names in a row, at most so many."""
    return ", ".join(map(str, names[:limit])) + (", ..." if len(names) > limit else "")
