"""`MemoryCluster`: what a pipeline asks of the cluster, answered from a `MemoryLog`. No socket, no task.

In the place of the ClusterClient. A topic that does not exist is refused on the next turn of the loop: a unit test does
not wait for max.block.ms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiokprod.cluster.client import ClusterClient, ClusterListener
from aiokprod.cluster.control_request import RequestMessage
from aiokprod.cluster.snapshot import ClusterSnapshot, TopicSnapshot
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
        listener: ClusterListener,
        log: MemoryLog,
        answer: Callable[[str], None],
    ) -> None:
        """`answer` is called for each topic that somebody wants."""
        super().__init__(config, metrics, listener)
        self._log = log
        self._answer = answer

    async def start(self, timeout_s: float | None) -> None:
        """There is nothing to connect to."""

    def start_in_background(self) -> None:
        """There is nothing to connect to."""

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
        """Every answer is there at once."""
        return 1

    async def request(self, message: RequestMessage, *, node_id: int | None = None, timeout_s: float) -> Any:
        """Metadata is what a producer asks for: a sign of life."""
        return MetadataResponse()
