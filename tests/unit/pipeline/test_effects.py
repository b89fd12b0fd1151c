"""`Effects`: what a state change leads to is done after it; and the guard, which finds a step of ours that does not wait."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from stage_rig import ManualLoop, parked

from aiokprod import ProducerConfig
from aiokprod.interceptor_chain import InterceptorChain
from aiokprod.logs import StateLog
from aiokprod.metrics import Metrics
from aiokprod.pipeline.broker_backend import BrokerBackend
from aiokprod.pipeline.delivery.unhandled_errors import UnhandledErrors
from aiokprod.pipeline.effects import Effects, Guard, ReentryError
from aiokprod.pipeline.partition.batch_fill import BatchFill
from aiokprod.pipeline.partition.ledger import Action, Ledger
from aiokprod.pipeline.partition.partition_queue import PartitionQueue
from aiokprod.pipeline.pipeline import Pipeline
from aiokprod.pipeline.timer_queue import TimerQueue


class Desk:
    """Effects, and a list of what they did."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.crashes: list[BaseException] = []
        self.effects = Effects(self.grant, self.crashes.append)

    def grant(self) -> None:
        self.done.append("grant")

    def step(self, what: str) -> Callable[[], None]:
        return lambda: self.done.append(what)


# ---------------------------------------------------------------------- when, and in which order
def test_effects_come_after_the_outermost_state_change_in_the_order_they_were_noted_and_the_grant_last() -> None:
    desk = Desk()
    effects = desk.effects
    effects.begin()
    effects.room_is_due = True
    effects.later(desk.step("first"))
    effects.begin()
    effects.later(desk.step("second"))
    effects.end()
    assert desk.done == []
    effects.later(desk.step("third"))
    effects.end()
    assert desk.done == ["first", "second", "third", "grant"]


def test_a_state_change_that_leads_to_nothing_grants_nothing() -> None:
    desk = Desk()
    desk.effects.begin()
    desk.effects.end()
    assert desk.done == []


def test_what_an_effect_leads_to_goes_to_the_end_of_the_same_line() -> None:
    desk = Desk()
    effects = desk.effects

    def first() -> None:
        desk.done.append("first")
        effects.begin()
        effects.later(desk.step("of the first"))
        effects.room_is_due = True
        effects.end()
        desk.done.append("end of the first")

    effects.begin()
    effects.later(first)
    effects.later(desk.step("second"))
    effects.end()
    assert desk.done == ["first", "end of the first", "second", "of the first", "grant"]


def test_a_grant_that_frees_room_is_followed_by_another_one() -> None:
    done: list[str] = []

    def grant() -> None:
        done.append("grant")
        if len(done) < 3:
            effects.begin()
            effects.room_is_due = True
            effects.end()

    effects = Effects(grant, lambda _: None)
    effects.begin()
    effects.room_is_due = True
    effects.end()
    assert done == ["grant"] * 3


def test_a_thousand_effects_that_lead_to_one_another_do_not_nest() -> None:
    """The line is a loop and no recursion."""
    desk = Desk()
    left = 20_000

    def one() -> None:
        nonlocal left
        left -= 1
        if left:
            desk.effects.begin()
            desk.effects.later(one)
            desk.effects.end()

    desk.effects.begin()
    desk.effects.later(one)
    desk.effects.end()
    assert left == 0


def test_an_effect_that_raises_is_a_crash_and_the_others_are_still_done() -> None:
    desk = Desk()
    bug = RuntimeError("bug")

    def broken() -> None:
        raise bug

    desk.effects.begin()
    desk.effects.later(broken)
    desk.effects.later(desk.step("next"))
    desk.effects.room_is_due = True
    desk.effects.end()
    assert desk.crashes == [bug]
    assert desk.done == ["next", "grant"]


def test_a_state_change_that_raises_is_followed_by_its_effects_too() -> None:
    desk = Desk()
    with pytest.raises(RuntimeError):
        desk.effects.begin()
        try:
            desk.effects.later(desk.step("noted before"))
            raise RuntimeError("bug")
        finally:
            desk.effects.end()
    assert desk.done == ["noted before"]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_effect_that_is_interrupted_is_a_crash_too_and_the_interrupt_goes_on(interrupt: type[BaseException]) -> None:
    """A notebook's loop goes on after Ctrl-C: a state change that was left halfway must not go unnoticed."""
    desk = Desk()

    def broken() -> None:
        raise interrupt

    desk.effects.begin()
    desk.effects.later(broken)
    with pytest.raises(interrupt):
        desk.effects.end()
    assert [type(crash) for crash in desk.crashes] == [interrupt]


def test_after_a_crash_effects_run_though_a_state_change_was_never_ended() -> None:
    desk = Desk()
    effects = desk.effects
    effects.begin()
    effects.entered("books that a fault has left open")
    effects.later(desk.step("noted before"))
    effects.recover()
    assert desk.done == ["noted before"]
    effects.check_outside("another step")
    effects.end()  # of a state change around the crash
    effects.begin()
    effects.later(desk.step("noted afterwards"))
    effects.end()
    assert desk.done == ["noted before", "noted afterwards"]


# ---------------------------------------------------------------------- the guard
def test_the_guard_is_on_in_these_tests_and_off_for_users() -> None:
    assert Guard.is_on
    assert Effects(lambda: None, lambda _: None).is_guarded


def test_an_effect_noted_outside_of_every_state_change_is_found() -> None:
    desk = Desk()
    with pytest.raises(ReentryError, match="outside of a state change"):
        desk.effects.later(desk.step("lost"))
    desk.effects.begin()
    desk.effects.end()
    assert desk.done == []


AT_ITS_FIRST_ACTION = pytest.mark.pure("the list of actions is one that runs a step, and compiled code passes it by")


class Bench:
    """A pipeline that was never started, and the queue of one partition, whose ledger says what the test tells it to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = ManualLoop()
        monkeypatch.setattr("asyncio.get_running_loop", lambda: loop)
        log = StateLog("producer")
        self.loop = loop
        self.crashes: list[BaseException] = []
        sizes = {"buffer_memory": 40_000, "max_request_size": 40_000, "batch_size": 16_000}
        config = ProducerConfig(bootstrap_servers="localhost:1", **sizes)
        unhandled = UnhandledErrors(None, log)
        chain = InterceptorChain((), log)
        self.pipeline = Pipeline(config, Metrics(), log, unhandled, chain, self.crashes.append, BrokerBackend)
        backend = self.pipeline.backend
        assert isinstance(backend, BrokerBackend)
        ledger = Ledger(
            node=-1, leader_epoch=0, topic_id=bytes(16), identity=(1, 0), idempotent=True, transactional=False,
            window=5, retry_delay=float,
        )  # fmt: skip
        self.queue = PartitionQueue(
            "t", 0, ledger, self.pipeline.context, backend.parking.gate, backend.brokers, backend.retry,
            lambda *_: None, TimerQueue(loop, PartitionQueue.look), lambda _: None, BatchFill(16_000, 16_000),
        )  # fmt: skip

    def during_apply(self, step: Callable[[], object]) -> None:
        """Run a step where the books of the partition are open: in place of the first of its actions."""

        class Actions(list[Action]):
            def __iter__(self) -> object:  # type: ignore[override]
                step()
                return iter(())

        self.queue.apply(Actions(), self.loop.time())


@AT_ITS_FIRST_ACTION
def test_a_record_that_is_appended_while_actions_are_carried_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    with pytest.raises(ReentryError, match="a waiting record is appended inside the actions of t-0"):
        bench.during_apply(lambda: bench.queue.append_parked(parked(bench.loop)))


@AT_ITS_FIRST_ACTION
def test_a_batch_that_is_opened_while_actions_are_carried_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    with pytest.raises(ReentryError, match="a batch is opened inside the actions of t-0"):
        bench.during_apply(lambda: bench.queue.append(b"v", None, None, 0, 10, bench.loop.time()))


@AT_ITS_FIRST_ACTION
def test_room_that_is_granted_while_actions_are_carried_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    gate = bench.pipeline.parking.gate
    gate.wait(parked(bench.loop))
    with pytest.raises(ReentryError, match="a waiting record is admitted inside the actions of t-0"):
        bench.during_apply(gate.grant)


@AT_ITS_FIRST_ACTION
def test_actions_carried_out_inside_others_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    with pytest.raises(ReentryError, match="the actions of t-0 inside the actions of t-0"):
        bench.during_apply(bench.queue.expire)


@AT_ITS_FIRST_ACTION
def test_room_that_comes_free_while_actions_are_carried_out_is_granted_after_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """findings 01 and 26: as a settlement does it."""
    bench = Bench(monkeypatch)
    gate = bench.pipeline.parking.gate
    assert gate.try_charge(40_000)
    record = parked(bench.loop, charge_bytes=100)
    gate.wait(record)
    seen: list[bool] = []

    def settle() -> None:
        gate.free(40_000)
        seen.append(record.in_line)

    bench.during_apply(settle)
    assert seen == [True]
    assert not record.in_line
    assert gate.used_bytes == 100
    assert bench.crashes == []


# ---------------------------------------------------------------------- marks that an exception left behind
def test_a_turn_of_the_loop_begins_with_no_state_change_under_way() -> None:
    desk = Desk()
    desk.effects.begin()
    desk.effects.begin()
    desk.effects.later(desk.step("late"))
    assert desk.effects.depth == 2
    desk.effects.begin_turn()
    assert desk.effects.depth == 0 and desk.done == ["late"]
    desk.effects.begin_turn()
    assert desk.effects.depth == 0 and desk.done == ["late"]
