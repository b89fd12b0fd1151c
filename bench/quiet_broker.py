"""`QuietBroker`: a broker in this process, without sockets, that answers when it is told to.

For counting what the client does: answers are made outside the counted sections (`held`), or by patching the correlation
id of a template (`prompt`). It stores nothing and checks nothing.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from aiokprod.wire.broker_frames import decode_request_header, encode_response
from aiokprod.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aiokprod.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokprod.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

HOST, PORT, NODE = "quiet", 9092, 1
APIS = {kind.API_KEY: kind for kind in (ApiVersionsRequest, InitProducerIdRequest, MetadataRequest, ProduceRequest)}
STEP = 1 << 20
FLEXIBLE_FROM = {key: kind.FLEXIBLE_FROM for key, kind in APIS.items()}


class QuietBroker:
    """One broker; `QuietBroker.dial` is the producer's `dialer`."""

    def __init__(self, topics: dict[str, int]) -> None:
        self.topics = topics
        self.held: list[tuple[QuietTransport, bytes]] = []
        self.template: bytes | None = None
        """The answer to every Produce request, but its correlation id and its offset; None: requests are held."""
        self._next_offset = STEP
        self._at = 0  # of the offset in the template

    async def dial(
        self, host: str, port: int, ssl_context: ssl.SSLContext | None, protocol_factory: Callable[[], asyncio.Protocol]
    ) -> asyncio.Transport:
        protocol = protocol_factory()
        transport = QuietTransport(self, protocol)
        protocol.connection_made(transport)
        return transport

    def take_offset(self) -> int:
        """Return the offset of the next batch: behind all before it, as in a log, whichever its partition is."""
        self._next_offset += STEP
        return self._next_offset

    def from_template(self, template: bytes, correlation_id: bytes) -> bytes:
        """Return the answer of the template to this request."""
        at = self._at
        if template[at : at + 8] != self._next_offset.to_bytes(8, "big"):
            at = self._at = template.index(self._next_offset.to_bytes(8, "big"))
        answer = (
            template[:4] + correlation_id + template[8:at] + self.take_offset().to_bytes(8, "big") + template[at + 8 :]
        )
        self.template = answer
        return answer

    def answers(self) -> list[tuple[QuietTransport, bytes]]:
        """Return the answers to the held requests, each with its connection, for `deliver`."""
        held, self.held = self.held, []
        return [(transport, answer(self, frame)) for transport, frame in held]


class QuietTransport(asyncio.Transport):
    """The client's end of a connection. A write is a whole frame."""

    def __init__(self, broker: QuietBroker, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol = protocol
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._is_closing = False

    def write(self, data: Any) -> None:
        if data[4:6] != b"\0\0":  # not Produce
            self._loop.call_soon(self.protocol.data_received, answer(self._broker, data))
        elif self._broker.template is None:
            self._broker.held.append((self, data))
        else:
            frame = self._broker.from_template(self._broker.template, data[8:12])
            self._loop.call_soon(self.protocol.data_received, frame)

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self.protocol.connection_lost, None)

    abort = close

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


def deliver(answers: list[tuple[QuietTransport, bytes]]) -> None:
    """Pass the answers to their connections, as sockets would."""
    for transport, frame in answers:
        transport.protocol.data_received(frame)


def answer(broker: QuietBroker, frame: bytes) -> bytes:
    """Return the answer to one request, as a whole frame."""
    header = decode_request_header(frame[4:], FLEXIBLE_FROM)
    kind, version = APIS[header.api_key], header.version
    if kind is ApiVersionsRequest:
        apis = [ApiVersion(key, known.MIN_VERSION, known.MAX_VERSION) for key, known in APIS.items()]
        return encode_response(header.correlation_id, False, ApiVersionsResponse(api_keys=apis).encode(version))
    request = kind.decode(header.body, version)
    response: Any
    if isinstance(request, ProduceRequest):
        response = acknowledgement(broker, request)
    elif isinstance(request, MetadataRequest):
        response = metadata(broker.topics)
    else:
        response = InitProducerIdResponse(producer_id=7, producer_epoch=0)
    return encode_response(header.correlation_id, version >= kind.FLEXIBLE_FROM, response.encode(version))


def acknowledgement(broker: QuietBroker, request: ProduceRequest) -> ProduceResponse:
    """Return the answer that every batch is in the log."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=batch.index, base_offset=broker.take_offset())
                    for batch in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def metadata(topics: dict[str, int]) -> MetadataResponse:
    """Return metadata of all topics, led by the one broker."""
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=NODE, host=HOST, port=PORT)],
        cluster_id="quiet",
        controller_id=NODE,
        topics=[
            MetadataResponseTopic(
                name=name,
                topic_id=name.encode().ljust(16, b"-")[:16],
                partitions=[
                    MetadataResponsePartition(
                        partition_index=number, leader_id=NODE, leader_epoch=0, replica_nodes=[NODE], isr_nodes=[NODE]
                    )
                    for number in range(count)
                ],
            )
            for name, count in topics.items()
        ],
    )
