"""Every cell of (situation, event, code) is decided, and none breaks a rule of docs/transactions_states.md."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from transaction_table import CALLS, SITUATIONS, Cell, Situation, cells, events

from aiokprod.transactions.machine_actions import (
    CommitRefused,
    Ended,
    FailQueued,
    LostId,
    Mode,
    Outcome,
    Prepared,
    Refusal,
    Release,
    SendAddOffsets,
    SendAddPartitions,
    SendEndTxn,
    SendInitProducerId,
    SendTxnOffsetCommit,
    State,
    TakeIdentity,
    Verdict,
)
from aiokprod.transactions.machine_codes import Request

FINAL = {State.FENCED, State.FAILED}
ENDING = {State.COMMITTING, State.ABORTING}
IN_TRANSACTION = {State.OPEN, State.ABORTABLE, *ENDING}


def _walk(mode: Mode, holds: Callable[[Situation, str, Cell], bool], every_code: bool = False) -> None:
    wrong = []
    count = 0
    for situation, name, found in cells(mode, every_code):
        count += 1
        if not holds(situation, name, found):
            wrong.append(f"{situation.state.name} {situation.name}, {name}: {found.state.name} {found.names()}")
    assert not wrong, wrong[:5]
    assert count == sum(mode in situation.modes for situation in SITUATIONS) * len(list(events(every_code)))


each_mode = pytest.mark.parametrize("mode", Mode, ids=lambda mode: mode.name)


@each_mode
def test_every_cell_is_decided(mode: Mode) -> None:
    def holds(situation: Situation, name: str, found: Cell) -> bool:
        # A machine that was spoilt by the event would fail at the next step.
        found.desk.machine.tick(found.desk.now)
        return isinstance(found.state, State)

    _walk(mode, holds, every_code=True)


@each_mode
def test_a_refused_call_changes_nothing(mode: Mode) -> None:
    refused = 0
    for situation in SITUATIONS:
        if mode not in situation.modes:
            continue
        for name, call in CALLS.items():
            desk = situation.desk(mode)
            before = pickle.dumps(vars(desk.machine))
            out = call(desk)
            if isinstance(out, Refusal):
                refused += 1
                assert pickle.dumps(vars(desk.machine)) == before, (situation, name)
    assert refused > 60


@each_mode
def test_fenced_and_failed_are_final_and_told_once(mode: Mode) -> None:
    def holds(situation: Situation, name: str, found: Cell) -> bool:
        told = sum(isinstance(action, LostId) for action in found.actions)
        if situation.state in FINAL:
            return found.state is situation.state and not told
        return told == (found.state in FINAL)

    _walk(mode, holds)


@each_mode
def test_each_end_that_was_asked_for_is_told_once(mode: Mode) -> None:
    def holds(situation: Situation, name: str, found: Cell) -> bool:
        told = sum(isinstance(action, Ended | CommitRefused | Prepared) for action in found.actions)
        if situation.state in ENDING:
            # What was prepared and is closed in vain: the preparation was refused, and the abort goes on.
            is_refused = name == "close, not kept" and situation.name.startswith("preparing")
            return told == (found.state not in ENDING or is_refused) or (name == "close" and told <= 2)
        return told <= (name in ("abort", "close", "close, not kept") or _is_empty_prepared(situation, name))

    _walk(mode, holds)


@each_mode
def test_committed_is_told_behind_success_only(mode: Mode) -> None:
    def holds(situation: Situation, name: str, found: Cell) -> bool:
        if not any(isinstance(action, Ended) and action.outcome is Outcome.COMMITTED for action in found.actions):
            return True
        empty = situation.name == "nothing asked for" and name == "flushed"
        if _is_empty_prepared(situation, name):
            return True
        return situation.state is State.COMMITTING and (empty or name == f"{Request.END.value} 0")

    _walk(mode, holds)


def _is_empty_prepared(situation: Situation, name: str) -> bool:
    return situation.state is State.PREPARED and situation.name == "nothing asked for" and name == "commit"


@each_mode
def test_a_prepared_transaction_is_ended_by_a_call_alone(mode: Mode) -> None:
    def holds(situation: Situation, name: str, found: Cell) -> bool:
        if situation.state is State.PREPARED:
            ends = name in ("commit", "abort", "close, not kept")
            asked = [action for action in found.actions if isinstance(action, SendEndTxn | SendInitProducerId)]
            return (found.state is State.PREPARED) is not ends and bool(asked) is (
                ends and situation.name != "nothing asked for"
            )
        # Only what was asked for is prepared, and no end is asked for beside it.
        if any(isinstance(action, Prepared) for action in found.actions):
            asked_for = situation.name == "preparing" and name == "flushed"
            return asked_for and not any(isinstance(action, SendEndTxn) for action in found.actions)
        return found.state is not State.PREPARED

    _walk(mode, holds)


@each_mode
def test_an_identity_is_taken_between_transactions_with_nothing_stamped_in_flight(mode: Mode) -> None:
    def holds(situation: Situation, name: str, found: Cell) -> bool:
        if not any(isinstance(action, TakeIdentity) for action in found.actions):
            return True
        in_flight = situation.name in ("in flight", "the last one drains") and name != "drained"
        # READY, or a transaction that has begun and stamps nothing before.
        return not in_flight and found.state in (State.READY, State.OPEN) and not situation.name.startswith("records")

    _walk(mode, holds)


@each_mode
def test_an_epoch_is_never_renewed_inside_a_transaction_that_the_coordinator_knows(mode: Mode) -> None:
    def holds(situation: Situation, name: str, found: Cell) -> bool:
        asked = [action for action in found.actions if isinstance(action, SendInitProducerId)]
        if not asked:
            return True
        if asked[0].epoch < 0:
            return found.state is State.INITIALISING
        if found.desk.machine._work.is_gone:  # the coordinator does not know the transaction
            return name == f"{Request.END.value} 49" or situation.name.startswith("the id is gone")
        behind_version_1 = situation.name in ("behind one of version 1", "the last one was of version 1")
        between = not found.desk.machine._work.end and found.state in (State.READY, State.OPEN)
        return between and (mode is Mode.VERSION_1 or behind_version_1)

    _walk(mode, holds)


@each_mode
def test_a_transaction_begins_only_with_the_last_outcome_known(mode: Mode) -> None:
    def holds(situation: Situation, name: str, found: Cell) -> bool:
        begun = name == "begin" and found.refusal is None
        return begun == (name == "begin" and situation.state is State.READY)

    _walk(mode, holds)


@each_mode
def test_a_commit_is_asked_for_in_committing_only(mode: Mode) -> None:
    def holds(situation: Situation, name: str, found: Cell) -> bool:
        verdicts = [action.verdict for action in found.actions if isinstance(action, SendEndTxn)]
        if found.state is State.UNKNOWN and verdicts:  # an abort that was asked for goes on
            was_done = "a commit and" in situation.name and name == f"{Request.END.value} 48"
            return "an abort" in situation.name and verdicts == [Verdict.COMMIT if was_done else Verdict.ABORT]
        if Verdict.COMMIT in verdicts:
            return found.state is State.COMMITTING and situation.state is not State.ABORTABLE
        return Verdict.ABORT not in verdicts or found.state is State.ABORTING

    _walk(mode, holds)


@each_mode
def test_a_protocol_sends_its_own_requests_only(mode: Mode) -> None:
    def holds(situation: Situation, name: str, found: Cell) -> bool:
        for action in found.actions:
            if isinstance(action, SendAddPartitions | SendAddOffsets) and mode is Mode.VERSION_2:
                return False
            if isinstance(action, SendTxnOffsetCommit | SendEndTxn) and action.mode is not mode:
                return False
        return True

    _walk(mode, holds)


@each_mode
def test_nothing_is_let_go_or_asked_for_once_a_transaction_has_failed(mode: Mode) -> None:
    def holds(situation: Situation, name: str, found: Cell) -> bool:
        if found.state not in (State.ABORTABLE, State.ABORTING, State.UNKNOWN, *FINAL):
            return True
        return not any(
            isinstance(action, Release | SendAddPartitions | SendTxnOffsetCommit) for action in found.actions
        )

    _walk(mode, holds)


@each_mode
def test_queued_records_fail_when_a_transaction_fails(mode: Mode) -> None:
    def holds(situation: Situation, name: str, found: Cell) -> bool:
        machine = found.desk.machine
        was_open = situation.state is State.OPEN or (
            situation.state is State.COMMITTING and "ending" not in situation.name
        )
        # Not once all records are settled.
        if not was_open or machine._work.flushed or found.state in (State.OPEN, State.COMMITTING, State.READY):
            return True
        return any(isinstance(action, FailQueued) for action in found.actions)

    _walk(mode, holds)


@each_mode
def test_an_answer_that_is_not_waited_for_changes_nothing(mode: Mode) -> None:
    for situation in SITUATIONS:
        if mode not in situation.modes:
            continue
        desk = situation.desk(mode)
        machine = desk.machine
        before = pickle.dumps(vars(machine))
        for code in (0, 47, 48, 51, 53, 90):
            assert machine.init_answered(999, code, 9, 9, 0.0) == []
            assert machine.partitions_added(999, {("t", 0): code}, 0.0) == []
            assert machine.offsets_added(999, code, 0.0) == []
            assert machine.offsets_committed(999, {("t", 0): code}, 0.0) == []
            assert machine.end_answered(999, code, 9, 9, 0.0) == []
        assert machine.lost(999, written=True, now=0.0) == []
        assert pickle.dumps(vars(machine)) == before, situation
