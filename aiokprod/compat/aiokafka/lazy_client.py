"""`LazyClient`: what `producer.client` is: aiokafka's own client, which connects when a program asks it for something.

A producer made here sends nothing through it. Programs use it for health checks (`force_metadata_update`), frameworks to
create topics, instrumentation to read names. What can be told without a connection is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from aiokprod.cluster.metadata.snapshot import BrokerNode
from aiokprod.compat.aiokafka.theirs import AIOKafkaClient, BrokerMetadata
from aiokprod.compat.aiokafka.theirs import errors as theirs


class LazyClient(AIOKafkaClient):
    """aiokafka's client, not connected until it is asked.

    Before that, `cluster` has the brokers that the producer knows, and no topics.

    Args:
        partitions_for: asks the producer for the partitions of a topic.
        brokers: returns the brokers that the producer knows, by their ids.
        **options: those of `AIOKafkaClient`.
    """

    def __init__(
        self,
        partitions_for: Callable[[str], Awaitable[set[int]]],
        brokers: Callable[[], Mapping[int, BrokerNode]],
        **options: Any,
    ) -> None:
        self._is_connected = False  # these two come first: the constructor of aiokafka's client sets `cluster`
        self._known_brokers = brokers
        super().__init__(**options)
        self._partitions_for = partitions_for
        self._connecting: asyncio.Lock = asyncio.Lock()

    @property
    def cluster(self) -> Any:
        """aiokafka's `ClusterMetadata`."""
        cluster = self._cluster
        if not self._is_connected:
            for node in self._known_brokers().values():
                cluster._brokers[node.id] = BrokerMetadata(node.id, node.host, node.port, None)
        return cluster

    @cluster.setter
    def cluster(self, cluster: Any) -> None:
        self._cluster = cluster

    async def bootstrap(self) -> None:
        """Connect, once.

        Raises:
            aiokafka.errors.KafkaConnectionError: no bootstrap server answers.
        """
        async with self._connecting:
            if not self._is_connected:
                await super().bootstrap()
                self._is_connected = True

    async def close(self) -> None:
        """End the connections, if there are any; they come again when something is asked for."""
        self._is_connected = False
        await super().close()

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        return await self._partitions_for(topic)

    def force_metadata_update(self) -> Any:
        """Ask for metadata again; awaiting it gives False if no broker has answered."""
        if self._is_connected:
            return super().force_metadata_update()
        return asyncio.get_running_loop().create_task(self._first_update())

    async def _first_update(self) -> bool:
        with suppress(theirs.KafkaConnectionError):
            await self.bootstrap()
            return bool(await super().force_metadata_update())
        return False

    async def fetch_all_metadata(self) -> Any:
        """Return metadata of all topics."""
        return await self._connected(super().fetch_all_metadata())

    async def ready(self, node_id: Any, **options: Any) -> bool:
        """Return whether there is a connection to the node."""
        return bool(await self._connected(super().ready(node_id, **options)))

    async def send(self, node_id: Any, request: Any, **options: Any) -> Any:
        """Send a request of aiokafka's protocol to a node."""
        return await self._connected(super().send(node_id, request, **options))

    async def coordinator_lookup(self, coordinator_type: Any, coordinator_key: Any) -> Any:
        """Return the node that coordinates a group or a transactional id."""
        return await self._connected(super().coordinator_lookup(coordinator_type, coordinator_key))

    async def _connected(self, asked: Coroutine[Any, Any, Any]) -> Any:
        """Connect first; the coroutine has not begun then."""
        try:
            await self.bootstrap()
        except BaseException:
            asked.close()
            raise
        return await asked
