"""Brokers on sockets of this machine that answer ApiVersions, Metadata and InitProducerId from one shared truth.

A test may stop and start brokers, move them, and put its own answer in the place of the usual one.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from listener import Listener

from aiokprod.wire.broker_frames import decode_request_header, encode_response
from aiokprod.wire.frames import response_header_flexible
from aiokprod.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aiokprod.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokprod.wire.messages.produce import ProduceRequest

KINDS = (ApiVersionsRequest, InitProducerIdRequest, MetadataRequest, ProduceRequest)
KNOWN: dict[int, Any] = {kind.API_KEY: kind for kind in KINDS}
FLEXIBLE_FROM = {key: kind.FLEXIBLE_FROM for key, kind in KNOWN.items()}

Answer = Callable[["FakeBroker", Any], Any]
"""What to answer a request with: a response, None for silence, or an exception to hang up with."""


class FakeBroker:
    """One broker; `port` stays the same over stops and starts."""

    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.port = 0
        self.dials = 0
        self.requests: list[Any] = []
        self.answers: dict[type, Answer] = {}
        self._listener = Listener(self._serve)
        self.connections = 0

    async def start(self) -> None:
        self.port = await self._listener.start(self.port)

    async def stop(self) -> None:
        await self._listener.stop()

    async def hang_up(self) -> None:
        """End all connections; the broker goes on listening."""
        await self._listener.hang_up()

    def asked(self, kind: type) -> list[Any]:
        return [request for request in self.requests if isinstance(request, kind)]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.dials += 1
        self.connections += 1
        try:
            while True:
                size = struct.unpack(">i", await reader.readexactly(4))[0]
                header = decode_request_header(await reader.readexactly(size), FLEXIBLE_FROM)
                kind = KNOWN[header.api_key]
                request = kind.decode(header.body, header.version)
                self.requests.append(request)
                answer = self.answers.get(kind, usual)(self, request)
                if isinstance(answer, Exception):
                    return
                if answer is not None:
                    flexible = response_header_flexible(header.api_key, header.version, FLEXIBLE_FROM[header.api_key])
                    writer.write(encode_response(header.correlation_id, flexible, answer.encode(header.version)))
        finally:
            self.connections -= 1


class FakeCluster:
    """A cluster (`async with FakeCluster(3) as cluster`): brokers 1, 2, 3, which all report the same state."""

    def __init__(self, count: int = 3, cluster_id: str = "ours") -> None:
        self.cluster_id = cluster_id
        self.brokers = {node_id: FakeBroker(self, node_id) for node_id in range(1, count + 1)}
        self.announced: dict[int, tuple[str, int]] = {}
        self.topics: dict[str, MetadataResponseTopic] = {}
        self.producer_ids = 1000

    def topic(self, name: str, *leaders: int, epoch: int = 0, error_code: int = 0) -> None:
        self.topics[name] = MetadataResponseTopic(
            name=name,
            topic_id=name.encode().ljust(16, b"-"),
            error_code=error_code,
            partitions=[
                MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
                for index, leader in enumerate(leaders)
            ],
        )

    @property
    def bootstrap(self) -> list[str]:
        return [f"127.0.0.1:{broker.port}" for broker in self.brokers.values()]

    async def add(self, node_id: int) -> FakeBroker:
        broker = self.brokers[node_id] = FakeBroker(self, node_id)
        await broker.start()
        self.announced[node_id] = ("127.0.0.1", broker.port)
        return broker

    async def remove(self, node_id: int) -> None:
        await self.brokers.pop(node_id).stop()
        self.announced.pop(node_id, None)

    async def __aenter__(self) -> Self:
        for broker in self.brokers.values():
            await broker.start()
            self.announced[broker.node_id] = ("127.0.0.1", broker.port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for broker in self.brokers.values():
            await broker.stop()
        for _ in range(3):
            await asyncio.sleep(0)  # uvloop closes a handle on the turn after


def usual(broker: FakeBroker, request: Any) -> Any:
    """Return the answer of a healthy broker."""
    cluster = broker.cluster
    if isinstance(request, ApiVersionsRequest):
        return ApiVersionsResponse(
            api_keys=[ApiVersion(kind.API_KEY, kind.MIN_VERSION, kind.MAX_VERSION) for kind in KNOWN.values()]
        )
    if isinstance(request, InitProducerIdRequest):
        cluster.producer_ids += 1
        return InitProducerIdResponse(producer_id=cluster.producer_ids, producer_epoch=0)
    return metadata(cluster, request)


def metadata(cluster: FakeCluster, request: MetadataRequest) -> MetadataResponse:
    topics = []
    for wanted in request.topics or []:
        assert wanted.name is not None
        topics.append(cluster.topics.get(wanted.name) or MetadataResponseTopic(name=wanted.name, error_code=3))
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node_id, host=host, port=port)
            for node_id, (host, port) in cluster.announced.items()
        ],
        cluster_id=cluster.cluster_id,
        controller_id=min(cluster.announced, default=-1),
        topics=topics,
    )
