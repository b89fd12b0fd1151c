"""Rules that a broker's own settings decide: topics it creates by itself, requests it takes, producers it forgets."""

from __future__ import annotations

import struct
import time
import uuid

from asker import Asker, Written
from conformance_clusters import SMALL_REQUESTS_BYTES
from conformance_targets import Target
from wire_batches import batch, now_ms, of_size, plain, sequenced

from aiokprod.wire.codes import ErrorCode as E
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

OUT_OF_ORDER = Written(E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
HOUR_MS = 3_600_000


def fresh_name() -> str:
    return f"conform-{uuid.uuid4().hex[:12]}"


def code_of(broker: Asker, name: str, create: bool) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=create)
    (topic,) = broker.ask(request, MetadataResponse, 9).topics
    return topic.error_code


# ---------------------------------------------------------------------- auto.create.topics.enable


def test_metadata_creates_a_topic_if_it_may(alone: Target) -> None:  # broker: 8.4
    broker, name = alone.connect(), fresh_name()
    assert [code_of(broker, name, create=False) for _ in range(2)] == [E.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert code_of(broker, name, create=True) != 0
    deadline = time.monotonic() + 10
    while code_of(broker, name, create=False) != 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert code_of(broker, name, create=False) == 0
    assert len(alone.admin.end_offsets(name)) == 1


def test_the_answer_that_has_created_a_topic_does_not_know_it_yet(looking: Target) -> None:  # broker: 8.4
    assert code_of(looking.connect(), fresh_name(), create=True) == E.UNKNOWN_TOPIC_OR_PARTITION


def test_produce_creates_no_topic(alone: Target) -> None:  # broker: 8.5
    broker, name = alone.connect(), fresh_name()
    assert broker.produce(name, plain()) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert code_of(broker, name, create=False) == E.UNKNOWN_TOPIC_OR_PARTITION


# ---------------------------------------------------------------------- socket.request.max.bytes


def test_a_request_may_be_as_large_as_the_limit(alone: Target) -> None:  # broker: 13.2
    topic = alone.new_topic(max_message_bytes=str(4 * SMALL_REQUESTS_BYTES))
    broker = alone.connect_to_leader(topic)
    assert broker.produce(topic, of_size(SMALL_REQUESTS_BYTES - 1000)) == (0, 0)
    broker.send_bytes(struct.pack(">i", SMALL_REQUESTS_BYTES + 1))
    assert broker.is_closed()


# ---------------------------------------------------------------------- what is remembered of producers


def test_records_of_the_day_before_yesterday_leave_no_producer_behind(looking: Target) -> None:  # broker: 1.6, 1.12
    created, stamped = looking.new_topic(), looking.new_topic(message_timestamp_type="LogAppendTime")
    broker = looking.connect_to_leader(created)
    now = now_ms()
    cases = {"25 h": now - 25 * HOUR_MS, "none": -1, "23 h": now - 23 * HOUR_MS, "now": now}
    pids = {name: broker.new_producer_id() for name in cases}
    batches = {name: sequenced(pids[name], 0, timestamp_ms=at) for name, at in cases.items()}
    first = {name: broker.produce(created, made) for name, made in batches.items()}
    assert [written.code for written in first.values()] == [0] * 4
    assert broker.produce(stamped, batches["25 h"]) == (0, 0)
    forgotten: set[str] = set()
    deadline = time.monotonic() + 10
    while forgotten != {"25 h", "none"} and time.monotonic() < deadline:
        time.sleep(0.1)
        for name in ("25 h", "none"):
            if broker.produce(created, batches[name]) != first[name]:
                forgotten.add(name)
    assert forgotten == {"25 h", "none"}
    time.sleep(0.7)  # one more look of the broker
    assert {name: broker.produce(created, batches[name]) for name in ("23 h", "now")} == {
        name: first[name] for name in ("23 h", "now")
    }
    assert broker.produce(stamped, batches["25 h"]) == (0, 0), "the append time counts"
    # Any sequence is a first one again, also a gap, also of an older epoch.
    assert broker.produce(created, sequenced(pids["25 h"], 9, epoch=1, timestamp_ms=cases["25 h"])).code == 0


def test_a_restart_leaves_one_batch_of_a_producer_and_nothing_of_old_ones(alone: Target) -> None:  # broker: 1.13, 2.6
    topic = alone.new_topic()
    broker = alone.connect_to_leader(topic)
    fresh, old = broker.new_producer_id(), broker.new_producer_id()
    for number in range(6):
        assert broker.produce(topic, sequenced(fresh, number)) == (0, number)
    week_old = now_ms() - 8 * 24 * HOUR_MS
    long_ago = batch(b"v", pid=old, epoch=0, first=0, timestamp_ms=week_old)
    assert broker.produce(topic, long_ago) == (0, 6)
    with alone.stopped(1):
        assert broker.is_closed()
    alone.admin.wait_all_in_sync(topic)
    alone.admin.end_offsets(topic)
    broker = alone.connect_to_leader(topic)
    again = [broker.produce(topic, sequenced(fresh, number)) for number in range(6)]
    assert again == [OUT_OF_ORDER] * 5 + [(0, 5)]
    assert broker.produce(topic, sequenced(fresh, 6)) == (0, 7)
    assert broker.produce(topic, long_ago) == (0, 8), "written twice"
