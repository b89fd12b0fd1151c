"""The table of codes is total. (`test_ledger_page.py` compares it with docs/ledger.md.)"""

from __future__ import annotations

import pytest

from aiokprod.pipeline.partition.verdicts import (
    NO_ANSWER,
    TABLE,
    ErrorKind,
    Kind,
    error_kind,
    is_ambiguous,
    is_producer_fatal,
    is_topic_refused,
    judge,
)
from aiokprod.wire.codes import ErrorCode

# What docs/ledger.md asks for; every other code Kafka has is one a Produce answer never carries.
EXPECTED: dict[str, Kind] = {
    "NONE": Kind.DONE,
    "DUPLICATE_SEQUENCE_NUMBER": Kind.DONE,  # faults: I16
    "CORRUPT_MESSAGE": Kind.RETRY,  # faults: P3
    "UNKNOWN_TOPIC_OR_PARTITION": Kind.RETRY,  # faults: P4
    "LEADER_NOT_AVAILABLE": Kind.RETRY,  # faults: P5
    "BROKER_NOT_AVAILABLE": Kind.RETRY,
    "REPLICA_NOT_AVAILABLE": Kind.RETRY,
    "LISTENER_NOT_FOUND": Kind.RETRY,
    "NOT_LEADER_OR_FOLLOWER": Kind.RETRY,  # faults: P6
    "FENCED_LEADER_EPOCH": Kind.RETRY,  # faults: P7
    "REQUEST_TIMED_OUT": Kind.RETRY,  # faults: P8
    "NOT_ENOUGH_REPLICAS": Kind.RETRY,  # faults: P11
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": Kind.RETRY,  # faults: P12
    "NETWORK_EXCEPTION": Kind.RETRY,  # faults: P13
    "KAFKA_STORAGE_ERROR": Kind.RETRY,  # faults: P18
    "UNKNOWN_LEADER_EPOCH": Kind.RETRY,  # faults: P19
    "THROTTLING_QUOTA_EXCEEDED": Kind.RETRY,
    "CONCURRENT_TRANSACTIONS": Kind.RETRY,
    "COORDINATOR_LOAD_IN_PROGRESS": Kind.RETRY,
    "COORDINATOR_NOT_AVAILABLE": Kind.RETRY,
    "NOT_COORDINATOR": Kind.RETRY,
    "NOT_CONTROLLER": Kind.RETRY,
    "UNKNOWN_TOPIC_ID": Kind.RETRY,  # faults: P20
    "INCONSISTENT_TOPIC_ID": Kind.RETRY,
    "MESSAGE_TOO_LARGE": Kind.TOO_LARGE,  # faults: P9, P10
    "RECORD_LIST_TOO_LARGE": Kind.REFUSED,
    "INVALID_TOPIC_EXCEPTION": Kind.REFUSED,  # faults: P14
    "POLICY_VIOLATION": Kind.REFUSED,
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": Kind.REFUSED,
    "UNSUPPORTED_COMPRESSION_TYPE": Kind.REFUSED,
    "INVALID_TIMESTAMP": Kind.INVALID,
    "INVALID_REQUIRED_ACKS": Kind.REFUSED,
    "INVALID_REQUEST": Kind.REFUSED,
    "TOPIC_AUTHORIZATION_FAILED": Kind.REFUSED,  # faults: P15
    "CLUSTER_AUTHORIZATION_FAILED": Kind.REFUSED,  # faults: P16
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": Kind.REFUSED,  # faults: P17
    "SECURITY_DISABLED": Kind.REFUSED,
    "SASL_AUTHENTICATION_FAILED": Kind.REFUSED,
    "UNSUPPORTED_VERSION": Kind.REFUSED,  # faults: P21
    "INVALID_TXN_STATE": Kind.REFUSED,  # faults: P23
    "TRANSACTION_ABORTABLE": Kind.REFUSED,
    "PRODUCER_FENCED": Kind.REFUSED,
    "INVALID_RECORD": Kind.INVALID,  # faults: P24
    "OUT_OF_ORDER_SEQUENCE_NUMBER": Kind.OUT_OF_ORDER,  # faults: I1, I2, I3
    "INVALID_PRODUCER_EPOCH": Kind.OLD_IDENTITY,  # faults: I14
    "INVALID_PRODUCER_ID_MAPPING": Kind.OLD_IDENTITY,  # faults: I15
    "UNKNOWN_PRODUCER_ID": Kind.OLD_IDENTITY,  # faults: I13
}
AMBIGUOUS = {"REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"}
METADATA = {
    "UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER", "BROKER_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE", "NETWORK_EXCEPTION", "NOT_CONTROLLER", "KAFKA_STORAGE_ERROR", "LISTENER_NOT_FOUND",
    "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID",
}  # fmt: skip


@pytest.mark.parametrize("base_offset", [-1, 0])
@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)
def test_every_code_of_kafka_has_its_kind_and_its_ambiguity(code: ErrorCode, base_offset: int) -> None:
    expected = EXPECTED.get(code.name)
    verdict = judge(code)
    assert verdict.kind is (Kind.UNKNOWN if expected is None else expected)
    if verdict.kind is not Kind.DONE:
        certain = expected is not None and code.name not in AMBIGUOUS
        assert is_ambiguous(code, base_offset) is (base_offset >= 0 or not certain)
    assert verdict.wants_metadata is (code.name in METADATA)


@pytest.mark.parametrize("base_offset", [-1, 0, 7])
@pytest.mark.parametrize("code", [-32_768, -3, 136, 999, 32_767])
def test_a_code_of_the_future_is_fatal_and_its_fate_is_open(code: int, base_offset: int) -> None:
    """faults: P2"""
    assert code not in set(ErrorCode)
    assert judge(code).kind is Kind.UNKNOWN
    assert is_ambiguous(code, base_offset)


def test_a_partition_left_out_of_the_answer_is_an_ambiguous_attempt() -> None:
    """faults: H9"""
    assert judge(NO_ANSWER).kind is Kind.RETRY
    assert is_ambiguous(NO_ANSWER, -1)
    assert NO_ANSWER not in set(ErrorCode)


def test_every_code_that_retries_or_refuses_is_named_on_the_page_or_here() -> None:
    assert {ErrorCode(code).name for code in TABLE if code != NO_ANSWER} == set(EXPECTED)


@pytest.mark.parametrize("code", [*range(-5, 140), 999])
def test_each_code_has_one_error_for_the_caller(code: int) -> None:
    expected = {
        10: ErrorKind.TOO_LARGE, 18: ErrorKind.TOO_LARGE, 29: ErrorKind.TOPIC_AUTHORIZATION,
        31: ErrorKind.CLUSTER_AUTHORIZATION, 32: ErrorKind.INVALID_RECORD, 87: ErrorKind.INVALID_RECORD,
        48: ErrorKind.TRANSACTION, 90: ErrorKind.TRANSACTION, 120: ErrorKind.TRANSACTION,
    }  # fmt: skip
    assert error_kind(code) is expected.get(code, ErrorKind.REJECTED)
    assert is_topic_refused(code) is (code in (17, 29))
    assert is_producer_fatal(code) is (code == 31)  # faults: P16
