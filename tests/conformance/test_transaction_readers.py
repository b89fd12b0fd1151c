"""Transactions: what readers see of them, and offsets that belong to them. broker: 12, 19"""

from __future__ import annotations

import time
from collections.abc import Iterator
from struct import unpack

import pytest
from conformance_clusters import KAFKA, MOCK, OF_2_8, OF_3_9, OLDER_TRANSACTIONS, for_one_case
from conformance_targets import Target
from test_reading import LATEST, fetch, list_offset, values
from transactor import (
    NEW,
    NOT_YET,
    OLD,
    PATIENCE_S,
    READ_COMMITTED,
    TRANSACTIONAL,
    VERIFIED,
    VERSION_1,
    Transactor,
    opened,
    stable_offset,
    until_stable,
)
from wire_batches import plain

from aiokprod.records.decoder import decode_batches
from aiokprod.wire.codes import ErrorCode as E
from aiokprod.wire.messages import offset_fetch as fetching


@pytest.fixture(params=[MOCK, KAFKA, *OF_3_9, *OF_2_8, *OLDER_TRANSACTIONS])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from for_one_case(request)


# ---------------------------------------------------------------------- what readers see


def test_an_open_transaction_holds_readers_back(target: Target) -> None:  # broker: 12.1
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    assert broker.produce(topic, plain(b"before")) == (0, 0)
    it = opened(target, topic)
    assert broker.produce(topic, plain(b"behind")) == (0, 2)
    assert list_offset(broker, topic, LATEST) == (0, 3, -1, 0)
    assert stable_offset(target, topic) == 1
    committed = fetch(broker, topic, 0, isolation=READ_COMMITTED)
    assert (committed.high_watermark, committed.last_stable_offset, values(committed)) == (3, 1, [b"before"])
    everything = fetch(broker, topic, 0)
    assert (everything.last_stable_offset, values(everything)) == (1, [b"before", b"v", b"behind"])
    it.finish(True)
    until_stable(target, topic, 4)


def test_an_aborted_transaction_is_named_to_readers(target: Target) -> None:  # broker: 12.2, 12.4
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    assert broker.produce(topic, plain(b"before")) == (0, 0)
    it = opened(target, topic, records=2)
    pid, epoch = it.pid, it.epoch
    it.finish(False)
    until_stable(target, topic, 4)
    data = fetch(broker, topic, 0, isolation=READ_COMMITTED)
    assert [(each.producer_id, each.first_offset) for each in data.aborted_transactions or []] == [(pid, 1)]
    batches = list(decode_batches(data.records or b""))
    assert [(each.base_offset, each.producer_id) for each in batches] == [(0, -1), (1, pid), (3, pid)]
    marker = batches[-1]
    assert marker.attributes == TRANSACTIONAL | 0x20
    assert marker.producer_epoch == target.by_rules({OLD: epoch, NEW: epoch + 1})
    (record,) = marker.records()
    assert record.key == b"\0\0\0\0", "abort"
    assert record.value is not None
    version, coordinator_epoch = unpack(">hi", record.value)
    assert version == 0
    assert coordinator_epoch >= 0  # it grows with each broker that was killed before this case
    assert fetch(broker, topic, 0).aborted_transactions in (None, [])
    assert [
        each.producer_id for each in fetch(broker, topic, 3, isolation=READ_COMMITTED).aborted_transactions or []
    ] in (
        [pid],
        [],
    )


# ---------------------------------------------------------------------- offsets


def committed_offset(target: Target, group: str, topic: str) -> tuple[int, int]:
    """Return (code, offset) of partition 0."""
    it = Transactor(target)
    broker = it.find(group, kind=0)
    asked = fetching.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
    request = fetching.OffsetFetchRequest(group_id=group, topics=[asked], require_stable=True)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = broker.ask(request, fetching.OffsetFetchResponse, 7)
        if answer.error_code not in NOT_YET or time.monotonic() > deadline:
            (said,) = answer.topics[0].partitions
            return said.error_code, said.committed_offset
        time.sleep(0.02)


def test_offsets_are_committed_with_the_transaction(target: Target) -> None:  # broker: 19.2
    topic = target.new_topic()
    it = Transactor(target).begin()
    group = f"group-{it.id}"
    assert committed_offset(target, group, topic) == (0, -1)
    assert it.add_offsets(group) == 0
    assert it.commit_offset(group, topic, 42) == 0
    assert committed_offset(target, group, topic) == (E.UNSTABLE_OFFSET_COMMIT, -1)
    it.finish(True)
    deadline = time.monotonic() + PATIENCE_S
    while committed_offset(target, group, topic)[0] != 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert committed_offset(target, group, topic) == (0, 42)


def test_offsets_of_an_aborted_transaction_are_forgotten(target: Target) -> None:  # broker: 19.2
    topic = target.new_topic()
    it = Transactor(target).begin()
    group = f"group-{it.id}"
    assert it.add_offsets(group) == 0
    assert it.commit_offset(group, topic, 42) == 0
    it.finish(False)
    deadline = time.monotonic() + PATIENCE_S
    while committed_offset(target, group, topic)[0] != 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert committed_offset(target, group, topic) == (0, -1)


def test_offsets_of_a_group_that_was_not_added(target: Target) -> None:  # broker: 10.2
    newest = target.by_rules({OLD: 3, VERIFIED: 4, VERSION_1: 5})
    got = {}
    for version in range(3, newest + 1):
        it = Transactor(target).begin()
        got[version] = it.commit_offset(f"group-{it.id}", target.new_topic(), 1, version=version)
    assert got == target.by_rules(
        {
            OLD: {3: 0},
            VERIFIED: {3: E.INVALID_TXN_STATE, 4: E.TRANSACTION_ABORTABLE},
            VERSION_1: {3: E.INVALID_TXN_STATE, 4: E.TRANSACTION_ABORTABLE, 5: 0},
        }
    )
