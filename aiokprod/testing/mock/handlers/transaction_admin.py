"""ListTransactions and DescribeTransactions: what one coordinator has (KIP-664)."""

from __future__ import annotations

import re

from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.handlers.api import Call
from aiokprod.testing.mock.transactions.metadata import TransactionMetadata, TransactionState
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages import describe_transactions as described
from aiokprod.wire.messages import list_transactions as listed

_STATES = {state.value: state for state in TransactionState}


def list_transactions(call: Call, request: listed.ListTransactionsRequest) -> listed.ListTransactionsResponse:
    """Return the ids that this broker coordinates and that pass every filter."""
    transactions = call.broker.transactions
    try:
        call.refuse_by_script()
        pattern = re.compile(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except RefusalError as refusal:
        return listed.ListTransactionsResponse(error_code=int(refusal.code))
    except re.error:
        return listed.ListTransactionsResponse(error_code=int(ErrorCode.INVALID_REGULAR_EXPRESSION))
    states = {_STATES[name] for name in request.state_filters if name in _STATES}
    now_ms = call.broker.now_ms()

    def passes(found: TransactionMetadata) -> bool:
        return (
            transactions.transactional_ids.is_led_by(found.transactional_id, call.broker.node_id)
            and (not request.state_filters or found.state in states)
            and (not request.producer_id_filters or found.producer_id in request.producer_id_filters)
            and (
                request.duration_filter < 0
                or (found.is_ongoing and now_ms - found.started_ms > request.duration_filter)
            )
            and (pattern is None or pattern.fullmatch(found.transactional_id) is not None)
        )

    return listed.ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in _STATES],
        transaction_states=[
            listed.TransactionState(
                transactional_id=found.transactional_id,
                producer_id=found.producer_id,
                transaction_state=found.state.value,
            )
            for found in transactions.coordinator.ids.values()
            if passes(found)
        ],
    )


def describe_transactions(
    call: Call, request: described.DescribeTransactionsRequest
) -> described.DescribeTransactionsResponse:
    """Return one answer for each id."""
    return described.DescribeTransactionsResponse(
        transaction_states=[_describe(call, transactional_id) for transactional_id in request.transactional_ids]
    )


def _describe(call: Call, transactional_id: str) -> described.TransactionState:
    transactions = call.broker.transactions
    try:
        call.refuse_by_script()
        if not transactional_id:
            raise RefusalError(ErrorCode.INVALID_REQUEST)
        transactions.transactional_ids.check(transactional_id, call.broker.node_id)
        found = transactions.coordinator.ids.get(transactional_id)
        if found is None:
            raise RefusalError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    except RefusalError as refusal:
        return described.TransactionState(error_code=int(refusal.code), transactional_id=transactional_id)
    by_topic: dict[str, list[int]] = {}
    for name, index in sorted(found.partitions):
        by_topic.setdefault(name, []).append(index)
    return described.TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.value,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=[described.TopicData(topic=name, partitions=indexes) for name, indexes in by_topic.items()],
    )
