"""`Asker`: one plain socket to one broker, over which a case sends what it likes, byte for byte.

As many as a case opens; the fixture closes them. Nothing is retried and nothing is hidden: what the broker answers, or
that it closes, is the case's own business.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from aiokprod.testing.kafka_cluster.blocking import Answer, Request
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.frames import encode_request_header, read_response_header, response_header_flexible
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aiokprod.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

AnyAnswer = TypeVar("AnyAnswer", bound=Answer)

PATIENCE_S = 120.0


class Written(NamedTuple):
    """The answer of Produce about one partition, in the form that is compared."""

    code: int
    base_offset: int


class Asker:
    """Requests and answers over one connection; many requests may be on their way."""

    def __init__(self, host: str, port: int, produce_version: int, client_id: str = "conformance") -> None:
        self.produce_version = produce_version
        self._client_id = client_id
        self._socket = socket.create_connection((host, port), timeout=PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sent = 0
        self._answered = 0

    def close(self) -> None:
        self._socket.close()

    # ------------------------------------------------------------------ any request

    def send(self, request: Request, version: int, *, behind: bytes = b"") -> None:
        """Write the request, with perhaps some bytes behind its body."""
        self.send_body(request.API_KEY, version, request.encode(version) + behind, version >= request.FLEXIBLE_FROM)

    def send_body(self, api_key: int, version: int, body: bytes, flexible: bool) -> None:
        self._sent += 1
        frame = encode_request_header(api_key, version, self._sent, self._client_id, flexible) + body
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self, kind: type[AnyAnswer], request: type[Request] | Request, version: int) -> AnyAnswer:
        """Return the answer to the oldest request that has none yet."""
        flexible = response_header_flexible(request.API_KEY, version, request.FLEXIBLE_FROM)
        return kind.decode(self.answer_body(flexible), version)

    def answer_body(self, flexible: bool) -> memoryview:
        (length,) = struct.unpack(">i", self._receive(4))
        correlation_id, body = read_response_header(self._receive(length), flexible)
        self._answered += 1
        assert correlation_id == self._answered, "answers come in the order of the requests"
        return body

    def expects_no_answer(self) -> None:
        """Skip the oldest unanswered request: it was sent with acks=0."""
        self._answered += 1

    def ask(self, request: Request, kind: type[AnyAnswer], version: int) -> AnyAnswer:
        self.send(request, version)
        return self.answer(kind, request, version)

    def is_closed(self) -> bool:
        """Return True when the broker has closed, False if it stays silent for long."""
        self._socket.settimeout(10.0)
        try:
            received = self._socket.recv(1)
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        finally:
            self._socket.settimeout(PATIENCE_S)
        assert received == b"", "neither closed nor silent"
        return True

    def says_nothing_for(self, seconds: float) -> bool:
        """Return whether the broker neither answers nor closes within so many seconds."""
        self._socket.settimeout(seconds)
        try:
            self._socket.recv(1)
        except TimeoutError:
            return True
        except ConnectionError:
            return False
        finally:
            self._socket.settimeout(PATIENCE_S)
        return False

    def _receive(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            part = self._socket.recv(count - len(received))
            if not part:
                raise ConnectionError("the broker closed the connection")
            received += part
        return bytes(received)

    # ------------------------------------------------------------------ producing

    def produce(self, topic: str, batch: bytes | None, **options: int) -> Written:
        """Send one batch to partition 0 of the topic; options as of `send_produce`."""
        return written(self.produce_fully(topic, batch, **options))

    def produce_once_in_sync(self, topic: str, batch: bytes) -> Written:
        """Send one batch to partition 0, again as long as the leader counts too few replicas in sync.

        Metadata can show the full set before the leader itself has learnt of it; until then it refuses for certain.
        """
        deadline = time.monotonic() + 30
        while (answer := self.produce(topic, batch)).code == ErrorCode.NOT_ENOUGH_REPLICAS:
            assert time.monotonic() < deadline, f"the leader of {topic} still counts too few replicas"
            time.sleep(0.05)
        return answer

    def produce_fully(self, topic: str, batch: bytes | None, **options: int) -> PartitionProduceResponse:
        """Send one batch to partition 0, and return all that the answer says about the partition."""
        self.send_produce(topic, batch, **options)
        return self.one_partition(options.get("version"))

    def send_produce(
        self,
        topic: str | bytes,
        batch: bytes | None,
        *,
        partition: int = 0,
        version: int | None = None,
        acks: int = -1,
        timeout_ms: int = 5000,
    ) -> None:
        request = produce_request({(topic, partition): batch}, acks=acks, timeout_ms=timeout_ms)
        self.send(request, self.produce_version if version is None else version)

    def one_partition(self, version: int | None = None) -> PartitionProduceResponse:
        (topic,) = self.produce_answer(version).responses
        (partition,) = topic.partition_responses
        return partition

    def next_written(self) -> Written:
        return written(self.one_partition())

    def produce_answer(self, version: int | None = None) -> ProduceResponse:
        return self.answer(ProduceResponse, ProduceRequest, self.produce_version if version is None else version)

    def new_producer_id(self) -> int:
        """Return a producer id that is new; a broker that has just started may need a moment."""
        for _ in range(100):
            answer = self.ask(InitProducerIdRequest(transactional_id=None), InitProducerIdResponse, 1)
            if answer.error_code == 0:
                return answer.producer_id
            time.sleep(0.05)
        raise AssertionError(f"no producer id: {answer}")


def written(answer: PartitionProduceResponse) -> Written:
    return Written(answer.error_code, answer.base_offset)


def produce_request(
    batches: Mapping[tuple[str | bytes, int], bytes | None], *, acks: int = -1, timeout_ms: int = 5000
) -> ProduceRequest:
    """Return a request with these batches; topics by name, or by id if the key has bytes."""
    topics: dict[str | bytes, TopicProduceData] = {}
    for (topic, partition), records in batches.items():
        named = TopicProduceData(name=topic) if isinstance(topic, str) else TopicProduceData(topic_id=topic)
        topics.setdefault(topic, named).partition_data.append(PartitionProduceData(index=partition, records=records))
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=timeout_ms, topic_data=list(topics.values()))
