"""The table "Codes" of docs/ledger.md, by what a ledger does with each code: for a clean, an ambiguous and a proved head."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from ledger_desk import DELIVERY_TIMEOUT_S, IDENTITY, Desk, numbers
from test_ledger_page import codes, table

from aiokprod.pipeline.partition.ledger import Outcome
from aiokprod.pipeline.partition.ledger_entry import State

FEW, TIMED_OUT, OUT_OF_ORDER = 19, 7, 45
UNKNOWN = (-32_768, 136, 999)
COLUMNS = {"head clean": 3, "head ambiguous": 4, "head ambiguous and proved": 5}
ROWS = table("answer | kind")
NOTHING = "\N{EN DASH}"
"""Of a head that cannot be clean, because the attempt is ambiguous."""


class Case:
    """A head, and a batch behind it with numbers of its own, after one answer to the head; the clock has passed the backoff.

    Clean: the first attempt, with the one behind it in flight. Ambiguous: the second, after a lost answer. Proved: the batch
    behind it was acknowledged meanwhile.
    """

    def __init__(self, column: str, code: int, named: tuple[int, ...], count: int) -> None:
        desk = self.desk = Desk()
        desk.warm()
        head, behind = self.head, self.behind = desk.send(count), desk.send()
        assert desk.fly() == [head, behind]
        if column != "head clean":
            desk.answer(head, TIMED_OUT)
            desk.answer(behind, *((0, 7) if "proved" in column else (FEW, -1)))
            desk.returned()
            desk.backoff()
            assert desk.fly() == [head]
        ((_, self.first, self.count),) = numbers([head])
        chases = len(desk.chases)
        desk.answer(head, code, named=named)
        self.is_ambiguous = head.is_ambiguous
        self.bounced = len(desk.chases) > chases
        if self.bounced:
            if behind.is_flying:
                desk.answer(behind, OUT_OF_ORDER)  # as a broker does that waits for the head (broker: 4.1)
            desk.returned()
            desk.backoff()

    def told(self) -> list[tuple[Outcome, int | None]]:
        """Return what the callers of the head were told; record 0 warmed the ledger up."""
        return [self.desk.told[record] for record in range(1, 1 + self.count) if record in self.desk.told]

    def goes_on_at(self, sequence: int) -> None:
        """Check that the batch behind goes next, under the same identity, from this number on."""
        assert not self.desk.bumps
        assert self.desk.fly() == [self.behind]
        assert numbers([self.behind]) == [(IDENTITY[1], sequence, 1)]


def acked(case: Case) -> None:
    assert [outcome for outcome, _ in case.told()] == [Outcome.DELIVERED]
    assert case.head.state is State.ACKED and not case.bounced


def again(case: Case) -> None:
    assert case.bounced and not case.told()
    assert case.desk.fly() == [case.head]
    assert numbers([case.head]) == [(IDENTITY[1], case.first, case.count)]


def again_until_its_deadline(case: Case) -> None:
    again(case)
    case.desk.sleep(DELIVERY_TIMEOUT_S)
    assert case.told() == [(Outcome.DELIVERED, None)]


def split(case: Case) -> None:
    (part,) = case.desk.fly()
    front = part.count
    assert 0 < front < case.count
    assert numbers(list(case.desk.ledger.entries)[:2]) == [
        (IDENTITY[1], case.first, front),
        (IDENTITY[1], case.first + front, case.count - front),
    ]
    assert not case.told() and not case.desk.bumps


def those_named_not(case: Case) -> None:
    assert case.told() == [(Outcome.NOT, None)]
    assert case.desk.fly() == [case.head]
    assert numbers([case.head]) == [(IDENTITY[1], case.first, case.count - 1)]
    assert not case.desk.bumps


def not_and_close_up(case: Case) -> None:
    assert case.told() == [(Outcome.NOT, None)] * case.count
    case.goes_on_at(case.first)


def possibly_and_go_on(case: Case) -> None:
    assert case.told() == [(Outcome.POSSIBLY, None)] * case.count
    case.goes_on_at(case.first + case.count)


def delivered(case: Case) -> None:
    assert case.told() == [(Outcome.DELIVERED, None)] * case.count
    assert not case.desk.bumps


def delivered_at_once(case: Case) -> None:
    assert not case.bounced
    delivered(case)


def bump(case: Case) -> None:
    assert not case.told()
    assert case.desk.bumps == [(IDENTITY, False)]


def bump_fresh(case: Case) -> None:
    assert not case.told()
    assert case.desk.bumps == [(IDENTITY, True)]


def possibly_and_bump_fresh(case: Case) -> None:
    assert case.told() == [(Outcome.POSSIBLY, None)]
    assert case.desk.bumps == [(IDENTITY, True)]


def asked(case: Case) -> None:
    assert case.head.state is State.ASKED
    assert not case.bounced and not case.told()
    case.goes_on_at(case.first + case.count)


MEANS: dict[str, Callable[[Case], None]] = {
    "ACKED at once, from anywhere": acked,
    "ACKED": acked,
    "again": again,
    "again, + metadata": again,
    "again, until its deadline": again_until_its_deadline,
    "split (R4.4)": split,
    "those NOT, rest renumbered (R4)": those_named_not,
    "NOT, close up": not_and_close_up,
    "POSSIBLY, go on (R2.3)": possibly_and_go_on,
    "POSSIBLY, go on": possibly_and_go_on,
    "DELIVERED, None": delivered,
    "DELIVERED, None, at once": delivered_at_once,
    "bump": bump,
    "bump, fresh producer id": bump_fresh,
    "all ambiguous POSSIBLY, bump, fresh id": possibly_and_bump_fresh,
    "R7": asked,
}


def answers(cell: str) -> Iterator[tuple[int, tuple[int, ...], int]]:
    """Return (code, records named, records in the batch) of each answer in the first cell of a row."""
    for part in cell.split("; "):
        named = (1,) if "with named records" in part else ()
        count = 2 if named or "several records" in part or "without names" in part else 1
        for code in codes(part):
            yield code, named, count
        if "unknown codes" in part:
            for code in UNKNOWN:
                yield code, named, count


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_ledger_does_with_each_code_what_the_page_says(row: list[str], column: str) -> None:
    cell = row[COLUMNS[column]]
    if cell == NOTHING:
        assert row[2] == "ambiguous"
        return
    for code, named, count in answers(row[0]):
        case = Case(column, code, named, count)
        MEANS[cell](case)
        assert (code in case.desk.wants) is ("+ metadata" in row[COLUMNS["head clean"]])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_first_attempt_is_as_clean_as_the_page_says(row: list[str]) -> None:
    for code, named, count in answers(row[0]):
        case = Case("head clean", code, named, count)
        assert case.is_ambiguous is (row[2] == "ambiguous")
        if not case.is_ambiguous:
            assert Outcome.POSSIBLY not in {outcome for outcome, _ in case.told()}


def test_all_words_of_the_table_are_tried() -> None:
    said = {cell for row in ROWS for cell in row[3:]} - {NOTHING}
    assert said == set(MEANS)
    assert all(list(answers(row[0])) for row in ROWS)
