"""Error codes: the names others use, and none that raises."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from kio.schema.errors import ErrorCode as KioErrorCode

from aiokprod.wire.codes import ErrorCode, name_of


def test_every_code_of_kio_has_the_same_name() -> None:
    theirs = {code.value: code.name.upper() for code in KioErrorCode}
    ours = {code.value: code.name for code in ErrorCode}
    assert {code: ours.get(code) for code in theirs} == theirs
    assert sorted(set(ours) - set(theirs)) == sorted(range(max(theirs) + 1, max(ours) + 1))


def test_codes_are_without_a_gap() -> None:
    assert sorted(ErrorCode) == list(range(-1, 134))


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (0, "NONE"), (6, "NOT_LEADER_OR_FOLLOWER"), (-1, "UNKNOWN_SERVER_ERROR"), (134, "UNKNOWN_CODE_134"),
        (-2, "UNKNOWN_CODE_-2"), (32767, "UNKNOWN_CODE_32767"),
    ],
)  # fmt: skip
def test_names(code: int, name: str) -> None:
    assert name_of(code) == name


def test_librdkafka_agrees_where_it_has_a_code() -> None:
    pairs = [
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (ErrorCode.MESSAGE_TOO_LARGE, KafkaError.MSG_SIZE_TOO_LARGE),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, KafkaError.THROTTLING_QUOTA_EXCEEDED),
        (ErrorCode.UNKNOWN_PRODUCER_ID, KafkaError.UNKNOWN_PRODUCER_ID),
    ]
    assert [ours.value for ours, _ in pairs] == [theirs for _, theirs in pairs]
