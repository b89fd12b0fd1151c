"""Rules for combinations of options. Pure: from the values, and which of them were given, to their meaning.

What was given is never changed: if two given options conflict, the error names both, and the user decides. What was left out
gives way to what was given (`fitted`), so that a config of another client is not refused for a default of ours.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any, Final, get_args

from aiokprod.config.option_checks import shown
from aiokprod.config.options import MechanismName
from aiokprod.config.servers import protocols_in
from aiokprod.errors import ConfigError

LEVELS: Final = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-131072, 22)}  # KIP-390
WITHOUT_LEVELS: Final = ("none", "snappy")
MECHANISMS: Final[tuple[str, ...]] = get_args(MechanismName)
DELIVERY_TIMEOUT_MS: Final = 120_000
IDEMPOTENT_IN_FLIGHT: Final = 5  # broker: it remembers the last five batches of a producer per partition

_BASE_AND_MOST = (
    ("retry_backoff_ms", "retry_backoff_max_ms"),
    ("reconnect_backoff_ms", "reconnect_backoff_max_ms"),
    ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms"),
)
_SIZES = ("batch_size", "max_request_size", "buffer_memory")
_PAIRS = (*_BASE_AND_MOST, *combinations(_SIZES, 2))
LEAST_REQUEST_TIMEOUT_MS: Final = 1
_ONE_OF = (("ssl_cafile", "ssl_ca_pem"), ("ssl_certfile", "ssl_cert_pem"), ("ssl_keyfile", "ssl_key_pem"))
_PASSWORD = ("sasl_username", "sasl_password")
_PROVIDER = "sasl_oauth_token_provider"
_SASL = ("sasl_mechanism", *_PASSWORD, _PROVIDER)
TOKENS: Final = "OAUTHBEARER"
MSK_IAM: Final = "AWS_MSK_IAM"
_TLS = (
    "ssl_context", "ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_key_password", "ssl_ca_pem", "ssl_cert_pem",
    "ssl_key_pem",
)  # fmt: skip


def required_acks(acks: int | str | None) -> int:
    """Return -1 (all), 0 or 1."""
    return -1 if acks is None or acks == "all" else int(acks)


def why_not_idempotent(values: Mapping[str, Any]) -> str | None:
    """Return None if the producer is idempotent, else the option that prevents it ("" for `enable_idempotence=False`).

    As in Java: acks, retries or a number in flight that rule idempotence out turn it off, unless it was requested.
    """
    wanted = values["enable_idempotence"]
    if wanted is False:
        return ""
    acks = required_acks(values["acks"])
    obstacle = f"acks={acks}" if acks != -1 else "retries=0" if values["retries"] == 0 else None
    if obstacle is not None:
        if wanted:
            needs = "acks='all'" if acks != -1 else "retries"
            raise ConfigError(
                f"{obstacle} and enable_idempotence=True conflict: idempotence needs {needs}; leave one of them out"
            )
        return obstacle
    in_flight = values["max_in_flight_requests_per_connection"]
    if in_flight <= IDEMPOTENT_IN_FLIGHT:
        return None
    if wanted:
        raise ConfigError(
            f"max_in_flight_requests_per_connection is {in_flight}: with idempotence it is at most "
            f"{IDEMPOTENT_IN_FLIGHT}; set it so, or set enable_idempotence=False"
        )
    return f"max_in_flight_requests_per_connection={in_flight}"


def _of_transactions(values: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Yield what is turned off though a producer with a transactional id needs it."""
    if values["transactional_id"] is None:
        return
    acks = required_acks(values["acks"])
    in_flight = values["max_in_flight_requests_per_connection"]
    obstacles = {
        f"acks={acks}": acks != -1,
        "enable_idempotence=False": values["enable_idempotence"] is False,
        "retries=0": values["retries"] == 0,
        f"max_in_flight_requests_per_connection={in_flight}": in_flight > IDEMPOTENT_IN_FLIGHT,
    }
    for obstacle, is_there in obstacles.items():
        if is_there:
            yield ConfigError(
                f"transactional_id and {obstacle} conflict: a transaction needs acks='all', idempotence, retries and at most"
                f" {IDEMPOTENT_IN_FLIGHT} requests in flight; leave one of them out"
            )


def delivery_timeout_ms(values: Mapping[str, Any]) -> float:
    """Return the given timeout, if it leaves time to linger and for one request; if none was given, a long enough one."""
    least: float = values["linger_ms"] + values["request_timeout_ms"]
    given: float | None = values["delivery_timeout_ms"]
    if given is None:
        return max(DELIVERY_TIMEOUT_MS, least)
    if given < least:
        raise ConfigError(
            f"delivery_timeout_ms is {given}: it must be at least linger_ms + request_timeout_ms "
            f"({values['linger_ms']} + {values['request_timeout_ms']} = {least}); raise it, or lower one of those"
        )
    return given


def fitted(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with those that were left out fitted to those that were given. Never raises.

    Where two given values conflict, nothing can be fitted to both: `conflicts` finds it.

    Args:
        values: of all options, also defaults.
        given: of those that were given.
    """
    fit = dict(values)
    for base, most in _BASE_AND_MOST:
        _fit_ascending((base, most), fit, given)
    _fit_ascending(_SIZES, fit, given)
    _fit_timeouts(fit, given)
    named = protocols_in(fit["bootstrap_servers"])
    if named and "security_protocol" not in given:
        fit["security_protocol"] = named[0]
    return fit


def _fit_ascending(names: Sequence[str], fit: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Fit what was left out of options none of which may be above the next one."""
    for number, name in enumerate(names):
        if name not in given:
            least = max((fit[each] for each in names[:number] if each in given), default=fit[name])
            most = min((fit[each] for each in names[number:] if each in given), default=max(fit[name], least))
            fit[name] = min(max(fit[name], least), most)


def _fit_timeouts(fit: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Leave time for a request: shorten it and, if that is not enough, the linger; those of them that were left out."""
    deadline = fit["delivery_timeout_ms"]
    if deadline is None:
        return
    if "linger_ms" not in given:
        request = fit["request_timeout_ms"] if "request_timeout_ms" in given else LEAST_REQUEST_TIMEOUT_MS
        fit["linger_ms"] = max(0, min(fit["linger_ms"], deadline - request))
    if "request_timeout_ms" not in given:
        left = max(LEAST_REQUEST_TIMEOUT_MS, deadline - fit["linger_ms"])
        fit["request_timeout_ms"] = min(fit["request_timeout_ms"], left)


def _check_pair(smaller: str, larger: str, values: Mapping[str, Any]) -> None:
    """Check that a base is not above its maximum, or a part above the whole."""
    if values[smaller] > values[larger]:
        raise ConfigError(
            f"{smaller} ({values[smaller]}) is above {larger} ({values[larger]}): "
            f"set {smaller} to at most {values[larger]}, or {larger} to at least {values[smaller]}"
        )


def check_compression(values: Mapping[str, Any]) -> None:
    """Check that the level is one of the codec's."""
    level, codec = values["compression_level"], values["compression_type"]
    if level is None:
        return
    if codec not in LEVELS:
        raise ConfigError(
            f"compression_level is {level} and compression_type {codec!r} has no levels: leave the level out, or set "
            f"compression_type to one of {', '.join(LEVELS)}"
        )
    low, high = LEVELS[codec]
    if not low <= level <= high:
        raise ConfigError(
            f"compression_level is {level}: for compression_type {codec!r} it must be from {low} to {high}"
        )


def _of_servers(values: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Yield why the protocols that addresses begin with are not that of the producer, which has one for all."""
    named, protocol = protocols_in(values["bootstrap_servers"]), values["security_protocol"]
    if len(named) > 1:
        yield ConfigError(
            f"bootstrap_servers begin with {' and '.join(f'{each}://' for each in named)}: a producer has one"
            " security_protocol for all brokers, so give servers of one listener"
        )
    elif named and named[0] != protocol:
        yield ConfigError(
            f"bootstrap_servers begin with {named[0]}:// and security_protocol is {protocol}: give one of them, or the same"
        )


def _of_sasl(values: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Yield why credentials are not complete, or given though they are not used."""
    protocol, mechanism = values["security_protocol"], values["sasl_mechanism"]
    is_known = mechanism in MECHANISMS
    if mechanism is not None and not is_known:  # first: no protocol makes it work
        better = (
            f": set it to {TOKENS}, and sasl_oauth_token_provider to a function that signs tokens"
            " (docs/how-to/security.md has it)"
            if mechanism == MSK_IAM
            else f": it must be one of {', '.join(MECHANISMS)}"
        )
        yield ConfigError(f"sasl_mechanism is {shown(mechanism)}{better}")
    if not protocol.startswith("SASL_"):
        unused = [name for name in _SASL if values[name] is not None]
        if unused:
            yield ConfigError(
                f"{unused[0]} is set and security_protocol is {protocol}, which does not authenticate: "
                f"set security_protocol to SASL_SSL or SASL_PLAINTEXT, or leave {', '.join(unused)} out"
            )
        return
    if mechanism is None:
        yield ConfigError(
            f"security_protocol is {protocol} and sasl_mechanism is missing: set it to one of {', '.join(MECHANISMS)}"
        )
    if not is_known:  # what it needs is not known, either
        return
    uses_tokens = mechanism == TOKENS
    needed = [_PROVIDER] if uses_tokens else [*_PASSWORD]
    unused = [*_PASSWORD] if uses_tokens else [_PROVIDER]
    missing = [name for name in needed if values[name] is None]
    if missing:
        what = "it to a function that returns a token" if uses_tokens else " and ".join(missing)
        yield ConfigError(f"sasl_mechanism {mechanism} needs {' and '.join(needed)}: set {what}")
    for name in unused:
        if values[name] is not None:
            yield ConfigError(f"{name} is set and sasl_mechanism is {mechanism}, which does not use it: leave it out")


def _of_tls(values: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Yield certificates that are given in two ways, or though they are not used."""
    protocol, context = values["security_protocol"], values["ssl_context"]
    used = [name for name in _TLS if values[name] is not None]
    if not values["ssl_check_hostname"]:
        used.append("ssl_check_hostname")
    if not protocol.endswith("SSL"):
        if used:
            yield ConfigError(
                f"{used[0]} is set and security_protocol is {protocol}, which does not use TLS: "
                f"set security_protocol to {'SASL_SSL' if protocol.startswith('SASL') else 'SSL'}, or leave "
                f"{', '.join(used)} out"
            )
        return
    for one, other in _ONE_OF:
        if values[one] is not None and values[other] is not None:
            yield ConfigError(f"{one} and {other} are both set: they say the same thing in two ways, give one of them")
    if context is not None:
        yield from _of_context(context, used, given)
    certificate = values["ssl_certfile"] or values["ssl_cert_pem"]
    for name in ("ssl_keyfile", "ssl_key_pem", "ssl_key_password"):
        if values[name] is not None and not certificate and context is None:
            yield ConfigError(f"{name} is set without a client certificate: set ssl_certfile or ssl_cert_pem with it")


def _of_context(context: ssl.SSLContext, used: list[str], given: Mapping[str, Any]) -> Iterator[ConfigError]:
    for name in used:
        if name != "ssl_context":
            yield ConfigError(
                f"ssl_context and {name} are both set: configure the context instead of {name}, or leave the context out"
            )
    if given.get("ssl_check_hostname") and not context.check_hostname:
        yield ConfigError(
            "ssl_check_hostname=True conflicts with an ssl_context that does not check host names: "
            "set check_hostname on the context, or leave ssl_check_hostname out"
        )


def conflicts(values: Mapping[str, Any], given: Mapping[str, Any]) -> list[ConfigError]:
    """Return all conflicts between options that were given; a config raises the first.

    Args:
        values: of all options, also defaults.
        given: of those that were given.
    """
    values = fitted(values, given)
    rules: list[Callable[[], object]] = [
        partial(why_not_idempotent, values),
        partial(delivery_timeout_ms, values),
        *(partial(_check_pair, *pair, values) for pair in _PAIRS if given.keys() >= {*pair}),
        partial(check_compression, values),
    ]
    found = [*_of_servers(values), *_of_transactions(values)]
    for rule in rules:
        try:
            rule()
        except ConfigError as error:
            found.append(error)
    return [*found, *_of_sasl(values), *_of_tls(values, given)]
