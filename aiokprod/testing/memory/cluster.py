"""`MemoryCluster`: what a pipeline asks of the cluster, answered from a `MemoryLog`. No socket, no task.

In the place of the ClusterClient. A topic that does not exist is refused two turns of the loop later: a unit test does
not wait for max.block.ms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiokprod.cluster.client import ClusterClient, ClusterListener
from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.cluster.connection.control_request import RequestMessage
from aiokprod.cluster.metadata.snapshot import ClusterSnapshot, TopicSnapshot
from aiokprod.config import ProducerConfig
from aiokprod.metrics import Metrics
from aiokprod.testing.memory.log import MemoryLog
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.metadata import MetadataResponse


class MemoryCluster(ClusterClient):
    """One broker that is always there."""

    def __init__(
        self,
        config: ProducerConfig,
        metrics: Metrics,
        log: MemoryLog,
        answer: Callable[[str], None],
    ) -> None:
        """`answer` is called for each topic that is wanted."""
        super().__init__(config, metrics, _Unused())
        self._log = log
        self._answer = answer

    async def start(self, timeout_s: float | None) -> None:
        """Return at once: there is nothing to connect to."""

    def start_in_background(self) -> None:
        """Return at once: there is nothing to connect to."""

    @property
    def snapshot(self) -> ClusterSnapshot:
        return self._log.snapshot()

    @property
    def brokers_connected(self) -> int:
        return 1

    def topic(self, name: str) -> TopicSnapshot | None:
        return self._log.topic(name)

    def want(self, name: str) -> None:
        self._answer(name)

    def last_error(self, name: str) -> tuple[int, Exception | None] | None:
        return None if self._log.topic(name) else (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)

    @property
    def next_request(self) -> int:
        return 1

    def last_answered(self, name: str) -> int:
        """Return 1: every answer is there at once."""
        return 1

    async def request(self, message: RequestMessage, *, node_id: int | None = None, timeout_s: float) -> Any:
        """Answer Metadata, which a producer requests as a sign of life."""
        return MetadataResponse()


class _Unused(ClusterListener):
    """The listener of a cluster that never changes; requests are answered by `answer`."""

    def snapshot_changed(self, old: ClusterSnapshot, new: ClusterSnapshot) -> None:
        """Ignore the event, which never occurs."""

    def connection_ready(self, node_id: int, connection: BrokerConnection) -> None:
        """Ignore the event, which never occurs."""

    def dial_failed(self, node_id: int, error: Exception) -> None:
        """Ignore the event, which never occurs."""

    def crashed(self, cause: BaseException) -> None:
        """Ignore the event, which never occurs."""
