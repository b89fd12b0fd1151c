"""InitProducerId without a transactional id. broker: 9.1"""

from __future__ import annotations

import pytest
from asker import Asker
from conformance_targets import Target
from wire_batches import sequenced

from aiokprod.wire.codes import ErrorCode as E
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NEWEST = 4
RECOVERY_FROM = 3
"""From v3 on a request may bring the pair it has (KIP-360)."""


def init(broker: Asker, pid: int = -1, epoch: int = -1, version: int = NEWEST) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000, producer_id=pid, producer_epoch=epoch
    )
    return broker.ask(request, InitProducerIdResponse, version)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_each_call_gives_another_id_at_epoch_0(target: Target, version: int) -> None:  # broker: 9.1
    broker = target.connect()
    broker.new_producer_id()
    first, second = init(broker, version=version), init(broker, version=version)
    assert (first.error_code, first.producer_epoch) == (second.error_code, second.producer_epoch) == (0, 0)
    assert first.producer_id != second.producer_id


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("epoch", [0, 1, 32766, 32767])
def test_nothing_is_bumped_a_new_id_is_given(target: Target, version: int, epoch: int) -> None:  # broker: 9.1
    broker = target.connect()
    own = broker.new_producer_id()
    for pid in (own, 999_999_999):
        answer = init(broker, pid, epoch, version)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        assert answer.producer_id not in (pid, own)


@pytest.mark.parametrize("pair", [(5, -1), (-1, 0)])
def test_half_a_pair_is_refused(target: Target, pair: tuple[int, int]) -> None:  # broker: 9.1
    answer = init(target.connect(), *pair)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (E.INVALID_REQUEST, -1, -1)


def test_an_empty_transactional_id_is_refused(target: Target) -> None:  # broker: 9.7
    request = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60_000)
    answer = target.connect().ask(request, InitProducerIdResponse, 1)
    assert (answer.error_code, answer.producer_id) == (E.INVALID_REQUEST, -1)


def test_a_local_bump_needs_no_broker(target: Target) -> None:  # broker: 1.3, 9.1
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    assert broker.produce(topic, sequenced(pid, 0)) == (0, 0)
    assert broker.produce(topic, sequenced(pid, 0, epoch=1)) == (0, 1)
    answer = init(broker, pid, 1)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    assert broker.produce(topic, sequenced(pid, 1, epoch=1)) == (0, 2), "the old pair is not fenced"
