"""`Failures`: from the ledger's reason to the error a caller sees, with its cause and what is known of the log."""

from __future__ import annotations

import pytest

from aiokprod.errors import (
    AiokprodError,
    BrokerAnswerError,
    BrokerRejectedError,
    ClusterAuthorizationError,
    ConnectionLostError,
    DeliveryTimeoutError,
    IdentityLostError,
    InvalidRecordError,
    ProducerFailedError,
    RecordOvertakenError,
    RecordTooLargeError,
    TopicAuthorizationError,
    UndeliveredAtCloseError,
)
from aiokprod.model import Persistence
from aiokprod.pipeline.batch import ProducerBatch
from aiokprod.pipeline.batch_owner import BatchOwner
from aiokprod.pipeline.failures import TEXT_LIMIT, Failures
from aiokprod.pipeline.ledger import Outcome, Settle


def settle(why: str, outcome: Outcome = Outcome.NOT, code: int | None = None) -> Settle:
    batch = ProducerBatch(BatchOwner(), 0.0, 1.0, 0, 0, 0)
    return Settle(batch, [(0, 1)], outcome, None, why, code, 3)


def error(why: str, outcome: Outcome = Outcome.NOT, code: int | None = None) -> AiokprodError:
    return Failures("t", 4).error_of(settle(why, outcome, code), 1.5)


def test_old_timestamps_and_a_new_identity_are_told_apart() -> None:
    assert "timestamps are so old" in str(error("old", Outcome.POSSIBLY))
    assert "begin anew" in str(error("bump", Outcome.POSSIBLY))


@pytest.mark.parametrize(
    ("why", "kind"),
    [
        ("deadline", DeliveryTimeoutError),
        ("purge", UndeliveredAtCloseError),
        ("abort", UndeliveredAtCloseError),
        ("overtaken", RecordOvertakenError),
        ("bump", IdentityLostError),
        ("old", IdentityLostError),
        ("rejected", BrokerRejectedError),
        ("fatal", BrokerRejectedError),
    ],
)
@pytest.mark.parametrize(
    ("outcome", "persistence"),
    [(Outcome.NOT, Persistence.NOT_PERSISTED), (Outcome.POSSIBLY, Persistence.POSSIBLY_PERSISTED)],
)
def test_each_reason_has_its_error_and_each_error_its_facts(
    why: str, kind: type[AiokprodError], outcome: Outcome, persistence: Persistence
) -> None:
    made = error(why, outcome)
    assert type(made) is kind
    assert made.persistence is persistence
    assert (made.topic, made.partition, made.attempts, made.elapsed_s) == ("t", 4, 3, 1.5)
    assert made.__cause__ is None


@pytest.mark.parametrize(
    ("code", "kind", "name"),
    [
        (10, RecordTooLargeError, "MESSAGE_TOO_LARGE"),  # faults: P10
        (18, RecordTooLargeError, "RECORD_LIST_TOO_LARGE"),
        (29, TopicAuthorizationError, "TOPIC_AUTHORIZATION_FAILED"),  # faults: P15
        (31, ClusterAuthorizationError, "CLUSTER_AUTHORIZATION_FAILED"),  # faults: P16
        (32, InvalidRecordError, "INVALID_TIMESTAMP"),  # faults: P14
        (87, InvalidRecordError, "INVALID_RECORD"),  # faults: P24
        (44, BrokerRejectedError, "POLICY_VIOLATION"),
        (35, BrokerRejectedError, "UNSUPPORTED_VERSION"),  # faults: P21
        (-1, BrokerRejectedError, "UNKNOWN_SERVER_ERROR"),  # faults: P2
        (999, BrokerRejectedError, "UNKNOWN_CODE_999"),
    ],
)
def test_each_code_has_its_error_and_its_name(code: int, kind: type[AiokprodError], name: str) -> None:
    made = error("rejected", code=code)
    assert type(made) is kind
    assert made.code == code
    assert name in str(made)


def test_what_a_broker_last_said_is_the_cause_and_part_of_the_text() -> None:
    """faults: P8"""
    texts = Failures("t", 0)
    texts.note(19, "too few replicas", ())
    texts.note(7, "the replicas took too long", ())
    made = texts.error_of(settle("deadline", Outcome.POSSIBLY, 7), 2.0)
    assert isinstance(made.__cause__, BrokerAnswerError)
    assert made.__cause__.code == 7
    assert "REQUEST_TIMED_OUT the replicas took too long" in str(made)
    assert made.code == 7


def test_a_lost_connection_is_a_cause_too() -> None:
    texts = Failures("t", 0)
    lost = ConnectionLostError("reset by peer", broker=3)
    texts.note_cause(lost)
    made = texts.error_of(settle("deadline"), 2.0)
    assert made.__cause__ is lost
    assert "reset by peer" in str(made)


def test_a_crash_is_told_as_the_producers_end() -> None:
    """faults: L15"""
    texts = Failures("t", 0)
    texts.crash = RuntimeError("a bug")
    made = texts.error_of(settle("purge", Outcome.POSSIBLY), 0.0)
    assert type(made) is ProducerFailedError
    assert made.persistence is Persistence.POSSIBLY_PERSISTED
    assert "a bug" in str(made)


def test_a_brokers_text_is_cut_and_printable() -> None:
    """faults: H13"""
    texts = Failures("t", 0)
    texts.note(44, "\x1b[31mred\n" + "x" * 100_000, [(i, "y" * 10_000) for i in range(5_000)])
    made = texts.error_of(settle("rejected", code=44), 0.0)
    assert len(str(made)) < 2 * TEXT_LIMIT + 200
    assert "\x1b" not in str(made)
    assert "\n" not in made.message


def test_errors_of_one_pattern_are_not_shared_between_settlements() -> None:
    """faults: M13"""
    texts = Failures("t", 0)
    assert texts.error_of(settle("deadline"), 0.0) is not texts.error_of(settle("deadline"), 0.0)
