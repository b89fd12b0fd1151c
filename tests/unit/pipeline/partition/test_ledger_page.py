"""docs/ledger.md and the ledger say the same: actions, codes, states, reasons. A change of one alone fails here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from ledger_states import EITHER, LEGAL, NEVER, OUTCOMES

from aiokprod.pipeline.partition.batch import BatchOwner, ProducerBatch
from aiokprod.pipeline.partition.ledger_actions import Action, Outcome, Reason, Settle
from aiokprod.pipeline.partition.ledger_entry import State
from aiokprod.pipeline.partition.partition_errors import PartitionErrors
from aiokprod.pipeline.partition.verdicts import NO_ANSWER, TABLE, UNKNOWN_CODE, Kind, judge

PAGE = (Path(__file__).parents[4] / "docs" / "ledger.md").read_text(encoding="utf-8")
CANNOT_BE_CUT = "as refused"
"""The kind on the page of a row that says again what becomes of codes of other rows."""


def table(first: str) -> list[list[str]]:
    """Return the rows, as cells, of the one table whose head begins with these words."""
    assert PAGE.count(f"\n| {first} |") == 1, first
    lines = PAGE[PAGE.index(f"\n| {first} |") + 1 :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def codes(cell: str) -> list[int]:
    found = [int(number) for number in re.findall(r"-?\d+", cell.replace("\N{MINUS SIGN}", "-"))]
    return found + [NO_ANSWER] * ("entry missing" in cell)


def test_the_actions() -> None:
    assert [row[0] for row in table("action")] == [f"`{action.__name__}`" for action in get_args(Action)]


def test_each_code_is_in_one_row_of_its_kind() -> None:
    rows = [row for row in table("answer | kind") if row[1] != CANNOT_BE_CUT]
    listed = [code for row in rows for code in codes(row[0])]
    assert sorted(listed) == sorted({*TABLE, -1})
    assert {row[1] for row in rows} == {kind.name for kind in Kind}


@pytest.mark.parametrize("row", table("answer | kind"), ids=lambda row: row[0])
def test_a_row_says_what_the_code_is_judged_to_be(row: list[str]) -> None:
    answer, kind, attempt, clean, doubtful, _ = row
    for code in codes(answer):
        verdict = judge(code)
        if kind == CANNOT_BE_CUT:
            assert verdict.kind in (Kind.TOO_LARGE, Kind.INVALID)
            continue
        assert verdict.kind.name == kind
        assert verdict.wants_metadata is ("+ metadata" in clean) is ("+ metadata" in doubtful)
        if verdict.kind is not Kind.DONE:
            assert attempt == ("ambiguous" if verdict.is_ambiguous else "clean")


def test_all_other_codes_are_unknown() -> None:
    assert judge(-1) is UNKNOWN_CODE
    assert "unknown codes" in next(row[0] for row in table("answer | kind") if row[1] == Kind.UNKNOWN.name)


def test_the_states_and_what_goes_with_them() -> None:
    said = {EITHER: "maybe", NEVER: "no"}
    expected = [[state.value, *(said.get(fact, "yes") for fact in LEGAL[state])] for state in State]
    assert table("state | stamped") == expected


def test_what_happens_is_said_of_each_state() -> None:
    assert [row[0] for row in table("state | 0 / 46")] == [state.value for state in State]


def test_the_reasons_and_their_outcomes() -> None:
    expected = [[reason.value, {Outcome[name] for name in row[1].split(", ")}] for reason, row in _reasons()]
    assert expected == [[reason.value, OUTCOMES[reason]] for reason in Reason]
    assert [row[0] for row in table("reason | outcomes")] == [reason.value for reason in Reason]


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.value)
def test_the_error_of_each_reason(reason: Reason) -> None:
    documented = dict(_reasons())[reason][3]
    for outcome in OUTCOMES[reason]:
        batch = ProducerBatch(BatchOwner(), 0.0, 1.0, 0, 0, 0)
        settle = Settle(batch, [(0, 1)], outcome, None, reason, None, 1)
        if outcome is Outcome.DELIVERED:
            assert documented == "\N{EN DASH}"
            with pytest.raises(AssertionError, match="delivered"):
                PartitionErrors("t", 0).error_of(settle, 0.0)
        else:
            assert type(PartitionErrors("t", 0).error_of(settle, 0.0)).__name__ == documented


def _reasons() -> list[tuple[Reason, list[str]]]:
    return [(Reason(row[0]), row) for row in table("reason | outcomes")]
