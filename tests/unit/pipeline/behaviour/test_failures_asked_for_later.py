"""A failure that nothing waits for goes to the caller that asks soon, else to `on_delivery_error`: as docs/sending.md says."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_rig import Told, lost, outcomes, run, started

from aiokprod import Delivery, Producer
from aiokprod.errors import AiokprodError, BrokerRejectedError, SendTimeoutError
from aiokprod.pipeline.delivery.unasked_failures import GRACE_S
from aiokprod.testing import MemoryProducer
from aiokprod.testing.virtual import VirtualNetwork

KINDS = pytest.mark.parametrize("kind", [Producer, MemoryProducer])
Ask = Callable[[Delivery], Awaitable[object]]
Scene = Callable[[Producer, Callable[[], None]], Awaitable[None]]


def play(kind: type[Producer], scene: Scene, told: Told, **options: Any) -> None:
    """Play a scene in virtual time, with a producer that knows the topic "t", and a call that makes all sends fail."""
    options = {"on_delivery_error": told, "keep_failed_records": True} | options

    async def scenario(network: VirtualNetwork) -> None:
        if kind is Producer:
            async with started(network, **options) as (cluster, producer):
                await scene(producer, lambda: cluster.fail_next("Produce", "POLICY_VIOLATION", times=None))
        else:
            async with MemoryProducer(**options) as memory:
                await scene(memory, lambda: memory.fail_next(BrokerRejectedError("no"), times=1_000_000))

    run(scenario)


async def awaits(delivery: Delivery) -> object:
    return (await asyncio.gather(delivery, return_exceptions=True))[0]


async def awaits_a_task(delivery: Delivery) -> object:
    with pytest.raises(AiokprodError) as raised:
        await asyncio.create_task(delivery.wait())
    return raised.value


async def asks_for_the_result(delivery: Delivery) -> object:
    with pytest.raises(AiokprodError) as raised:
        delivery.result()
    return raised.value


async def asks_for_the_exception(delivery: Delivery) -> object:
    return delivery.exception()


async def adds_a_callback(delivery: Delivery) -> object:
    called: list[Delivery] = []
    delivery.add_done_callback(called.append)
    await asyncio.sleep(GRACE_S)  # the callback has the Delivery, whenever it looks at it
    [settled] = called
    return settled.exception()


async def waits_for_all(delivery: Delivery) -> object:
    done, _ = await asyncio.wait([delivery])
    await asyncio.sleep(GRACE_S)
    return next(iter(done)).exception()


async def takes_as_completed(delivery: Delivery) -> object:
    for first in asyncio.as_completed([delivery]):
        with pytest.raises(AiokprodError) as raised:
            await first
        return raised.value
    raise AssertionError


WAYS = [
    awaits, awaits_a_task, asks_for_the_result, asks_for_the_exception, adds_a_callback, waits_for_all, takes_as_completed,
]  # fmt: skip


@KINDS
@pytest.mark.parametrize("ask", WAYS)
def test_a_failure_before_the_await_is_told_to_the_caller_alone(
    kind: type[Producer], ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, both had it: two dead letters for one record."""
    told = Told()

    async def scene(producer: Producer, fail: Callable[[], None]) -> None:
        fail()
        delivery = producer.send("t", b"v")
        await asyncio.sleep(GRACE_S - 1)  # other work
        assert delivery.done()
        error = await ask(delivery)
        assert isinstance(error, BrokerRejectedError) and not error.reported
        await asyncio.sleep(3 * GRACE_S)
        error = delivery.exception()
        assert error is not None and not error.reported

    play(kind, scene, told)
    assert told.errors == [] and lost(caplog) == 0


@KINDS
@pytest.mark.parametrize("ask", WAYS)
def test_a_failure_that_is_asked_for_too_late_says_that_it_was_reported(
    kind: type[Producer], ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told()

    async def scene(producer: Producer, fail: Callable[[], None]) -> None:
        fail()
        delivery = producer.send("t", b"v")
        await producer.flush()  # which does not end the time of the caller
        await asyncio.sleep(GRACE_S - 0.1)
        assert told.errors == [] and lost(caplog) == 0
        await asyncio.sleep(0.2)
        assert told.given() == [b"v"] and lost(caplog) == 1
        error = await ask(delivery)
        assert isinstance(error, BrokerRejectedError) and error.reported
        assert error.clone().reported and pickle.loads(pickle.dumps(error)).reported
        await asyncio.sleep(3 * GRACE_S)

    play(kind, scene, told)
    assert len(told.errors) == 1 and lost(caplog) == 1


@KINDS
def test_a_listener_that_was_there_before_has_the_failure(kind: type[Producer]) -> None:
    told, heard = Told(), list[bool]()

    async def scene(producer: Producer, fail: Callable[[], None]) -> None:
        fail()
        waiting = asyncio.gather(producer.send("t", b"0"), producer.send("t", b"1"), return_exceptions=True)
        callback = producer.send("t", b"2")
        callback.add_done_callback(lambda delivery: heard.append(bool(delivery.exception())))
        await asyncio.sleep(2 * GRACE_S)
        errors = [*await waiting, callback.exception()]
        assert [getattr(error, "reported", None) for error in errors] == [False] * 3

    play(kind, scene, told)
    assert told.errors == [] and heard == [True]


@KINDS
def test_of_one_batch_the_failures_that_were_not_asked_for_are_reported_in_their_order(kind: type[Producer]) -> None:
    told = Told()

    async def scene(producer: Producer, fail: Callable[[], None]) -> None:
        fail()
        deliveries = [producer.send("t", b"%d" % number) for number in range(10)]
        await asyncio.sleep(1)
        early = await outcomes(deliveries[1::3])
        await asyncio.sleep(GRACE_S)
        late = await outcomes(deliveries)
        assert [getattr(error, "reported", None) for error in early] == [False] * 3
        assert [getattr(error, "reported", None) for error in late] == [number % 3 != 1 for number in range(10)]

    play(kind, scene, told)
    assert told.given() == [b"%d" % number for number in range(10) if number % 3 != 1]


@KINDS
def test_a_detached_handle_leaves_the_failure_to_on_delivery_error(kind: type[Producer]) -> None:
    told = Told()

    async def scene(producer: Producer, fail: Callable[[], None]) -> None:
        fail()
        delivery = producer.send("t", b"v")
        assert delivery.cancel()
        await asyncio.sleep(1)
        delivery.add_done_callback(lambda delivery: None)  # which hears of the cancellation
        with pytest.raises(asyncio.CancelledError):
            await delivery
        await asyncio.sleep(GRACE_S)

    play(kind, scene, told)
    assert told.given() == [b"v"]


@KINDS
def test_a_record_that_was_in_no_batch_is_kept_for_its_caller_too(kind: type[Producer]) -> None:
    told = Told()

    async def scene(producer: Producer, fail: Callable[[], None]) -> None:
        asked, left = producer.send("t", b"asked", partition=99), producer.send("t", b"left", partition=99)
        await asyncio.sleep(3)
        assert asked.exception() is not None
        await asyncio.sleep(GRACE_S)
        error = left.exception()
        assert error is not None and error.reported

    play(kind, scene, told, max_block_ms=1_000)
    assert told.given() == [b"left"]


@pytest.mark.parametrize("asks", [False, True])
def test_a_send_timeout_of_a_record_that_goes_on_is_kept_for_its_caller_too(asks: bool) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        async with started(network, on_delivery_error=told) as (cluster, producer):
            await producer.send("t", b"0")
            held = cluster.hold("Produce")
            delivery = producer.send("t", b"1", timeout=0.5)
            await asyncio.sleep(1)
            assert delivery.done() and told.errors == []
            error = delivery.exception() if asks else None
            await asyncio.sleep(GRACE_S)
            assert told.kinds == ([] if asks else ["SendTimeoutError"])
            error = delivery.exception()
            assert isinstance(error, SendTimeoutError) and error.reported is not asks
            cluster.release(held)

    run(scenario)


@KINDS
def test_a_close_ends_the_time_of_the_caller(kind: type[Producer], caplog: pytest.LogCaptureFixture) -> None:
    told, deliveries = Told(), list[Delivery]()

    async def scene(producer: Producer, fail: Callable[[], None]) -> None:
        fail()
        deliveries.extend(producer.send("t", b"%d" % number) for number in range(4))
        await producer.flush()
        assert deliveries[2].exception() is not None
        await producer.close()
        assert told.given() == [b"0", b"1", b"3"] and lost(caplog) == 3
        reported = [getattr(error, "reported", None) for error in await outcomes(deliveries)]
        assert reported == [True, True, False, True]

    play(kind, scene, told)
    assert len(told.errors) == 3 and lost(caplog) == 3


@KINDS
def test_what_on_delivery_error_sends_when_a_close_begins_is_delivered(kind: type[Producer]) -> None:
    """A dead letter of a failure before the close must not be refused because the report comes with it."""
    sent = list[Delivery]()
    told = Told()
    producers = list[Producer]()

    def dead(error: AiokprodError) -> None:
        told(error)
        assert error.record is not None
        sent.append(producers[0].send("t", error.record.value, timestamp_ms=error.record.timestamp_ms))

    async def scenario(network: VirtualNetwork) -> None:
        options: dict[str, Any] = {"on_delivery_error": dead, "keep_failed_records": True}
        if kind is Producer:
            async with started(network, **options) as (cluster, producer):
                producers.append(producer)
                cluster.fail_next("Produce", "POLICY_VIOLATION")
                producer.send("t", b"v")
                await producer.flush()
        else:
            async with MemoryProducer(**options) as memory:
                producers.append(memory)
                memory.fail_next(BrokerRejectedError("no"))
                memory.send("t", b"v")
                await memory.flush()
        assert told.given() == [b"v"]
        assert sent[0].result().offset == 0

    run(scenario)


@KINDS
def test_a_crash_ends_the_time_of_the_caller(kind: type[Producer], caplog: pytest.LogCaptureFixture) -> None:
    told = Told()

    async def scene(producer: Producer, fail: Callable[[], None]) -> None:
        fail()
        delivery = producer.send("t", b"v")
        await producer.flush()
        assert told.errors == []
        [supervisor] = [task for task in asyncio.all_tasks() if task.get_name() == "aiokprod-supervisor"]
        supervisor.cancel()
        await asyncio.sleep(0.1)
        assert told.given() == [b"v"] and lost(caplog) == 1
        error = delivery.exception()
        assert error is not None and error.reported

    play(kind, scene, told)
    assert len(told.errors) == 1 and lost(caplog) == 1


@KINDS
@settings(deadline=None, max_examples=40)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(1, 5)),
            st.tuples(st.just("ask"), st.integers(0, 30)),
            st.tuples(st.just("listen"), st.integers(0, 30)),
            st.tuples(st.just("sleep"), st.sampled_from([0.1, 1, 2, 4, 6])),
        ),
        max_size=25,
    )
)
def test_each_failure_is_told_once_whatever_the_order(kind: type[Producer], steps: list[tuple[str, Any]]) -> None:
    """Nothing is told to both and nothing to neither; `reported` says which it was."""
    told = Told()
    deliveries: list[Delivery] = []
    in_time: set[int] = set()
    listened: set[int] = set()

    async def scene(producer: Producer, fail: Callable[[], None]) -> None:
        fail()
        for what, figure in steps:
            number = figure % len(deliveries) if deliveries and what in ("ask", "listen") else -1
            if what == "send":
                deliveries.extend([producer.send("t", b"%d" % (len(deliveries) + at)) for at in range(figure)])
            elif what == "sleep":
                await asyncio.sleep(figure)
            elif number < 0:
                continue
            elif what == "ask":
                [error] = await outcomes([deliveries[number]])
                assert isinstance(error, AiokprodError)
                if not error.reported:
                    in_time.add(number)
            elif not deliveries[number].done():
                deliveries[number].add_done_callback(lambda delivery: None)
                listened.add(number)

    play(kind, scene, told, linger_ms=500)
    values = told.given()
    assert len(values) == len(set(values)) == len(told.errors)
    reported = {int(value) for value in values if value is not None}
    assert reported | in_time | listened == set(range(len(deliveries)))
    assert not reported & (in_time | listened)
    for number, delivery in enumerate(deliveries):
        error = delivery.exception()
        assert error is not None and error.reported == (number in reported)
