"""No client: what asyncio itself takes, to tell it from what a client takes.

`transactions`: one record each, on transaction.version 2, with nothing but the requests that it needs: the last EndTxn again,
until its markers are written (a Produce that came before them would wait 20 ms inside the broker), Produce, EndTxn. Their bytes
are ready but for the epoch and the CRC. No partition is chosen, no time is bounded, of an answer only error codes and the epoch
are read. `gathered`: `asyncio.gather` over futures that one callback settles, without any record.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from time import perf_counter
from typing import Any

from child import Stopwatch
from job import Job

from aiokprod.records.batch import batch_header, encode_records
from aiokprod.wire.frames import encode_request_header, read_response_header, response_header_flexible
from aiokprod.wire.messages.end_txn import EndTxnRequest
from aiokprod.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from aiokprod.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

WINDOW = 20_000
PRODUCE, END_TXN = 12, 5  # the versions: topics by name, and a new epoch from each end
TRANSACTIONAL = 0x10  # an attribute of a batch
CONCURRENT_TRANSACTIONS = 51
STARTING = (14, 15, 16)  # COORDINATOR_LOAD_IN_PROGRESS, _NOT_AVAILABLE, NOT_COORDINATOR: until its topic has leaders
_int32 = Struct(">i")


class Connection(asyncio.Protocol):
    """A connection with one request at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer = self._buffer + data
        if len(buffer) >= 4 and len(buffer) == 4 + _int32.unpack_from(buffer)[0]:
            assert self._answer is not None
            self._buffer = b""
            self._answer.set_result(buffer)

    def ask(self, frame: bytes) -> asyncio.Future[bytes]:
        """Send a request; the answer comes with its length in front."""
        self._answer = self._loop.create_future()
        self.transport.write(frame)
        return self._answer

    async def call(self, request: Any, response: Any, version: int) -> Any:
        flexible = response_header_flexible(request.API_KEY, version, request.FLEXIBLE_FROM)
        _, body = read_response_header((await self.ask(frame_of(request, version)))[4:], flexible)
        return response.decode(body, version)


def frame_of(request: Any, version: int) -> bytes:
    header = encode_request_header(request.API_KEY, version, 1, "bare", version >= request.FLEXIBLE_FROM)
    data = header + request.encode(version)
    return _int32.pack(len(data)) + data


def code_of_end(answer: bytes) -> int:
    return int.from_bytes(answer[13:15], "big")  # behind its length, the correlation id, the tags and the throttle


def code_of_produce(answer: bytes) -> int:
    """Return the error code of the only partition."""
    body = answer[9:]  # behind its length, the correlation id and the tags
    at = 1 + body[1]  # behind the number of topics and the name
    return int.from_bytes(body[at + 5 : at + 7], "big")  # behind the number of partitions and the partition


class Transactions:
    """Transactions of one record, one after another.

    Args:
        producer_id, epoch: the identity of the first one; each end gives a new epoch.
    """

    def __init__(self, connection: Connection, job: Job, partition: int, producer_id: int, epoch: int) -> None:
        self._connection = connection
        self._producer_id, self._epoch = producer_id, epoch
        self._section = bytes(encode_records([job.value()], None, None, [0]))
        own_id = job.settings["transactional_id"]
        records = PartitionProduceData(index=partition, records=self._header() + self._section)
        data = [TopicProduceData(name=job.topic, partition_data=[records])]
        produce = frame_of(ProduceRequest(own_id, -1, 30_000, data), PRODUCE)
        self._before, self._behind = produce.split(self._header())
        end = frame_of(EndTxnRequest(own_id, producer_id, epoch, True), END_TXN)
        self._end_before, self._end_behind = end[:-4], end[-2:]  # the epoch; committed, and no tags
        self._last = b""

    def _header(self) -> bytes:
        return batch_header(
            self._section, count=1, attributes=TRANSACTIONAL, base_timestamp_ms=0, max_timestamp_ms=0,
            producer_id=self._producer_id, producer_epoch=self._epoch, base_sequence=0,
        )  # fmt: skip

    async def one(self) -> None:
        ask = self._connection.ask
        while self._last and (code := code_of_end(await ask(self._last))):
            assert code == CONCURRENT_TRANSACTIONS, code
        code = code_of_produce(await ask(self._before + self._header() + self._behind))
        assert not code, code
        self._last = self._end_before + self._epoch.to_bytes(2, "big") + self._end_behind
        answer = await ask(self._last)
        assert not code_of_end(answer), answer
        self._epoch = int.from_bytes(answer[23:25], "big")


async def transactions(job: Job, stopwatch: Stopwatch) -> None:
    assert job.per_transaction == 1, "transactions of one record only"
    host, _, port = job.servers.rpartition(":")
    _, connection = await asyncio.get_running_loop().create_connection(Connection, host, int(port))
    own_id = job.settings["transactional_id"]
    named = MetadataRequest(topics=[MetadataRequestTopic(name=job.topic)])
    (topic,) = (await connection.call(named, MetadataResponse, 9)).topics
    find, code = FindCoordinatorRequest(key_type=1, coordinator_keys=[own_id]), STARTING[0]
    while code in STARTING:
        code = (await connection.call(find, FindCoordinatorResponse, 4)).coordinators[0].error_code
    init, code = InitProducerIdRequest(own_id, 60_000), STARTING[0]
    while code in STARTING:
        identity = await connection.call(init, InitProducerIdResponse, 5)
        code = identity.error_code
    assert not code, identity
    work = Transactions(
        connection, job, topic.partitions[0].partition_index, identity.producer_id, identity.producer_epoch
    )
    await work.one()
    note = stopwatch.latencies_s.append
    with stopwatch.running():
        for _ in range(job.count):
            began = perf_counter()
            await work.one()
            note(perf_counter() - began)
    connection.transport.close()


async def gathered(job: Job, stopwatch: Stopwatch) -> None:
    loop, read = asyncio.get_running_loop(), 0

    def settle(futures: list[asyncio.Future[int]]) -> None:
        for future in futures:
            future.set_result(1)

    stopwatch.before = -job.count - 1  # nothing is written
    with stopwatch.running():
        for start in range(0, job.count, WINDOW):
            futures = [loop.create_future() for _ in range(min(WINDOW, job.count - start))]
            loop.call_soon(settle, futures)
            read += sum(await asyncio.gather(*futures))
    assert read == job.count, read


WAYS = {"transactions": transactions, "gathered": gathered}
