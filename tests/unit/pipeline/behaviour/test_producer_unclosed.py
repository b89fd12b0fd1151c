"""A producer that nothing closed: its loop ended, or it was dropped. It says how many records are lost."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import textwrap
import warnings
from typing import Any

import pytest
from rig import run, until, values

from aiokprod import Persistence, Producer, ProducerInterceptor
from aiokprod.errors import ProducerFailedError, WrongLoopError
from aiokprod.model import ProducerState
from aiokprod.testing import MemoryProducer, MockCluster


class Noting(ProducerInterceptor):
    def __init__(self) -> None:
        self.told: list[str] = []

    def configure(self, config: object) -> None:
        self.told.append("configure")

    async def close(self) -> None:  # type: ignore[override]
        self.told.append("close")


def run_and_leave(work: Any) -> Any:
    """Run on a loop that is closed without cancelling its tasks, as `run_until_complete` and `close` leave it."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


async def leave_records(producer: Producer, cluster: MockCluster) -> Any:
    """Leave one record delivered, one in flight, two in an open batch or behind it, one parked; return what holds them."""
    await producer.start()
    await producer.send("t", b"0")
    held = cluster.hold("Produce")
    producer.send("t", b"1")
    await until(lambda: cluster.requests_seen("Produce") == 2)
    producer.send("t", b"2")
    producer.send("t", b"3")
    producer.send("unknown", b"4")
    return held


LEFT = {
    ("t", 0, Persistence.POSSIBLY_PERSISTED): 1,
    ("t", 0, Persistence.NOT_PERSISTED): 2,
    ("unknown", None, Persistence.NOT_PERSISTED): 1,
}


# ---------------------------------------------------------------------- its loop ended
def test_after_asyncio_run_a_producer_is_closed_on_another_loop_with_a_report_of_what_was_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    noting = Noting()
    with MockCluster(brokers=1, auto_create_topics=False) as cluster:
        cluster.create_topic("t", partitions=1)
        producer = Producer(cluster.bootstrap_servers, interceptors=[noting])
        cluster.release(asyncio.run(leave_records(producer, cluster)))
        assert "the event loop ends and it was not closed: 4 records are lost" in caplog.text

        async def close() -> None:
            with pytest.raises(ProducerFailedError):
                producer.send("t", b"5")
            with pytest.warns(ResourceWarning, match="was not closed before its event loop was"):
                report = await producer.close()
            assert report.undelivered == LEFT
            assert await producer.close() is report
            assert producer.health().state is ProducerState.CLOSED
            assert noting.told == ["configure", "close"]

        asyncio.run(close())
        assert "its event loop ended and it was not closed: 4 records are lost" in caplog.text

        async def live() -> None:
            async with producer:
                assert (await producer.send("u", b"0")).offset == 0

        cluster.create_topic("u", partitions=1)
        asyncio.run(live())


@pytest.mark.filterwarnings("ignore:unclosed")  # asyncio, of the transports
def test_after_a_loop_that_was_just_closed_a_producer_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    with MockCluster(brokers=1, auto_create_topics=False) as cluster:
        cluster.create_topic("t", partitions=1)
        producer = Producer(cluster.bootstrap_servers)
        cluster.release(run_and_leave(leave_records(producer, cluster)))

        async def again() -> None:
            with pytest.raises(WrongLoopError, match="is closed: close"):
                producer.send("t", b"5")
            with pytest.warns(ResourceWarning, match="was not closed before its event loop was"):
                await producer.start()
            cluster.create_topic("u", partitions=1)
            assert (await producer.send("u", b"0")).offset == 0
            assert (await producer.close()).is_clean
            assert producer.metrics()["connections_open"] == 0

        asyncio.run(again())
        assert "its event loop ended and it was not closed: 4 records are lost" in caplog.text
        gc.collect()


@pytest.mark.parametrize("state", ["STARTING", "CLOSING"])
@pytest.mark.parametrize("collected", ["gc.collect()", "kept.append(loop)"])
def test_a_start_or_a_close_that_its_loop_left_behind_is_no_dead_end(state: str, collected: str) -> None:
    program = textwrap.dedent(f"""
        import asyncio, gc
        from aiokprod import Producer
        from aiokprod.testing import MockCluster

        async def leave():
            if "{state}" == "CLOSING":
                await producer.start()
                await producer.send("t", b"0")
                held = cluster.hold("Produce")
                producer.send("t", b"1")
                kept.append(asyncio.create_task(producer.close()))
            else:
                held = cluster.hold("ApiVersions")
                kept.append(asyncio.create_task(producer.start()))
            while producer.health().state.name != "{state}":
                await asyncio.sleep(0)
            await asyncio.sleep(0.05)
            return held

        async def live():
            await producer.start()
            metadata = await producer.send("u", b"v")
            report = await producer.close()
            print(metadata.offset, report.is_clean, producer.health().state.name)

        kept = []
        with MockCluster(brokers=1, auto_create_topics=False) as cluster:
            cluster.create_topic("t", partitions=1)
            cluster.create_topic("u", partitions=1)
            producer = Producer(cluster.bootstrap_servers)
            loop = asyncio.new_event_loop()
            cluster.release(loop.run_until_complete(leave()))
            loop.close()
            if "{collected}" == "gc.collect()":
                kept.clear()
            {collected}
            asyncio.run(live())
        """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("0 True CLOSED\n", 0), done.stderr


def test_the_sockets_are_closed_when_asyncio_run_ends() -> None:
    with MockCluster(brokers=1, auto_create_topics=False) as cluster:
        cluster.create_topic("t", partitions=1)

        async def scenario() -> None:
            producer = Producer(cluster.bootstrap_servers)
            await producer.start()
            await producer.send("t", b"0")
            kept.append(producer)

        kept: list[Producer] = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            asyncio.run(scenario())
            kept.clear()
            gc.collect()
        texts = [str(warning.message) for warning in caught]
        assert not [text for text in texts if "unclosed" in text]
        assert [text for text in texts if "it was never closed" in text]


# ---------------------------------------------------------------------- it was dropped
def test_a_dropped_producer_is_closed_in_the_background_and_its_records_arrive() -> None:
    async def scenario() -> None:
        told: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
        async with MockCluster(brokers=1, auto_create_topics=False) as cluster:
            cluster.create_topic("t", partitions=1)

            async def careless() -> Any:
                producer = Producer(cluster.bootstrap_servers, client_id="careless", linger_ms=5_000)
                await producer.start()
                return producer.send("t", b"v")

            delivery = await careless()
            with pytest.warns(ResourceWarning, match="careless was dropped without close"):
                gc.collect()
            assert (await delivery).offset == 0
            await until(lambda: not [t for t in asyncio.all_tasks() if t.get_name().startswith("aiokprod")])
            assert [text for text in told if "was dropped without close" in text]
            assert values(cluster, "t") == [b"v"]

    run(scenario())


def test_a_producer_dropped_while_its_loop_stands_still_is_closed_when_the_loop_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept: list[Any] = []

    async def careless() -> None:
        producer = MemoryProducer(client_id="careless")
        await producer.start()
        producer.hold()
        kept.append(producer.send("t", b"v"))
        producer.release()

    async def later() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        assert (await kept[0]).offset == 0
        await until(lambda: not [t for t in asyncio.all_tasks() if t.get_name().startswith("aiokprod")])

    with asyncio.Runner() as runner:
        runner.run(careless())
        with pytest.warns(ResourceWarning, match="careless: it was never closed"):
            gc.collect()
        assert "if its event loop runs again, it is closed then" in caplog.text
        runner.run(later())


def test_a_producer_that_can_still_be_reached_is_not_dropped() -> None:
    async def scenario() -> None:
        async with MockCluster(brokers=1, auto_create_topics=False) as cluster:
            cluster.create_topic("t", partitions=1)

            async def sender() -> Any:
                producer = Producer(cluster.bootstrap_servers)
                await producer.start()
                return producer.send

            send = await sender()
            gc.collect()
            assert (await send("t", b"v")).offset == 0
            await send.__self__.close()

    run(scenario())


def test_a_closed_producer_and_one_that_never_started_are_dropped_in_silence() -> None:
    async def scenario() -> None:
        producers = [MemoryProducer(), MemoryProducer()]
        async with producers[0]:
            await producers[0].send("t", b"v")
        producers.clear()
        gc.collect()

    run(scenario())


@pytest.mark.parametrize("keep", ["kept = producer", "pass"])
def test_a_script_that_forgets_to_close_says_so(keep: str) -> None:
    program = textwrap.dedent(f"""
        import asyncio
        from aiokprod import Producer
        from aiokprod.testing import MockCluster

        async def main():
            global kept
            producer = Producer(cluster.bootstrap_servers)
            await producer.start()
            await producer.send("t", b"0")
            cluster.hold("Produce")
            for _ in range(3):
                producer.send("t", b"1")
            {keep}

        with MockCluster(brokers=1, auto_create_topics=False) as cluster:
            cluster.create_topic("t", partitions=1)
            asyncio.run(main())
        """)
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "3 records are lost" in done.stderr
    assert "ResourceWarning: Producer aiokprod-1" in done.stderr
    assert "Task was destroyed" not in done.stderr and "unclosed transport" not in done.stderr


def test_a_forked_child_says_nothing_of_the_producer_of_its_parent() -> None:
    program = textwrap.dedent("""
        import asyncio, os, sys
        from aiokprod.testing import MemoryProducer

        async def main():
            producer = MemoryProducer()
            await producer.start()
            child = os.fork()
            if child == 0:
                sys.exit(0)
            os.waitpid(child, 0)
            await producer.close()

        asyncio.run(main())
        """)
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "never closed" not in done.stderr and "dropped" not in done.stderr


def test_a_producer_cancelled_by_a_third_party_while_the_loop_goes_on_is_not_said_to_be_unclosed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        told: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
        async with MemoryProducer() as producer:
            await producer.send("t", b"v")
            for task in asyncio.all_tasks() - {asyncio.current_task()}:  # type: ignore[operator]
                task.cancel()
            await until(lambda: producer.health().state is ProducerState.FAILED)
        assert told == []

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())  # `run` has a task of its own
    assert "cancelled from outside" in caplog.text
