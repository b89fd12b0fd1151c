"""`close` in company: two callers, a start under way, tasks that a third party cancels. One end, one report."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from rig import run, run_in_virtual_time, started, until
from source_points import OneFault, Point, each_fault

from aiokprod import CloseReport, Persistence, Producer, ProducerInterceptor
from aiokprod.errors import BootstrapError, ProducerClosedError, UndeliveredAtCloseError
from aiokprod.model import ProducerState
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, VirtualRun, run_virtual

LOST = {("t", 0, Persistence.POSSIBLY_PERSISTED): 1}


def ours() -> list[asyncio.Task[Any]]:
    """Return the tasks of the producer and its cluster layer."""
    names = ("aiokprod", "metadata", "dial")
    return [task for task in asyncio.all_tasks() if task.get_name().startswith(names)]


class Slow(ProducerInterceptor):
    """An interceptor whose close takes as long as a test wants."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.closes = 0

    async def close(self) -> None:  # type: ignore[override]
        self.closes += 1
        await self.may_end.wait()


# ---------------------------------------------------------------------- several callers
def test_a_second_close_during_a_slow_hook_waits_and_gets_the_same_report() -> None:
    async def scenario() -> None:
        slow = Slow()
        async with started("t", interceptors=[slow]) as (_, producer):
            producer.send("unknown", b"v")
            first = asyncio.create_task(producer.close(timeout=0))
            await until(lambda: slow.closes == 1)
            second = asyncio.create_task(producer.close())
            await asyncio.sleep(0)
            with pytest.raises(ProducerClosedError, match="await close"):
                await producer.start()
            assert not second.done()
            slow.may_end.set()
            report = await second
            assert report is await first is await producer.close()
            assert report.undelivered == {("unknown", None, Persistence.NOT_PERSISTED): 1}
            await producer.start()
            assert (await producer.send("t", b"v")).offset == 0

    run(scenario())


def test_the_earliest_bound_of_all_callers_counts() -> None:
    async def scenario(network: Any, random: Any) -> None:
        async with MockCluster(brokers=1, network=network, seed=1, auto_create_topics=False) as cluster:
            cluster.create_topic("t", partitions=1)
            loop = asyncio.get_running_loop()
            for bounds, expected in (((30, 0), 0.0), ((30, 3, 20), 3.0), ((None, 5), 5.0), ((4, None), 4.0)):
                producer = Producer(cluster.bootstrap_servers, dialer=network.dial)
                await producer.start()
                await producer.send("t", b"0")
                held = cluster.hold("Produce")
                delivery = producer.send("t", b"1")
                await asyncio.sleep(0.5)
                began = loop.time()
                reports = await asyncio.gather(*(producer.close(timeout) for timeout in bounds))
                assert loop.time() - began == pytest.approx(expected, abs=0.1)
                assert isinstance(delivery.exception(), UndeliveredAtCloseError)
                assert all(report is reports[0] for report in reports)
                cluster.release(held)

    run_virtual(scenario, seed=1)


# ---------------------------------------------------------------------- during a start
@pytest.mark.parametrize("held_api", ["ApiVersions", "Metadata"])
def test_close_ends_a_start_that_is_under_way(held_api: str) -> None:
    async def scenario() -> None:
        async with MockCluster() as cluster:
            cluster.create_topic("t")
            producer = Producer(cluster.bootstrap_servers)
            held = cluster.hold(held_api)
            first = asyncio.create_task(producer.start())
            await until(lambda: cluster.requests_seen(held_api) > 0)
            second = asyncio.create_task(producer.start())
            await asyncio.sleep(0)
            report = await producer.close()
            assert report.is_clean
            assert producer.health().state is ProducerState.CLOSED
            for start in (first, second):
                with pytest.raises(ProducerClosedError, match="while the producer was being started"):
                    await start
            assert not ours()
            cluster.release(held)
            await producer.start()
            assert (await producer.send("t", b"v")).offset == 0
            await producer.close()

    run(scenario())


def test_close_during_a_start_that_is_cancelled_waits_for_the_hooks() -> None:
    """Swarm, seed 15176: it returned while the hooks were being closed, and the next start was refused."""

    async def scenario() -> None:
        async with MockCluster() as cluster:
            slow = Slow()
            producer = Producer(cluster.bootstrap_servers, interceptors=[slow])
            cluster.hold("ApiVersions")
            start = asyncio.create_task(producer.start())
            await until(lambda: cluster.requests_seen("ApiVersions") > 0)
            closing = asyncio.create_task(producer.close())
            await until(lambda: slow.closes == 1)
            start.cancel()
            await asyncio.wait([start])
            for _ in range(5):
                await asyncio.sleep(0)
            assert not closing.done()
            slow.may_end.set()
            assert (await closing).is_clean
            assert producer.health().state is ProducerState.CLOSED
            assert not ours()

    run(scenario())


def test_close_in_any_turn_of_a_start_leaves_nothing() -> None:
    async def scenario() -> None:
        async with MockCluster(brokers=1) as cluster:
            cluster.create_topic("t", partitions=1)
            outcomes = set()
            for turns in range(60):
                producer = Producer(cluster.bootstrap_servers)
                starting = asyncio.create_task(producer.start())
                for _ in range(turns):
                    await asyncio.sleep(0)
                if starting.done():
                    await producer.close()
                    break
                began = producer.health().state is not ProducerState.NEW
                await producer.close()
                outcome = (await asyncio.gather(starting, return_exceptions=True))[0]
                outcomes.add(type(outcome))
                if began:
                    assert isinstance(outcome, ProducerClosedError)
                    assert producer.health().state is ProducerState.CLOSED
                    assert not ours(), turns
                else:
                    await producer.close()
            assert ProducerClosedError in outcomes

    run(scenario())


def test_a_start_that_fails_closes_the_hooks_that_it_configured() -> None:
    class Noting(ProducerInterceptor):
        def __init__(self) -> None:
            self.told: list[str] = []

        def configure(self, config: object) -> None:
            self.told.append("configure")

        def close(self) -> None:
            self.told.append("close")

    async def scenario() -> None:
        noting = Noting()
        async with MockCluster() as cluster:
            servers = cluster.bootstrap_servers
        producer = Producer(servers, interceptors=[noting], reconnect_backoff_ms=5)
        with pytest.raises(BootstrapError, match="no cluster was found"):
            await producer.start(timeout=0.1)
        assert noting.told == ["configure", "close"]
        assert (await producer.close()).is_clean
        assert noting.told == ["configure", "close"]

    run(scenario())


# ---------------------------------------------------------------------- third parties
@pytest.mark.parametrize("cancelled", ["aiokprod-close", "aiokprod-drain", "aiokprod-gone", "aiokprod-hooks"])
def test_a_cancelled_task_of_the_closing_changes_nothing_for_its_callers(cancelled: str) -> None:
    """In whichever turn the cancel comes."""

    async def scenario() -> None:
        hits = 0
        for turns in range(12):
            slow = Slow()
            async with started("t", interceptors=[slow]) as (cluster, producer):
                await producer.send("t", b"0")
                held = cluster.hold("Produce")
                delivery = producer.send("t", b"1")
                await until(lambda: cluster.requests_seen("Produce") == 2)
                callers = [asyncio.create_task(producer.close(timeout)) for timeout in (0.01, 20)]
                while not any(task.get_name() == cancelled for task in ours()):
                    await asyncio.sleep(0)
                for _ in range(turns):
                    await asyncio.sleep(0)
                hits += sum(task.cancel() for task in ours() if task.get_name() == cancelled)
                slow.may_end.set()
                reports = await asyncio.gather(*callers)
                assert reports[0].undelivered == LOST
                assert reports[1] is reports[0]
                assert isinstance(delivery.exception(), UndeliveredAtCloseError)
                assert producer.health().state is ProducerState.CLOSED
                assert slow.closes == 1
                assert sys.exc_info() == (None, None, None)
                cluster.release(held)
                await producer.start()
                assert (await producer.send("t", b"2")).offset is not None
        assert hits > 0

    run(scenario())


class Counts(ProducerInterceptor):
    """An interceptor that counts how often it is closed; its close may raise."""

    def __init__(self, raised: type[BaseException] | None = None) -> None:
        self.raised = raised
        self.closes = 0

    def close(self) -> None:
        self.closes += 1
        if self.raised is not None:
            raise self.raised


@pytest.mark.pure("an exception is raised between two lines of the sources")
def test_hooks_are_closed_wherever_an_exception_comes_between_two_lines_of_their_closing() -> None:
    """At its first one none was closed, and nothing tried again."""

    step = "RecordChecks.close"

    def strike() -> None:
        raise RecursionError("between two lines")

    async def scenario() -> None:
        for at in count():
            hooks = [Counts(), Counts()]
            async with started("t", interceptors=hooks) as (_, producer):
                fault = Point(at, strike, lambda frame: frame.f_code.co_qualname == step, inside=step)
                fault.arm()
                await producer.close()
                fault.disarm()
            assert [hook.closes for hook in hooks] == [1, 1], fault
            assert producer.health().state is ProducerState.CLOSED
            if not fault.has_struck:
                break
        assert at > 5

    run(scenario())


@pytest.mark.parametrize("ends", [SystemExit, KeyboardInterrupt])
def test_a_hook_whose_close_ends_the_program_keeps_no_close_from_its_end_if_the_loop_goes_on(
    ends: type[BaseException],
) -> None:
    hooks = [Counts(), Counts(ends), Counts()]

    async def scenario(network: VirtualNetwork) -> None:
        async with MockCluster(network=network) as cluster:
            producer = Producer(cluster.bootstrap_servers, dialer=network.dial, interceptors=hooks)
            await producer.start()
            assert (await producer.close()).is_clean
            assert producer.health().state is ProducerState.CLOSED

    with VirtualRun(1) as virtual:
        task = virtual.loop.create_task(scenario(virtual.network))
        with pytest.raises(ends):
            virtual.loop.run_until_complete(task)
        virtual.loop.run_until_complete(task)
    assert [hook.closes for hook in hooks] == [1, 1, 1]


@pytest.mark.pure("an exception is raised between two lines of the sources")
def test_a_close_goes_on_behind_an_interrupt_at_its_end_if_the_loop_goes_on() -> None:
    """The closing was over with it: its tasks and connections stayed, and the hooks were not closed."""

    async def scenario(network: VirtualNetwork, hook: Counts, fault: OneFault) -> None:
        async with MockCluster(network=network) as cluster:
            producer = Producer(cluster.bootstrap_servers, dialer=network.dial, interceptors=[hook])
            await producer.start()
            with fault:
                await producer.close()
            assert producer.health().state is ProducerState.CLOSED

    for fault in each_fault(KeyboardInterrupt, "Pipeline.end"):
        hook = Counts()
        with VirtualRun(1) as virtual:
            task = virtual.loop.create_task(scenario(virtual.network, hook, fault))
            with suppress(KeyboardInterrupt):
                virtual.loop.run_until_complete(task)
            virtual.loop.run_until_complete(task)
            assert hook.closes == 1, fault
            left = virtual.leftovers()
            assert not left.tasks and not left.connections, fault


def test_a_close_task_cancelled_in_every_turn_still_delivers() -> None:
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"0")
            held = cluster.hold("Produce")
            delivery = producer.send("t", b"1")
            closing = asyncio.create_task(producer.close())
            for turn in range(40):
                await asyncio.sleep(0)
                for task in ours():
                    if task.get_name() == "aiokprod-close":
                        task.cancel()
                if turn == 20:
                    cluster.release(held)
            assert (await closing).is_clean
            assert delivery.result().offset == 1
            assert not ours()

    run(scenario())


def test_a_caller_cancelled_in_any_turn_leaves_no_exception_behind_and_the_close_goes_on() -> None:
    async def scenario() -> None:
        async with started("t") as (cluster, other):
            for turns in range(20):
                producer = Producer(cluster.bootstrap_servers)
                await producer.start()
                await producer.send("t", b"0")
                held = cluster.hold("Produce")
                producer.send("t", b"1")
                caller = asyncio.create_task(producer.close(0.02))
                for _ in range(turns):
                    await asyncio.sleep(0)
                caller.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await caller
                assert sys.exc_info() == (None, None, None)
                report = await producer.close(0.02)
                assert report.count == 1
                cluster.release(held)
            assert (await other.close()).is_clean  # not poisoned by the others

    run(scenario())


def test_a_task_that_never_ends_does_not_keep_close(caplog: pytest.LogCaptureFixture) -> None:
    may_end = asyncio.Event()

    async def resists(topic: str, headers: Any, data: bytes) -> bytes:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue
        return data

    async def scenario() -> None:
        async with started("t", value_serializer=resists) as (_, producer):
            producer.send("t", b"v")
            await asyncio.sleep(0.01)
            loop = asyncio.get_running_loop()
            began = loop.time()
            report: CloseReport = await producer.close(timeout=0.01)
            assert loop.time() - began < 5
            assert report.count == 1
            assert "leaves tasks behind that do not end" in caplog.text and "aiokprod-serialize-t" in caplog.text
            may_end.set()
            await until(lambda: not ours())

    run_in_virtual_time(scenario())
