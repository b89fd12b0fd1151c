"""The Produce envelope, written by hand because every batch passes here. Equal to the generated codec in every version.

Record batches are not copied: a request is a list of parts, some of which are the batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from aiokprod.wire.reader import UNLIMITED, ZERO_UUID, Budget, Reader, too_many
from aiokprod.wire.writer import Writer

FLEXIBLE_FROM: Final = 9
BY_ID_FROM: Final = 13
EXCESS: Final = 16
"""Slack for answers that name a partition twice, or one that was not in the request: a few extra entries are ignored."""

ANSWER_BYTES: Final = 64 * 1024
"""The fixed part of an answer's limit: the endpoints of new leaders, and a long text."""

ANSWER_BYTES_PER_PARTITION: Final = 4 * 1024
"""The part per partition: the name of a topic, numbers, a text of some lines."""

ANSWER_BYTES_PER_RECORD: Final = 256
"""The part per record: the text about an invalid record; Kafka's have about 150 bytes."""

_pack_acks_and_timeout: Final = Struct(">hi").pack
_OUTCOME: Final = Struct(">ihqq")  # partition, error code, base offset, log append time
_OUTCOME_V5: Final = Struct(">ihqqq")  # and log start offset


class ProduceTopic:
    """The batches of one topic: (partition, parts of the batch, their size in bytes)."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(
        self, name: str, topic_id: bytes, partitions: list[tuple[int, Sequence[bytes | bytearray], int]]
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


class ProduceOutcome:
    """The broker's answer about one batch."""

    __slots__ = (
        "base_offset", "error_code", "error_message", "leader_epoch", "leader_id", "log_append_time_ms",
        "log_start_offset", "partition", "record_errors", "topic", "topic_id",
    )  # fmt: skip

    def __init__(self, topic: str, topic_id: bytes, partition: int, error_code: int, base_offset: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time_ms = -1
        self.log_start_offset = -1
        self.record_errors: list[tuple[int, str | None]] = []
        self.error_message: str | None = None
        self.leader_id = -1
        self.leader_epoch = -1

    def __repr__(self) -> str:
        return f"<ProduceOutcome {self.topic}-{self.partition} code {self.error_code} offset {self.base_offset}>"


class ProduceAnswer:
    """A whole Produce answer."""

    __slots__ = ("endpoints", "outcomes", "throttle_time_ms")

    def __init__(self) -> None:
        self.throttle_time_ms = 0
        self.outcomes: list[ProduceOutcome] = []
        self.endpoints: list[tuple[int, str, int, str | None]] = []  # (node id, host, port, rack)


def encode_produce(
    version: int, acks: int, timeout_ms: int, topics: Sequence[ProduceTopic], transactional_id: str | None = None
) -> list[bytes | bytearray]:
    """Encode the body of a Produce request, as parts to write one after the other."""
    flexible = version >= FLEXIBLE_FROM
    writer = Writer()
    writer.nullable_string(transactional_id, flexible)
    writer.out += _pack_acks_and_timeout(acks, timeout_ms)
    writer.count(len(topics), flexible)
    parts: list[bytes | bytearray] = []
    for topic in topics:
        if version >= BY_ID_FROM:
            writer.uuid(topic.topic_id)
        else:
            writer.string(topic.name, flexible)
        writer.count(len(topic.partitions), flexible)
        for partition, batch, size in topic.partitions:
            writer.int32(partition)
            writer.nullable_count(size, flexible)
            parts.append(writer.out)
            parts.extend(batch)
            writer.out = bytearray()
            if flexible:
                writer.out.append(0)
        if flexible:
            writer.out.append(0)
    if flexible:
        writer.out.append(0)
    if writer.out:
        parts.append(writer.out)
    return parts


def produce_answer_bytes(partitions: int, records: int) -> int:
    """Return the largest accepted size of an answer to a request with these counts (`# faults: H25`)."""
    return ANSWER_BYTES + partitions * ANSWER_BYTES_PER_PARTITION + records * ANSWER_BYTES_PER_RECORD


def decode_produce(
    body: bytes | memoryview, version: int, max_partitions: int = -1, max_records: int = -1
) -> ProduceAnswer:
    """Read a Produce answer; raises ProtocolError for anything but a whole valid one.

    Args:
        body: of the answer.
        version: of the request.
        max_partitions: number of partitions of the request; many more are refused before they are read. -1: any number.
        max_records: number of records of the request; an answer that names many more as invalid is refused before it
            is read. Tagged fields count as such records.
    """
    flexible = version >= FLEXIBLE_FROM
    partitions_left = EXCESS + 2 * max_partitions if max_partitions >= 0 else UNLIMITED
    records = Budget(EXCESS + 2 * max_records if max_records >= 0 else UNLIMITED)
    reader = Reader(body, tags=records)  # an answer of Kafka's has one tagged field per partition, and one more
    answer = ProduceAnswer()
    topics = reader.count(flexible)
    if topics > partitions_left:
        raise too_many(topics, partitions_left)
    for _ in range(topics):
        name, topic_id = ("", reader.uuid()) if version >= BY_ID_FROM else (reader.string(flexible), ZERO_UUID)
        count = reader.count(flexible)
        if count > partitions_left:
            raise too_many(count, partitions_left)
        partitions_left -= count
        for _ in range(count):
            answer.outcomes.append(_outcome(reader, version, flexible, name, topic_id, records))
        if flexible:
            reader.skip_tags()
    answer.throttle_time_ms = reader.int32()
    if flexible:
        for _ in range(reader.tag_count()):
            tag = reader.unsigned_varint()
            content = reader.field(reader.unsigned_varint())
            if tag == 0 and version >= 10:
                answer.endpoints.clear()  # a tag that is sent twice: the last one counts
                named = content.count(True)
                if max_partitions >= 0:
                    Budget(EXCESS + 2 * max_partitions).take(named)  # a partition has one leader
                for _ in range(named):
                    answer.endpoints.append(
                        (content.int32(), content.string(True), content.int32(), content.nullable_string(True))
                    )
                    content.skip_tags()
                content.finish()
    reader.finish()
    return answer


def _outcome(
    reader: Reader, version: int, flexible: bool, name: str, topic_id: bytes, records: Budget
) -> ProduceOutcome:
    log_start_offset = -1
    if version >= 5:
        partition, error_code, base_offset, log_append_time_ms, log_start_offset = reader.unpack(_OUTCOME_V5)
    else:
        partition, error_code, base_offset, log_append_time_ms = reader.unpack(_OUTCOME)
    outcome = ProduceOutcome(name, topic_id, partition, error_code, base_offset)
    outcome.log_append_time_ms = log_append_time_ms
    outcome.log_start_offset = log_start_offset
    if version >= 8:
        named = reader.count(flexible)
        if named:
            records.take(named)
            outcome.record_errors = reader.indexed_texts(named, flexible)
        outcome.error_message = reader.nullable_string(flexible)
    if flexible:
        for _ in range(reader.tag_count()):
            tag = reader.unsigned_varint()
            content = reader.field(reader.unsigned_varint())
            if tag == 0 and version >= 10:
                outcome.leader_id = content.int32()
                outcome.leader_epoch = content.int32()
                content.skip_tags()
                content.finish()
    return outcome
