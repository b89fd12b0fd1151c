"""Open transactions as leaders describe them, and markers that an operator writes (KIP-664). broker: 11"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance_clusters import KAFKA, MOCK, OF_2_8, OF_3_9, OLDER_TRANSACTIONS, for_one_case
from conformance_targets import Target
from transactor import Transactor, opened, stable_offset, until_stable
from wire_batches import plain

from aiokprod.wire.codes import ErrorCode as E
from aiokprod.wire.messages import describe_producers as producers
from aiokprod.wire.messages import write_txn_markers as markers

NO_MARKER = -1


@pytest.fixture(params=[MOCK, KAFKA, *OF_3_9, *OF_2_8, *OLDER_TRANSACTIONS])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from for_one_case(request)


def described(target: Target, topic: str, partition: int = 0, node: int | None = None) -> producers.PartitionResponse:
    broker = target.connect_to_leader(topic) if node is None else target.connect(node)
    request = producers.DescribeProducersRequest(topics=[producers.TopicRequest(topic, [partition])])
    answer = broker.ask(request, producers.DescribeProducersResponse, 0)
    return answer.topics[0].partitions[0]


def marked(
    target: Target,
    topic: str,
    it: Transactor,
    *,
    epoch: int | None = None,
    partition: int = 0,
    coordinator_epoch: int = 0,
    version: int = 1,
) -> int:
    """Write an ABORT marker; return the code."""
    marker = markers.WritableTxnMarker(
        producer_id=it.pid,
        producer_epoch=it.epoch if epoch is None else epoch,
        topics=[markers.WritableTxnMarkerTopic(topic, [partition])],
        coordinator_epoch=coordinator_epoch,
    )
    request = markers.WriteTxnMarkersRequest(markers=[marker])
    answer = target.connect_to_leader(topic).ask(request, markers.WriteTxnMarkersResponse, version)
    assert [result.producer_id for result in answer.markers] == [it.pid]
    return answer.markers[0].topics[0].partitions[0].error_code


def test_an_open_transaction_is_described_with_its_first_offset(target: Target) -> None:  # broker: 11.10
    topic = target.new_topic()
    assert target.connect_to_leader(topic).produce(topic, plain(b"before")) == (0, 0)
    assert described(target, topic).active_producers == []
    it = opened(target, topic, records=2)
    (found,) = described(target, topic).active_producers
    assert (found.producer_id, found.producer_epoch, found.last_sequence) == (it.pid, it.epoch, 1)
    assert (found.current_txn_start_offset, found.coordinator_epoch) == (1, NO_MARKER)
    assert found.last_timestamp > 0
    it.finish(True)
    until_stable(target, topic, 4)
    (found,) = described(target, topic).active_producers
    assert (found.producer_id, found.current_txn_start_offset) == (it.pid, -1)
    assert found.coordinator_epoch >= 0


def test_partitions_that_cannot_be_described(target: Target) -> None:  # broker: 11.10
    topic = target.new_topic()
    assert described(target, topic, partition=7).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert described(target, "missing", node=1).error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_a_marker_of_an_operator_ends_a_transaction_in_its_partition(target: Target) -> None:  # broker: 11.11
    topic = target.new_topic()
    it = opened(target, topic)
    assert target.connect_to_leader(topic).produce(topic, plain(b"behind")) == (0, 1)
    assert stable_offset(target, topic) == 0
    assert marked(target, topic, it, partition=7) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert stable_offset(target, topic) == 0
    assert marked(target, topic, it) == 0
    until_stable(target, topic, 3)
    (found,) = described(target, topic).active_producers
    assert (found.current_txn_start_offset, found.coordinator_epoch) == (-1, 0)
    # The coordinator has heard nothing of it.
    assert it.end(False).code == 0
