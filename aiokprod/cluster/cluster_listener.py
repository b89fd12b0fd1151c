"""`ClusterListener`: what the cluster layer tells the one above; the pipeline implements it, once per client."""

from __future__ import annotations

from abc import ABC, abstractmethod

from aiokprod.cluster.connection import BrokerConnection
from aiokprod.cluster.snapshot import ClusterSnapshot


class ClusterListener(ABC):
    """Whoever wants to know. Every method is called on the loop, synchronously, and must not raise."""

    @abstractmethod
    def snapshot_changed(self, old: ClusterSnapshot, new: ClusterSnapshot) -> None:
        """A Metadata answer or a leader hint was taken in. Topics without news are the same objects in both."""

    @abstractmethod
    def connection_ready(self, node_id: int, connection: BrokerConnection) -> None:
        """A produce connection is open; its own listener is not set yet."""

    @abstractmethod
    def dial_failed(self, node_id: int, error: Exception) -> None:
        """A dial for a produce connection failed; the next waits for its backoff."""

    @abstractmethod
    def crashed(self, cause: BaseException) -> None:
        """A task of the client died, of a bug or because somebody else cancelled it: nothing is renewed any more."""
