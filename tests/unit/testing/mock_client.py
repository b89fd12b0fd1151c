"""A client made of nothing but codecs and a stream, for tests of the mock cluster."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from aiokprod.testing.mock import MockCluster
from aiokprod.wire.frames import encode_request_header, read_response_header, response_header_flexible
from aiokprod.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

Asked = Mapping[tuple[str | bytes, int], bytes | None]


class RawClient:
    """One connection. `ask` is `send` and `receive`."""

    def __init__(self, cluster: MockCluster, node: int = 1, context: ssl.SSLContext | None = None) -> None:
        self._broker = cluster.broker(node)
        self._context = context
        self._correlation_id = 0

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(
            self._broker.host,
            self._broker.port,
            ssl=self._context,
            server_hostname="localhost" if self._context else None,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass

    def send(self, request: Any, version: int) -> int:
        self._correlation_id += 1
        header = encode_request_header(
            request.API_KEY, version, self._correlation_id, "raw", version >= request.FLEXIBLE_FROM
        )
        self.send_frame(header + request.encode(version))
        return self._correlation_id

    def send_frame(self, frame: bytes) -> None:
        self.writer.write(len(frame).to_bytes(4, "big") + frame)

    async def frame(self) -> bytes:
        length = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(length)

    async def receive(self, response: Any, version: int, correlation_id: int | None = None) -> Any:
        flexible = response_header_flexible(response.API_KEY, version, response.FLEXIBLE_FROM)
        got, body = read_response_header(await self.frame(), flexible)
        assert correlation_id in (None, got), f"answer {got} to request {correlation_id}"
        return response.decode(body, version)

    async def ask(self, request: Any, response: Any, version: int) -> Any:
        return await self.receive(response, version, self.send(request, version))

    async def is_closed(self) -> bool:
        """Return whether the broker has closed without another byte."""
        try:
            return await asyncio.wait_for(self.reader.read(1), 60) == b""
        except ConnectionError:
            return True

    async def is_silent(self) -> bool:
        """Return whether nothing comes while the loop turns a while."""
        try:
            await asyncio.wait_for(self._peek(), 0.05)
        except TimeoutError:
            return True
        return False

    @property
    def has_bytes(self) -> bool:
        """Return whether bytes have arrived that were not read."""
        return bool(self.reader._buffer)  # type: ignore[attr-defined]

    async def _peek(self) -> None:
        while not self.has_bytes:
            await self.reader._wait_for_data("peek")  # type: ignore[attr-defined]

    def send_produce(self, asked: Asked, *, version: int = 12, acks: int = -1, timeout_ms: int = 5000) -> int:
        return self.send(produce_request(asked, acks=acks, timeout_ms=timeout_ms), version)

    async def produced(self, version: int = 12) -> dict[tuple[str | bytes, int], PartitionProduceResponse]:
        response = await self.receive(ProduceResponse, version)
        return {(t.name or t.topic_id, p.index): p for t in response.responses for p in t.partition_responses}

    async def produce(
        self, topic: str | bytes, data: bytes | None, *, partition: int = 0, version: int = 12, acks: int = -1,
        timeout_ms: int = 5000,
    ) -> PartitionProduceResponse:  # fmt: skip
        self.send_produce({(topic, partition): data}, version=version, acks=acks, timeout_ms=timeout_ms)
        (answer,) = (await self.produced(version)).values()
        return answer


def produce_request(asked: Asked, *, acks: int = -1, timeout_ms: int = 5000) -> ProduceRequest:
    topics: dict[str | bytes, TopicProduceData] = {}
    for (topic, partition), data in asked.items():
        known = {"topic_id": topic} if isinstance(topic, bytes) else {"name": topic}
        entry = topics.setdefault(topic, TopicProduceData(**known))  # type: ignore[arg-type]
        entry.partition_data.append(PartitionProduceData(index=partition, records=data))
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=list(topics.values()))
