"""`SchemaRegistry`: where a registry is and how it is asked; and what goes wrong there, in words of our own.

Credentials stand in the options of the client alone: the URL that it requests, and logs, has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from json import JSONDecodeError
from typing import Any, Final, cast
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit
from weakref import WeakKeyDictionary

from aiokprod.errors import ConfigError, SerializationError, advise
from aiokprod.integrations.schema_registry.decoding import Decoder
from aiokprod.logs import printable

try:
    from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, SchemaRegistryError
    from confluent_kafka.schema_registry.common._httpx_compat import httpx  # httpx2, or httpx, as the client has it
    from confluent_kafka.schema_registry.error import OAuthTokenError
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        'aiokprod.integrations.schema_registry needs: pip install "aiokprod[schema-registry]"', name=missing.name
    ) from missing

HTTP: Final[Any] = httpx
CLIENT: Final[Any] = AsyncSchemaRegistryClient
BUSY: Final = frozenset({408, 429, 500, 502, 503, 504})
"""statuses after which the same request may succeed"""
LONGEST: Final = 500
"""characters of a registry's own words"""
LATER: Final = (
    "Nothing of this record was sent. See that the registry runs and that its URL is right, and send the record again."
)
SIGN_IN: Final = "Correct the username and the password of SchemaRegistry, or grant this user the subject."
TLS: Final = "Set options={'ssl.ca.location': FILE} to the certificates of the authority that signed the registry's."


class RegistryError(SerializationError):
    """The schema registry does not answer, refuses, or does not have the schema."""

    advice = LATER
    is_of_data: bool = False
    """True if the registry has answered, and does not have this schema."""


class Held:
    """The client of one event loop, and the serializers that use it."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.users: set[object] = set()


class SchemaRegistry:
    """A schema registry, for the serializers of any number of producers. It makes its connections when they are needed.

    Args:
        url: its address, `https://host:8081`; several with commas between them are tried in turn.
        username: for basic authentication; None: none, or that of the URL.
        password: that belongs to it.
        timeout: seconds that one request may take.
        options: further options of confluent-kafka's client, by its names: `ssl.ca.location`, `ssl.certificate.location`,
            `ssl.key.location`, `bearer.auth.credentials.source` and its companions, `max.retries`, `proxy` and so on.

    Raises:
        ConfigError: an argument is wrong.
    """

    def __init__(
        self,
        url: str,
        *,
        username: str | None = None,
        password: str | None = None,
        timeout: float = 10.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._url, found = without_credentials(url)
        further = checked_options(options)
        if username is not None and found is not None:
            raise ConfigError("the URL of the schema registry has a user too: leave it there, or username out")
        check_user(username, password)
        if isinstance(timeout, bool) or not isinstance(cast(Any, timeout), int | float) or not timeout > 0:
            raise ConfigError(f"timeout is a number of seconds above 0, not {timeout!r}")
        self._timeout_s = timeout
        self._options: dict[str, Any] = {"url": self._url, "timeout": timeout}
        if username is not None:
            found = f"{username}:{password}"
        if found is not None:
            if USER_INFO in further:
                raise ConfigError(f"SchemaRegistry has two users: leave {USER_INFO!r} out of its options")
            self._options[USER_INFO] = found
        self._options.update(further)
        # Made now to see that the options are right. The event loop that asks first has it.
        self._unused: Any = self._new_client()
        self._held: WeakKeyDictionary[asyncio.AbstractEventLoop, Held] = WeakKeyDictionary()
        self._decoders: WeakKeyDictionary[asyncio.AbstractEventLoop, Decoder] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"SchemaRegistry({self._url!r})"

    @property
    def url(self) -> str:
        """The address, without user and password."""
        return self._url

    async def decode(
        self,
        data: bytes | None,
        *,
        topic: str = "",
        is_key: bool = False,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> Any:
        """Read a key or value that a serializer of any language has written with the id of its schema.

        Args:
            data: the bytes of the record; None stays None.
            topic: of the record, for errors.
            is_key: True for a key.
            headers: of the record: the id of the schema may be in one of them.

        Returns:
            What was written: of Avro and JSON Schema the value, of Protobuf a dict as its JSON form has it.

        Raises:
            RegistryError: the registry does not answer, or does not have the schema.
            SerializationError: the data has no id of a schema, or does not fit its schema.

        Cancellation: the question to the registry is given up.
        """
        if data is None:
            return None
        client = self.hold(self)
        loop = asyncio.get_running_loop()
        decoder = self._decoders.get(loop)
        if decoder is None:
            decoder = self._decoders[loop] = Decoder(client)
        try:
            return await decoder.decode(data, is_key, list(headers))
        except SerializationError as told:
            told.topic = topic or None
            raise
        except Exception as error:
            failure = self.failure(error, "", topic)
            if failure is None:
                raise
            raise failure from None

    async def close(self) -> None:
        """Close the connections that `decode` has used in this event loop. Serializers close theirs with the producer.

        Cancellation: the connections are given up.
        """
        await self.let_go(self)

    # ------------------------------------------------------------------ for its serializers
    def hold(self, user: object) -> Any:
        """Return the client of the running event loop, and keep it open for this user.

        Args:
            user: which will call `let_go`.

        Raises:
            ConfigError: the client does not take the options.
        """
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None:
            made, self._unused = self._unused, None
            held = self._held[loop] = Held(self._new_client() if made is None else made)
        held.users.add(user)
        return held.client

    async def let_go(self, user: object) -> None:
        """Close the client of the running event loop when nothing uses it any more.

        Args:
            user: which had called `hold`.

        Cancellation: the connections are given up.
        """
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None:
            return
        held.users.discard(user)
        if not held.users:
            del self._held[loop]
            self._decoders.pop(loop, None)
            await held.client.aclose()

    def _new_client(self) -> Any:
        try:
            return CLIENT.new_client(self._options)
        except (ValueError, TypeError, OSError) as error:  # OSError: a file of certificates
            raise ConfigError(f"the options of {self!r} are not taken: {self._said(error)}") from None

    def failure(self, error: Exception, subject: str, topic: str) -> RegistryError | None:
        """Return what an exception of the client says of the registry; None if it is about the record.

        Args:
            error: of the client.
            subject: that it was asked about; empty if unknown.
            topic: of the record.
        """
        of = f" (subject {subject!r})" if subject else ""
        if isinstance(error, SchemaRegistryError):
            return self._refused(error, of, topic)
        if isinstance(error, JSONDecodeError):
            failure = RegistryError(f"{self._url} answers with something that is no JSON{of}", topic=topic or None)
            advise(failure, "Correct the URL: a schema registry answers `curl URL/subjects` with a JSON list.")
            return failure
        if isinstance(error, OAuthTokenError):
            failure = RegistryError(f"no token for the schema registry at {self._url}{of}", topic=topic or None)
            advise(failure, "Correct the bearer.auth options of SchemaRegistry; the token's server has refused.")
            return failure
        if isinstance(error, HTTP.HTTPError | HTTP.InvalidURL | OSError):
            late = f"no answer within {self._timeout_s:g} s" if isinstance(error, HTTP.TimeoutException) else ""
            why = late or self._said(error)
            failure = RegistryError(
                f"the schema registry at {self._url} cannot be reached: {why}{of}", topic=topic or None
            )
            failure.may_help_again = True
            if "CERTIFICATE" in why:
                advise(failure, TLS)
            return failure
        return None

    def _refused(self, error: SchemaRegistryError, of: str, topic: str) -> RegistryError:
        """Return the error of an answer that is not good."""
        status, code = error.http_status_code, error.error_code
        if status in (401, 403):
            failure = RegistryError(f"the schema registry at {self._url} refuses this user: {status}{of}")
            advise(failure, SIGN_IN)
        elif status == 404:
            what = {40401: "does not have the subject", 40402: "does not have this version"}.get(
                code, "does not have this schema"
            )
            failure = RegistryError(f"the schema registry at {self._url} {what}{of}: {code}")
            failure.is_of_data = True
            advise(
                failure, "Register the schema, or let the serializer do it: register=True. Is it the right registry?"
            )
        elif status == 409:
            failure = RegistryError(
                f"the schema is not compatible with the versions that its subject has{of}: {self._said(error)}"
            )
            advise(failure, "Change the schema, or the compatibility of the subject in the registry.")
        elif status in BUSY:
            failure = RegistryError(f"the schema registry at {self._url} answers {status}{of}: {self._said(error)}")
            failure.may_help_again = True
        else:
            failure = RegistryError(f"the schema registry at {self._url} refuses{of}: {self._said(error)}")
            advise(failure, "Correct what it says; its log has more.")
        failure.topic = topic or None
        return failure

    def _said(self, error: Exception) -> str:
        """Return an exception's own words on one line, without the secrets of the options."""
        text = f"{error.error_message} ({error.error_code})" if isinstance(error, SchemaRegistryError) else str(error)
        text = printable(" ".join(text.split()) or type(error).__name__, LONGEST)
        secrets = [str(self._options.get(name) or "") for name in SECRET_OPTIONS]
        secrets += [each.partition(":")[2] for each in secrets[:1]]
        for secret in secrets:
            if secret:
                text = text.replace(secret, "***")
        return text


USER_INFO: Final = "basic.auth.user.info"
SECRET_OPTIONS: Final = (
    USER_INFO, "bearer.auth.token", "bearer.auth.client.secret", "ssl.key.password", "proxy",
)  # fmt: skip


def checked_options(options: Any) -> dict[str, Any]:
    """Return a copy of the further options of a client, or of a serializer of it.

    Args:
        options: a mapping, or None.

    Raises:
        ConfigError: it is something else, or has what is an argument.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise ConfigError(f"options is a mapping, not {type(options).__name__}")
    found = {**cast("Mapping[str, Any]", options)}
    for name in ("url", "timeout"):
        if name in found:
            raise ConfigError(f"{name!r} is an argument of SchemaRegistry: give it there, not in options")
    return found


def check_user(username: Any, password: Any) -> None:
    """Check that a username comes with a password.

    Args:
        username: as of `SchemaRegistry`.
        password: as of `SchemaRegistry`.

    Raises:
        ConfigError: one of them is missing, or is no text.
    """
    for name, given in (("username", username), ("password", password)):
        if given is not None and not isinstance(given, str):
            raise ConfigError(f"{name} is a str, not {type(given).__name__}")
    if username is None and password is not None:
        raise ConfigError("SchemaRegistry has a password, but no username")
    if username is not None and password is None:
        raise ConfigError("SchemaRegistry has a username, but no password: if it is empty, password=''")


def without_credentials(url: Any) -> tuple[str, str | None]:
    """Return the URLs without user and password, and the first one's "user:password".

    Args:
        url: one URL, or several with commas between them.

    Raises:
        ConfigError: one is no URL of http or https.
    """
    if isinstance(url, Mapping):  # as the client of confluent-kafka takes it; not shown, as it may have a password
        raise ConfigError(
            "SchemaRegistry takes the URL first, SchemaRegistry('http://localhost:8081', options={...}), and not a mapping"
        )
    if not isinstance(url, str):
        several = "one str with commas" if isinstance(url, list | tuple) else "a str"
        raise ConfigError(f"the URL of a schema registry is {several}, not {type(cast(object, url)).__name__}")
    plain: list[str] = []
    found: str | None = None
    for each in url.split(","):
        parts = parts_of(each.strip())
        if parts is None:
            raise ConfigError("the URL of a schema registry is http://HOST:PORT or https://HOST:PORT")
        if parts.username is not None and found is None:
            found = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        host = parts.netloc.rpartition("@")[2]
        plain.append(urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")))
    return ",".join(plain), found


def parts_of(url: str) -> SplitResult | None:
    """Return the parts of a URL of http or https; None if it is none.

    Args:
        url: one URL.
    """
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or half an IPv6 address; its text may have a password
        return None
    return parts if is_right else None
