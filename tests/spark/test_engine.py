"""The producers of a worker process: shared by its tasks, closed when idle, never used after a fork."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from aiokprod import Producer, ProducerConfig
from aiokprod.errors import BootstrapError
from aiokprod.model import ProducerState
from aiokprod.spark.engine import Engine, current_engine, end_engine, leased
from aiokprod.testing.mock import MockCluster


@pytest.fixture
def config(mock_kafka: MockCluster) -> ProducerConfig:
    return ProducerConfig(bootstrap_servers=mock_kafka.bootstrap_servers)


@pytest.fixture(autouse=True)
def no_engine() -> Iterator[None]:
    """End the engine after each test, so that none leaves its thread behind."""
    yield
    end_engine()


def test_tasks_with_the_same_options_share_a_producer(config: ProducerConfig) -> None:
    with leased(config, 60) as first, leased(config.replace(), 60) as second:
        assert first.producer is second.producer
    with leased(config, 60) as third:
        assert third.producer is first.producer
        assert third.producer.health().ready
    assert current_engine().producers == 1


def test_other_options_have_a_producer_of_their_own(config: ProducerConfig) -> None:
    with leased(config, 60) as first, leased(config.replace(linger_ms=1), 60) as second:
        assert first.producer is not second.producer


def test_an_idle_producer_is_closed(config: ProducerConfig) -> None:
    with leased(config, 0) as lease:
        producer, engine = lease.producer, lease.engine
    engine.wait_until_idle(10)
    assert (producer.health().state, engine.producers) == (ProducerState.CLOSED, 0)
    with leased(config, 60) as lease:
        assert lease.producer is not producer
        assert lease.engine is engine


def test_a_producer_in_use_is_not_idle(config: ProducerConfig) -> None:
    with leased(config, 60) as outer:
        with leased(config, 0):
            pass
        with leased(config, 0) as inner:
            assert inner.producer is outer.producer
        assert outer.producer.health().ready
        assert outer.engine.producers == 1


def test_a_task_that_comes_while_the_idle_timer_fires_has_an_open_producer(
    config: ProducerConfig, mock_kafka: MockCluster
) -> None:
    mock_kafka.create_topic("t", 1)
    engine = current_engine()

    async def lease_while_the_timer_fires() -> Producer:
        loop = asyncio.get_running_loop()
        await engine.release(config, await engine.acquire(config, 30), 0)  # the timer is due in the next turn
        taken: asyncio.Future[asyncio.Task[Producer]] = loop.create_future()
        # What comes from another thread is run before the timers of the same turn, its first step after them.
        loop.call_soon(lambda: taken.set_result(loop.create_task(engine.acquire(config, 30))))
        producer = await (await taken)
        for _ in range(3):  # the turns in which an idle close would begin
            await asyncio.sleep(0)
        await producer.send("t", b"a")
        return producer

    producer = engine.submit(lease_while_the_timer_fires()).result(30)
    assert producer.health().ready
    assert engine.producers == 1


def test_a_producer_that_failed_is_closed_by_the_last_task_that_has_it(config: ProducerConfig) -> None:
    with leased(config, 60) as first:
        pipeline = first.producer._pipeline
        assert pipeline is not None
        first.engine.submit(call(pipeline.crashed, OSError("planted"))).result(30)
        assert not first.producer.health().live
        with leased(config, 0) as second:
            assert second.producer is not first.producer
            assert second.producer.health().ready
        assert first.producer.health().state is ProducerState.FAILED
    first.engine.wait_until_idle(10)
    assert first.producer.health().state is ProducerState.CLOSED


async def call(function: Callable[..., object], *arguments: object) -> None:
    """Call the function on the loop that runs this coroutine."""
    function(*arguments)


def test_a_cluster_that_cannot_be_reached_is_told_and_nothing_is_kept() -> None:
    with pytest.raises(BootstrapError), leased(ProducerConfig(bootstrap_servers="127.0.0.1:1"), 60, 0.3):
        pass
    assert current_engine().producers == 0


def test_the_cluster_is_waited_for_as_long_as_the_options_say() -> None:
    began = time.monotonic()
    unreachable = ProducerConfig(bootstrap_servers="127.0.0.1:1", max_block_ms=300)
    with pytest.raises(BootstrapError), leased(unreachable, 60):
        pass
    assert 0.3 <= time.monotonic() - began < 30


def test_tasks_of_several_threads_share_one_engine(config: ProducerConfig) -> None:
    found: list[object] = []

    def use() -> None:
        with leased(config, 60) as lease:
            found.append((lease.engine, lease.producer))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_makes_its_own(config: ProducerConfig) -> None:
    with leased(config, 60) as lease:
        child = os.fork()
        if not child:
            try:
                with leased(config, 60) as own:
                    os._exit(0 if own.engine is not lease.engine and own.producer.health().ready else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert lease.producer.health().ready


class Closable:
    """A thing that the engine keeps."""

    def __init__(self) -> None:
        self.closes = 0

    async def close(self) -> None:
        self.closes += 1


def test_a_thing_that_is_given_back_goes_to_the_next_user_or_is_closed() -> None:
    async def give(thing: Closable, idle_s: float) -> None:
        engine.give_back("key", thing, idle_s)

    async def take() -> object:
        return engine.take("key")

    engine = Engine()
    try:
        first, second = Closable(), Closable()
        assert engine.submit(take()).result() is None
        engine.submit(give(first, 100)).result()
        engine.submit(give(second, 100)).result()
        assert engine.submit(take()).result() is second
        assert engine.submit(take()).result() is first
        assert engine.submit(take()).result() is None
        engine.submit(give(first, 0)).result()
        engine.wait_until_idle(10)
        assert (first.closes, second.closes) == (1, 0)
        engine.submit(give(second, 100)).result()
    finally:
        engine.end()
    assert second.closes == 1
