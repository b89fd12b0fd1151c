"""Options from environment variables.

`AIOKPROD_<OPTION>` for every option that can be written as text, and below them in precedence a closed list of `KAFKA_`
aliases. Other variables that begin with KAFKA_ are ignored: Kubernetes injects such variables for every Service called kafka,
and broker images take their own settings from them. Kubernetes also injects AIOKPROD_SERVICE_HOST and the like for a Service
called aiokprod: these are ignored too. An empty variable counts as not set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from aiokprod.config.option_texts import named_as_written, typed
from aiokprod.config.unknown import unknown_option
from aiokprod.errors import ConfigError

ConfigT = TypeVar("ConfigT")
PREFIX: Final = "AIOKPROD_"
ALIASES: Final = {
    "KAFKA_BOOTSTRAP_SERVERS": "bootstrap_servers",
    "KAFKA_CLIENT_ID": "client_id",
    "KAFKA_SECURITY_PROTOCOL": "security_protocol",
    "KAFKA_SASL_MECHANISM": "sasl_mechanism",
    "KAFKA_SASL_USERNAME": "sasl_username",
    "KAFKA_SASL_PASSWORD": "sasl_password",
    "KAFKA_SSL_CAFILE": "ssl_cafile",
    "KAFKA_SSL_CERTFILE": "ssl_certfile",
    "KAFKA_SSL_KEYFILE": "ssl_keyfile",
}
FROM_FILE: Final = ("sasl_password", "ssl_key_password", "ssl_key_pem")
# Variables for builds and tests.
NOT_OPTIONS: Final = frozenset({"AIOKPROD_PURE", "AIOKPROD_COMPILE", "AIOKPROD_EXPECT_COMPILED"})
NOT_OPTION_STARTS: Final = ("AIOKPROD_KAFKA_", "AIOKPROD_TEST_", "AIOKPROD_REQUIRE_")
# Variables that Kubernetes (and Docker links before it) injects for a Service called aiokprod or aiokprod-something.
SERVICE_LINK: Final = re.compile(
    r"AIOKPROD_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_[0-9]+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)"
)
NOT_TEXTS: Final = frozenset((
    "ssl_context", "sasl_oauth_token_provider", "key_serializer", "value_serializer", "interceptors", "on_delivery_error",
    "dialer",
))  # fmt: skip


def build(
    of: Callable[..., ConfigT], kinds: Mapping[str, str], environ: Mapping[str, str], options: Mapping[str, Any]
) -> ConfigT:
    """Make a config from the environment; the given options take precedence.

    Args:
        of: makes a config of options in our names.
        kinds: the annotation of each option.
        environ: names and texts of variables.
        options: take precedence over the environment.
    """
    found, written = read_environment(environ, kinds)
    if not {**found, **options}.get("bootstrap_servers"):
        servers = f"{PREFIX}BOOTSTRAP_SERVERS"
        raise ConfigError(f"{servers} is not set: set it to at least one host:port, or pass bootstrap_servers")
    try:
        return of(**{**found, **options})
    except ConfigError as error:
        raise named_as_written(error, {key: name for key, name in written.items() if key not in options}) from None


def read_environment(environ: Mapping[str, str], kinds: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the options that the environment sets, and the variable of each."""
    variables = read_variables(environ, kinds)
    for each in variables:
        if each.error is not None:
            raise each.error
    return {each.option: each.value for each in variables}, {each.option: each.name for each in variables}


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable that was read; at most one for each option."""

    name: str
    option: str
    """the option that it sets; empty if there is none that a text can set"""
    value: Any = field(repr=False)
    """None if it cannot be read; it may be a secret"""
    error: ConfigError | None = None


def read_variables(environ: Mapping[str, str], kinds: Mapping[str, str]) -> list[Variable]:
    """Read all variables, also those that are wrong: each of these has its error."""
    found: dict[str, Variable] = {}
    unknown: list[Variable] = []
    for variable, option in ALIASES.items():
        if environ.get(variable):
            found[option] = Variable(variable, option, typed(option, environ[variable], kinds[option], variable))
    ours: dict[str, str] = {}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or not text or _is_of_others(variable):
            continue
        option = variable.removeprefix(PREFIX).lower()
        secret = option.removesuffix("_file")
        is_file = option.endswith("_file") and secret in FROM_FILE
        option = secret if is_file else option
        if option in NOT_TEXTS or option not in kinds:
            unknown.append(Variable(variable, "", None, _not_a_text(variable, option, kinds)))
            continue
        try:
            if option in ours:
                raise ConfigError(f"{ours[option]} and {variable} are both set: set one of them")
            ours[option] = variable
            read = _read(variable, text) if is_file else text
            found[option] = Variable(variable, option, typed(option, read, kinds[option], variable))
        except ConfigError as error:
            found[option] = Variable(variable, option, None, error)
    return [*found.values(), *unknown]


def _not_a_text(variable: str, option: str, kinds: Mapping[str, str]) -> ConfigError:
    if option in NOT_TEXTS:
        return ConfigError(f"{variable}: {option} is an object, which a text cannot express: pass it as an argument")
    return unknown_option(variable, [PREFIX + name.upper() for name in kinds if name not in NOT_TEXTS])


def _is_of_others(variable: str) -> bool:
    if variable in NOT_OPTIONS or variable.startswith(NOT_OPTION_STARTS):
        return True
    return SERVICE_LINK.fullmatch(variable) is not None


def _read(variable: str, path: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as missing:
        raise ConfigError(
            f"{variable} names a file that cannot be read: {missing.strerror or type(missing).__name__}; {_NOT_SHOWN}"
        ) from None
    except ValueError:  # not UTF-8, or a NUL in the path
        raise ConfigError(f"{variable} does not name a file of UTF-8 text: correct the path; {_NOT_SHOWN}") from None
    if not text:
        raise ConfigError(f"{variable} names a file that is empty: write the secret into it; {_NOT_SHOWN}")
    return text


_NOT_SHOWN: Final = "the value is not shown here, as it may be the secret itself instead of a path"
