"""ListTransactions and DescribeTransactions: what one coordinator has (KIP-664)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.handlers.api import Call
from aiokprod.testing.mock.name_pattern import NamePattern
from aiokprod.testing.mock.transactions.metadata import TransactionMetadata, TransactionState
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages import describe_transactions as described
from aiokprod.wire.messages import list_transactions as listed

MOST_CHARACTERS: Final = 200_000
"""Characters of transactional ids that one request may compare with a pattern."""

_STATES = {state.value: state for state in TransactionState}


def list_transactions(call: Call, request: listed.ListTransactionsRequest) -> listed.ListTransactionsResponse:
    """Return the ids that this broker coordinates and that pass every filter."""
    transactions = call.broker.transactions
    try:
        call.refuse_by_script()
        matching = _matching(request.transactional_id_pattern, call)
    except RefusalError as refusal:
        return listed.ListTransactionsResponse(error_code=int(refusal.code))
    except ValueError:
        return listed.ListTransactionsResponse(error_code=int(ErrorCode.INVALID_REGULAR_EXPRESSION))
    producer_ids = set(request.producer_id_filters)
    states = {_STATES[name] for name in request.state_filters if name in _STATES}
    now_ms = call.broker.now_ms()

    def passes(found: TransactionMetadata) -> bool:
        return (
            transactions.transactional_ids.is_led_by(found.transactional_id, call.broker.node_id)
            and (not request.state_filters or found.state in states)
            and (not producer_ids or found.producer_id in producer_ids)
            and (
                request.duration_filter < 0
                or (found.is_ongoing and now_ms - found.started_ms > request.duration_filter)
            )
            and found.transactional_id in matching
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


def _matching(pattern: str | None, call: Call) -> Collection[str]:
    """Return the ids that match the pattern. Raises ValueError if it is wrong, or there are too many ids."""
    ids = call.broker.transactions.coordinator.ids.keys()
    if not pattern:
        return ids
    if sum(map(len, ids)) > MOST_CHARACTERS:
        raise ValueError(f"the mock compares {MOST_CHARACTERS} characters of ids with a pattern at most")
    compiled = NamePattern(pattern)
    return {name for name in ids if compiled.matches(name)}


def describe_transactions(
    call: Call, request: described.DescribeTransactionsRequest
) -> described.DescribeTransactionsResponse:
    """Return one answer for each id."""
    return described.DescribeTransactionsResponse(
        transaction_states=[_describe(call, name) for name in dict.fromkeys(request.transactional_ids)]
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
