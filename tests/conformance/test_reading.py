"""Fetch, ListOffsets and DeleteRecords, as a simple reader uses them. broker: 1.8, 12"""

from __future__ import annotations

import time

import pytest
from asker import Asker
from conformance_targets import Target
from wire_batches import now_ms, plain

from aiokprod.records.decoder import decode_batches
from aiokprod.wire.codes import ErrorCode as E
from aiokprod.wire.messages import delete_records as deletion
from aiokprod.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from aiokprod.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

FETCH = 11
LATEST, EARLIEST, NEWEST_TIMESTAMP = -1, -2, -3
MISSING = "conform-no-such-topic"


def fetch(
    broker: Asker,
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_bytes: int = 1_000_000,
    min_bytes: int = 1,
    wait_ms: int = 0,
    epoch: int = -1,
    isolation: int = 0,
) -> PartitionData:
    asked = FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, current_leader_epoch=epoch
    )
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        isolation_level=isolation,
        topics=[FetchTopic(topic=topic, partitions=[asked])],
    )
    answer = broker.ask(request, FetchResponse, FETCH)
    assert (answer.error_code, answer.session_id, answer.throttle_time_ms) == (0, 0, 0)
    return answer.responses[0].partitions[0]


def values(data: PartitionData) -> list[bytes | None]:
    return [record.value for batch in decode_batches(data.records or b"") for record in batch.records()]


def list_offset(
    broker: Asker, topic: str, timestamp: int, *, partition: int = 0, version: int = 5, epoch: int = -1
) -> tuple[int, int, int, int]:
    """Return (code, offset, timestamp, leader epoch)."""
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    answer = broker.ask(request, ListOffsetsResponse, version).topics[0].partitions[0]
    return answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch


def delete_before(broker: Asker, topic: str, offset: int, partition: int = 0) -> tuple[int, int]:
    wanted = deletion.DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = deletion.DeleteRecordsRequest(
        topics=[deletion.DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=5000
    )
    answer = broker.ask(request, deletion.DeleteRecordsResponse, 1).topics[0].partitions[0]
    return answer.error_code, answer.low_watermark


def three_batches(target: Target) -> tuple[str, Asker]:
    """Write three batches: offsets 0..1, 2..3 and 4..5."""
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    for number in range(3):
        assert broker.produce(topic, plain(b"a%d" % number, b"b%d" % number)).code == 0
    return topic, broker


def test_a_fetch_gives_whole_batches_from_the_one_that_holds_the_offset(target: Target) -> None:  # broker: 16.1
    topic, broker = three_batches(target)
    data = fetch(broker, topic, 3)
    assert values(data) == [b"a1", b"b1", b"a2", b"b2"]
    assert (data.error_code, data.high_watermark, data.last_stable_offset, data.log_start_offset) == (0, 6, 6, 0)
    assert data.aborted_transactions in (None, [])
    assert data.preferred_read_replica == -1


def test_a_fetch_gives_one_batch_however_small_the_limit(target: Target) -> None:  # broker: 16.1
    topic, broker = three_batches(target)
    assert values(fetch(broker, topic, 0, max_bytes=1))[:2] == [b"a0", b"b0"]


def test_at_the_end_a_fetch_gives_nothing(target: Target) -> None:  # broker: 16.2
    topic, broker = three_batches(target)
    data = fetch(broker, topic, 6)
    assert (data.error_code, data.high_watermark, values(data)) == (0, 6, [])


def test_a_fetch_waits_for_records(target: Target) -> None:  # broker: 16.2
    topic, broker = three_batches(target)
    began = time.monotonic()
    assert values(fetch(broker, topic, 6, wait_ms=200)) == []
    assert 0.2 <= time.monotonic() - began < 4.0
    waiting = target.connect_to_leader(topic)
    asked = FetchPartition(partition=0, fetch_offset=6, partition_max_bytes=1000)
    request = FetchRequest(max_wait_ms=5000, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[asked])])
    waiting.send(request, FETCH)
    assert broker.produce(topic, plain(b"new")) == (0, 6)
    began = time.monotonic()
    answer = waiting.answer(FetchResponse, FetchRequest, FETCH)
    assert values(answer.responses[0].partitions[0]) == [b"new"]
    assert time.monotonic() - began < 4.0


@pytest.mark.parametrize("offset", [7, 1000, -1])
def test_a_fetch_out_of_range(target: Target, offset: int) -> None:  # broker: 16.3
    topic, broker = three_batches(target)
    data = fetch(broker, topic, offset)
    assert (data.error_code, data.high_watermark, data.records or b"") == (E.OFFSET_OUT_OF_RANGE, -1, b"")
    assert (data.last_stable_offset, data.log_start_offset) == (-1, -1)


def test_a_fetch_of_what_is_not_there(target: Target) -> None:  # broker: 16.3
    topic, broker = three_batches(target)
    for name, partition in ((MISSING, 0), (topic, 9)):
        data = fetch(broker, name, 0, partition=partition)
        assert (data.error_code, data.high_watermark) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_a_fetch_with_another_leader_epoch(target: Target) -> None:  # broker: 16.4
    topic, broker = three_batches(target)
    assert fetch(broker, topic, 0, epoch=0).error_code == 0
    assert fetch(broker, topic, 0, epoch=7).error_code == E.UNKNOWN_LEADER_EPOCH


def test_a_fetch_from_a_broker_without_replica(three: Target) -> None:  # broker: 16.4
    topic = three.new_topic()
    leader = three.state(topic).leader
    other = three.connect(next(node for node in (1, 2, 3) if node != leader))
    data = fetch(other, topic, 0)
    assert (data.error_code, data.high_watermark) == (E.NOT_LEADER_OR_FOLLOWER, -1)
    assert list_offset(other, topic, LATEST) == (E.NOT_LEADER_OR_FOLLOWER, -1, -1, -1)


def test_an_old_leader_epoch_is_fenced(three: Target) -> None:  # broker: 16.4
    topic = three.new_topic(replicas=2)
    state = three.state(topic)
    three.move_leader(topic, next(node for node in state.replicas if node != state.leader))
    broker = three.connect_to_leader(topic)
    assert fetch(broker, topic, 0, epoch=state.leader_epoch).error_code == E.FENCED_LEADER_EPOCH
    assert list_offset(broker, topic, LATEST, epoch=state.leader_epoch)[0] == E.FENCED_LEADER_EPOCH


def test_the_offsets_of_times(target: Target) -> None:  # broker: 16.5
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    start = now_ms() - 10_000
    for step in range(3):
        assert broker.produce(topic, plain(b"a", b"b", timestamp_ms=start + 100 * step)).code == 0
    assert list_offset(broker, topic, EARLIEST) == (0, 0, -1, 0)
    assert list_offset(broker, topic, LATEST) == (0, 6, -1, 0)
    assert list_offset(broker, topic, start) == (0, 0, start, 0)
    assert list_offset(broker, topic, start + 1) == (0, 2, start + 100, 0)
    assert list_offset(broker, topic, start + 200) == (0, 4, start + 200, 0)
    assert list_offset(broker, topic, start + 201) == (0, -1, -1, -1)
    assert list_offset(broker, topic, 0) == (0, 0, start, 0)


def test_the_offsets_of_an_empty_log(target: Target) -> None:  # broker: 16.5
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    assert list_offset(broker, topic, EARLIEST) == (0, 0, -1, 0)
    assert list_offset(broker, topic, LATEST) == (0, 0, -1, 0)
    assert list_offset(broker, topic, now_ms()) == (0, -1, -1, -1)


def test_the_newest_timestamp(three: Target) -> None:  # KIP-734  # broker: 16.6
    topic = three.new_topic()
    broker = three.connect_to_leader(topic)
    start = now_ms() - 10_000
    assert list_offset(broker, topic, NEWEST_TIMESTAMP, version=7) == (0, -1, -1, -1)
    for away in (0, 500, 100):
        assert broker.produce(topic, plain(b"a", timestamp_ms=start + away)).code == 0
    assert list_offset(broker, topic, NEWEST_TIMESTAMP, version=7) == (0, 1, start + 500, 0)


def test_the_offsets_of_what_is_not_there(target: Target) -> None:  # broker: 16.5
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    assert list_offset(broker, MISSING, LATEST) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)
    assert list_offset(broker, topic, LATEST, partition=9) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)
    assert list_offset(broker, topic, LATEST, epoch=9) == (E.UNKNOWN_LEADER_EPOCH, -1, -1, -1)


def test_deleting_records(target: Target) -> None:  # broker: 1.8, 16.7
    topic, broker = three_batches(target)
    assert delete_before(broker, topic, 3) == (0, 3)
    assert delete_before(broker, topic, 1) == (0, 3), "what is gone is gone"
    assert list_offset(broker, topic, EARLIEST) == (0, 3, -1, 0)
    assert fetch(broker, topic, 2).error_code == E.OFFSET_OUT_OF_RANGE
    data = fetch(broker, topic, 3)
    assert (data.error_code, data.log_start_offset) == (0, 3)
    assert values(data) == [b"a1", b"b1", b"a2", b"b2"], "batches are given whole"
    assert delete_before(broker, topic, 7) == (E.OFFSET_OUT_OF_RANGE, -1)
    assert delete_before(broker, topic, -2) == (E.OFFSET_OUT_OF_RANGE, -1)
    assert delete_before(broker, topic, -1) == (0, 6)
    assert broker.produce_fully(topic, plain()).log_start_offset == 6


def test_deleting_records_of_what_is_not_there(target: Target) -> None:  # broker: 16.7
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    assert delete_before(broker, MISSING, 0) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete_before(broker, topic, 0, partition=9) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_records_of_a_compacted_topic_are_not_deleted(target: Target) -> None:  # broker: 16.7
    topic = target.new_topic(cleanup_policy="compact")
    broker = target.connect_to_leader(topic)
    assert delete_before(broker, topic, 0) == (E.POLICY_VIOLATION, -1)


def test_what_is_stored_has_offset_and_leader_epoch(target: Target) -> None:  # broker: 16.8
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    sent = plain(b"a", b"b")
    for _ in range(2):
        assert broker.produce(topic, sent).code == 0
    stored = fetch(broker, topic, 0).records or b""
    second = stored[len(sent) :]
    assert second[8:12] == sent[8:12]
    assert (second[:8], second[12:16]) == ((2).to_bytes(8, "big"), bytes(4)), "base offset 2, leader epoch 0"
    assert second[16:] == sent[16:], "all else is as it was sent"


def test_on_log_append_time_topics_the_stored_batch_says_so(target: Target) -> None:  # broker: 13.8, 16.8
    topic = target.new_topic(message_timestamp_type="LogAppendTime")
    broker = target.connect_to_leader(topic)
    answer = broker.produce_fully(topic, plain(b"a", b"b", timestamp_ms=77))
    stored = fetch(broker, topic, 0).records or b""
    assert int.from_bytes(stored[21:23], "big") == 0x08
    assert int.from_bytes(stored[35:43], "big") == answer.log_append_time_ms, "max timestamp"
    assert int.from_bytes(stored[27:35], "big") == 77, "base timestamp"
