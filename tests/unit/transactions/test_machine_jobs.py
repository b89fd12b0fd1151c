"""Jobs: what is asked for again and again."""

from __future__ import annotations

from aiokprod.transactions.machine_jobs import AddJob, Job

A, B, C = ("t", 0), ("t", 1), ("t", 2)


def test_an_attempt_waits_for_its_answer_and_for_the_backoff() -> None:
    job = Job()
    assert job.may_ask(0.0)
    job.ticket = 1
    assert not job.may_ask(5.0)
    job.ticket = None
    job.failed(5.0, 2.0)
    assert not job.may_ask(6.9)
    assert job.may_ask(7.0)
    job.start_again()
    assert job.may_ask(0.0)
    assert job.failures == 0


def test_partitions_of_one_turn_are_asked_for_together() -> None:
    adds = AddJob()
    adds.hold(A)
    assert adds.next(0.0) == ()
    adds.hold(B)
    adds.end_turn()
    adds.hold(C)
    assert adds.next(0.0) == (A, B)


def test_a_partition_that_may_be_unknown_does_not_hold_the_others() -> None:
    adds = AddJob()
    adds.hold(A)
    adds.hold(B)
    adds.end_turn()
    adds.unknown.add(A)
    adds.unknown_not_before = 3.0
    assert adds.next(0.0) == (B,)
    adds.take((B,))
    assert adds.next(2.9) == ()
    assert adds.next(3.0) == (A,)


def test_a_partition_that_is_taken_is_not_asked_for_again() -> None:
    adds = AddJob()
    adds.hold(A)
    adds.end_turn()
    adds.take((A,))
    assert adds.added == {A}
    assert adds.next(0.0) == ()


def test_all_that_wait_are_taken_at_once_on_version_2() -> None:
    adds = AddJob()
    adds.hold(A)
    adds.end_turn()
    adds.hold(B)
    assert adds.release_all() == (A, B)
    assert adds.added == {A, B}
    assert not adds.waiting
    assert not adds.gathering
