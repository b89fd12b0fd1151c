"""`PartitionErrors`: from the ledger's reason to the error a caller sees, with its cause and what is known of the log."""

from __future__ import annotations

from collections.abc import Sequence

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
    TransactionAbortedError,
    UndeliveredAtCloseError,
)
from aiokprod.model import Persistence
from aiokprod.pipeline.partition.batch import BatchOwner, ProducerBatch
from aiokprod.pipeline.partition.ledger import Outcome, Reason, Settle
from aiokprod.pipeline.partition.partition_errors import PartitionErrors
from aiokprod.pipeline.partition.verdicts import TEXT_LIMIT, Refusal


def settle(
    why: Reason,
    outcome: Outcome = Outcome.NOT,
    code: int | None = None,
    refusal: Refusal | None = None,
    ranges: Sequence[tuple[int, int]] = ((0, 1),),
) -> Settle:
    batch = ProducerBatch(BatchOwner(), 0.0, 1.0, 0, 0, 0)
    return Settle(batch, list(ranges), outcome, None, why, code, 3, refusal)


def error(why: Reason, outcome: Outcome = Outcome.NOT, code: int | None = None) -> AiokprodError:
    return PartitionErrors("t", 4).error_of(settle(why, outcome, code), 1.5)


def test_old_timestamps_and_a_new_identity_are_told_apart() -> None:
    assert "timestamps are so old" in str(error(Reason.OLD, Outcome.POSSIBLY))
    assert "begin again" in str(error(Reason.BUMP, Outcome.POSSIBLY))


@pytest.mark.parametrize(
    ("why", "kind"),
    [
        (Reason.DEADLINE, DeliveryTimeoutError),
        (Reason.PURGE, UndeliveredAtCloseError),
        (Reason.ABORT, TransactionAbortedError),
        (Reason.OVERTAKEN, RecordOvertakenError),
        (Reason.BUMP, IdentityLostError),
        (Reason.OLD, IdentityLostError),
        (Reason.REJECTED, BrokerRejectedError),
        (Reason.FATAL, BrokerRejectedError),
    ],
)
@pytest.mark.parametrize(
    ("outcome", "persistence"),
    [(Outcome.NOT, Persistence.NOT_PERSISTED), (Outcome.POSSIBLY, Persistence.POSSIBLY_PERSISTED)],
)
def test_each_reason_has_its_error_and_each_error_its_facts(
    why: Reason, kind: type[AiokprodError], outcome: Outcome, persistence: Persistence
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
    made = error(Reason.REJECTED, code=code)
    assert type(made) is kind
    assert made.code == code
    assert name in str(made)


def test_what_a_broker_last_said_is_the_cause_and_part_of_the_text() -> None:
    """faults: P8"""
    texts = PartitionErrors("t", 0)
    texts.note(Refusal(19, "too few replicas", (), 1))
    texts.note(Refusal(7, "the replicas took too long", (), 1))
    made = texts.error_of(settle(Reason.DEADLINE, Outcome.POSSIBLY, 7), 2.0)
    assert isinstance(made.__cause__, BrokerAnswerError)
    assert made.__cause__.code == 7
    assert "REQUEST_TIMED_OUT: the replicas took too long" in str(made)
    assert made.code == 7


def test_a_verdict_tells_the_brokers_words_about_this_batch_and_not_the_last_ones_of_the_partition() -> None:
    texts = PartitionErrors("t", 0)
    refusal = Refusal(87, "no key", (), 1)
    texts.note(refusal)
    texts.note(Refusal(45, "the one behind it", (), 1))
    made = texts.error_of(settle(Reason.REJECTED, code=87, refusal=refusal), 0.0)
    assert made.message == "INVALID_RECORD: no key"
    assert isinstance(made.__cause__, BrokerAnswerError)
    assert made.__cause__.code == 87


def test_a_batch_that_is_refused_without_a_name_is_told_as_that() -> None:
    """faults: P24"""
    refusal = Refusal(87, "not today", [(7, "no record has this position")], 3)
    several = settle(Reason.REJECTED, code=87, refusal=refusal, ranges=[(0, 2), (4, 5)])
    made = PartitionErrors("t", 0).error_of(several, 0.0)
    assert type(made) is BrokerRejectedError
    assert "INVALID_RECORD: not today: the broker refused the batch, and named none of its 3 records" in str(made)
    alone = PartitionErrors("t", 0).error_of(settle(Reason.REJECTED, code=87, refusal=refusal), 0.0)
    assert type(alone) is InvalidRecordError  # there is no other that could be meant
    assert alone.message == "INVALID_RECORD: not today"


def test_a_record_refused_by_name_has_its_own_text() -> None:
    """faults: P24"""
    refusal = Refusal(87, "the batch", [(1, "second"), (0, "first"), (2, None)], 3)
    of_all = settle(Reason.REJECTED, code=87, refusal=refusal, ranges=[(0, 1), (1, 2), (2, 3)])
    made = [PartitionErrors("t", 0).error_of(of_all, 0.0, position).message for position in range(3)]
    assert made == ["INVALID_RECORD: first", "INVALID_RECORD: second", "INVALID_RECORD: the batch"]


def test_a_lost_connection_is_a_cause_too() -> None:
    texts = PartitionErrors("t", 0)
    lost = ConnectionLostError("reset by peer", broker=3)
    texts.note_cause(lost)
    made = texts.error_of(settle(Reason.DEADLINE), 2.0)
    assert made.__cause__ is lost
    assert "reset by peer" in str(made)


def test_a_crash_is_told_as_the_producers_end() -> None:
    """faults: L15"""
    texts = PartitionErrors("t", 0)
    texts.crash = RuntimeError("a bug")
    made = texts.error_of(settle(Reason.PURGE, Outcome.POSSIBLY), 0.0)
    assert type(made) is ProducerFailedError
    assert made.persistence is Persistence.POSSIBLY_PERSISTED
    assert "a bug" in str(made)


def test_a_brokers_text_is_cut_and_printable() -> None:
    """faults: H13"""
    texts = PartitionErrors("t", 0)
    refusal = Refusal(44, "\x1b[31mred\n" + "x" * 100_000, [(i, "y" * 10_000) for i in range(5_000)], 5_000)
    texts.note(refusal)
    made = texts.error_of(settle(Reason.REJECTED, code=44, refusal=refusal), 0.0)
    assert len(str(made)) < 2 * TEXT_LIMIT + 200
    assert "\x1b" not in str(made)
    assert "\n" not in made.message


def test_errors_of_one_pattern_are_not_shared_between_settlements() -> None:
    """faults: M13"""
    texts = PartitionErrors("t", 0)
    assert texts.error_of(settle(Reason.DEADLINE), 0.0) is not texts.error_of(settle(Reason.DEADLINE), 0.0)


@pytest.mark.parametrize("code", [43, 76])
def test_a_refusal_of_compressed_batches_names_the_option(code: int) -> None:
    refused = settle(Reason.REJECTED, code=code)
    of_gzip = PartitionErrors("t", 0, codec="gzip").error_of(refused, 0.0)
    assert "compression_type='gzip'" in of_gzip.message and of_gzip.code == code
    assert "compression_type" not in PartitionErrors("t", 0).error_of(refused, 0.0).message
    other = PartitionErrors("t", 0, codec="gzip").error_of(settle(Reason.REJECTED, code=87), 0.0)
    assert "compression_type" not in other.message


@pytest.mark.parametrize("why", [Reason.DEADLINE, Reason.RETRIES])
def test_what_to_do_about_the_last_failure_comes_before_what_to_do_in_general(why: Reason) -> None:
    errors = PartitionErrors("orders", 4)
    errors.note(Refusal(19, None, (), 1))
    found = errors.error_of(settle(why, code=19), 1.5)
    assert found.advice == (
        "Fewer replicas are in sync than min.insync.replicas: bring the other brokers back;"
        f" `aiokprod doctor orders` looks for the cause. {type(found).advice}"
    )
    assert found.__notes__ == [found.advice]
    errors.note(Refusal(-1, None, (), 1))
    assert errors.error_of(settle(why), 1.5).advice.startswith("`aiokprod doctor orders` looks for the cause. ")
    errors.note_cause(ConnectionLostError("the broker hung up"))
    assert errors.error_of(settle(why), 1.5).advice.startswith("See that the broker runs, and that the network ")


def test_an_error_without_a_failure_of_the_cluster_has_the_advice_of_its_class() -> None:
    errors = PartitionErrors("orders", 4)
    assert errors.error_of(settle(Reason.DEADLINE), 1.5).advice == DeliveryTimeoutError.advice
    errors.note_cause(RuntimeError("crashed"))
    assert errors.error_of(settle(Reason.DEADLINE), 1.5).advice == DeliveryTimeoutError.advice
    errors.note(Refusal(19, None, (), 1))
    assert errors.error_of(settle(Reason.PURGE), 1.5).advice == UndeliveredAtCloseError.advice
