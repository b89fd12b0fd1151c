"""The definition of a handler: one API's request type, the function that answers it, and the facts of one call.

One `Api` per API key, collected in `handlers/__init__.py`; one `Call` per request, made by the connection. A handler
is a plain function: what it changes it changes before it returns, so a request is carried out in one step; if the
answer has to wait (acks=all, long polls) it returns an awaitable that only waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import ClassVar, Final, Generic, Protocol, Self, TypeAlias, TypeVar

from aiokprod.testing.faults import Fail, ItemEffect
from aiokprod.testing.mock.broker_core import BrokerCore
from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.sasl_gate import SaslGate
from aiokprod.wire.reader import Budget, Reader

MOST_ELEMENTS: Final = 500_000
"""Elements of all arrays of a request, and its tagged fields: a byte of a request can be an object of a hundred bytes here."""


class Message(Protocol):
    """A generated message: it can write itself."""

    def encode(self, version: int) -> bytes:
        """Return the body in this version."""
        ...


class RequestMessage(Message, Protocol):
    """A generated request."""

    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]

    @classmethod
    def read(cls, reader: Reader, version: int) -> Self:
        """Read the message at the reader's position; ProtocolError if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Waits:
    """An answer that comes later, to a request that was served: `begin` makes the coroutine that waits for it."""

    begin: Callable[[], Coroutine[object, object, Message | None]]


Outcome: TypeAlias = Message | Waits | None
"""An answer, no answer (acks=0), or a wait that ends with either."""

Items: TypeAlias = list[tuple[str, int]]
"""The (topic, partition) pairs a request names, partition -1 for a topic as a whole; what fault rules match."""

Request = TypeVar("Request", bound=RequestMessage)


class HangUpError(Exception):
    """An error that the broker answers by closing the connection."""


class SilenceError(Exception):
    """An error that the broker never answers; it stops serving the connection (broker: 13.5b)."""


class Channel(ABC):
    """The part of a connection that the serving of a request uses."""

    broker: BrokerCore
    number: int
    """Which connection of the broker, counted from 1."""
    gate: SaslGate

    @abstractmethod
    def close_after_answer(self) -> None:
        """Close as soon as the request in hand is answered."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Write bytes to the client, unless they are lost."""

    @abstractmethod
    def write_no_more(self) -> None:
        """Lose all answers from now on; the connection stays open."""


@dataclass(slots=True)
class Call:
    """One request on its way through the broker."""

    broker: BrokerCore
    connection: Channel
    api_key: int
    version: int
    client_id: str | None

    def item_action(self, topic: str = "", partition: int = -1) -> ItemEffect | None:
        """Return the effect of the fault script on this topic, partition or whole request."""
        rules = self.broker.faults
        return rules.for_item(self.api_key, self.broker.node_id, topic, partition) if rules else None

    def refuse_by_script(self, topic: str = "", partition: int = -1) -> None:
        """Raise `RefusalError` if the fault script fails this topic, partition or whole request."""
        action = self.item_action(topic, partition)
        if isinstance(action, Fail):
            raise RefusalError(action.code, action.message)


@dataclass(slots=True)
class BoundRequest:
    """A decoded request and what can be done with it."""

    request: Message
    items: Callable[[], Items]
    handle: Callable[[], Outcome]


class AnyApi(ABC):
    """An API whose request type does not matter to the caller."""

    key: int
    min_version: int
    max_version: int
    advertised_from: int
    flexible_from: int

    @abstractmethod
    def bind(self, call: Call, body: bytes | memoryview) -> BoundRequest:
        """Decode the request. Raises ProtocolError."""


class Api(AnyApi, Generic[Request]):
    """An API: how its request is read, and the function that answers it."""

    def __init__(
        self,
        request: type[Request],
        handle: Callable[[Call, Request], Outcome],
        items: Callable[[Call, Request], Items] = lambda _call, _request: [],
        *,
        advertised_from: int | None = None,
        highest: int | None = None,
    ) -> None:
        self.key = request.API_KEY
        self.min_version = request.MIN_VERSION
        self.max_version = request.MAX_VERSION if highest is None else highest
        self.advertised_from = self.min_version if advertised_from is None else advertised_from
        self.flexible_from = request.FLEXIBLE_FROM
        self._request = request
        self._handle = handle
        self._items = items

    def bind(self, call: Call, body: bytes | memoryview) -> BoundRequest:
        """Decode the request. Raises ProtocolError."""
        # Not `decode`: bytes behind the body are taken (broker: 13.6b), and librdkafka 2.x leaves three there when it
        # asks Metadata for every topic.
        budget = Budget(MOST_ELEMENTS)
        request = self._request.read(Reader(body, budget=budget, tags=budget), call.version)
        return BoundRequest(request, lambda: self._items(call, request), lambda: self._handle(call, request))
