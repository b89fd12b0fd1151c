"""Codes: what is done about each, by request."""

from __future__ import annotations

import pytest

from aiokprod.transactions.machine_actions import NO_ANSWER, NO_SUCH_PARTITION, Reason
from aiokprod.transactions.machine_codes import OTHERWISE, RETRIED, TABLE, Judgement, Kind, Request, judge
from aiokprod.wire.codes import ErrorCode

EACH = pytest.mark.parametrize(
    "request_", [request for request in Request if request is not Request.MARKERS], ids=lambda request: request.value
)


@EACH
def test_a_moved_or_busy_coordinator_is_asked_again(request_: Request) -> None:
    # faults: X2, X3
    assert all(judge(request_, code).kind is kind for code, kind in RETRIED.items())
    assert {RETRIED[code] for code in (14, 15, 16)} == {Kind.MOVED}
    assert judge(request_, ErrorCode.CONCURRENT_TRANSACTIONS).kind is Kind.CONCURRENT


@EACH
def test_old_epochs_and_refusals_of_the_id_have_one_meaning_everywhere(request_: Request) -> None:
    assert judge(request_, 47).kind is judge(request_, 90).kind is Kind.FENCED
    assert judge(request_, 53) == Judgement(Kind.FATAL, Reason.NOT_AUTHORIZED)
    assert judge(request_, 35).kind is Kind.FATAL
    assert judge(request_, 0).kind is Kind.DONE


def test_only_markers_that_are_not_written_yet_are_asked_for_again() -> None:
    kinds = {code: judge(Request.MARKERS, code).kind for code in (*ErrorCode, 9999)}
    assert kinds.pop(ErrorCode.CONCURRENT_TRANSACTIONS) is Kind.CONCURRENT
    assert set(kinds.values()) == {Kind.DONE}


def test_an_unknown_server_error_of_end_txn_is_not_success() -> None:
    # faults: X18
    assert judge(Request.END, ErrorCode.UNKNOWN_SERVER_ERROR).kind is Kind.AGAIN


def test_an_unknown_code_ends_nothing_at_end_txn_and_the_transaction_elsewhere() -> None:
    assert judge(Request.END, 9999).kind is Kind.AGAIN
    assert judge(Request.OFFSET_COMMIT, 9999).kind is Kind.ABORTABLE
    assert judge(Request.INIT_PRODUCER_ID, 9999).kind is Kind.FATAL
    assert set(OTHERWISE) == set(TABLE) == set(Request)


@pytest.mark.parametrize("code", [22, 25, 27, 82, 110, 113])
def test_a_group_that_has_moved_on_makes_the_transaction_abortable(code: int) -> None:
    # faults: X17
    assert judge(Request.OFFSET_COMMIT, code) == Judgement(Kind.ABORTABLE, Reason.GROUP_MOVED_ON)


def test_a_partition_that_was_not_attempted_is_asked_for_apart_from_the_bad_one() -> None:
    assert judge(Request.ADD_PARTITIONS, ErrorCode.OPERATION_NOT_ATTEMPTED).kind is Kind.APART
    assert judge(Request.ADD_PARTITIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION).kind is Kind.UNKNOWN_PARTITION
    assert judge(Request.ADD_PARTITIONS, ErrorCode.TOPIC_AUTHORIZATION_FAILED).reason is Reason.PARTITION_REFUSED
    assert judge(Request.ADD_PARTITIONS, NO_ANSWER).kind is Kind.AGAIN


def test_a_timeout_above_the_brokers_is_named() -> None:
    assert judge(Request.INIT_PRODUCER_ID, 50) == Judgement(Kind.FATAL, Reason.BAD_TIMEOUT)


def test_offsets_of_a_missing_partition_are_refused_for_good() -> None:
    expected = Judgement(Kind.ABORTABLE, Reason.PARTITION_MISSING)
    assert judge(Request.OFFSET_COMMIT, NO_SUCH_PARTITION) == expected
    assert judge(Request.OFFSET_COMMIT, 3).kind is Kind.AGAIN


@pytest.mark.parametrize("code", [-2, -3])
def test_a_broker_cannot_send_a_code_of_ours(code: int) -> None:
    assert not -(2**15) <= NO_ANSWER < 2**15 and not -(2**15) <= NO_SUCH_PARTITION < 2**15
    assert judge(Request.OFFSET_COMMIT, code) == judge(Request.OFFSET_COMMIT, 9999)


@pytest.mark.parametrize(
    "request_", [Request.ADD_PARTITIONS, Request.ADD_OFFSETS, Request.OFFSET_COMMIT, Request.END], ids=str
)
def test_a_broker_that_asks_for_an_abort_gets_one(request_: Request) -> None:
    """KIP-1050"""
    expected = Judgement(Kind.ABORTABLE, Reason.TOLD_TO_ABORT)
    assert judge(request_, ErrorCode.TRANSACTION_ABORTABLE) == expected


def test_another_producer_id_is_found_out_by_the_end_and_is_a_fence_where_the_id_is_taken() -> None:
    # faults: I15
    assert judge(Request.END, 49).kind is Kind.GONE
    assert judge(Request.INIT_PRODUCER_ID, 49).kind is Kind.FENCED
    for request in (Request.ADD_PARTITIONS, Request.ADD_OFFSETS, Request.OFFSET_COMMIT):
        assert judge(request, 49) == Judgement(Kind.ABORTABLE, Reason.ID_GONE)
