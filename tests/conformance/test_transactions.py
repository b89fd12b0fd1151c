"""Transactions: what may be written, and how they end. broker: 10, 11"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from asker import Written, produce_request
from conformance_clusters import KAFKA, MOCK, OF_2_8, OF_3_9, OLDER_TRANSACTIONS, for_one_case
from conformance_targets import Target
from test_reading import fetch
from transactor import (
    NEW,
    OLD,
    READ_COMMITTED,
    TRANSACTIONAL,
    VERIFIED,
    VERSION_1,
    Identity,
    Transactor,
    add_if_needed,
    opened,
    until_stable,
)
from wire_batches import plain, sequenced, with_field

from aiokprod.wire.codes import ErrorCode as E

OUT_OF_ORDER = Written(E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


@pytest.fixture(params=[MOCK, KAFKA, *OF_3_9, *OF_2_8, *OLDER_TRANSACTIONS])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from for_one_case(request)


@pytest.fixture(params=OLDER_TRANSACTIONS[2:])
def version_0(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from for_one_case(request)


@pytest.fixture(params=OLDER_TRANSACTIONS[:2])
def version_1(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from for_one_case(request)


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


def test_initialising_while_a_transaction_is_open_aborts_it(target: Target) -> None:  # broker: 9.8
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


def test_a_bump_asked_for_with_an_old_epoch_aborts_what_is_open(target: Target) -> None:  # broker: 9.9a
    topic = target.new_topic()
    old = Transactor(target).begin()
    it = Transactor(target, old.id).begin()
    if target.rules < NEW:
        it.add((topic, 0))
    assert it.write(topic, 0).code == 0
    assert old.init(old.pid, old.epoch) == Identity(E.PRODUCER_FENCED, -1, -1)
    assert it.end(True).code in (E.INVALID_TXN_STATE, E.PRODUCER_FENCED)
    until_stable(target, topic, 2)
    data = fetch(target.connect_to_leader(topic), topic, 0, isolation=READ_COMMITTED)
    assert [(each.producer_id, each.first_offset) for each in data.aborted_transactions or []] == [(it.pid, 0)]


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


def test_a_client_goes_on_after_a_strangers_commit(since_3_9: Target) -> None:  # broker: 11.4, 11.6
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
