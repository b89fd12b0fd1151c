"""Requests of a transactional client, drawn from a seed, asked of two clusters: a `Side` for each, and what to ask next.

Answers are compared in a form that is free of what two clusters cannot share: producer ids are numbered as they come.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from random import Random
from typing import Any

from aiokprod.records.batch import batch_header, encode_records
from aiokprod.wire.frames import encode_request_header, read_response_header, response_header_flexible
from aiokprod.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from aiokprod.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from aiokprod.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from aiokprod.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from aiokprod.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from aiokprod.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aiokprod.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from aiokprod.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

TRANSACTIONAL = 0x10
NOT_YET = {6, 14, 15, 16}
"""What a real cluster says while a topic or a coordinator is on its way."""

PATIENCE = 200
PAUSE_S = 0.05


@dataclass(frozen=True)
class Ask:
    """One request. The pair's producer id is the number it got when it was seen first; 99 is no pair's."""

    kind: str
    pair: tuple[int, int]
    version: int
    partitions: tuple[int, ...] = (0,)
    sequence: int = 0
    says_yes: bool = True
    """Commit and not abort; a batch that is transactional."""


@dataclass
class Drawn:
    """The state of a seed: the pairs that the client got, the newest last, and its sequences."""

    random: Random
    newest_protocol: bool
    pairs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    sequences: dict[tuple[tuple[int, int], int], int] = field(default_factory=dict)

    def next(self) -> Ask:
        """Draw the next request: mostly one of a right client, often late or of another client."""
        random, new = self.random, self.newest_protocol
        pair = self.pairs[-1] if random.random() < 0.75 else random.choice(self.pairs)
        if random.random() < 0.04:
            pair = (pair[0], pair[1] + 1)
        if random.random() < 0.03:
            pair = (99, 0)
        kinds = {"init": 1.2, "add": 2.0, "write": 5.0, "end": 3.0, "add offsets": 1.0, "commit": 1.5, "read": 1.0}
        kind = random.choices(list(kinds), list(kinds.values()))[0]
        match kind:
            case "init":
                version = random.choice([1, 3, 4, 5])
                return Ask(kind, (-1, -1) if version < 3 or random.random() < 0.4 else pair, version)
            case "add":
                version = random.choice([1, 2, 3, 4, 5] if new else [1, 2, 3])
                return Ask(kind, pair, version, random.choice([(0,), (1,), (0, 1), (0, 7)]))
            case "write":
                partition = random.randrange(2)
                is_right = random.random() < 0.85
                sequence = self.sequences.get((pair, partition), 0) if is_right else random.choice([0, 1, 2, 5])
                version = random.choice([9, 11, 11, 12, 12] if new else [9, 11])
                if not new and pair not in self.pairs:
                    pair = self.pairs[-1]  # a newer epoch in the log leaves 3.9 without its marker, and stuck for good
                return Ask(kind, pair, version, (partition,), sequence, random.random() < 0.93)
            case "end":
                version = random.choice([1, 3, 4, 5, 5, 5] if new else [1, 3, 4])
                return Ask(kind, pair, version, says_yes=random.random() < 0.6)
            case "add offsets":
                return Ask(kind, pair, random.choice([1, 2, 3, 4]))
            case "commit":
                return Ask(kind, pair, random.choice([2, 3, 4, 5] if new else [2, 3, 4]))
            case _:
                return Ask(kind, pair, 12)

    def took(self, ask: Ask, answer: Any) -> None:
        """Go on from the answer."""
        if ask.kind in ("init", "end") and answer[0] == 0 and answer[1][0] >= 0:
            if answer[1] in self.pairs:
                self.pairs.remove(answer[1])
            self.pairs.append(answer[1])
        if ask.kind == "write" and answer[0] == 0:
            self.sequences[ask.pair, ask.partitions[0]] = ask.sequence + 1


class Connection:
    """One connection to one broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._asked = 0

    async def ask(self, request: Any, response: Any, version: int) -> Any:
        self._asked += 1
        flexible = version >= request.FLEXIBLE_FROM
        frame = encode_request_header(request.API_KEY, version, self._asked, "drawn", flexible) + request.encode(
            version
        )
        self._writer.write(len(frame).to_bytes(4, "big") + frame)
        length = int.from_bytes(await self._reader.readexactly(4), "big")
        data = await self._reader.readexactly(length)
        in_header = response_header_flexible(response.API_KEY, version, response.FLEXIBLE_FROM)
        correlation_id, body = read_response_header(data, in_header)
        assert correlation_id == self._asked
        return response.decode(body, version)

    async def until_coordinated(self) -> None:
        """Wait until the cluster has made its internal topics."""
        for key_type in (0, 1):
            for _ in range(PATIENCE):
                request = FindCoordinatorRequest(key_type=key_type, key="any")
                if (await self.ask(request, FindCoordinatorResponse, 2)).error_code == 0:
                    break
                await asyncio.sleep(PAUSE_S)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


class Side:
    """One cluster as one seed sees it; the topic and the transactional id have the same name."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        self._producer_ids: list[int] = []

    async def answer(self, ask: Ask) -> Any:
        """Return what is compared, when everything of it has happened."""
        answer = None
        for _ in range(PATIENCE):
            answer = await self._answer(ask)
            if not NOT_YET & _codes(answer):
                break
            await asyncio.sleep(PAUSE_S)
        return answer, await self._at_rest()

    def _number(self, producer_id: int) -> int:
        if producer_id < 0:
            return producer_id
        if producer_id not in self._producer_ids:
            self._producer_ids.append(producer_id)
        return self._producer_ids.index(producer_id)

    async def _at_rest(self) -> Any:
        for _ in range(PATIENCE):
            request = DescribeTransactionsRequest(transactional_ids=[self._name])
            answer = await self._connection.ask(request, DescribeTransactionsResponse, 0)
            (found,) = answer.transaction_states
            if not found.transaction_state.startswith("Prepare"):
                own = [sorted(topic.partitions) for topic in found.topics if topic.topic == self._name]
                return found.error_code, found.transaction_state, own, len(found.topics)
            await asyncio.sleep(PAUSE_S / 10)
        raise AssertionError(f"{self._name} stays {found}")

    async def _answer(self, ask: Ask) -> Any:
        number, epoch = ask.pair
        known = self._producer_ids
        producer_id = number if number < 0 else known[number] if number < len(known) else 987_654
        version, name, connection = ask.version, self._name, self._connection
        match ask.kind:
            case "init":
                init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
                if version >= 3:
                    init.producer_id, init.producer_epoch = producer_id, epoch
                answer = await connection.ask(init, InitProducerIdResponse, version)
                return answer.error_code, (self._number(answer.producer_id), answer.producer_epoch)
            case "add":
                answer = await connection.ask(
                    _add_partitions(name, producer_id, epoch, ask), AddPartitionsToTxnResponse, version
                )
                topics = list(answer.results_by_topic_v3_and_below)
                for one in answer.results_by_transaction:
                    topics += one.topic_results
                found = [one for topic in topics for one in topic.results_by_partition]
                codes = sorted((one.partition_error_code, one.partition_index) for one in found)
                return [(answer.error_code, -1), *codes]
            case "write":
                answer = await connection.ask(_produce(name, producer_id, epoch, ask), ProduceResponse, version)
                (written,) = answer.responses[0].partition_responses
                return written.error_code, written.base_offset, written.error_message
            case "end":
                end = EndTxnRequest(
                    transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=ask.says_yes
                )
                answer = await connection.ask(end, EndTxnResponse, version)
                return answer.error_code, (self._number(answer.producer_id), answer.producer_epoch)
            case "add offsets":
                offsets = AddOffsetsToTxnRequest(
                    transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id=name
                )
                return ((await connection.ask(offsets, AddOffsetsToTxnResponse, version)).error_code,)
            case "commit":
                one = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
                commit = TxnOffsetCommitRequest(
                    transactional_id=name, group_id=name, producer_id=producer_id, producer_epoch=epoch,
                    topics=[TxnOffsetCommitRequestTopic(name=name, partitions=[one])],
                )  # fmt: skip
                answer = await connection.ask(commit, TxnOffsetCommitResponse, version)
                return (answer.topics[0].partitions[0].error_code,)
            case _:
                return [await self._read(partition, level) for partition in (0, 1) for level in (0, 1)]

    async def _read(self, partition: int, isolation_level: int) -> tuple[Any, ...]:
        asked = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1_000_000)
        request = FetchRequest(
            isolation_level=isolation_level, topics=[FetchTopic(topic=self._name, partitions=[asked])]
        )
        (found,) = (await self._connection.ask(request, FetchResponse, 12)).responses[0].partitions
        aborted = found.aborted_transactions
        return (
            found.error_code,
            found.high_watermark,
            found.last_stable_offset,
            len(found.records or b""),
            None if aborted is None else sorted((self._number(one.producer_id), one.first_offset) for one in aborted),
        )


def _codes(answer: Any) -> set[int]:
    return {one[0] for one in answer} if isinstance(answer, list) else {answer[0]}


def _add_partitions(name: str, producer_id: int, epoch: int, ask: Ask) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(name=name, partitions=list(ask.partitions))]
    if ask.version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics,
        )
    one = AddPartitionsToTxnTransaction(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, topics=topics
    )
    return AddPartitionsToTxnRequest(transactions=[one])


def _produce(name: str, producer_id: int, epoch: int, ask: Ask) -> ProduceRequest:
    section = bytes(encode_records([b"v"], None, None, [0]))
    now_ms = int(
        time.time() * 1000
    )  # a marker's time is the broker's: far from it, the log would begin another segment
    header = batch_header(
        section,
        count=1,
        attributes=TRANSACTIONAL if ask.says_yes else 0,
        base_timestamp_ms=now_ms,
        max_timestamp_ms=now_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=ask.sequence,
    )
    data = PartitionProduceData(index=ask.partitions[0], records=bytes(header) + section)
    return ProduceRequest(
        transactional_id=name if ask.says_yes else None,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=name, partition_data=[data])],
    )
