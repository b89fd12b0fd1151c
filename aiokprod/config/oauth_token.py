"""`OAuthToken`: a token for SASL OAUTHBEARER, with its expiry and extensions; and the provider that returns one.

Everything that could break out of its place in the client's message is refused when the object is made, so an object of
this class can be sent as it is (RFC 6750 2.1, RFC 7628 3.1; `# faults: S14`). No frame that raises has the text of a token
among its locals (`# faults: S18`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NoReturn, Protocol, TypeAlias, cast

from aiokprod.config.secret import Secret
from aiokprod.errors import ConfigError

BEARER: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""RFC 6750 `b64token`: the characters of a bearer token."""

EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
"""RFC 7628 `value`; an empty one is allowed there, and refused by Kafka."""

RESERVED: Final = "auth"
"""The name that carries the token itself (KIP-342)."""

SECONDS_LIMIT_MS: Final = 100_000_000_000.0
"""In 1973: a time below it is one in seconds (in milliseconds they have been above it since then)."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class OAuthToken:
    """A token for SASL OAUTHBEARER (KIP-255). It is never shown, and cannot be pickled.

    Args:
        token: the token as the identity provider gave it: letters, digits and `-._~+/`, with `=` only at the end.
        expires_at_ms: when it expires, in milliseconds since 1970 (UTC); None if that is not known.
        extensions: SASL extensions (KIP-342), such as `logicalCluster` and `identityPoolId` of Confluent Cloud. Names are
            letters, and not "auth"; values are ASCII, not empty, and without control characters but tab and line end.

    Raises:
        ConfigError: a part cannot be sent, or is of a wrong type. The token is not shown.
    """

    token: Secret
    expires_at_ms: float | None
    extensions: Mapping[str, str] = field(hash=False)

    def __init__(
        self, token: str | Secret, expires_at_ms: float | None = None, extensions: Mapping[str, str] | None = None
    ) -> None:
        hidden = Secret.of(token) if isinstance(token, str | Secret) else None
        kind = type(token).__name__
        token = ""  # a traceback that shows locals shows `hidden`
        if hidden is None:
            raise ConfigError(f"an OAuth token is of type {kind}: it must be a str or a Secret")
        wrong = _wrong_token(hidden) or _wrong_expiry(expires_at_ms) or _wrong_extensions(extensions)
        if wrong:
            raise ConfigError(wrong)
        object.__setattr__(self, "token", hidden)
        object.__setattr__(self, "expires_at_ms", expires_at_ms)
        object.__setattr__(self, "extensions", MappingProxyType(dict(extensions or {})))

    def __repr__(self) -> str:
        # Also of an object whose making failed: a traceback that shows locals asks for it.
        expires_at_ms, extensions = getattr(self, "expires_at_ms", None), getattr(self, "extensions", ())
        return f"OAuthToken(***, expires_at_ms={expires_at_ms!r}, extensions={list(extensions)})"

    def __copy__(self) -> OAuthToken:
        return self

    def __deepcopy__(self, memo: object) -> OAuthToken:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("an OAuthToken cannot be pickled: it would be a credential in a file; pickle what makes it")


TokenAnswer: TypeAlias = OAuthToken | str | Secret | tuple[str | Secret, float | None]
"""What a provider returns: a token, a pair of a token and its expiry (milliseconds since 1970), or an `OAuthToken`."""


class TokenProvider(Protocol):
    """An object that provides tokens, as aiokafka and kafka-python have it (`AbstractTokenProvider`)."""

    def token(self) -> TokenAnswer | Awaitable[TokenAnswer]:
        """Return a token, or an awaitable of one; a method that is not async is called in a thread."""
        ...


OAuthTokenProvider: TypeAlias = Callable[[], TokenAnswer | Awaitable[TokenAnswer]] | TokenProvider


def function_of(provider: Any) -> Callable[[], Any]:
    """Return what is called for a token: the provider's method `token`, or the provider itself."""
    method = getattr(provider, "token", None)
    return cast("Callable[[], Any]", method if callable(method) else provider)


def name_of(provider: Any) -> str:
    """Return a name of a provider that shows nothing of its state: a `repr` may show a token or a client's secret."""
    inner = getattr(provider, "func", provider)  # of a functools.partial
    name = getattr(inner, "__qualname__", None) or type(provider).__qualname__
    return f"<{name}>"


def token_of(answer: object, extensions: object = None) -> OAuthToken | str:
    """Convert the answer of a provider; what is wrong with it is returned as a text, so that no frame with it raises.

    Args:
        answer: what the provider returned.
        extensions: what its method `extensions` returned, for an answer that has none of its own.
    """
    kind = type(answer).__name__
    if isinstance(answer, OAuthToken):
        return answer
    if isinstance(answer, str | Secret):
        answer = (answer, None)
    if not isinstance(answer, tuple) or len(cast("tuple[object, ...]", answer)) != 2:
        return (
            f"a {kind}: it must return a str, a pair of a str and its expiry in milliseconds, or an aiokprod.OAuthToken"
        )
    token, expires_at_ms = cast("tuple[Any, Any]", answer)
    try:
        return OAuthToken(token, expires_at_ms, cast("Any", extensions))
    except ConfigError as error:
        return f"what cannot be sent: {error.message}"


def _wrong_token(token: Secret) -> str:
    """Return what is wrong with the text of a token; empty if nothing is."""
    text = token.reveal()
    if BEARER.fullmatch(text):
        return ""
    if not text:
        return "an OAuth token is empty"
    if BEARER.fullmatch(text.strip()):
        return "an OAuth token has a space or a line end around it: return it without (text.strip())"
    if text[:7].lower() == "bearer ":
        return "an OAuth token begins with the word Bearer: return it without"
    return (
        f"an OAuth token of {len(text)} characters has one that no bearer token has: letters, digits and -._~+/ are allowed,"
        " and = at the end (RFC 6750)"
    )


def _wrong_expiry(expires_at_ms: object) -> str:
    if expires_at_ms is None:
        return ""
    if isinstance(expires_at_ms, bool) or not isinstance(expires_at_ms, int | float):
        return f"the expiry of an OAuth token is of type {type(expires_at_ms).__name__}: it must be a number of milliseconds"
    if not 0 < expires_at_ms < 2**63 or math.isnan(expires_at_ms):
        return "the expiry of an OAuth token must be a time in milliseconds since 1970"
    if expires_at_ms < SECONDS_LIMIT_MS:
        return "the expiry of an OAuth token is before 1973, and so looks like seconds: it must be in milliseconds since 1970"
    return ""


def _wrong_extensions(extensions: object) -> str:
    if extensions is None:
        return ""
    if not isinstance(extensions, Mapping):
        return f"the extensions of an OAuth token are of type {type(extensions).__name__}: they must be a mapping"
    given = cast("Mapping[object, object]", extensions)
    pairs: Iterable[tuple[object, object]] = given.items()
    for name, value in pairs:
        if not isinstance(name, str) or not EXTENSION_NAME.fullmatch(name):
            return "the name of a SASL extension must consist of letters (A to Z, a to z)"
        if name.lower() == RESERVED:
            return f"{RESERVED!r} cannot be a SASL extension: it is the place of the token"
        if not isinstance(value, str) or not EXTENSION_VALUE.fullmatch(value):
            return (
                f"the value of the SASL extension {name!r} must be a str of ASCII without control characters, not empty"
            )
    return ""
