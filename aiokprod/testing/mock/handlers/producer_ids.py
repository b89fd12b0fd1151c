"""InitProducerId: a producer id for idempotent producers, the ownership of a transactional id for the others."""

from __future__ import annotations

from typing import Final

from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.handlers.api import Call
from aiokprod.testing.mock.handlers.transactions import fenced_as
from aiokprod.testing.mock.transactions.metadata import NO_EPOCH, NO_PRODUCER_ID, ProducerIdentity
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

KNOWS_FENCED: Final = 4
"""The version from which 90 is told; before, it is 47. broker: 9.5"""


def init_producer_id(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Return a producer id and epoch to write with, or the error."""
    try:
        call.refuse_by_script()
        if (request.producer_id < 0) != (request.producer_epoch < 0):
            raise RefusalError(ErrorCode.INVALID_REQUEST)  # broker: 9.1
        given = _identity(call, request)
    except RefusalError as refusal:
        return InitProducerIdResponse(
            error_code=fenced_as(refusal.code, call.version >= KNOWS_FENCED),
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_EPOCH,
        )
    return InitProducerIdResponse(producer_id=given.producer_id, producer_epoch=given.epoch)


def _identity(call: Call, request: InitProducerIdRequest) -> ProducerIdentity:
    broker, transactional_id = call.broker, request.transactional_id
    if transactional_id is None:
        # Whatever pair is presented: nothing is bumped. broker: 9.1
        return ProducerIdentity(broker.state.new_producer_id(), 0)
    transactions = broker.transactions
    if transactional_id:
        transactions.transactional_ids.check(transactional_id, broker.node_id)
    recovers = request.producer_id != NO_PRODUCER_ID
    answer = transactions.coordinator.init_producer_id(
        transactional_id,
        request.transaction_timeout_ms,
        ProducerIdentity(request.producer_id, request.producer_epoch) if recovers else None,
        broker.now_ms(),
    )
    transactions.follow(transactional_id)
    if isinstance(answer, ErrorCode):
        raise RefusalError(answer)
    return answer
