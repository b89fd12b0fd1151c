"""The course of transactions, call by call, as a user and a coordinator see it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from transaction_table import DEADLINE, HERE, NEXT, THERE, WHO, Desk

from aiokprod.transactions.machine_actions import (
    NO_ANSWER,
    Action,
    AskMarkers,
    Cause,
    Closed,
    CommitRefused,
    Ended,
    Entrance,
    FailPartition,
    FailQueued,
    Flush,
    ForgetCoordinator,
    FoundOut,
    Hold,
    Initialised,
    InitialiseFailed,
    LostId,
    Mode,
    OffsetsDone,
    Outcome,
    Prepared,
    Reason,
    Refusal,
    Release,
    SendAddOffsets,
    SendAddPartitions,
    SendEndTxn,
    SendInitProducerId,
    SendTxnOffsetCommit,
    State,
    TakeIdentity,
    TimeoutNear,
    Verdict,
    WakeAt,
)
from aiokprod.transactions.machine_codes import Request
from aiokprod.transactions.machine_jobs import MARKERS_S, MOST_CONTRADICTIONS

V1, V2 = Mode.VERSION_1, Mode.VERSION_2
ASKED = Cause(Reason.ASKED)
both = pytest.mark.parametrize("mode", Mode, ids=lambda mode: mode.name)


def told(actions: Iterable[Action]) -> list[Action]:
    return [action for action in actions if not isinstance(action, WakeAt)]


def desk(mode: Mode, *steps: str) -> Desk:
    made = Desk(mode)
    for step in steps:
        getattr(made, step)()
    return made


# ---------------------------------------------------------------------- taking the id
@both
def test_the_id_is_taken_over_and_the_identity_handed_out(mode: Mode) -> None:
    made = desk(mode)
    out = made.did(made.machine.initialise(0.0, DEADLINE))
    assert told(out) == [SendInitProducerId(1, -1, -1)]
    assert WakeAt(DEADLINE) in out
    assert told(made.answer(Request.INIT_PRODUCER_ID, 0, WHO)) == [Initialised(), TakeIdentity(*WHO)]
    assert made.machine.identity == WHO


@both
@pytest.mark.parametrize("code", [14, 15, 16, 51])
def test_taking_the_id_goes_on_behind_a_predecessor_and_a_moved_coordinator(mode: Mode, code: int) -> None:
    # faults: X2, X3
    made = desk(mode, "initialise")
    out = made.answer(Request.INIT_PRODUCER_ID, code)
    assert (ForgetCoordinator(None) in out) is (code != 51)
    assert made.machine.state is State.INITIALISING
    assert told(made.wait()) == [SendInitProducerId(2, -1, -1)]


def test_an_answer_behind_the_deadline_is_kept_for_the_next_call() -> None:
    made = desk(V2, "initialise")
    assert InitialiseFailed(Cause(Reason.DEADLINE)) in made.expire()
    assert made.answer(Request.INIT_PRODUCER_ID, 0, WHO) == []
    assert told(made.did(made.machine.initialise(0.0, DEADLINE))) == [Initialised(), TakeIdentity(*WHO)]


def test_a_refused_timeout_is_told_with_its_code() -> None:
    made = desk(V2, "initialise")
    cause = Cause(Reason.BAD_TIMEOUT, 50)
    assert told(made.answer(Request.INIT_PRODUCER_ID, 50)) == [InitialiseFailed(cause), LostId(cause)]


@both
def test_a_broken_identity_is_asked_for_again(mode: Mode) -> None:
    made = desk(mode, "initialise")
    assert told(made.answer(Request.INIT_PRODUCER_ID, 0, (-1, 5))) == []
    assert made.machine.state is State.INITIALISING


@pytest.mark.parametrize("given", [WHO, (WHO[0], WHO[1] - 1), (WHO[0], -1), (-1, 5)], ids=str)
def test_an_end_that_hands_out_no_later_identity_is_followed_by_a_renewal(given: tuple[int, int]) -> None:
    # In an epoch that was used, partitions answer the sequences from 0 on as duplicates and keep nothing.
    made = desk(V2, "end_commit")
    out = told(made.answer(Request.END, 0, given))
    assert out == [Ended(1, Outcome.COMMITTED, ASKED), SendInitProducerId(made.ticket(Request.INIT_PRODUCER_ID), *WHO)]
    assert told(made.answer(Request.INIT_PRODUCER_ID, 0, WHO)) == [], "not by a renewal either: it is asked for again"
    assert told(made.wait()) == [SendInitProducerId(4, *WHO)]
    assert told(made.answer(Request.INIT_PRODUCER_ID, 0, (WHO[0], WHO[1] + 1))) == [TakeIdentity(WHO[0], WHO[1] + 1)]


# ---------------------------------------------------------------------- partitions and offsets
def test_version_1_adds_the_partitions_of_a_turn_in_one_request_and_holds_their_batches() -> None:
    made = desk(V1, "begin")
    assert made.machine.send_partition(HERE, 0.0) is Entrance.WAIT
    assert made.machine.send_partition(THERE, 0.0) is Entrance.WAIT
    assert SendAddPartitions(2, *WHO, (HERE, THERE)) in made.did(made.machine.turn_ended(0.0))
    assert told(made.answer(Request.ADD_PARTITIONS, 0)) == [Release((HERE, THERE))]
    assert made.machine.send_partition(HERE, 0.0) is Entrance.GO


def test_version_2_lets_a_partition_go_at_once() -> None:
    made = desk(V2, "begin")
    assert made.machine.send_partition(HERE, 0.0) is Entrance.GO
    assert told(made.did(made.machine.turn_ended(0.0))) == []


def test_an_unknown_partition_does_not_hold_the_others() -> None:
    made = desk(V1, "begin")
    made.machine.send_partition(HERE, 0.0)
    made.machine.send_partition(THERE, 0.0)
    made.did(made.machine.turn_ended(0.0))
    ticket = made.ticket(Request.ADD_PARTITIONS)
    made.did(made.machine.partitions_added(ticket, {HERE: 55, THERE: 3}, 0.0))
    again = made.sent[Request.ADD_PARTITIONS]
    assert isinstance(again, SendAddPartitions)
    assert again.partitions == (HERE,)
    assert Release((HERE,)) in made.answer(Request.ADD_PARTITIONS, 0)
    made.wait()
    last = made.sent[Request.ADD_PARTITIONS]
    assert isinstance(last, SendAddPartitions)
    assert last.partitions == (THERE,)


def test_a_partition_that_may_not_be_written_fails_by_name_and_makes_the_transaction_abortable() -> None:
    # faults: X16
    made = desk(V1, "begin")
    made.machine.send_partition(HERE, 0.0)
    made.machine.send_partition(THERE, 0.0)
    made.did(made.machine.turn_ended(0.0))
    ticket = made.ticket(Request.ADD_PARTITIONS)
    cause = Cause(Reason.PARTITION_REFUSED, 29)
    out = made.did(made.machine.partitions_added(ticket, {HERE: 55, THERE: 29}, 0.0))
    assert told(out) == [FailPartition(THERE, 29), FailQueued(1, cause)]
    assert made.machine.commit(0.0, DEADLINE) is Refusal.ABORTABLE
    assert made.machine.cause == cause


def test_version_1_adds_a_group_once_and_then_sends_offsets() -> None:
    made = desk(V1, "add_offsets")
    assert isinstance(made.sent[Request.ADD_OFFSETS], SendAddOffsets)
    made.answer(Request.ADD_OFFSETS, 0)
    sent = made.sent[Request.OFFSET_COMMIT]
    assert isinstance(sent, SendTxnOffsetCommit)
    assert (sent.number, sent.group, sent.mode) == (1, "g", V1)
    assert told(made.answer(Request.OFFSET_COMMIT, 0)) == [OffsetsDone(1, None)]
    out = made.machine.send_offsets("g", 0.0)
    assert isinstance(out, tuple)
    assert [type(action) for action in told(out[1])] == [SendTxnOffsetCommit]


@both
@pytest.mark.parametrize("code", [22, 25, 82])
def test_offsets_of_a_group_that_moved_on_make_the_transaction_abortable(mode: Mode, code: int) -> None:
    # faults: X17
    made = desk(mode, "commit_offsets")
    cause = Cause(Reason.GROUP_MOVED_ON, code)
    assert OffsetsDone(1, cause) in made.answer(Request.OFFSET_COMMIT, code)
    assert made.machine.state is State.ABORTABLE


@both
def test_the_worst_code_of_the_offsets_decides_and_a_missing_one_is_no_success(mode: Mode) -> None:
    made = desk(mode, "commit_offsets")
    ticket = made.ticket(Request.OFFSET_COMMIT)
    made.did(made.machine.offsets_committed(ticket, {HERE: 0, THERE: NO_ANSWER}, 0.0))
    made.wait()
    ticket = made.ticket(Request.OFFSET_COMMIT)
    out = made.did(made.machine.offsets_committed(ticket, {HERE: 15, THERE: 0}, made.now))
    assert ForgetCoordinator("g") in out
    assert made.machine.state is State.OPEN


# ---------------------------------------------------------------------- commit
@both
def test_a_commit_flushes_then_ends_then_is_told(mode: Mode) -> None:
    made = desk(mode, "stamp")
    assert Flush(1) in made.did(made.machine.commit(0.0, DEADLINE))
    assert made.machine.may_send() is Refusal.COMMITTING
    ticket = max(made.machine._asked, default=made.machine._tickets) + 1
    assert told(made.flush()) == [SendEndTxn(ticket, mode, *WHO, Verdict.COMMIT)]
    out = told(made.answer(Request.END, 0))
    assert out[0] == Ended(1, Outcome.COMMITTED, ASKED)
    # faults: X19, X20
    assert out[1:] == ([] if mode is V1 else [TakeIdentity(7, 4)])


def test_a_new_producer_id_at_the_end_of_the_epochs_is_taken() -> None:
    # faults: X19
    made = desk(V2, "end_commit")
    assert TakeIdentity(8, 0) in made.answer(Request.END, 0, (8, 0))


@both
def test_an_empty_transaction_sends_nothing(mode: Mode) -> None:
    # faults: X13
    made = desk(mode, "begin", "commit")
    assert told(made.flush()) == [Ended(1, Outcome.COMMITTED, ASKED)]
    made.did(made.machine.begin(mode, 0.0))
    assert Ended(2, Outcome.ABORTED, ASKED) in made.did(made.machine.abort(0.0, DEADLINE))
    assert Request.END not in made.sent


@both
def test_an_answer_that_is_lost_is_asked_for_again_and_told_once(mode: Mode) -> None:
    # faults: X5
    made = desk(mode, "end_commit")
    assert told(made.lose(Request.END)) == [ForgetCoordinator(None)]
    again = told(made.wait())
    assert isinstance(again[0], SendEndTxn)
    assert (again[0].verdict, again[0].epoch) == (Verdict.COMMIT, WHO[1])
    ends = [action for action in made.answer(Request.END, 0) if isinstance(action, Ended)]
    assert ends == [Ended(1, Outcome.COMMITTED, ASKED)]


@both
@pytest.mark.parametrize("code", [None, 15, 51, -1, 7, 9999])
def test_an_end_without_a_certain_answer_is_unknown_and_is_asked_for_again(mode: Mode, code: int | None) -> None:
    # faults: X6, X7, X18
    made = desk(mode, "end_commit")
    if code is not None:
        made.answer(Request.END, code)
    assert Ended(1, Outcome.UNKNOWN, Cause(Reason.DEADLINE)) in made.expire()
    assert made.machine.begin(mode, 0.0) is Refusal.UNKNOWN
    again = made.did(made.machine.commit(0.0, DEADLINE))
    assert [a.verdict for a in again if isinstance(a, SendEndTxn)] == [Verdict.COMMIT]
    assert Ended(1, Outcome.COMMITTED, ASKED) in made.answer(Request.END, 0)


@both
def test_an_end_that_was_never_written_is_not_unknown_but_refused(mode: Mode) -> None:
    made = desk(mode, "end_commit")
    made.lose(Request.END, written=False)
    assert CommitRefused(1, Cause(Reason.DEADLINE)) in made.expire()
    assert made.machine.state is State.ABORTABLE


def test_an_abort_behind_an_unknown_commit_finds_out_on_version_2() -> None:
    made = desk(V2, "end_commit", "expire", "abort")
    assert [a.verdict for a in made.answer(Request.END, 48) if isinstance(a, SendEndTxn)] == [Verdict.COMMIT]
    assert told(made.answer(Request.END, 0)) == [Ended(1, Outcome.COMMITTED, ASKED), TakeIdentity(7, 4)]


def test_an_abort_behind_an_unknown_commit_goes_on_asking_for_the_commit_on_version_1() -> None:
    # A late AddPartitionsToTxn may have opened a transaction behind the commit: its abort would succeed. faults: X8
    made = desk(V1, "end_commit", "expire")
    out = made.did(made.machine.abort(0.0, DEADLINE))
    assert [a.verdict for a in out if isinstance(a, SendEndTxn)] == [Verdict.COMMIT]


@both
def test_a_commit_behind_an_unknown_abort_asks_for_the_abort(mode: Mode) -> None:
    made = desk(mode, "end_abort", "expire")
    made.lose(Request.END)
    out = made.did(made.machine.commit(0.0, DEADLINE))
    assert [a.verdict for a in out if isinstance(a, SendEndTxn)] == [Verdict.ABORT]


@both
@pytest.mark.parametrize("steps", [(), ("lose",), ("refuse",)], ids=["answered late", "lost", "refused for a time"])
def test_an_unknown_abort_is_asked_for_until_it_is_known(mode: Mode, steps: tuple[str, ...]) -> None:
    made = desk(mode, "end_abort")
    expired = told(made.expire())
    assert expired == [Ended(1, Outcome.UNKNOWN, Cause(Reason.DEADLINE))]
    for step in steps:
        made.lose(Request.END) if step == "lose" else made.answer(Request.END, 15)
        asked = made.wait()
        assert [action.verdict for action in asked if isinstance(action, SendEndTxn)] == [Verdict.ABORT]
    assert made.machine.state is State.UNKNOWN and made.machine.ends_by_itself
    found = [action for action in made.answer(Request.END, 0) if isinstance(action, FoundOut | Ended)]
    assert found == [FoundOut(1, Outcome.ABORTED, Cause(Reason.DEADLINE))]
    assert made.machine.state is State.READY
    assert not isinstance(made.machine.begin(mode, made.now), Refusal)


@pytest.mark.parametrize("mode", [V1, V2])
def test_an_unknown_abort_goes_on_before_anything_was_asked_for(mode: Mode) -> None:
    made = desk(mode, "stamp", "abort")
    made.machine._undrained = made.machine.transaction
    made.expire()
    assert made.machine.state is State.UNKNOWN
    made.drain()
    made.answer(Request.END, 0)
    assert made.machine.state is State.READY


@both
def test_an_unknown_commit_is_asked_for_by_a_call_alone(mode: Mode) -> None:
    made = desk(mode, "end_commit", "expire")
    assert not made.machine.ends_by_itself
    assert made.wait(1000.0) == []


def test_an_unknown_abort_behind_a_commit_that_was_done_finds_that_out() -> None:
    made = desk(V2, "end_commit", "expire", "abort", "expire")
    asked = made.answer(Request.END, 48)
    assert [action.verdict for action in asked if isinstance(action, SendEndTxn)] == [Verdict.COMMIT]
    found = [action for action in made.answer(Request.END, 0) if isinstance(action, FoundOut | Ended)]
    assert [action.outcome for action in found] == [Outcome.COMMITTED] and isinstance(found[0], FoundOut)


@pytest.mark.parametrize("is_unknown", [True, False])
def test_a_coordinator_that_refuses_both_verdicts_is_not_asked_for_ever(is_unknown: bool) -> None:
    made = desk(V2, "end_commit", "expire", "abort", *(["expire"] if is_unknown else []))
    made.answer(Request.END, 48)
    made.answer(Request.END, 48)  # the commit: it was not done
    if not is_unknown:
        assert made.machine.state is State.ABORTABLE
        made.abort()
    for _ in range(MOST_CONTRADICTIONS):
        assert made.machine.state is (State.UNKNOWN if is_unknown else State.ABORTING)
        made.answer(Request.END, 48)
        made.wait()
    lost = made.answer(Request.END, 48)
    assert made.machine.state is State.FAILED
    assert LostId(Cause(Reason.UNUSABLE, 48)) in lost


@both
def test_a_call_joins_an_unknown_abort_that_is_asked_for(mode: Mode) -> None:
    made = desk(mode, "end_abort", "expire", "abort")
    assert made.machine.state is State.ABORTING
    ended = [action for action in made.answer(Request.END, 0) if isinstance(action, FoundOut | Ended)]
    assert [type(action) for action in ended] == [Ended]


@both
def test_a_close_behind_an_unknown_abort_has_its_bound(mode: Mode) -> None:
    made = desk(mode, "end_abort", "expire")
    made.did(made.machine.close(0.0, 5.0))
    out = told(made.did(made.machine.tick(5.0)))
    assert Closed() in out
    assert made.wait(1000.0) == []


@both
def test_an_id_that_was_forgotten_is_taken_again_and_the_abort_is_done(mode: Mode) -> None:
    made = desk(mode, "end_abort")
    asked = told(made.answer(Request.END, 49))
    assert [(action.producer_id, action.epoch) for action in asked if isinstance(action, SendInitProducerId)] == [WHO]
    assert made.machine.state is State.ABORTING
    again = (99, 0)
    out = told(made.answer(Request.INIT_PRODUCER_ID, 0, again))
    assert out == [Ended(1, Outcome.ABORTED, Cause(Reason.ID_GONE, 49)), TakeIdentity(*again)]
    assert made.machine.state is State.READY
    begun = made.did(made.machine.begin(mode, made.now))
    assert not any(isinstance(action, SendInitProducerId) for action in begun), "nothing more is renewed"


@both
@pytest.mark.parametrize("code", [47, 90, 49])
def test_an_id_that_another_instance_has_is_a_fence(mode: Mode, code: int) -> None:
    made = desk(mode, "end_abort")
    made.answer(Request.END, 49)
    out = told(made.answer(Request.INIT_PRODUCER_ID, code))
    assert out == [Ended(1, Outcome.ABORTED, Cause(Reason.FENCED, code)), LostId(Cause(Reason.FENCED, code))]
    assert made.machine.state is State.FENCED


@both
def test_a_commit_of_an_id_that_is_gone_is_refused_and_its_abort_finds_out(mode: Mode) -> None:
    made = desk(mode, "end_commit")
    refused = told(made.answer(Request.END, 49))
    assert CommitRefused(1, Cause(Reason.ID_GONE, 49)) in refused
    made.abort()
    made.answer(Request.END, 49)
    made.answer(Request.INIT_PRODUCER_ID, 0, (99, 0))
    assert (made.machine.state, made.machine.outcome) == (State.READY, Outcome.ABORTED)


@both
def test_behind_an_unknown_commit_a_forgotten_id_leaves_the_outcome_unknown(mode: Mode) -> None:
    made = desk(mode, "end_commit", "expire", "commit")
    made.answer(Request.END, 49)
    made.answer(Request.INIT_PRODUCER_ID, 0, (99, 0))
    assert (made.machine.state, made.machine.outcome) == (State.FAILED, Outcome.UNKNOWN)
    assert made.machine.cause == Cause(Reason.UNUSABLE, 49)


@both
def test_the_owner_of_an_id_is_asked_for_beyond_the_deadline(mode: Mode) -> None:
    made = desk(mode, "end_abort")
    made.answer(Request.END, 49)
    made.lose(Request.INIT_PRODUCER_ID)
    assert told(made.expire())[0] == Ended(1, Outcome.UNKNOWN, Cause(Reason.DEADLINE))
    made.wait(200.0)
    found = made.answer(Request.INIT_PRODUCER_ID, 0, (99, 0))
    assert FoundOut(1, Outcome.ABORTED, Cause(Reason.ID_GONE, 49)) in found
    assert made.machine.state is State.READY


@both
def test_a_record_that_fails_refuses_the_commit_with_the_first_cause(mode: Mode) -> None:
    # faults: X11, X24
    made = desk(mode, "stamp", "commit")
    cause = Cause(Reason.RECORD_FAILED, 45)
    assert told(made.fail(45)) == [FailQueued(1, cause), CommitRefused(1, cause)]
    assert told(made.fail(10)) == []
    assert made.machine.cause == cause
    assert made.machine.commit(0.0, DEADLINE) is Refusal.ABORTABLE
    made.drain()
    made.abort()
    assert Ended(1, Outcome.ABORTED, cause) in made.answer(Request.END, 0)
    assert not isinstance(made.machine.begin(mode, 0.0), Refusal)


@both
def test_a_failure_of_another_transaction_is_not_minded(mode: Mode) -> None:
    made = desk(mode, "begin")
    assert told(made.did(made.machine.record_failed(7, 45, 0.0))) == []
    assert made.machine.state is State.OPEN


@both
def test_a_second_commit_joins_the_first_and_may_have_more_time(mode: Mode) -> None:
    # faults: X14
    made = desk(mode, "end_commit")
    assert told(made.did(made.machine.commit(0.0, DEADLINE + 50))) == []
    assert [action for action in told(made.expire()) if not isinstance(action, TimeoutNear)] == []
    assert made.machine.state is State.COMMITTING


# ---------------------------------------------------------------------- abort
def test_an_abort_of_version_2_does_not_wait_but_its_identity_does() -> None:
    # faults: X12
    made = desk(V2, "stamp")
    out = told(made.did(made.machine.abort(0.0, DEADLINE)))
    assert out[0] == FailQueued(1, ASKED)
    assert isinstance(out[1], SendEndTxn)
    assert told(made.answer(Request.END, 0)) == [Ended(1, Outcome.ABORTED, ASKED)]
    made.did(made.machine.begin(V2, MARKERS_S))
    assert made.machine.send_partition(HERE, MARKERS_S) is Entrance.WAIT
    assert told(made.did(made.machine.drained(1, MARKERS_S))) == [TakeIdentity(7, 4), Release((HERE,))]


def test_an_abort_of_version_1_waits_for_what_is_in_flight_and_renews_the_epoch() -> None:
    # faults: X9
    made = desk(V1, "stamp")
    assert told(made.did(made.machine.abort(0.0, DEADLINE))) == [FailQueued(1, ASKED)]
    assert [type(action) for action in told(made.drain())] == [SendEndTxn]
    out = told(made.answer(Request.END, 0))
    assert out[0] == Ended(1, Outcome.ABORTED, ASKED)
    assert isinstance(out[1], SendInitProducerId)
    assert (out[1].producer_id, out[1].epoch) == WHO
    made.did(made.machine.begin(V1, 0.0))
    made.add()
    assert made.machine.send_partition(HERE, 0.0) is Entrance.WAIT
    renewed = told(made.answer(Request.INIT_PRODUCER_ID, 0))
    assert renewed[0] == TakeIdentity(7, 4)
    assert isinstance(renewed[1], SendAddPartitions)
    assert renewed[1].epoch == 4


def test_version_1_keeps_its_epoch_behind_a_clean_commit_and_renews_it_behind_a_lost_produce() -> None:
    # faults: X9
    clean = desk(V1, "end_commit")
    assert told(clean.answer(Request.END, 0)) == [Ended(1, Outcome.COMMITTED, ASKED)]
    haunted = desk(V1, "stamp", "commit")
    haunted.machine.produce_lost(1)
    haunted.flush()
    assert [type(a) for a in told(haunted.answer(Request.END, 0))] == [Ended, SendInitProducerId]


@pytest.mark.parametrize("is_empty_between", [False, True])
def test_the_first_transaction_of_version_2_behind_one_of_version_1_has_a_fresh_epoch(is_empty_between: bool) -> None:
    made = desk(V1, "end_commit")
    made.answer(Request.END, 0)
    if is_empty_between:
        made.did(made.machine.begin(V1, 0.0))
        made.commit()
        made.flush()
    made.mode = V2
    begun = made.did(made.machine.begin(V2, 0.0))
    asked = [action for action in begun if isinstance(action, SendInitProducerId)]
    assert [(action.producer_id, action.epoch) for action in asked] == [WHO]
    assert made.machine.send_partition(HERE, 0.0) is Entrance.WAIT
    released = made.answer(Request.INIT_PRODUCER_ID, 0)
    assert told(released) == [TakeIdentity(*NEXT), Release((HERE,))]
    made.commit()
    made.flush()
    made.answer(Request.END, 0, (7, 5))
    assert not any(isinstance(action, SendInitProducerId) for action in made.did(made.machine.begin(V2, 1.0)))


def test_an_untouched_transaction_of_version_1_needs_no_fresh_epoch() -> None:
    made = desk(V1, "begin", "commit", "flush")
    assert not any(isinstance(action, SendInitProducerId) for action in made.did(made.machine.begin(V2, 0.0)))


def test_late_markers_of_the_transaction_before_do_not_end_version_2() -> None:
    # INVALID_TXN_STATE to the first EndTxn(abort): the coordinator still writes the markers of a commit.
    made = desk(V2, "end_abort")
    assert told(made.answer(Request.END, 48)) == []
    assert [type(action) for action in told(made.wait())] == [SendEndTxn]
    assert Ended(1, Outcome.ABORTED, ASKED) in made.answer(Request.END, 0)


# ---------------------------------------------------------------------- one transaction right behind another
def ended(verdict: Verdict) -> Desk:
    """Return a machine that has just ended a transaction of version 2, with the epoch after it."""
    made = desk(V2, "end_commit" if verdict is Verdict.COMMIT else "end_abort")
    made.answer(Request.END, 0)
    assert made.machine.identity == NEXT
    return made


@pytest.mark.parametrize("verdict", Verdict)
def test_version_2_asks_for_the_markers_of_the_last_transaction_before_it_stamps(verdict: Verdict) -> None:
    # A Produce that comes before them waits in the broker, 20 ms and more (broker: 10.6).
    made = ended(verdict)
    out = told(made.did(made.machine.begin(V2, 0.0)))
    assert out == [Hold(), AskMarkers(made.ticket(Request.MARKERS), *WHO, verdict)], "the end before, once more"
    assert made.machine.send_partition(HERE, 0.0) is Entrance.WAIT
    assert told(made.answer(Request.MARKERS, 51)) == []
    assert [type(action) for action in told(made.wait())] == [AskMarkers]
    assert told(made.answer(Request.MARKERS, 0)) == [TakeIdentity(*NEXT), Release((HERE,))]
    assert made.machine.send_partition(HERE, 0.0) is Entrance.GO
    assert told(made.did(made.machine.commit(0.0, DEADLINE))) == [Flush(2)]
    assert told(made.flush()) == [SendEndTxn(made.ticket(Request.END), V2, *NEXT, Verdict.COMMIT)]


@pytest.mark.parametrize("code", [-1, 7, 15, 16, 35, 47, 48, 49, 53, 90, 9999])
def test_what_else_the_question_for_markers_is_answered_is_left_to_the_next_request(code: int) -> None:
    made = ended(Verdict.COMMIT)
    made.did(made.machine.begin(V2, 0.0))
    assert told(made.answer(Request.MARKERS, code)) == [TakeIdentity(*NEXT)]
    assert made.machine.state is State.OPEN


@pytest.mark.parametrize("is_written", [True, False])
def test_a_lost_question_for_markers_is_not_repeated(is_written: bool) -> None:
    made = ended(Verdict.COMMIT)
    made.did(made.machine.begin(V2, 0.0))
    assert told(made.lose(Request.MARKERS, is_written)) == [TakeIdentity(*NEXT)]


def test_a_transaction_that_begins_later_asks_for_no_markers() -> None:
    made = ended(Verdict.COMMIT)
    assert made.machine.begin(V2, MARKERS_S) == []
    assert made.machine.send_partition(HERE, MARKERS_S) is Entrance.GO


def test_an_empty_transaction_does_not_wait_for_the_markers_before_it() -> None:
    made = ended(Verdict.COMMIT)
    made.did(made.machine.begin(V2, 0.0))
    made.commit()
    assert Ended(2, Outcome.COMMITTED, ASKED) in made.flush()
    out = told(made.did(made.machine.begin(V2, 0.0)))
    assert out == [Hold()], "it was asked already"
    assert told(made.answer(Request.MARKERS, 0)) == [TakeIdentity(*NEXT)]


def test_offsets_wait_for_the_markers_too() -> None:
    made = ended(Verdict.COMMIT)
    made.did(made.machine.begin(V2, 0.0))
    assert told(made.did(made.machine.send_offsets("g", 0.0))) == []
    out = told(made.answer(Request.MARKERS, 0))
    assert [type(action) for action in out] == [TakeIdentity, SendTxnOffsetCommit]


def test_a_close_does_not_wait_for_markers() -> None:
    made = ended(Verdict.COMMIT)
    made.did(made.machine.begin(V2, 0.0))
    assert told(made.did(made.machine.close(0.0, DEADLINE)))[-1] == Closed()
    assert made.answer(Request.MARKERS, 0) == []


# ---------------------------------------------------------------------- timeouts and fences
def test_a_coordinators_timeout_is_abortable_on_version_2() -> None:
    # faults: X10
    made = desk(V2, "end_commit")
    cause = Cause(Reason.TIMED_OUT, 48)
    assert CommitRefused(1, cause) in made.answer(Request.END, 48)
    made.abort()
    assert told(made.answer(Request.END, 0)) == [Ended(1, Outcome.ABORTED, cause), TakeIdentity(7, 4)]


def test_a_coordinators_timeout_looks_like_a_fence_on_version_1() -> None:
    # faults: X10
    made = desk(V1, "end_commit")
    cause = Cause(Reason.FENCED_OR_TIMED_OUT, 90)
    assert told(made.answer(Request.END, 90)) == [Ended(1, Outcome.ABORTED, cause), LostId(cause)]


@both
def test_a_fence_behind_a_lost_commit_leaves_the_outcome_unknown(mode: Mode) -> None:
    made = desk(mode, "end_commit")
    made.lose(Request.END)
    made.wait()
    ends = [action for action in made.answer(Request.END, 90) if isinstance(action, Ended)]
    assert ends[0].outcome is Outcome.UNKNOWN
    assert made.machine.outcome is Outcome.UNKNOWN


def test_version_2_finds_out_by_its_abort_whether_it_is_fenced() -> None:
    # faults: X1
    made = desk(V2, "stamp")
    made.fail(47)
    assert made.machine.state is State.ABORTABLE
    made.abort()
    cause = Cause(Reason.FENCED, 90)
    assert told(made.answer(Request.END, 90)) == [Ended(1, Outcome.ABORTED, cause), LostId(cause)]
    assert made.machine.begin(V2, 0.0) is Refusal.FENCED


def test_the_transaction_timeout_is_announced_once() -> None:
    made = desk(V2, "stamp")
    assert TimeoutNear(1, 54.0) in made.wait(54.0)
    assert told(made.wait(1.0)) == []


@pytest.mark.parametrize(("steps", "is_ending"), [(("stamp", "commit"), False), (("end_commit",), True)])
def test_the_transaction_timeout_is_announced_while_the_commit_waits(steps: tuple[str, ...], is_ending: bool) -> None:
    made = desk(V2, *steps)
    near = [action for action in made.wait(54.0) if isinstance(action, TimeoutNear)]
    assert near == [TimeoutNear(1, 54.0, is_ending)]


def test_the_transaction_timeout_of_what_is_aborted_is_not_announced() -> None:
    made = desk(V2, "end_abort")
    assert not any(isinstance(action, TimeoutNear) for action in made.wait(54.0))


# ---------------------------------------------------------------------- usage
@both
def test_calls_at_the_wrong_time_are_refused_by_name(mode: Mode) -> None:
    # faults: X15
    made = desk(mode, "ready")
    assert made.machine.commit(0.0, 1.0) is Refusal.NOT_IN_TRANSACTION
    assert made.machine.may_send() is Refusal.NOT_IN_TRANSACTION
    made = desk(mode, "stamp")
    assert made.machine.may_send() is None
    assert made.machine.begin(mode, 0.0) is Refusal.IN_TRANSACTION
    made.commit()
    assert made.machine.abort(0.0, 1.0) is Refusal.COMMITTING
    assert made.machine.send_offsets("g", 0.0) is Refusal.COMMITTING
    # Records that were let in before the commit still go to their partitions.
    assert made.machine.send_partition(HERE, 0.0) is Entrance.GO
    made.flush()
    assert made.machine.send_partition(THERE, 0.0) is Refusal.COMMITTING


# ---------------------------------------------------------------------- close
@both
def test_close_aborts_what_is_open_and_says_when_it_is_done(mode: Mode) -> None:
    # faults: X21
    made = desk(mode, "stamp")
    assert Closed() not in made.did(made.machine.close(0.0, 5.0))
    made.drain()
    assert told(made.answer(Request.END, 0)) == [
        Ended(1, Outcome.ABORTED, ASKED),
        *([TakeIdentity(7, 4)] if mode is V2 else []),
        Closed(),
    ]


@both
def test_close_gives_up_at_its_deadline(mode: Mode) -> None:
    # faults: X21
    made = desk(mode, "stamp")
    made.did(made.machine.close(0.0, 5.0))
    made.drain()
    assert told(made.wait(5.0)) == [Ended(1, Outcome.UNKNOWN, Cause(Reason.DEADLINE)), Closed()]


@both
def test_close_lets_a_commit_end_and_aborts_it_when_it_is_refused(mode: Mode) -> None:
    made = desk(mode, "stamp", "commit")
    made.did(made.machine.close(0.0, 5.0))
    out = told(made.fail(29))
    assert CommitRefused(1, Cause(Reason.RECORD_FAILED, 29)) in out
    assert made.machine.state is State.ABORTING


# ---------------------------------------------------------------------- prepared
@both
def test_a_prepared_transaction_is_flushed_and_nothing_is_asked_for(mode: Mode) -> None:
    made = desk(mode, "stamp")
    assert told(made.did(made.machine.prepare(0.0, DEADLINE))) == [Flush(1)]
    assert told(made.did(made.machine.prepare(0.0, DEADLINE))) == [], "a second call joins"
    assert made.machine.commit(0.0, DEADLINE) is Refusal.PREPARING
    assert made.machine.abort(0.0, DEADLINE) is Refusal.COMMITTING
    assert told(made.flush()) == [Prepared(1)]
    for refused in (made.machine.begin(mode, 0.0), made.machine.may_send(), made.machine.prepare(0.0, DEADLINE)):
        assert refused is Refusal.PREPARED
    assert told(made.did(made.machine.close(0.0, DEADLINE))) == [Closed()]
    assert made.machine.state is State.PREPARED


@both
def test_a_transaction_is_not_prepared_while_it_is_committed(mode: Mode) -> None:
    assert desk(mode, "end_commit").machine.prepare(0.0, DEADLINE) is Refusal.COMMITTING


@pytest.mark.parametrize(
    ("way", "request_"),
    [("add", Request.ADD_PARTITIONS), ("add_offsets", Request.ADD_OFFSETS)],
    ids=["partition", "group"],
)
def test_version_1_does_not_prepare_what_a_late_request_could_open_again(way: str, request_: Request) -> None:
    # A late copy would open it again behind an abort by one process, and the commit of another would succeed there.
    made = desk(V1, "begin", way) if way == "add" else desk(V1, way)
    made.lose(request_)
    made.wait()
    made.answer(request_, 0)
    if way == "add_offsets":
        made.answer(Request.OFFSET_COMMIT, 0)
    made.prepare()
    cause = Cause(Reason.MAY_OPEN_AGAIN)
    assert told(made.flush()) == [CommitRefused(1, cause)]
    assert made.machine.state is State.ABORTABLE
    made.did(made.machine.abort(made.now, DEADLINE))
    assert made.answer(Request.END, 0)[0] == Ended(1, Outcome.ABORTED, cause)


def test_what_was_not_written_cannot_come_late() -> None:
    made = desk(V1, "begin", "add")
    made.lose(Request.ADD_PARTITIONS, written=False)
    made.wait()
    made.answer(Request.ADD_PARTITIONS, 0)
    made.prepare()
    assert told(made.flush()) == [Prepared(1)]


@both
def test_a_failed_record_refuses_to_be_prepared(mode: Mode) -> None:
    made = desk(mode, "stamp", "prepare")
    assert CommitRefused(1, Cause(Reason.RECORD_FAILED, 29)) in made.fail(29)
    assert made.machine.prepare(0.0, DEADLINE) is Refusal.ABORTABLE


@both
@pytest.mark.parametrize("call", ["commit", "abort"])
def test_the_producer_ends_what_it_has_prepared_and_renews_the_epoch(mode: Mode, call: str) -> None:
    made = desk(mode, "stamp", "prepare", "flush")
    out = made.did(getattr(made.machine, call)(0.0, DEADLINE))
    verdict = Verdict(call)
    outcome = Outcome.COMMITTED if verdict is Verdict.COMMIT else Outcome.ABORTED
    assert [action.verdict for action in out if isinstance(action, SendEndTxn)] == [verdict]
    out = made.answer(Request.END, 0)
    assert [action.outcome for action in out if isinstance(action, Ended)] == [outcome]
    # Another process may end it once more, and late: on version 1 that would end the next transaction of this epoch.
    assert any(isinstance(action, TakeIdentity if mode is V2 else SendInitProducerId) for action in out)


@both
def test_an_abort_of_what_another_process_has_committed_tells_so(mode: Mode) -> None:
    made = desk(mode, "stamp", "prepare", "flush", "abort")
    asked = [action for action in made.answer(Request.END, 48) if isinstance(action, SendEndTxn)]
    assert [action.verdict for action in asked] == [Verdict.COMMIT]
    assert Ended(1, Outcome.COMMITTED, ASKED) in made.answer(Request.END, 0)


@both
def test_a_commit_of_what_another_process_has_aborted_is_refused(mode: Mode) -> None:
    made = desk(mode, "stamp", "prepare", "flush", "commit")
    assert CommitRefused(1, Cause(Reason.TIMED_OUT, 48)) in made.answer(Request.END, 48)
    made.abort()
    assert any(
        isinstance(action, Ended) and action.outcome is Outcome.ABORTED for action in made.answer(Request.END, 0)
    )


@both
def test_a_prepared_transaction_that_is_fenced_may_have_been_committed(mode: Mode) -> None:
    made = desk(mode, "stamp", "prepare", "flush", "abort")
    out = made.answer(Request.END, 90)
    assert [action.outcome for action in out if isinstance(action, Ended)] == [Outcome.UNKNOWN]


@both
def test_an_empty_transaction_is_prepared_and_ended_without_a_request(mode: Mode) -> None:
    made = desk(mode, "begin", "prepare")
    assert told(made.flush()) == [Prepared(1)]
    assert not made.machine.is_touched
    assert told(made.did(made.machine.commit(0.0, DEADLINE))) == [Ended(1, Outcome.COMMITTED, ASKED)]


@both
def test_a_preparation_that_takes_too_long_can_only_be_aborted(mode: Mode) -> None:
    made = desk(mode, "stamp", "prepare")
    assert CommitRefused(1, Cause(Reason.DEADLINE)) in made.expire()
    assert made.machine.state is State.ABORTABLE


@both
@pytest.mark.parametrize("steps", [("prepare",), ("prepare", "flush")], ids=["preparing", "prepared"])
def test_what_no_caller_has_heard_of_is_aborted_by_close(mode: Mode, steps: tuple[str, ...]) -> None:
    made = desk(mode, "stamp", *steps)
    made.did(made.machine.close(0.0, DEADLINE, keeps_prepared=False))
    made.drain()
    assert any(
        isinstance(action, Ended) and action.outcome is Outcome.ABORTED for action in made.answer(Request.END, 0)
    )
    assert made.machine.state is State.READY
