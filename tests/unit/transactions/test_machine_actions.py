"""The words of the machine: each is used, and each state refuses in its own way."""

from __future__ import annotations

from typing import get_args

from transaction_table import CALLS, SITUATIONS, cell, cells

from aiokprod.transactions.machine_actions import Action, Cause, Closed, Mode, Reason, Refusal, State


def test_every_action_is_asked_for_somewhere() -> None:
    seen = {type(action) for mode in Mode for _, _, found in cells(mode) for action in found.actions}
    assert seen == set(get_args(Action))


def test_every_reason_is_told_somewhere() -> None:
    causes = {
        getattr(action, "cause", None) for mode in Mode for _, _, found in cells(mode) for action in found.actions
    }
    assert {cause.reason for cause in causes if isinstance(cause, Cause)} == set(Reason)


def test_every_refusal_is_given_somewhere() -> None:
    given = {
        cell(situation, mode, call).refusal
        for situation in SITUATIONS
        for mode in situation.modes
        for call in CALLS.values()
    }
    desk = SITUATIONS[3].desk(Mode.VERSION_2)
    assert Closed() in desk.machine.close(0.0, 1.0)
    given.add(desk.machine.may_send())
    assert given - {None} == set(Refusal)


def test_after_close_every_call_is_refused() -> None:
    for situation in SITUATIONS:
        desk = situation.desk(situation.modes[0])
        desk.did(desk.machine.close(0.0, 1.0))
        for name, call in CALLS.items():
            if not name.startswith("close"):
                assert call(desk) is Refusal.CLOSED, (situation, name)


def test_each_state_has_one_value() -> None:
    assert len({state.value for state in State}) == len(State) == 11
