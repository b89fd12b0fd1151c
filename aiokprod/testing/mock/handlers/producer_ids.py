"""InitProducerId for idempotent producers, and FindCoordinator, which finds none: the mock has no coordinators yet."""

from __future__ import annotations

from typing import Final

from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

from ..cluster_state import RefusalError
from .api import Call

BATCHED: Final = 4
"""From FindCoordinator v4 on one request asks for several keys."""


def init_producer_id(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """A new producer id at epoch 0, whatever pair is presented: nothing is bumped (broker: 9.1)."""
    response = InitProducerIdResponse(producer_id=-1, producer_epoch=-1)
    try:
        call.refuse_by_script()
        if request.transactional_id == "" or (request.producer_id < 0) != (request.producer_epoch < 0):
            raise RefusalError(ErrorCode.INVALID_REQUEST)  # broker: 9.1, 9.7
        if request.transactional_id is not None:
            raise RefusalError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        response.producer_id, response.producer_epoch = call.broker.state.new_producer_id(), 0
    except RefusalError as refusal:
        response.error_code = int(refusal.code)
    return response


def find_coordinator(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """15 COORDINATOR_NOT_AVAILABLE, for every key."""
    code, message = int(ErrorCode.COORDINATOR_NOT_AVAILABLE), None
    try:
        call.refuse_by_script()
    except RefusalError as refusal:
        code, message = int(refusal.code), refusal.message
    if call.version < BATCHED:
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, port=-1)
    response = FindCoordinatorResponse()
    response.coordinators = [
        Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=message)
        for key in request.coordinator_keys
    ]
    return response
