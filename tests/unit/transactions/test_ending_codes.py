"""The decision about a prepared transaction: every code, version and verdict; and every case of a log."""

from __future__ import annotations

from itertools import product

import pytest

from aiokprod.transactions.ending_codes import ANSWERS, Answer, LoggedBatch, LogSays, answer_of, log_says, outcome_of
from aiokprod.transactions.machine_actions import Mode, Outcome, Verdict
from aiokprod.transactions.machine_codes import RETRIED, Kind
from aiokprod.wire.codes import ErrorCode

EXPECTED = {
    0: Answer.DONE,
    48: Answer.OTHER,
    51: Answer.CONCURRENT,
    14: Answer.MOVED,
    15: Answer.MOVED,
    16: Answer.MOVED,
    52: Answer.MOVED,
    47: Answer.TAKEN,
    90: Answer.TAKEN,
    49: Answer.TAKEN,
    53: Answer.REFUSED,
    31: Answer.REFUSED,
    35: Answer.REFUSED,
    42: Answer.REFUSED,
    120: Answer.REFUSED,
}


def test_every_code_has_its_meaning() -> None:
    for code in (*(int(code) for code in ErrorCode), 9999):
        assert answer_of(code) is EXPECTED.get(code, Answer.AGAIN), code
    assert {int(code) for code in ANSWERS} == set(EXPECTED)


def test_what_the_producer_asks_again_is_asked_again_here() -> None:
    again = {Answer.AGAIN: Kind.AGAIN, Answer.MOVED: Kind.MOVED, Answer.CONCURRENT: Kind.CONCURRENT}
    for code, kind in RETRIED.items():
        assert again[answer_of(code)] is kind


@pytest.mark.parametrize(
    ("answer", "mode", "verdict"), list(product(Answer, Mode, Verdict)), ids=lambda each: each.name
)
def test_only_two_answers_tell_the_outcome(answer: Answer, mode: Mode, verdict: Verdict) -> None:
    asked, other = (
        (Outcome.COMMITTED, Outcome.ABORTED) if verdict is Verdict.COMMIT else (Outcome.ABORTED, Outcome.COMMITTED)
    )
    expected = {Answer.DONE: asked, Answer.OTHER: other}.get(answer)
    assert outcome_of(answer, mode, verdict) is expected


# ---------------------------------------------------------------------- the log
WHO = (7, 3)
FIRST, LAST = 10, 12


def batch(**changes: object) -> LoggedBatch:
    fields: dict[str, object] = {
        "producer_id": 7, "epoch": 3, "base_offset": 10, "last_offset": 12, "count": 3,
        "is_transactional": True, "is_control": False,
    }  # fmt: skip
    return LoggedBatch(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("stable", [10, 11, 12])
@pytest.mark.parametrize("aborted", [(), ((7, 10),)], ids=["no abort", "abort"])
def test_without_a_replicated_marker_it_is_open(stable: int, aborted: tuple[tuple[int, int], ...]) -> None:
    assert log_says(WHO, FIRST, LAST, batch(), stable, aborted) is LogSays.OPEN


def test_the_list_of_aborted_transactions_decides() -> None:
    assert log_says(WHO, FIRST, LAST, batch(), 13, ()) is LogSays.COMMITTED
    assert log_says(WHO, FIRST, LAST, batch(), 14, ((7, 10),)) is LogSays.ABORTED
    # An offset that no broker told: the transaction may begin before the first one that is known.
    assert log_says(WHO, FIRST, LAST, batch(), 14, ((7, 8),)) is LogSays.ABORTED
    assert log_says(WHO, FIRST, LAST, batch(base_offset=9), 14, ()) is LogSays.COMMITTED
    # Another producer's, and the next one of this producer.
    assert log_says(WHO, FIRST, LAST, batch(), 14, ((8, 10), (7, 20))) is LogSays.COMMITTED


@pytest.mark.parametrize(
    "found",
    [
        None,
        batch(producer_id=8),
        batch(epoch=4),
        batch(base_offset=11),
        batch(base_offset=5, last_offset=9),
        batch(count=0),
        batch(is_transactional=False),
        batch(is_control=True),
    ],
    ids=["none", "other producer", "other epoch", "later", "earlier", "emptied", "plain", "marker"],
)
@pytest.mark.parametrize("aborted", [(), ((7, 10),)], ids=["no abort", "abort"])
def test_without_its_record_nothing_is_told(found: LoggedBatch | None, aborted: tuple[tuple[int, int], ...]) -> None:
    assert log_says(WHO, FIRST, LAST, found, 100, aborted) is LogSays.NOTHING
