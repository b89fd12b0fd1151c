"""`SilentListener`: for code that asks a `ClusterClient` and does not need to be told of changes."""

from __future__ import annotations

from aiokprod.cluster.cluster_listener import ClusterListener
from aiokprod.cluster.connection import BrokerConnection
from aiokprod.cluster.snapshot import ClusterSnapshot


class SilentListener(ClusterListener):
    """Does nothing."""

    def snapshot_changed(self, old: ClusterSnapshot, new: ClusterSnapshot) -> None:
        """Nothing."""

    def connection_ready(self, node_id: int, connection: BrokerConnection) -> None:
        """Nothing."""

    def dial_failed(self, node_id: int, error: Exception) -> None:
        """Nothing."""

    def crashed(self, cause: BaseException) -> None:
        """Nothing: the request that needs the client fails."""
