"""`Outcome`: the Future of a record, which in a forked child never waits for what only the parent can know."""

from __future__ import annotations

import pytest

from aiokprod.blocking.outcome import Forks, Outcome
from aiokprod.errors import ForkedError, RecordTypeError


def test_it_is_a_future() -> None:
    outcome = Outcome()
    assert outcome.cancel() and outcome.cancelled()
    with pytest.raises(TimeoutError):
        Outcome().result(0)


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
