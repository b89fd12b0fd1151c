"""Settings: options that cannot work, and variables that Kubernetes injects. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from aiokprod.cli.doctoring.finding import Finding
from aiokprod.config import ProducerConfig
from aiokprod.config.command_line import Problem, Setting
from aiokprod.config.environment import ALIASES, PREFIX, SERVICE_LINK
from aiokprod.config.unknown import SERVERS
from aiokprod.errors import CodecUnavailableError, ConfigError

_INJECTED: Final = re.compile(r"KAFKA_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_[0-9]+_(TCP|UDP)(_\w+)?)")
_SUGGESTED: Final = re.compile(r"(?:did you mean|it is called) '([\w.]+)'")
_ADDRESS: Final = re.compile(r"begins with \w+://.*?write '([^']+)'", re.DOTALL)
_CHOICE: Final = re.compile(r"\(did you mean '([\w-]+)'\?\)")
_LINE: Final = re.compile(r", line (\d+) (?:is a section|has no name)")
_TWICE: Final = re.compile(r"has two values, in lines (\d+) and (\d+)$")
_BOTH: Final = re.compile(r"(?:^\w+ and (?=\w+ are both set)|^options '[^']+' and ')([\w.]+)")
_SET_TO: Final = re.compile(r"\bset (\w+) to (?:at most )?(?!one of|at least)([\w-]+)")
_LACKING: Final = re.compile(r"(\w+) is missing: set it|: set (\w+)(?:$| \(| or )")
_PATHS: Final = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")
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


def of_problem(problem: Problem) -> Finding:
    """Return the line to change for one thing that is wrong with the settings."""
    setting, message = problem.setting, problem.error.message
    if setting is None:
        return of_error(problem.error)
    address = _ADDRESS.search(message)
    if address is not None:
        return Finding("server-with-scheme", message, f"bootstrap.servers={address[1]}")
    if setting.error is not None and setting.layer:
        return Finding("option", message, _line_to_write(setting, message))
    if not setting.option:
        return _of_unknown(setting, message)
    if _OF_PROGRAMS.match(message):
        return Finding("option", message, f"delete {setting.name}")
    both = _BOTH.search(message)
    if both is not None:
        return Finding("option", message, f"delete {both[1]}")
    if setting.option in _PATHS:
        return Finding("tls-files", message, f"{setting.name}=PATH")
    choice = _CHOICE.search(message)
    if choice is not None:
        return Finding("option", message, f"{setting.name}={choice[1]}")
    return Finding("option", message, f"{setting.name}=...  (see: aiokprod config explain {setting.option})")


def _line_to_write(setting: Setting, message: str) -> str:
    """Return what to do about a pair, a file or a line of it that cannot be read."""
    if setting.option:  # a JAAS text, or one option twice
        twice = _TWICE.search(message)
        file = setting.source.removeprefix("--config ")
        return f"delete line {twice[1]} or {twice[2]} of {file}" if twice else f"{setting.written}=..."
    if setting.layer > 1:
        return "-X NAME=VALUE"
    line = _LINE.search(message)
    return f"NAME=VALUE  (in line {line[1]})" if line else "--config FILE  (one that can be read)"


def _of_unknown(setting: Setting, message: str) -> Finding:
    """Return what to do about an option that we do not have."""
    suggested = _SUGGESTED.search(message)
    if suggested is not None:
        meant = suggested[1] if suggested[1].startswith(PREFIX) else suggested[1].replace("_", ".")
        return Finding("unknown-option", message, f"{meant}=...")
    if _OF_PROGRAMS.match(message):
        return Finding("option", message, f"delete {setting.name}")
    _, has_advice, advice = message.partition(" has no meaning here: ")
    other = _first_option(advice) if has_advice else None
    if other in _PATHS:
        return Finding("tls-files", message, f"{_dotted(other)}=PATH")
    if other is not None:
        return Finding("option", message, f"{_dotted(other)}=...  (instead of {setting.name})")
    return Finding("unknown-option", message, f"{'delete' if setting.layer else 'unset'} {setting.name}")


def of_error(error: ConfigError) -> Finding:
    """Return what to change after an error of more than one option, or of what an option leads to, such as a file."""
    message = error.message
    if isinstance(error, CodecUnavailableError):
        return Finding("codec", message, "compression.type=gzip  (or install the package that is named)")
    if message.startswith("no cluster is named"):
        return Finding("no-server", message, "bootstrap.servers=HOST:PORT")
    both = _BOTH.search(message)
    if both is not None:
        return Finding("option", message, f"delete {both[1]}")
    value = _SET_TO.search(message)
    if value is not None and value[1] in ProducerConfig.names():
        return Finding("option", message, f"{_dotted(value[1])}={value[2]}")
    lacking = _LACKING.search(message)
    named = next(filter(None, lacking.groups())) if lacking else _first_option(message)
    if named is None:
        return Finding("option", message, "aiokprod config explain --all  (lists the options)")
    if named in _PATHS:
        return Finding("tls-files", message, f"{_dotted(named)}=PATH")
    return Finding("option", message, f"{_dotted(named)}=...  (see: aiokprod config explain {named})")


def _dotted(option: str) -> str:
    return option.replace("_", ".")


def _first_option(message: str) -> str | None:
    """Return the option that the text names first, as a word; not one that is a part of another word, such as a file."""
    names = "|".join(sorted(ProducerConfig.names(), key=len, reverse=True))
    found = re.search(rf"(?<![\w./-])(?:{names})(?![\w/-]|\.\w)", message)
    return found[0] if found else None


def listed(names: Sequence[object], limit: int = 8) -> str:
    """Return names in a row, at most so many."""
    return ", ".join(map(str, names[:limit])) + (", ..." if len(names) > limit else "")
