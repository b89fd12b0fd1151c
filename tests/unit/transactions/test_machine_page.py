"""docs/transactions_states.md and the machine say the same: its tables are what the machine does.

`python tests/unit/transactions/test_machine_page.py` makes the tables again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import transaction_variants
from transaction_table import CALLS, CODES, NEWS, SITUATIONS, Cell, Situation, cell, code_event, lost_event

from aiokprod.transactions import machine
from aiokprod.transactions.machine_actions import NO_ANSWER, NO_SUCH_PARTITION, Action, Mode, Reason, Refusal, State
from aiokprod.transactions.machine_codes import Kind, Request, judge

FILE = Path(__file__).parents[3] / "docs" / "transactions_states.md"
BEGIN, END = "<!-- made by test_machine_page.py: begin -->\n", "<!-- end -->\n"
NOTHING = "\N{EN DASH}"


# ---------------------------------------------------------------------- the tables
def generated() -> str:
    """Return the tables."""
    parts = (
        ("### Calls of the user", _calls()),
        ("### Events", _events()),
        ("### Answers", _answers()),
        ("### Codes", _codes()),
    )
    return "\n".join(f"{title}\n\n{table}" for title, table in parts)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _name(situation: Situation) -> str:
    return situation.state.name + (f", {situation.name}" if situation.name else "")


def _effect(found: Cell, situation: Situation) -> str:
    if found.refusal is not None:
        return f"refused: {found.refusal.value}"
    becomes = [f"**{found.state.name}**"] if found.state is not situation.state else []
    return ", ".join([*becomes, *(f"`{name}`" for name in found.names())]) or NOTHING


def _by_mode(situation: Situation, effect: dict[Mode, str]) -> list[tuple[str, str]]:
    """Return (versions, effect): one line if both protocols do the same."""
    if len(set(effect.values())) == 1:
        return [(", ".join(str(mode.value) for mode in effect), next(iter(effect.values())))]
    return [(str(mode.value), text) for mode, text in effect.items()]


def _calls() -> str:
    rows = []
    for situation in SITUATIONS:
        effects = [
            {mode: _effect(cell(situation, mode, event), situation) for mode in situation.modes}
            for event in CALLS.values()
        ]
        same = all(len(set(effect.values())) == 1 for effect in effects)
        for mode in situation.modes[:1] if same else situation.modes:
            versions = ", ".join(str(each.value) for each in situation.modes) if same else str(mode.value)
            rows.append((_name(situation), versions, *(effect[mode] for effect in effects)))
    return _table(("situation", "version", *CALLS), rows)


def _events() -> str:
    rows = []
    for situation in SITUATIONS:
        for name, event in NEWS.items():
            effect = {mode: _effect(cell(situation, mode, event), situation) for mode in situation.modes}
            rows += [(_name(situation), name, *line) for line in _by_mode(situation, effect) if line[1] != NOTHING]
    return _table(("situation", "event", "version", "what happens"), rows)


def _is_waited_for(situation: Situation, request: Request) -> dict[Mode, bool]:
    found = {}
    for mode in situation.modes:
        desk = situation.desk(mode)
        found[mode] = desk.ticket(request) in desk.machine._asked
    return found


def _answers() -> str:
    rows = []
    for request in Request:
        for situation in SITUATIONS:
            modes = [mode for mode, waited in _is_waited_for(situation, request).items() if waited]
            for name, event in (
                *((kind.value, code_event(request, codes[0])) for kind, codes in _kinds(request)),
                ("lost", lost_event(request, written=True)),
                ("not written", lost_event(request, written=False)),
            ):
                effect = {mode: _effect(cell(situation, mode, event), situation) for mode in modes}
                rows += [
                    (request.value, _name(situation), name, *line) for line in _by_mode(situation, effect) if effect
                ]
    return _table(("answer to", "situation", "kind", "version", "what happens"), rows)


def _kinds(request: Request) -> Iterator[tuple[Kind, list[int]]]:
    for kind in Kind:
        codes = [code for code in CODES if judge(request, code).kind is kind]
        if codes:
            yield kind, codes


def _codes() -> str:
    rows = []
    for request in Request:
        for kind, codes in _kinds(request):
            by_reason: dict[Reason, list[int]] = {}
            for code in codes:
                by_reason.setdefault(judge(request, code).reason, []).append(code)
            for reason, each in by_reason.items():
                told = reason.value if kind in (Kind.ABORTABLE, Kind.FATAL, Kind.FENCED) else NOTHING
                rows.append((request.value, kind.value, _numbers(each), told))
    return _table(("request", "kind", "codes", "reason"), rows)


def _numbers(codes: list[int]) -> str:
    if 9999 in codes:
        return "all others"
    texts = {-1: "\N{MINUS SIGN}1", NO_ANSWER: "entry missing", NO_SUCH_PARTITION: "3 confirmed"}
    return ", ".join(texts.get(code, str(code)) for code in sorted(codes))


# ---------------------------------------------------------------------- tests
def _page() -> str:
    return FILE.read_text(encoding="utf-8")


def _column(head: str) -> list[str]:
    """Return the first cells of the table whose head begins so."""
    page = _page()
    assert page.count(f"\n| {head} |") == 1, head
    lines = page[page.index(f"\n| {head} |") + 1 :].split("\n\n")[0].splitlines()
    return [line.strip("|").split("|")[0].strip() for line in lines[2:]]


def test_the_tables_are_what_the_machine_does() -> None:
    assert _page().partition(BEGIN)[2].partition(END)[0] == generated(), "run this file to make the tables again"


def test_every_state_is_in_the_tables() -> None:
    assert {situation.state for situation in SITUATIONS} == set(State)
    assert _column("state") == [f"{state.name}" for state in State]


@pytest.mark.parametrize("request_", Request, ids=lambda request: request.value)
def test_codes_of_one_kind_are_treated_alike(request_: Request) -> None:
    for situation in SITUATIONS:
        for mode in situation.modes:
            for _, codes in _kinds(request_):
                effects = {_effect(cell(situation, mode, code_event(request_, code)), situation) for code in codes}
                assert len(effects) == 1, (situation, codes, effects)


def test_the_actions_the_reasons_and_the_refusals() -> None:
    assert _column("action") == [f"`{action.__name__}`" for action in get_args(Action)]
    assert _column("reason") == [reason.value for reason in Reason]
    assert _column("refusal") == [refusal.value for refusal in Refusal]


def test_each_rule_has_a_machine_in_which_it_is_off() -> None:
    rules = re.findall(r"^\*\*(T\d)", _page(), re.MULTILINE)
    assert rules == [f"T{number}" for number in range(1, 10)]
    said = " ".join(variant.__doc__ or "" for variant in transaction_variants.SAFETY)
    assert set(re.findall(r"\bT\d\b", said)) == set(rules)
    assert set(re.findall(r"\bT\d\b", machine.__doc__ or "")) == set(rules)


if __name__ == "__main__":
    before, _, rest = _page().partition(BEGIN)
    FILE.write_text(before + BEGIN + generated() + END + rest.partition(END)[2], encoding="utf-8")
