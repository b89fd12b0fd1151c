"""The results of `send` of the drop-in, in asyncio's own tools, and with done callbacks."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from typing import Any

import drop_in_rig
import pytest
from aiokafka.errors import KafkaError, KafkaTimeoutError
from aiokafka.structs import RecordMetadata
from drop_in_rig import LIMIT_S, run

from aiokprod import Persistence
from aiokprod.compat.aiokafka import AIOKafkaProducer
from aiokprod.compat.aiokafka.sent_record import SentRecord
from aiokprod.errors import AiokprodError, BrokerRejectedError
from aiokprod.testing import MockCluster


@asynccontextmanager
async def started(**options: Any) -> AsyncIterator[tuple[MockCluster, AIOKafkaProducer]]:
    """Yield a cluster, and a producer that knows the topic t."""
    async with drop_in_rig.started(**options) as (cluster, producer):
        await producer.send_and_wait("t", b"first")
        yield cluster, producer


def test_a_record_that_finds_its_topic_known_is_sent_without_a_switch_to_another_task() -> None:
    async def scenario() -> None:
        async with started() as (_, producer):
            sending = producer.send("t", b"v")
            with pytest.raises(StopIteration) as returned:
                sending.send(None)
            assert type(returned.value.value) is SentRecord
            await returned.value.value

    run(scenario)


def test_asyncio_takes_it_for_a_future() -> None:
    async def scenario() -> None:
        async with started() as (_, producer):
            sent: list[Any] = [await producer.send("t", b"v") for _ in range(6)]
            assert all(isinstance(each, asyncio.Future) and asyncio.isfuture(each) for each in sent)
            done, pending = await asyncio.wait(sent)
            assert (done, pending) == (set(sent), set())
            told = [
                *await asyncio.gather(*sent[:2]),
                await asyncio.wait_for(sent[2], 1),
                await asyncio.shield(sent[3]),
                *[await each for each in asyncio.as_completed([sent[4]])],
                sent[5].result(),
            ]
            assert all(type(each) is RecordMetadata for each in told)
            assert sent[0].exception() is None and sent[0].get_loop() is asyncio.get_running_loop()

    run(scenario)


def test_callbacks_are_given_it_in_their_order_and_each_once() -> None:
    async def scenario() -> None:
        async with started() as (_, producer):
            sent = await producer.send("t", b"v")
            calls: list[tuple[str, object]] = []
            for name in "abc":
                sent.add_done_callback(lambda done, name=name: calls.append((name, done)))
            await producer.flush()
            await asyncio.sleep(0)
            assert calls == [("a", sent), ("b", sent), ("c", sent)]
            sent.add_done_callback(lambda done: calls.append(("late", done)))
            await asyncio.sleep(0)
            assert calls[3:] == [("late", sent)]
            assert producer._callbacks.views == {}

    run(scenario)


def test_a_callback_runs_in_its_context() -> None:
    async def scenario() -> None:
        name: ContextVar[str] = ContextVar("name")
        seen: list[str] = []
        async with started() as (_, producer):
            name.set("current")
            sent = await producer.send("t", b"v")
            sent.add_done_callback(lambda _: seen.append(name.get()))
            other = copy_context()
            other.run(name.set, "given")
            sent.add_done_callback(lambda _: seen.append(name.get()), context=other)
            name.set("changed")
            await producer.flush()
            await asyncio.sleep(0)
            assert seen == ["current", "given"]

    run(scenario)


def test_a_callback_that_was_removed_is_not_called() -> None:
    async def scenario() -> None:
        async with started() as (_, producer):
            sent = await producer.send("t", b"v")
            calls: list[object] = []
            sent.add_done_callback(calls.append)
            sent.add_done_callback(calls.append)
            assert sent.remove_done_callback(calls.append) == 2
            assert sent.remove_done_callback(calls.append) == 0
            await producer.flush()
            await asyncio.sleep(0)
            assert calls == [] and producer._callbacks.views == {}

    run(scenario)


def test_a_failure_is_raised_as_an_error_of_both_with_persistence() -> None:
    async def scenario() -> None:
        async with started() as (cluster, producer):
            cluster.fail_next("Produce", "INVALID_REQUIRED_ACKS", times=1)
            sent = await producer.send("t", b"v")
            with pytest.raises(KafkaError) as awaited:
                await sent
            error = awaited.value
            assert isinstance(error, BrokerRejectedError) and error.persistence is Persistence.NOT_PERSISTED
            assert isinstance(sent.exception(), KafkaError) and isinstance(sent.exception(), AiokprodError)
            with pytest.raises(type(error)):
                sent.result()
            (gathered,) = await asyncio.gather(sent, return_exceptions=True)
            assert isinstance(gathered, KafkaError)

    run(scenario)


def test_cancelling_detaches_it_and_the_record_is_sent() -> None:
    async def scenario() -> None:
        async with started() as (cluster, producer):
            sent = await producer.send("t", b"v", partition=0)
            gathering = asyncio.gather(sent)
            gathering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gathering
            assert sent.cancelled()
            await producer.flush()
            assert b"v" in [record.value for record in cluster.records("t", 0)]

    run(scenario)


def test_nothing_of_a_record_is_kept_once_its_outcome_is_dropped() -> None:
    async def scenario() -> None:
        gc.collect()  # those of other tests
        async with started() as (_, producer):
            await asyncio.gather(*[await producer.send("t", b"v") for _ in range(100)])
            await asyncio.sleep(0)
            assert producer._callbacks.views == {}
            assert not [each for each in gc.get_objects() if type(each) is SentRecord]

    run(scenario)


def test_send_waits_for_room_and_fails_as_aiokafka_does_when_there_is_none() -> None:
    async def scenario() -> None:
        async with started(max_request_size=2_000_000) as (cluster, producer):
            producer._timeout_s = 0.0  # the first wait is over at once
            rule = cluster.hold("Produce")
            value = b"x" * 1_000_000
            with pytest.raises(KafkaTimeoutError) as full:
                for _ in range(100):
                    await producer.send("t", value, partition=0)
            assert isinstance(full.value, AiokprodError) and full.value.persistence is Persistence.NOT_PERSISTED
            producer._timeout_s = LIMIT_S
            waiting = asyncio.create_task(producer.send("t", value, partition=0))
            await asyncio.sleep(0)
            assert not waiting.done()
            cluster.release(rule)
            assert isinstance(await (await waiting), RecordMetadata)

    run(scenario)
