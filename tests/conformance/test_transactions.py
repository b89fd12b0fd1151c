"""Transactions: what may be written, how they end, what readers see. broker: 10, 11, 12"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from asker import Written, produce_request
from conformance_clusters import KAFKA, MOCK, OF_2_8, OF_3_9, OLDER_TRANSACTIONS, for_one_case
from conformance_targets import Target
from test_reading import LATEST, fetch, list_offset, values
from transactor import NOT_YET, TRANSACTIONAL, Identity, Transactor
from wire_batches import plain, sequenced, with_field

from aiokprod.records.decoder import decode_batches
from aiokprod.wire.codes import ErrorCode as E
from aiokprod.wire.messages import offset_fetch as fetching
from aiokprod.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

READ_COMMITTED = 1
PATIENCE_S = 10.0
OUT_OF_ORDER = Written(E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)

OLD, VERIFIED, VERSION_1, NEW = (2, 8), (3, 9), (3, 9, 1), (4, 0)
"""2.8 verifies nothing; 3.9 asks the coordinator, as does 4.3 with transaction.version 0; with 1 it adds partitions by
itself to v12; with 2, a new 4.x cluster, each end bumps the epoch (KIP-890)."""


@pytest.fixture(params=[MOCK, KAFKA, *OF_3_9, *OF_2_8, *OLDER_TRANSACTIONS])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from for_one_case(request)


@pytest.fixture(params=OLDER_TRANSACTIONS[2:])
def version_0(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from for_one_case(request)


@pytest.fixture(params=OLDER_TRANSACTIONS[:2])
def version_1(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from for_one_case(request)


def opened(target: Target, topic: str, records: int = 1) -> Transactor:
    """A transaction with one batch in it, the partition added as this version needs it."""
    it = Transactor(target).begin()
    add_if_needed(it, topic)
    assert it.write(topic, 0, records).code == 0
    return it


def add_if_needed(it: Transactor, topic: str) -> None:
    if it.target.rules < NEW:
        assert it.add((topic, 0)) == {(topic, 0): 0}


def stable_offset(target: Target, topic: str) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=LATEST, current_leader_epoch=-1)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=READ_COMMITTED, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
    )
    answer = target.connect_to_leader(topic).ask(request, ListOffsetsResponse, 5)
    return answer.topics[0].partitions[0].offset


def until_stable(target: Target, topic: str, offset: int) -> None:
    """Markers are written after EndTxn is answered (broker: 12.3)."""
    deadline = time.monotonic() + PATIENCE_S
    while stable_offset(target, topic) != offset and time.monotonic() < deadline:
        time.sleep(0.01)
    assert stable_offset(target, topic) == offset


# ---------------------------------------------------------------------- writing


def test_a_partition_that_was_not_added(target: Target) -> None:  # broker: 10.1
    topics = {version: target.new_topic() for version in (9, 11, 12)}
    got = {version: Transactor(target).begin().write(topic, 0, version=version).code
           for version, topic in topics.items() if version <= target.produce_version}  # fmt: skip
    assert got == target.by_rules(
        {
            OLD: {9: 0},
            VERIFIED: {9: E.INVALID_TXN_STATE, 11: E.TRANSACTION_ABORTABLE},
            VERSION_1: {9: E.INVALID_TXN_STATE, 11: E.TRANSACTION_ABORTABLE, 12: 0},
        }
    )


def test_the_first_sequence_of_a_transaction(target: Target) -> None:  # broker: 1.7
    got = {}
    for version in (9, 11, 12):
        if version <= target.produce_version:
            topic = target.new_topic()
            it = Transactor(target).begin()
            it.add((topic, 0))
            got[version] = it.write(topic, 7, version=version)
    assert got == target.by_rules(
        {OLD: {9: (0, 0)}, VERIFIED: {9: (0, 0), 11: (0, 0)}, VERSION_1: {9: (0, 0), 11: (0, 0), 12: OUT_OF_ORDER}}
    )


def test_a_duplicate_inside_a_transaction_is_recognised(target: Target) -> None:  # broker: 10.8
    topic = target.new_topic()
    it = opened(target, topic, records=3)
    assert it.write(topic, 0, 3) == (0, 0)
    assert it.write(topic, 3) == (0, 3)
    it.finish(True)


def test_after_a_gap_the_transaction_may_be_committed_all_the_same(target: Target) -> None:  # broker: 3.2
    topic = target.new_topic()
    it = opened(target, topic)
    assert it.write(topic, 5) == OUT_OF_ORDER
    assert it.end(True).code == 0


def test_acks_1_is_taken_in_a_transaction(target: Target) -> None:  # broker: 10.9c
    topic = target.new_topic()
    it = opened(target, topic)
    assert it.write(topic, 1, acks=1) == (0, 1)
    it.finish(True)


def test_a_good_and_an_unknown_partition(target: Target) -> None:  # broker: 10.9
    topic = target.new_topic()
    it = Transactor(target).begin()
    codes = it.add((topic, 0), (topic, 9))
    assert codes == {(topic, 0): E.OPERATION_NOT_ATTEMPTED, (topic, 9): E.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_plain_batch_of_a_producer_with_an_open_transaction(target: Target) -> None:  # broker: 9.12
    topic = target.new_topic()
    it = opened(target, topic)
    mixed = target.connect_to_leader(topic).produce(topic, sequenced(it.pid, 1, epoch=it.epoch))
    assert mixed == (E.INVALID_TXN_STATE, -1)
    it.finish(False)


def test_a_transactional_batch_without_transactional_id(target: Target) -> None:  # broker: 9.12
    topic = target.new_topic()
    it = Transactor(target).begin()
    broker = target.connect_to_leader(topic)
    assert broker.produce(topic, it.batch(0)) == (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)
    batches = {(topic, 0): plain(), ("conform-no-such-topic", 0): it.batch(0)}
    broker.send(produce_request(batches), broker.produce_version)
    answer = broker.produce_answer()
    codes = {topic.partition_responses[0].error_code for topic in answer.responses}
    assert codes == {E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}, "the whole request"


@pytest.mark.parametrize("how", ["Produce v12", "TxnOffsetCommit v5", "EndTxn v5"])
def test_a_request_above_the_finalized_version_wedges_the_id(version_0: Target, how: str) -> None:
    # broker: 10.1, 10.2, 10.3a
    topic = version_0.new_topic()
    it = Transactor(version_0).begin()
    match how:
        case "Produce v12":
            code = it.write(topic, 0, version=12).code
        case "TxnOffsetCommit v5":
            code = it.commit_offset(f"group-{it.id}", topic, 1, version=5)
        case _:
            code = it.end(False, version=5).code
    assert code == E.UNSUPPORTED_VERSION
    assert it.add_once((topic, 0)) == {(topic, 0): E.CONCURRENT_TRANSACTIONS}
    assert it.init_once() == Identity(E.CONCURRENT_TRANSACTIONS, -1, -1)


# ---------------------------------------------------------------------- how it ends


def test_commit(target: Target) -> None:  # broker: 10.3, 10.3b
    topic = target.new_topic()
    it = opened(target, topic)
    bumped = Identity(0, it.pid, it.epoch + 1)
    assert it.end(True) == target.by_rules({OLD: Identity(0, -1, -1), NEW: bumped})
    until_stable(target, topic, 2)
    if target.rules >= NEW:
        it.epoch += 1
        assert it.write(topic, 1) == OUT_OF_ORDER
        assert it.write(topic, 0) == (0, 2)
    else:
        add_if_needed(it, topic)
        assert it.write(topic, 1) == (0, 2)
    it.finish(True)
    until_stable(target, topic, 4)


@pytest.mark.parametrize("committed", [True, False])
def test_the_same_end_may_be_asked_for_again_and_the_other_one_not(target: Target, committed: bool) -> None:
    # broker: 10.4, 10.4b
    topic = target.new_topic()
    it = opened(target, topic)
    first = it.end(committed)
    assert first.code == 0
    assert it.end(committed) == first
    assert it.end(committed) == first
    assert it.end(not committed).code == E.INVALID_TXN_STATE


def test_end_txn_v5_with_the_first_version(version_1: Target) -> None:  # broker: 10.3
    topic = version_1.new_topic()
    it = opened(version_1, topic)
    assert it.end(True, version=5) == Identity(0, it.pid, it.epoch + 1)


def test_an_empty_transaction(target: Target) -> None:  # broker: 10.5, 10.5b
    topic = target.new_topic()
    fresh, aborted = Transactor(target).begin(), Transactor(target).begin()
    used = opened(target, topic)
    used.finish(True)
    got = {
        "commit, fresh": fresh.end(True).code,
        "commit, after a commit": used.end(True).code,
        "abort, fresh": aborted.end(False),
    }
    assert got == target.by_rules(
        {
            OLD: {
                "commit, fresh": E.INVALID_TXN_STATE,
                "commit, after a commit": 0,
                "abort, fresh": Identity(E.INVALID_TXN_STATE, -1, -1),
            },
            NEW: {
                "commit, fresh": E.INVALID_TXN_STATE,
                "commit, after a commit": E.INVALID_TXN_STATE,
                "abort, fresh": Identity(0, aborted.pid, aborted.epoch + 1),
            },
        }
    )


def test_a_late_commit_of_the_transaction_before(target: Target) -> None:  # broker: 10.4c
    topic = target.new_topic()
    it = opened(target, topic)
    pid, epoch = it.pid, it.epoch
    it.finish(True)
    add_if_needed(it, topic)
    assert it.write(topic, 0 if target.rules >= NEW else 1).code == 0
    late = it.end(True, pid=pid, epoch=epoch).code
    assert late == target.by_rules({OLD: 0, NEW: E.PRODUCER_FENCED})


def test_a_late_write_of_the_transaction_before(three: Target) -> None:  # broker: 10.4d
    topic = three.new_topic()
    it = opened(three, topic)
    epoch = it.epoch
    it.finish(True)
    until_stable(three, topic, 2)
    assert it.write(topic, 1, epoch=epoch) == (E.INVALID_PRODUCER_EPOCH, -1)
    assert it.write(topic, 0) == (0, 2)
    assert it.write(topic, 1, epoch=epoch) == (E.INVALID_PRODUCER_EPOCH, -1)
    it.finish(True)


def test_who_initialises_while_a_transaction_is_open_aborts_it(target: Target) -> None:  # broker: 9.8
    topic = target.new_topic()
    it = opened(target, topic)
    first = it.init_once()
    assert first.code in (E.CONCURRENT_TRANSACTIONS, 0), "it takes a moment"
    assert it.init() == Identity(0, it.pid, it.epoch + 2) if first.code else first
    until_stable(target, topic, 2)
    data = fetch(target.connect_to_leader(topic), topic, 0, isolation=READ_COMMITTED)
    assert [(each.producer_id, each.first_offset) for each in data.aborted_transactions or []] == [(it.pid, 0)]


def test_a_bump_while_a_transaction_is_open(target: Target) -> None:  # broker: 9.9
    topic = target.new_topic()
    it = opened(target, topic)
    answer = it.init(it.pid, it.epoch)
    assert answer == target.by_rules({OLD: Identity(E.PRODUCER_FENCED, -1, -1), NEW: Identity(0, it.pid, 1)})


def test_a_stranger_may_end_it(target: Target) -> None:  # broker: 11.1, 11.2, 11.5
    topic = target.new_topic()
    it = opened(target, topic)
    stranger = Transactor(target, it.id)
    stranger.pid, stranger.epoch = it.pid, it.epoch
    assert stranger.end(True, epoch=it.epoch + 1).code == E.PRODUCER_FENCED
    first = stranger.end(True)
    assert first.code == 0
    assert stranger.end(True) == first
    assert stranger.end(False).code == E.INVALID_TXN_STATE


def test_who_goes_on_after_a_strangers_commit(since_3_9: Target) -> None:  # broker: 11.4, 11.6
    topic = since_3_9.new_topic()
    it = opened(since_3_9, topic)
    stranger = Transactor(since_3_9, it.id)
    stranger.pid, stranger.epoch = it.pid, it.epoch
    assert stranger.end(True).code == 0
    until_stable(since_3_9, topic, 2)
    expected = since_3_9.by_rules({VERIFIED: E.TRANSACTION_ABORTABLE, NEW: E.INVALID_PRODUCER_EPOCH})
    assert it.write(topic, 1) == (expected, -1)
    Transactor(since_3_9, it.id).begin()
    assert stranger.end(True).code == E.PRODUCER_FENCED


def test_one_request_with_an_unknown_partition_in_the_middle(target: Target) -> None:  # broker: 10.9b
    topic = target.new_topic(partitions=2)
    leader = target.state(topic, 0).leader
    it = Transactor(target).begin()
    if target.rules < NEW:
        it.add((topic, 0))
    broker = target.connect(leader)
    request = produce_request({(topic, 0): it.batch(0), (topic, 9): it.batch(0)})
    request.transactional_id = it.id
    broker.send(request, broker.produce_version)
    (said,) = broker.produce_answer().responses
    codes = {each.index: each.error_code for each in said.partition_responses}
    assert codes == {0: 0, 9: E.UNKNOWN_TOPIC_OR_PARTITION}
    it.finish(True)
    until_stable(target, topic, 2)


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
    assert (record.key, record.value) == (b"\0\0\0\0", b"\0\0\0\0\0\0"), "abort, by coordinator epoch 0"
    assert fetch(broker, topic, 0).aborted_transactions in (None, [])
    assert [
        each.producer_id for each in fetch(broker, topic, 3, isolation=READ_COMMITTED).aborted_transactions or []
    ] in (
        [pid],
        [],
    )


# ---------------------------------------------------------------------- offsets


def committed_offset(target: Target, group: str, topic: str) -> tuple[int, int]:
    """(code, offset) of partition 0."""
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


# ---------------------------------------------------------------------- timeouts


def test_a_transaction_that_takes_too_long_is_aborted(alone: Target) -> None:  # broker: 10.7
    topic = alone.new_topic()
    it = Transactor(alone, timeout_ms=500).begin()
    add_if_needed(it, topic)
    assert it.write(topic, 0) == (0, 0)
    until_stable(alone, topic, 2)
    told = {
        "Produce": it.write(topic, 1).code,
        "AddPartitionsToTxn": it.add((topic, 0))[topic, 0],
        "AddOffsetsToTxn": it.add_offsets("group"),
        "EndTxn, commit": it.end(True).code,
        "EndTxn, abort": it.end(False),
        "InitProducerId": it.init(it.pid, it.epoch),
    }
    assert told == alone.by_rules(
        {
            OLD: {
                "Produce": E.INVALID_PRODUCER_EPOCH,
                "AddPartitionsToTxn": E.PRODUCER_FENCED,
                "AddOffsetsToTxn": E.PRODUCER_FENCED,
                "EndTxn, commit": E.PRODUCER_FENCED,
                "EndTxn, abort": Identity(E.PRODUCER_FENCED, -1, -1),
                "InitProducerId": Identity(E.PRODUCER_FENCED, -1, -1),
            },
            NEW: {
                "Produce": E.INVALID_PRODUCER_EPOCH,
                "AddPartitionsToTxn": E.PRODUCER_FENCED,
                "AddOffsetsToTxn": E.PRODUCER_FENCED,
                "EndTxn, commit": E.INVALID_TXN_STATE,
                "EndTxn, abort": Identity(0, it.pid, it.epoch + 1),
                "InitProducerId": Identity(0, it.pid, it.epoch + 1),
            },
        }
    )


def test_a_plain_batch_with_the_bit_of_a_transaction(target: Target) -> None:  # broker: 9.12
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    assert broker.produce(topic, with_field(plain(), attributes=TRANSACTIONAL)).code == (
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
