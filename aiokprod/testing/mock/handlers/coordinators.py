"""FindCoordinator: which broker answers for a group or a transactional id."""

from __future__ import annotations

from typing import Final

from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.handlers.api import Call
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP: Final = 0
TRANSACTION: Final = 1

BATCHED: Final = 4
"""From FindCoordinator v4 on one request asks for several keys."""


def find_coordinator(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Answer every key that is asked for."""
    if call.version >= BATCHED:
        return FindCoordinatorResponse(
            coordinators=[_find(call, request.key_type, key) for key in request.coordinator_keys]
        )
    found = _find(call, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(call: Call, key_type: int, key: str) -> Coordinator:
    transactions = call.broker.transactions
    try:
        call.refuse_by_script()
        if key_type not in (GROUP, TRANSACTION):
            raise RefusalError(ErrorCode.INVALID_REQUEST)
        directory = transactions.groups if key_type == GROUP else transactions.transactional_ids
        node = call.broker.state.nodes[directory.node_of(key)]
    except RefusalError as refusal:
        return Coordinator(key=key, node_id=-1, port=-1, error_code=int(refusal.code), error_message=refusal.message)
    return Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port)
