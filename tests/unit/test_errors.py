"""Every error of ours: facts, advice, copies that share nothing that grows."""

from __future__ import annotations

import pickle

import pytest

from aiokprod import errors
from aiokprod.errors import (
    AiokprodError,
    BootstrapError,
    ColumnsPartition,
    ColumnsReport,
    ConnectionLostError,
    DeliveryError,
    SendColumnsError,
    SendManyError,
    SendReport,
)
from aiokprod.model import Persistence

OF_REPORTS = (SendManyError, SendColumnsError)
KINDS = sorted(
    (
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, AiokprodError) and kind not in OF_REPORTS
    ),
    key=lambda kind: kind.__name__,
)


def full(kind: type[AiokprodError]) -> AiokprodError:
    return kind(
        "it failed",
        topic="orders",
        partition=3,
        attempts=2,
        elapsed_s=0.5,
        persistence=Persistence.POSSIBLY_PERSISTED,
        code=7,
        broker=1,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_fact_survives_pickling(kind: type[AiokprodError]) -> None:
    error = full(kind)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert vars(again) == vars(error)
    assert str(again) == str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_a_clone_has_the_facts_and_the_cause_but_no_traceback(kind: type[AiokprodError]) -> None:
    try:
        raise full(kind) from OSError("reset")
    except AiokprodError as caught:
        error = caught
    copy = error.clone()
    assert type(copy) is kind
    assert copy.__traceback__ is None
    assert copy.__cause__ is error.__cause__
    assert str(copy) == str(error)


def test_a_note_added_to_a_clone_does_not_reach_the_original() -> None:
    error = full(errors.DeliveryTimeoutError)
    error.clone().add_note("mine")
    assert "mine" not in error.__notes__


def every_kind(kind: type[AiokprodError] = AiokprodError) -> list[type[AiokprodError]]:
    return [below for child in kind.__subclasses__() for below in (child, *every_kind(child))]


def test_every_error_says_what_to_do_next() -> None:
    silent = {kind.__name__ for kind in every_kind() if kind.__module__ == errors.__name__ and not kind.advice.strip()}
    assert silent == {"ConfigError"}  # its messages say it
    assert len(every_kind()) >= len(KINDS)  # all but the root


def test_no_error_inherits_the_advice_of_another_one() -> None:
    kinds = [kind for kind in every_kind() if kind.__module__ == errors.__name__]
    assert [kind.__name__ for kind in kinds if "advice" not in vars(kind)] == ["ConfigError"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.advice])
def test_the_advice_is_a_note(kind: type[AiokprodError]) -> None:
    assert full(kind).__notes__ == [kind.advice]


class OneWayError(Exception):
    """An error that pickles and cannot be unpickled: its constructor wants more than its args."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def caused(cause: BaseException) -> AiokprodError:
    error = full(errors.DeliveryTimeoutError)
    error.__cause__ = cause
    return error


def test_the_cause_survives_pickling_and_its_own_cause_too() -> None:
    lost = ConnectionLostError("lost", host="kafka", port=9092)
    lost.__cause__ = OSError(104, "reset")
    again = pickle.loads(pickle.dumps(caused(lost)))
    assert isinstance(again.__cause__, ConnectionLostError)
    assert again.__cause__.host == "kafka"
    assert str(again.__cause__.__cause__) == "[Errno 104] reset"
    assert again.__suppress_context__


@pytest.mark.parametrize("cause", [OneWayError("went", "wrong"), ValueError(lambda: "cannot be pickled")])
def test_a_cause_that_cannot_be_pickled_leaves_its_name_and_text(cause: Exception) -> None:
    again = pickle.loads(pickle.dumps(caused(cause)))
    assert isinstance(again.__cause__, AiokprodError)
    assert type(cause).__name__ in str(again.__cause__)
    assert str(cause) in str(again.__cause__)


def test_causes_that_run_in_a_circle_are_pickled() -> None:
    one, two = full(DeliveryError), full(DeliveryError)
    one.__cause__, two.__cause__ = two, one
    again = pickle.loads(pickle.dumps(one))
    assert again.__cause__.__cause__ is again


def test_what_was_tried_at_the_bootstrap_is_pickled_whatever_failed() -> None:
    again = pickle.loads(
        pickle.dumps(BootstrapError("no broker", tried=[("kafka", 9092, OneWayError("went", "wrong"))]))
    )
    assert "OneWayError: went wrong" in str(again.tried[0][2])


def test_the_text_shows_the_facts() -> None:
    text = str(full(DeliveryError))
    for fact in ("it failed", "topic=orders", "partition=3", "attempts=2", "code=7", "POSSIBLY_PERSISTED"):
        assert fact in text


def test_facts_that_do_not_apply_are_not_shown() -> None:
    assert str(DeliveryError("it failed")) == "it failed"


def test_a_delivery_error_is_retriable_only_if_the_record_is_certainly_not_in_the_log() -> None:
    assert DeliveryError(persistence=Persistence.NOT_PERSISTED).retriable
    assert not DeliveryError(persistence=Persistence.POSSIBLY_PERSISTED).retriable
    assert not DeliveryError().retriable


def test_errors_are_also_what_python_programmers_catch() -> None:
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.RecordTypeError, TypeError)
    assert issubclass(errors.DeliveryTimeoutError, TimeoutError)


def test_a_bootstrap_error_keeps_what_was_tried_through_pickling() -> None:
    again = pickle.loads(pickle.dumps(BootstrapError("no broker", tried=[("kafka", 9092, OSError("refused"))])))
    [(host, port, cause)] = again.tried
    assert (host, port, str(cause)) == ("kafka", 9092, "refused")


def test_a_lost_connection_says_whether_bytes_were_written() -> None:
    again = pickle.loads(pickle.dumps(ConnectionLostError("lost", host="kafka", port=9092, written=True)))
    assert (again.host, again.port, again.written) == ("kafka", 9092, True)


def test_a_failed_send_many_carries_its_report_through_pickling() -> None:
    report = SendReport(delivered=2, failures=[(1, DeliveryError("no"))])
    again = pickle.loads(pickle.dumps(SendManyError(report)))
    assert again.report.delivered == 2
    assert "1 of 3 records failed" in str(again)


def test_the_error_of_columns_tells_the_first_failed_row_and_survives_pickling() -> None:
    late = errors.DeliveryTimeoutError("late", row=7)
    early = errors.InvalidRecordError("no key", row=3)
    parts = {
        ("t", 0): ColumnsPartition(failed=2, first_error=late, first_failed_row=7),
        ("t", 1): ColumnsPartition(count=5, failed=1, first_error=early, first_failed_row=3),
        ("t", 2): ColumnsPartition(count=4),
    }
    closed = errors.ProducerClosedError("closed")
    report = ColumnsReport(delivered=9, failed=3, untaken=4, partitions=parts, untaken_error=closed)
    error = SendColumnsError(report)
    assert str(error) == "3 of 16 records failed, 4 more were not taken; first: no key (row=3)"
    assert error.__cause__ is early
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert str(again.report.first_error) == "no key (row=3)"
    assert ColumnsReport(untaken=1, untaken_error=closed).first_error is closed


def test_what_can_be_sent_again_says_so() -> None:
    kept = Persistence.NOT_PERSISTED
    again = {kind.__name__ for kind in KINDS if full(kind).retriable or kind("x", persistence=kept).retriable}
    assert {"BufferFullError", "ConnectionLostError", "DeliveryTimeoutError", "UnknownTopicError"} <= again
    for never in ("RecordTooLargeError", "PartitionOutOfRangeError", "SerializationError", "PartitionerError",
                  "ConfigError", "ProducerClosedError", "AuthenticationError"):  # fmt: skip
        assert never not in again


def test_the_time_from_send_to_failure_is_in_seconds() -> None:
    assert full(DeliveryError).elapsed_s == 0.5
