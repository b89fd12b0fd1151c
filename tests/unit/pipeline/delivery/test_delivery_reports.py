"""`DeliveryReports`: what the application is told of outcomes, and when."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from stage_rig import ManualLoop, parked

from aiokprod.errors import AiokprodError, DeliveryTimeoutError, TransactionAbortedError
from aiokprod.hooks import ProducerInterceptor
from aiokprod.interceptor_chain import InterceptorChain
from aiokprod.logs import StateLog
from aiokprod.model import Persistence, TransactionOutcome
from aiokprod.pipeline.delivery.delivery_reports import DeliveryReports
from aiokprod.pipeline.delivery.unhandled_errors import UnhandledErrors
from aiokprod.pipeline.effects import Effects, ReentryError
from aiokprod.record_metadata import RecordMetadata


class Listener(ProducerInterceptor):
    def __init__(self) -> None:
        self.errors: list[AiokprodError | None] = []

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        self.errors.append(error)


class Desk:
    """Reports, with their callbacks' notes. Needs a loop, or a running one."""

    def __init__(self, listener: Listener | None = None, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.unhandled: list[AiokprodError] = []
        self.listener = listener or Listener()
        self.effects = Effects(lambda: None, lambda _: None)
        log = StateLog("producer")
        chain = InterceptorChain((self.listener,), log)
        unhandled = UnhandledErrors(self.unhandled.append, log)
        self.reports = DeliveryReports(loop or asyncio.get_running_loop(), self.effects, chain, unhandled)


def test_interceptors_hear_of_an_outcome_on_the_next_turn_of_the_loop() -> None:
    async def scenario() -> None:
        desk = Desk()
        record = parked(asyncio.get_running_loop())
        record.failure = DeliveryTimeoutError("late")
        desk.reports.settled(record, 0, 1)
        assert desk.listener.errors == []
        await asyncio.sleep(0)
        (error,) = desk.listener.errors
        assert isinstance(error, DeliveryTimeoutError)

    asyncio.run(scenario())


@pytest.mark.parametrize("ends", [SystemExit, KeyboardInterrupt])
def test_records_behind_one_whose_hook_ends_the_program_are_told_if_the_loop_goes_on(ends: type[BaseException]) -> None:
    """A notebook's loop goes on after Ctrl-C: interceptors never heard of the further records of the batch."""

    class Ends(Listener):
        def on_acknowledgement(self, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
            super().on_acknowledgement(metadata, error)
            if len(self.errors) in (1, 3):
                raise ends

        def on_transaction_end(self, outcome: TransactionOutcome) -> None:
            outcomes.append(outcome)
            if len(outcomes) == 1:
                raise ends

    outcomes: list[TransactionOutcome] = []
    loop = ManualLoop()
    desk = Desk(Ends(), loop)
    record = parked(loop)
    record.failure = DeliveryTimeoutError("late")
    desk.reports.settled(record, 0, 4)
    desk.reports.transaction_ended(TransactionOutcome.ABORTED)
    desk.reports.transaction_ended(TransactionOutcome.COMMITTED)
    told = []
    while loop.soon:
        with suppress(ends):
            loop.run()
        told.append((len(desk.listener.errors), len(outcomes)))
    assert told == [(1, 0), (3, 0), (4, 1), (4, 2)]  # the end of a transaction waits for its records


def test_an_unhandled_failure_is_reported_after_the_state_change() -> None:
    async def scenario() -> None:
        desk = Desk()
        desk.effects.begin()
        desk.reports.lost(DeliveryTimeoutError("late"), 2)
        await asyncio.sleep(0)
        assert desk.unhandled == []
        desk.effects.end()
        await asyncio.sleep(0)
        assert [str(error) for error in desk.unhandled] == ["late"] * 2

    asyncio.run(scenario())


def test_a_failure_of_a_delivery_is_kept_for_its_caller_for_a_while() -> None:
    async def scenario() -> None:
        desk = Desk()
        desk.effects.begin()
        asked = desk.reports.failed(DeliveryTimeoutError("asked"), (0,))
        desk.reports.failed(DeliveryTimeoutError("left"), (0, 1))
        assert desk.reports.failed(TransactionAbortedError("aborted"), (0,)) is None  # its end tells it
        desk.effects.end()
        await asyncio.sleep(0)
        assert desk.unhandled == []
        assert asked is not None and not asked.ask(0)
        desk.reports.end_grace()
        await asyncio.sleep(0)
        assert [str(error) for error in desk.unhandled] == ["left"] * 2

    asyncio.run(scenario())


def test_a_failure_that_is_told_outside_of_a_state_change_makes_one() -> None:
    async def scenario() -> None:
        desk = Desk()
        with pytest.raises(ReentryError):
            desk.reports.failed(DeliveryTimeoutError("late"), (0,))
        desk.reports.failed_outside(DeliveryTimeoutError("late"), 1)
        await asyncio.sleep(0)
        assert len(desk.unhandled) == 1

    asyncio.run(scenario())


def test_the_report_of_a_close_counts_what_fails_from_its_beginning_on() -> None:
    async def scenario() -> None:
        reports = Desk().reports
        reports.left("t", 0, Persistence.NOT_PERSISTED, 1)
        reports.is_ending = True
        reports.left("t", 0, Persistence.NOT_PERSISTED, 2)
        reports.left("t", 0, Persistence.NOT_PERSISTED, 3)
        reports.left("t", 1, Persistence.POSSIBLY_PERSISTED, 1)
        reports.left("t", 1, None, 1)
        assert reports.close_report(0.0).undelivered == {
            ("t", 0, Persistence.NOT_PERSISTED): 5,
            ("t", 1, Persistence.POSSIBLY_PERSISTED): 1,
        }

    asyncio.run(scenario())
