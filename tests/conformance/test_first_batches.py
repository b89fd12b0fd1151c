"""The first batch of a producer at a partition, epochs, lost state. broker: 1"""

from __future__ import annotations

import pytest
from asker import Written
from conformance_targets import Target
from wire_batches import plain, sequenced, with_field

from aiokprod.wire.codes import ErrorCode as E
from aiokprod.wire.messages import delete_records as deletion

LAST_SEQUENCE = 2**31 - 1


def delete_everything(target: Target, topic: str) -> int:
    """Delete all records with DeleteRecords; return the new log start."""
    wanted = deletion.DeleteRecordsPartition(partition_index=0, offset=-1)
    request = deletion.DeleteRecordsRequest(
        topics=[deletion.DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=5000
    )
    answer = target.connect_to_leader(topic).ask(request, deletion.DeleteRecordsResponse, 2)
    assert answer.topics[0].partitions[0].error_code == 0
    return answer.topics[0].partitions[0].low_watermark


@pytest.mark.parametrize("first", [0, 1, 7, 1000, LAST_SEQUENCE])
def test_any_first_sequence_is_taken_without_state(target: Target, first: int) -> None:  # broker: 1.1
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    assert broker.produce(topic, plain(b"another's")) == (0, 0)
    assert broker.produce(topic, sequenced(pid, first)) == (0, 1)
    following = 0 if first == LAST_SEQUENCE else first + 1
    assert broker.produce(topic, sequenced(pid, following + 1)) == (E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert broker.produce(topic, sequenced(pid, following)) == (0, 2)


@pytest.mark.parametrize(("pid", "epoch"), [(123_456_789, 0), (123_456_790, 5)])
def test_a_producer_id_that_was_never_handed_out_may_write(target: Target, pid: int, epoch: int) -> None:  # broker: 1.2
    topic = target.new_topic()
    assert target.connect_to_leader(topic).produce(topic, sequenced(pid, 3, epoch=epoch)) == (0, 0)


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_newer_epoch_begins_at_sequence_0_and_fences_the_older(
    target: Target, epoch: int
) -> None:  # broker: 1.3, 1.5
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    assert broker.produce(topic, sequenced(pid, 0, 5)) == (0, 0)
    assert broker.produce(topic, sequenced(pid, 0, 2, epoch=epoch)) == (0, 5)
    assert broker.produce(topic, sequenced(pid, 5)) == (E.INVALID_PRODUCER_EPOCH, -1)
    assert broker.produce(topic, sequenced(pid, 0, 5)) == (E.INVALID_PRODUCER_EPOCH, -1)  # an exact copy
    assert broker.produce(topic, sequenced(pid, 0, 2, epoch=epoch)) == (0, 5)  # the resend is recognised


@pytest.mark.parametrize("first", [1, 5, 6])
def test_a_newer_epoch_that_does_not_begin_at_0_is_refused_and_fences_no_producer(
    target: Target, first: int
) -> None:  # broker: 1.4
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    assert broker.produce(topic, sequenced(pid, 0, 5)) == (0, 0)
    assert broker.produce(topic, sequenced(pid, first, epoch=1)) == (E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert broker.produce(topic, sequenced(pid, 5)) == (0, 5)


def test_deleting_all_records_forgets_no_producer(target: Target) -> None:  # broker: 1.8
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    assert broker.produce(topic, sequenced(pid, 0, 3)) == (0, 0)
    assert delete_everything(target, topic) == 3
    again = broker.produce_fully(topic, sequenced(pid, 0, 3))
    assert (again.error_code, again.base_offset, again.log_start_offset) == (0, 0, 3)
    assert broker.produce(topic, sequenced(pid, 9)) == (E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert broker.produce(topic, sequenced(pid, 3, epoch=1)) == (E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert broker.produce(topic, sequenced(pid, 3)) == (0, 3)


def test_a_topic_made_again_knows_no_producer(target: Target) -> None:  # broker: 1.9, 7.5
    topic = target.new_topic()
    pid = target.connect().new_producer_id()
    assert target.connect_to_leader(topic).produce(topic, sequenced(pid, 0, 3)) == (0, 0)
    target.recreate(topic)
    assert target.connect_to_leader(topic).produce(topic, sequenced(pid, 3)) == (0, 0)


def test_half_an_identity(target: Target) -> None:  # broker: 1.10
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    assert broker.produce(topic, sequenced(pid, -1)) == (E.INVALID_RECORD, -1)
    assert broker.produce(topic, sequenced(pid, 0, epoch=-1)) == (0, 0)
    assert broker.produce(topic, sequenced(-1, 0)) == (0, 1)


@pytest.mark.parametrize("epoch", [32766, 32767])
def test_epochs_may_run_to_their_end(target: Target, epoch: int) -> None:  # broker: 1.11
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    assert broker.produce(topic, sequenced(pid, 0, epoch=epoch)) == (0, 0)
    assert broker.produce(topic, sequenced(pid, 1, epoch=epoch)) == (0, 1)
    assert broker.produce(topic, sequenced(pid, 2, epoch=epoch - 1)) == Written(E.INVALID_PRODUCER_EPOCH, -1)


def test_a_transactional_batch_needs_a_transactional_id(target: Target) -> None:  # broker: 9.12
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    batch = with_field(sequenced(broker.new_producer_id(), 0), attributes=0x10)
    assert broker.produce(topic, batch) == (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)
