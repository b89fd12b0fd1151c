"""`ConnectionListener`: what a connection tells whoever sends on it. The flusher is one; control requests need none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokprod.cluster.connection import BrokerConnection


class ConnectionListener(ABC):
    """Whoever sends on a connection. Every method is called on the loop, synchronously, and must not block or raise."""

    @abstractmethod
    def answered(self, connection: BrokerConnection, token: object, body: memoryview, version: int) -> None:
        """The answer to the request of this token (empty for a request that expects none).

        A `ProtocolError` raised here closes the connection and puts the token first among the lost ones. Closing the
        connection here leaves this token out of `lost`: it is in the listener's hands.
        """

    @abstractmethod
    def chaser_returned(self, connection: BrokerConnection, token: object) -> None:
        """Everything sent before the chaser has been answered."""

    @abstractmethod
    def lost(self, connection: BrokerConnection, tokens: list[tuple[object, bool]], cause: Exception) -> None:
        """The connection is over; called once, when `is_open` is already False.

        Args:
            connection: the one that ended.
            tokens: everything owed, chasers too, in order; True if bytes of it were handed to the transport, so that
                the broker may have acted on it.
            cause: why, as given to `close`.
        """

    @abstractmethod
    def writable(self, connection: BrokerConnection) -> None:
        """`is_writable` has become true again."""
