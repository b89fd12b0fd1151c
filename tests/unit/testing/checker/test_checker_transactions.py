"""The check of transactions: a true history is clean, and each way to be wrong has its own finding."""

from __future__ import annotations

import pytest

from aiokprod import TransactionOutcome
from aiokprod.testing.checker import Kind, LogRecord, Outcome, Sent, TransactionRun, check_transactions

COMMITTED, ABORTED, UNKNOWN = TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED, TransactionOutcome.UNKNOWN
PLACE = ("g", "in", 0)


def run(name: str, outcome: TransactionOutcome | None, *identities: int, offset: int | None = None) -> TransactionRun:
    sends = [Sent(identity, "t", 0, outcome=Outcome.DELIVERED, settled=1) for identity in identities]
    return TransactionRun(name, outcome=outcome, sends=sends, offsets={} if offset is None else {PLACE: offset})


def log(*identities: int) -> list[LogRecord]:
    return [LogRecord("t", 0, offset, identity) for offset, identity in enumerate(identities)]


def kinds(
    runs: list[TransactionRun], seen: list[LogRecord], offsets: dict[tuple[str, str, int], int] | None = None
) -> list[Kind]:
    return [finding.kind for finding in check_transactions(runs, seen, offsets)]


def test_a_true_history_of_transactions_is_clean() -> None:
    runs = [run("a", COMMITTED, 1, 2, offset=5), run("b", ABORTED, 3, offset=6), run("c", UNKNOWN, 4, 5, offset=7)]
    assert kinds(runs, log(1, 2), {PLACE: 5}) == []
    assert kinds(runs, log(1, 2, 4, 5), {PLACE: 7}) == []
    assert kinds([run("killed", None, 1, 2)], log()) == []


@pytest.mark.parametrize(
    ("runs", "seen", "found"),
    [
        pytest.param([run("a", COMMITTED, 1, 2)], log(1), [Kind.LOST], id="a record is missing"),
        pytest.param([run("a", ABORTED, 1, 2)], log(1), [Kind.ABORTED_READ], id="an aborted one is read"),
        pytest.param([run("a", UNKNOWN, 1, 2)], log(2), [Kind.TORN], id="half of it"),
        pytest.param([run("a", COMMITTED, 1)], log(1, 1), [Kind.DUPLICATE], id="twice"),
        pytest.param([run("a", COMMITTED, 1)], log(1, 2), [Kind.GHOST], id="never sent"),
        pytest.param([run("a", COMMITTED, 1, 2)], log(2, 1), [Kind.REORDERED], id="out of order"),
        pytest.param(
            [run("a", COMMITTED, 1), run("b", COMMITTED, 2)],
            log(2, 1),
            [Kind.REORDERED],
            id="transactions out of order",
        ),
    ],
)
def test_each_wrong_of_records_is_found(runs: list[TransactionRun], seen: list[LogRecord], found: list[Kind]) -> None:
    assert kinds(runs, seen) == found


def test_a_commit_with_a_failed_record_is_found() -> None:
    failed = run("a", COMMITTED, 1, 2)
    failed.sends[1].outcome = Outcome.NOT_PERSISTED
    assert kinds([failed], log(1)) == [Kind.COMMITTED_WITH_FAILURE]
    failed.left_out.add(2)  # it was recalled
    assert kinds([failed], log(1)) == []


@pytest.mark.parametrize(
    ("runs", "is_now", "found"),
    [
        pytest.param([run("a", COMMITTED, offset=5)], {}, [Kind.LOST_OFFSET], id="none is there"),
        pytest.param(
            [run("a", COMMITTED, offset=5), run("b", COMMITTED, offset=6)],
            {PLACE: 5},
            [Kind.LOST_OFFSET],
            id="an older one",
        ),
        pytest.param(
            [run("a", COMMITTED, offset=5), run("b", ABORTED, offset=6)], {PLACE: 6}, [Kind.DIRTY_OFFSET], id="aborted"
        ),
        pytest.param([run("a", UNKNOWN, 1, offset=5)], {PLACE: 5}, [Kind.DIRTY_OFFSET], id="its records are not there"),
        pytest.param([run("a", UNKNOWN, offset=5)], {PLACE: 5}, [], id="unknown and committed"),
        pytest.param([run("a", UNKNOWN, offset=5)], {}, [], id="unknown and aborted"),
    ],
)
def test_each_wrong_of_offsets_is_found(
    runs: list[TransactionRun], is_now: dict[tuple[str, str, int], int], found: list[Kind]
) -> None:
    assert kinds(runs, [], is_now) == found
