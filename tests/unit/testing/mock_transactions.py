"""A transactional client made of nothing but codecs, on a mock cluster of one broker: one method for each request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mock_batches import batch
from mock_client import RawClient, produce_request
from mock_requests import NOW_MS
from mock_transaction_requests import add_partitions, offset_fetch, txn_offset_commit

from aiokprod.testing import MockCluster
from aiokprod.testing.mock.batch_header import TRANSACTIONAL_BIT
from aiokprod.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from aiokprod.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from aiokprod.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aiokprod.wire.messages.offset_fetch import OffsetFetchResponse
from aiokprod.wire.messages.produce import PartitionProduceResponse, ProduceResponse
from aiokprod.wire.messages.txn_offset_commit import TxnOffsetCommitResponse

Pair = tuple[int, int]


class Clock:
    """The brokers' wall clock, which stands until it is moved."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


class TransactionalClient:
    """A transactional client; `pair` is its identity, and methods take another one to act as another client."""

    def __init__(self, cluster: MockCluster, raw: RawClient, clock: Clock) -> None:
        self.cluster = cluster
        self.raw = raw
        self.clock = clock
        self.pair: Pair = (-1, -1)

    async def init(self, pair: Pair = (-1, -1), *, version: int = 5, timeout_ms: int = 60_000) -> tuple[int, Pair]:
        """Send InitProducerId; return the code and the pair."""
        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=timeout_ms)
        if version >= 3:
            request.producer_id, request.producer_epoch = pair
        answer = await self.raw.ask(request, InitProducerIdResponse, version)
        return answer.error_code, (answer.producer_id, answer.producer_epoch)

    async def start(self) -> Pair:
        """Send InitProducerId, which must succeed."""
        code, self.pair = await self.init()
        assert code == 0
        return self.pair

    async def add(self, *partitions: tuple[str, int], version: int = 3, pair: Pair | None = None) -> list[int]:
        """Send AddPartitionsToTxn, by default for partition 0 of topic t; return the codes."""
        request = add_partitions(version, pair or self.pair, *(partitions or (("t", 0),)))
        answer = await self.raw.ask(request, AddPartitionsToTxnResponse, version)
        if answer.error_code:
            return [answer.error_code]
        topics = (
            answer.results_by_topic_v3_and_below
            if version < 4
            else [topic for one in answer.results_by_transaction for topic in one.topic_results]
        )
        return [partition.partition_error_code for topic in topics for partition in topic.results_by_partition]

    async def write(
        self, first: int, *, version: int = 12, pair: Pair | None = None, partition: int = 0, acks: int = -1,
        transactional_id: str | None = "tx", transactional: bool = True,
    ) -> PartitionProduceResponse:  # fmt: skip
        """Produce one record with this sequence."""
        producer_id, epoch = pair or self.pair
        attributes = TRANSACTIONAL_BIT if transactional else 0
        data = batch(b"v%d" % first, pid=producer_id, epoch=epoch, first=first, attributes=attributes)
        topic: str | bytes = self.cluster.topic_id("t") if version >= 13 else "t"
        request = produce_request({(topic, partition): data}, acks=acks)
        request.transactional_id = transactional_id
        answer = await self.raw.ask(request, ProduceResponse, version)
        found: PartitionProduceResponse = answer.responses[0].partition_responses[0]
        return found

    async def code(self, first: int, **options: Any) -> int:
        """Return the code of `write`."""
        return (await self.write(first, **options)).error_code

    async def end(self, commits: bool, *, version: int = 5, pair: Pair | None = None) -> tuple[int, Pair]:
        """EndTxn: the code and the pair it tells."""
        who = pair or self.pair
        request = EndTxnRequest(transactional_id="tx", producer_id=who[0], producer_epoch=who[1], committed=commits)
        answer = await self.raw.ask(request, EndTxnResponse, version)
        return answer.error_code, (answer.producer_id, answer.producer_epoch)

    async def transaction(self, first: int = 0, commits: bool = True) -> Pair:
        """Complete a transaction of the second version: one record, one end. Return the pair it was written with."""
        before = self.pair
        assert await self.code(first) == 0
        code, self.pair = await self.end(commits)
        assert code == 0
        return before

    async def add_offsets(self, *, version: int = 3, pair: Pair | None = None) -> int:
        """Send AddOffsetsToTxn for group g."""
        who = pair or self.pair
        request = AddOffsetsToTxnRequest(transactional_id="tx", producer_id=who[0], producer_epoch=who[1], group_id="g")
        code: int = (await self.raw.ask(request, AddOffsetsToTxnResponse, version)).error_code
        return code

    async def commit_offset(self, offset: int, *, version: int = 5, pair: Pair | None = None, **options: Any) -> int:
        """Send TxnOffsetCommit for group g, topic t, partition 0."""
        request = txn_offset_commit(pair or self.pair, offset, **options)
        answer = await self.raw.ask(request, TxnOffsetCommitResponse, version)
        code: int = answer.topics[0].partitions[0].error_code
        return code

    async def fetch_offset(self, *, version: int = 10, stable: bool = False) -> tuple[int, int]:
        """Send OffsetFetch for group g, topic t, partition 0; return code and offset."""
        answer = await self.raw.ask(offset_fetch(version, self.cluster, stable=stable), OffsetFetchResponse, version)
        topics = answer.topics if version < 8 else answer.groups[0].topics
        found = topics[0].partitions[0]
        return found.error_code, found.committed_offset


@asynccontextmanager
async def transactional(version: int = 2, **options: Any) -> AsyncIterator[TransactionalClient]:
    """Yield a client on a cluster of one broker and a topic t of two partitions; it has no producer id yet."""
    clock = Clock()
    if "kafka_version" not in options:
        options["transaction_version"] = version
    async with MockCluster(1, now_ms=clock, seed=1, **options) as cluster, RawClient(cluster) as raw:
        cluster.create_topic("t", partitions=2)
        yield TransactionalClient(cluster, raw, clock)
        assert cluster.counters.crashes == []
