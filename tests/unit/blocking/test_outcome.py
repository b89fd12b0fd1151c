"""`Outcome`: the Future of a record, which in a forked child never waits for what only the parent can know."""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, Future, as_completed, wait

import pytest
from blocking_rig import LIMIT_S, in_thread, wait_until

from aiokprod import RecordMetadata, TimestampType
from aiokprod.blocking.outcome import Forks, Outcome
from aiokprod.errors import ForkedError, RecordTypeError


def test_it_is_a_future() -> None:
    outcome = Outcome()
    assert outcome.cancel() and outcome.cancelled()
    with pytest.raises(TimeoutError):
        Outcome().result(0)


def metadata(offset: int = 0) -> RecordMetadata:
    return RecordMetadata("t", 0, offset, 1, TimestampType.CREATE_TIME)


def has_condition(outcome: Outcome) -> bool:
    return "_condition" in vars(outcome)


def test_one_that_is_asked_when_it_is_done_makes_no_condition() -> None:
    outcome, told = Outcome(), metadata()
    assert outcome.is_taken()
    outcome.deliver(told)
    assert outcome.result() is told and not has_condition(outcome)
    assert outcome.exception() is None and outcome.done() and not outcome.cancel()


def test_a_thread_that_waits_is_woken() -> None:
    outcome = Outcome()
    assert outcome.is_taken()
    waiting = in_thread(outcome.result, LIMIT_S)
    wait_until(lambda: has_condition(outcome))
    outcome.deliver(metadata(7))
    assert waiting.result(LIMIT_S).offset == 7


def test_a_callback_is_called_once_before_and_behind_the_outcome() -> None:
    outcome = Outcome()
    called: list[Future[RecordMetadata]] = []
    outcome.add_done_callback(called.append)
    assert outcome.is_taken()
    outcome.deliver(metadata())
    assert called == [outcome]
    outcome.add_done_callback(called.append)
    assert called == [outcome, outcome]


def test_one_that_was_cancelled_is_not_taken() -> None:
    outcome = Outcome()
    assert outcome.cancel() and not outcome.is_taken()


def test_the_functions_of_concurrent_futures_take_it() -> None:
    outcomes = [Outcome() for _ in range(3)]
    assert all(outcome.is_taken() for outcome in outcomes)
    outcomes[1].deliver(metadata(1))
    assert wait(outcomes, LIMIT_S, FIRST_COMPLETED).done == {outcomes[1]}
    outcomes[0].deliver(metadata(0))
    outcomes[2].set_exception(RecordTypeError("wrong"))
    assert set(as_completed(outcomes, LIMIT_S)) == set(outcomes)


def test_of_many_that_are_settled_while_threads_ask_each_thread_has_its_answer() -> None:
    outcomes = [Outcome() for _ in range(2_000)]
    begin = threading.Barrier(4)

    def ask() -> list[int | None]:
        begin.wait(LIMIT_S)
        return [outcome.result(LIMIT_S).offset for outcome in outcomes]

    asked = [in_thread(ask) for _ in range(3)]
    begin.wait(LIMIT_S)
    for number, outcome in enumerate(outcomes):
        assert outcome.is_taken()
        outcome.deliver(metadata(number))
    assert [each.result(LIMIT_S) for each in asked] == [list(range(2_000))] * 3


def test_it_has_no_other_attributes_than_a_future() -> None:
    with pytest.raises(AttributeError):
        Outcome().missing  # type: ignore[attr-defined]


def test_in_a_child_one_without_an_outcome_says_so_and_the_others_have_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    open_one, running, failed = Outcome(), Outcome(), Outcome()
    assert running.set_running_or_notify_cancel()
    failed.set_exception(RecordTypeError("wrong"))
    failed._condition.acquire()  # by a thread that is not in the child
    monkeypatch.setattr(Forks, "count", Forks.count + 1)
    for each in (open_one, running):
        with pytest.raises(ForkedError, match="forked from"):
            each.result()
        with pytest.raises(ForkedError):
            each.exception()
    assert isinstance(failed.exception(), RecordTypeError)
    with pytest.raises(RecordTypeError):
        failed.result()
