"""`ClusterListener`: the receiver of the cluster layer's events; the pipeline implements it, once per client."""

from __future__ import annotations

from abc import ABC, abstractmethod

from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.cluster.metadata.snapshot import ClusterSnapshot


class ClusterListener(ABC):
    """The receiver of a client's events. Every method is called on the loop, synchronously, and must not raise."""

    @abstractmethod
    def snapshot_changed(self, old: ClusterSnapshot, new: ClusterSnapshot) -> None:
        """Take a new snapshot, after a Metadata answer or leader hint; unchanged topics are the same objects in both."""

    @abstractmethod
    def connection_ready(self, node_id: int, connection: BrokerConnection) -> None:
        """Take an open produce connection; its own listener is not set yet."""

    @abstractmethod
    def dial_failed(self, node_id: int, error: Exception) -> None:
        """Take the error of a failed dial of a produce connection; the next dial waits for its backoff."""

    @abstractmethod
    def crashed(self, cause: BaseException) -> None:
        """Take the exception that ended a task of the client, a bug or a cancellation by other code: nothing is refreshed
        any more.
        """


class SilentListener(ClusterListener):
    """A listener that does nothing, for code that only sends requests through a `ClusterClient`."""

    def snapshot_changed(self, old: ClusterSnapshot, new: ClusterSnapshot) -> None:
        """Ignore the event."""

    def connection_ready(self, node_id: int, connection: BrokerConnection) -> None:
        """Ignore the event."""

    def dial_failed(self, node_id: int, error: Exception) -> None:
        """Ignore the event."""

    def crashed(self, cause: BaseException) -> None:
        """Ignore the crash: the request that needs the client fails."""
