"""InitProducerId with a transactional id, and fencing. broker: 9"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance_clusters import KAFKA, MOCK, OF_2_8, OF_3_9, OLDER_TRANSACTIONS, for_one_case
from conformance_targets import Target
from transactor import Identity, Transactor

from aiokprod.wire.codes import ErrorCode as E
from aiokprod.wire.messages import find_coordinator as finding
from aiokprod.wire.messages import init_producer_id as initialising

MAX_TIMEOUT_MS = 900_000


@pytest.fixture(params=[MOCK, KAFKA, *OF_3_9, *OF_2_8, *OLDER_TRANSACTIONS])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from for_one_case(request)


def test_each_initialisation_bumps_the_epoch(target: Target) -> None:  # broker: 9.3
    it = Transactor(target)
    first, second = it.init(), it.init()
    assert first == Identity(0, first.pid, 0)
    assert second == Identity(0, first.pid, 1)


def test_a_bump_asked_for_with_the_current_pair_may_be_repeated(target: Target) -> None:  # broker: 9.4
    it = Transactor(target).begin()
    answers = [it.init(it.pid, 0), it.init(it.pid, 0)]
    assert answers == [Identity(0, it.pid, 1)] * 2
    assert it.init(it.pid, 1) == Identity(0, it.pid, 2)


@pytest.mark.parametrize(("version", "code"), [(3, E.INVALID_PRODUCER_EPOCH), (4, E.PRODUCER_FENCED)])
def test_a_bump_asked_for_with_another_pair_is_fenced(target: Target, version: int, code: int) -> None:  # broker: 9.5
    it = Transactor(target).begin()
    for _ in range(3):
        it.init()
    for pair in ((it.pid, 1), (it.pid, 9), (it.pid + 1, 3)):
        assert it.init(*pair, version=version) == Identity(code, -1, -1)
    assert it.init(it.pid, 3, version=version) == Identity(0, it.pid, 4)


def test_an_unknown_id_may_bring_any_pair(target: Target) -> None:  # broker: 9.6
    answer = Transactor(target).init(12345, 0)
    assert (answer.code, answer.epoch) == (0, 0)
    assert answer.pid != 12345


@pytest.mark.parametrize("timeout_ms", [0, MAX_TIMEOUT_MS + 1])
def test_a_timeout_out_of_bounds_is_refused(target: Target, timeout_ms: int) -> None:  # broker: 9.7
    assert Transactor(target).init(timeout_ms=timeout_ms) == Identity(E.INVALID_TRANSACTION_TIMEOUT, -1, -1)
    assert Transactor(target).init(timeout_ms=MAX_TIMEOUT_MS).code == 0


def test_what_a_fenced_instance_is_told(target: Target) -> None:  # broker: 9.11
    topic = target.new_topic()
    old = Transactor(target).begin()
    assert set(old.add((topic, 0)).values()) == {0}
    assert old.write(topic, 0) == (0, 0)
    Transactor(target, old.id).begin()
    told = {
        "AddPartitionsToTxn v1": old.add((topic, 0), version=1)[topic, 0],
        "AddPartitionsToTxn v3": old.add((topic, 0), version=3)[topic, 0],
        "AddOffsetsToTxn v1": old.add_offsets("group", version=1),
        "AddOffsetsToTxn v3": old.add_offsets("group", version=3),
        "EndTxn v1": old.end(True, version=1).code,
        "EndTxn v3": old.end(True, version=3).code,
        "EndTxn newest": old.end(False).code,
        "InitProducerId v3": old.init(old.pid, old.epoch, version=3).code,
        "InitProducerId v4": old.init(old.pid, old.epoch, version=4).code,
        "TxnOffsetCommit v3": old.commit_offset(old.id, topic, 1, version=3),
        "Produce": old.write(topic, 1).code,
    }
    assert told == {
        "AddPartitionsToTxn v1": E.INVALID_PRODUCER_EPOCH,
        "AddPartitionsToTxn v3": E.PRODUCER_FENCED,
        "AddOffsetsToTxn v1": E.INVALID_PRODUCER_EPOCH,
        "AddOffsetsToTxn v3": E.PRODUCER_FENCED,
        "EndTxn v1": E.INVALID_PRODUCER_EPOCH,
        "EndTxn v3": E.PRODUCER_FENCED,
        "EndTxn newest": E.PRODUCER_FENCED,
        "InitProducerId v3": E.INVALID_PRODUCER_EPOCH,
        "InitProducerId v4": E.PRODUCER_FENCED,
        "TxnOffsetCommit v3": target.by_rules({(2, 8): 0, (3, 9): E.INVALID_PRODUCER_EPOCH}),
        "Produce": E.INVALID_PRODUCER_EPOCH,
    }


def test_another_producer_id_is_no_mapping(target: Target) -> None:  # broker: 9.11
    topic = target.new_topic()
    it = Transactor(target).begin()
    unknown = Transactor(target)
    unknown.pid, unknown.epoch = it.pid, 0
    assert it.add((topic, 0), pid=it.pid + 1) == {(topic, 0): E.INVALID_PRODUCER_ID_MAPPING}
    assert it.end(True, pid=it.pid + 1).code == E.INVALID_PRODUCER_ID_MAPPING
    assert unknown.add((topic, 0)) == {(topic, 0): E.INVALID_PRODUCER_ID_MAPPING}
    assert unknown.end(True).code == E.INVALID_PRODUCER_ID_MAPPING
    assert unknown.add_offsets("group") == E.INVALID_PRODUCER_ID_MAPPING


def test_another_broker_does_not_coordinate(three: Target) -> None:  # broker: 10.11
    it = Transactor(three).begin()
    found = three.connect().ask(
        finding.FindCoordinatorRequest(key=it.id, key_type=1), finding.FindCoordinatorResponse, 2
    )
    other = Transactor(three, it.id)
    other.coordinator = three.connect(next(node for node in (1, 2, 3) if node != found.node_id))
    assert other.init_once() == Identity(E.NOT_COORDINATOR, -1, -1)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_one_coordinator_is_found(target: Target, version: int) -> None:  # broker: 19.1
    Transactor(target).find("any", kind=0)
    request = finding.FindCoordinatorRequest(key="any", key_type=1 if version else 0)
    answer = target.connect().ask(request, finding.FindCoordinatorResponse, version)
    assert answer.error_code == 0
    assert (answer.host, answer.port) == target.address(answer.node_id)


def test_several_coordinators_are_found(since_3_9: Target) -> None:  # broker: 19.1
    Transactor(since_3_9)
    request = finding.FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "b"])
    answer = since_3_9.connect().ask(request, finding.FindCoordinatorResponse, 4)
    found = {each.key: each for each in answer.coordinators}
    assert set(found) == {"a", "b"}
    for each in found.values():
        assert (each.error_code, (each.host, each.port)) == (0, since_3_9.address(each.node_id))


def test_an_unknown_kind_of_coordinator(target: Target) -> None:  # broker: 19.1
    Transactor(target)
    request = finding.FindCoordinatorRequest(key="any", key_type=9)
    answer = target.connect().ask(request, finding.FindCoordinatorResponse, 2)
    assert answer.error_code == E.INVALID_REQUEST


def test_two_phase_commit_is_not_offered(target: Target) -> None:  # broker: 11.8
    broker = target.connect()
    broker.send_body(initialising.InitProducerIdRequest.API_KEY, 6, b"", flexible=True)
    assert broker.is_closed()
