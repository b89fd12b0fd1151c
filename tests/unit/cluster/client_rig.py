"""A client against a cluster in this process, with short backoffs, and what it was told."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

from fake_cluster import FakeCluster
from scripted_broker import eventually

from aiokprod.cluster.client import ClusterClient, ClusterListener
from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.cluster.metadata.snapshot import ClusterSnapshot
from aiokprod.config import ProducerConfig
from aiokprod.metrics import Metrics
from aiokprod.wire.messages.metadata import MetadataRequest

QUICK: dict[str, Any] = {
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 50,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 50,
}


class Recorder(ClusterListener):
    def __init__(self) -> None:
        self.changes: list[tuple[ClusterSnapshot, ClusterSnapshot]] = []
        self.ready: list[tuple[int, BrokerConnection]] = []
        self.failed: list[tuple[int, Exception]] = []
        self.crashes: list[BaseException] = []

    def snapshot_changed(self, old: ClusterSnapshot, new: ClusterSnapshot) -> None:
        self.changes.append((old, new))

    def connection_ready(self, node_id: int, connection: BrokerConnection) -> None:
        self.ready.append((node_id, connection))

    def dial_failed(self, node_id: int, error: Exception) -> None:
        self.failed.append((node_id, error))

    def crashed(self, cause: BaseException) -> None:
        self.crashes.append(cause)


class Rig:
    def __init__(self, cluster: FakeCluster, bootstrap: list[str], options: dict[str, Any]) -> None:
        self.cluster = cluster
        self.listener = Recorder()
        self.metrics = Metrics()
        self.client = ClusterClient(
            ProducerConfig(bootstrap_servers=bootstrap, **{**QUICK, **options}), self.metrics, self.listener
        )

    @property
    def metadata_requests(self) -> list[MetadataRequest]:
        return [request for broker in self.cluster.brokers.values() for request in broker.asked(MetadataRequest)]

    async def known(self, name: str) -> None:
        self.client.want(name)
        await eventually(lambda: self.client.topic(name) is not None)


@contextlib.asynccontextmanager
async def rig(
    count: int = 3, *, start: bool = True, cluster: FakeCluster | None = None, **options: Any
) -> AsyncIterator[Rig]:
    before = asyncio.all_tasks()
    async with cluster or FakeCluster(count) as running:
        made = Rig(running, options.pop("bootstrap_servers", None) or running.bootstrap, options)
        try:
            if start:
                await made.client.start(5.0)
            yield made
        finally:
            await made.client.close()
        assert made.listener.crashes == []
        assert not [task for task in asyncio.all_tasks() - before if task.get_name().startswith(("metadata", "dial"))]
        await eventually(lambda: all(broker.connections == 0 for broker in running.brokers.values()))
        assert made.metrics.connections_open.value == 0


def unused_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
