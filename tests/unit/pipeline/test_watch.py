"""`Watch`: each link that keeps a producer moving is taken away once, as a defect of ours would do; the watch puts it back.

Each test plants what stands still, and asks for `heals`: in all other tests a heal is a failure (tests/conftest.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from rig import backend_of
from stage_rig import ManualLoop
from virtual_rig import room, run, started

from aiokprod import Delivery, Producer
from aiokprod.cluster.parts import ClusterParts
from aiokprod.errors import BufferFullError, DeliveryTimeoutError, SendTimeoutError, UnknownTopicError
from aiokprod.liveness import Stall
from aiokprod.logs import StateLog
from aiokprod.metrics import Metrics
from aiokprod.pipeline.broker.flusher import BrokerFlusher
from aiokprod.pipeline.partition.defects import Defects
from aiokprod.pipeline.partition.partition_queue import PartitionQueue
from aiokprod.pipeline.partition.ports import RecordQueue
from aiokprod.pipeline.pipeline import KEEP_HOUSE_EVERY_S
from aiokprod.pipeline.watch import TURNS, Watch
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork

Scenario = Callable[[MockCluster, Producer], Awaitable[None]]
HEALED_S = 2 * KEEP_HOUSE_EVERY_S + 0.1


def nothing() -> None:
    """Stand where a call of ours should be."""


def lost_call() -> asyncio.Handle:
    """Return the mark of a call that never comes."""
    return asyncio.Handle(nothing, (), asyncio.get_running_loop())


def on(scenario: Scenario, *, brokers: int = 1, is_warm: bool = True, **options: Any) -> None:
    """Run the scenario with a producer that has delivered a record, or has sent none."""

    async def whole(network: VirtualNetwork) -> None:
        async with started(network, brokers=brokers, **{"linger_ms": 0} | options) as (cluster, producer):
            if is_warm:
                await producer.send("t", b"before", partition=0)
                await asyncio.sleep(1)
            await scenario(cluster, producer)

    run(whole)


def flusher_of(producer: Producer) -> BrokerFlusher:
    """Return the only flusher."""
    (flusher,) = backend_of(producer).brokers.flushers.values()
    return flusher


def queue_of(producer: Producer) -> PartitionQueue:
    """Return the only partition."""
    (queue,) = backend_of(producer).partitions
    return queue


def cluster_of(producer: Producer) -> ClusterParts:
    parts = backend_of(producer).client._parts
    assert parts is not None
    return parts


def cancel(timer: Any) -> None:
    """Take a timer away, and leave the mark that it is set."""
    assert timer is not None
    timer.cancel()


async def delivered(delivery: Delivery, within_s: float = HEALED_S) -> None:
    """Wait without awaiting the Delivery: what waits for a record would look at it."""
    await asyncio.sleep(within_s)
    assert delivery.done()
    assert delivery.exception() is None


# ---------------------------------------------------------------------- the watch alone
class Desk:
    """A watch on a loop whose time the test moves, and what it finds."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.metrics = Metrics()
        self.stalls: list[Stall] = []
        self.crashes: list[BaseException] = []
        self.looks = 0
        self.raises_at = 0  # the look that raises
        log = StateLog("producer", client_id="c-1")
        self.watch = Watch(self.loop, self.metrics, log, Defects(self.metrics, log), self.find, self.crashes.append)
        self.healed: list[str] = []

    def find(self, busy: Sequence[RecordQueue], now: float) -> list[Stall]:
        self.looks += 1
        if self.looks == self.raises_at:
            raise ZeroDivisionError
        return list(self.stalls)

    def stall(self, what: str, owner: object, mark: object = None) -> Stall:
        return Stall(what, owner, mark, lambda: self.healed.append(what))


def test_nothing_is_healed_before_the_loop_has_turned_a_few_times(heals: list[str]) -> None:
    desk = Desk()
    owner = object()
    desk.stalls = [desk.stall("x stands still", owner)]
    desk.watch.look(())
    for _ in range(TURNS):
        assert desk.healed == []
        desk.loop.soon.popleft()._run()
    assert desk.healed == heals == ["x stands still"]
    assert desk.metrics.stalls_healed.value == 1
    assert desk.looks == 2
    assert not desk.loop.soon


def test_what_has_moved_meanwhile_is_not_healed() -> None:
    desk = Desk()
    owner, other = object(), object()
    desk.stalls = [desk.stall("x stands still", owner, "one"), desk.stall("y stands still", owner)]
    desk.watch.look(())
    desk.stalls = [desk.stall("x stands still", owner, "two"), desk.stall("y stands still", other)]
    desk.loop.run()
    assert desk.healed == []
    assert desk.metrics.stalls_healed.value == 0


def test_a_look_that_finds_nothing_schedules_nothing() -> None:
    desk = Desk()
    desk.watch.look(())
    assert not desk.loop.soon
    assert desk.looks == 1


def test_each_kind_is_logged_once_and_each_heal_is_counted(heals: list[str], caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    for kind in "xxyxy":
        desk.stalls = [desk.stall(f"{kind} stands still", desk)]
        desk.watch.look(())
        desk.loop.run()
    assert desk.metrics.stalls_healed.value == len(heals) == 5
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.ERROR]
    line = caplog.messages[0]
    assert line.startswith(
        "producer [c-1]: aiokprod has a defect: x stands still. The producer (client_id c-1) has put that right"
    )
    assert "Please report" in line


def test_one_kind_is_healed_at_a_time_the_first_that_is_found(heals: list[str]) -> None:
    """Others may be its consequences, and gone at the next look."""
    desk = Desk()
    one, other = object(), object()
    desk.stalls = [
        desk.stall("x stands still", one),
        desk.stall("y stands still", one),
        desk.stall("x stands still", other),
    ]
    desk.watch.look(())
    desk.loop.run()
    assert heals == ["x stands still", "x stands still"]
    desk.stalls = desk.stalls[1:2]
    desk.watch.look(())
    desk.loop.run()
    assert heals == ["x stands still", "x stands still", "y stands still"]


def test_a_heal_that_raises_fails_the_producer(heals: list[str]) -> None:
    desk = Desk()
    desk.stalls = [Stall("x stands still", desk, None, lambda: 1 / 0)]
    desk.watch.look(())
    desk.loop.run()
    assert [type(bug) for bug in desk.crashes] == [ZeroDivisionError]


def test_a_look_that_raises_is_a_defect_that_is_caught(heals: list[str], defects: list[str]) -> None:
    desk = Desk()
    desk.stalls = [desk.stall("x stands still", desk)]
    for look in (1, 2):
        desk.looks, desk.raises_at = 0, look
        desk.watch.look(())
        desk.loop.run()
    assert defects == ["the watch: ZeroDivisionError"] * 2 and desk.metrics.defects_caught.value == 2
    assert not desk.crashes and not heals
    desk.raises_at = 0
    desk.watch.look(())
    desk.loop.run()
    assert heals == ["x stands still"]


def test_a_stopped_watch_heals_nothing() -> None:
    desk = Desk()
    desk.stalls = [desk.stall("x stands still", desk)]
    desk.watch.look(())
    desk.watch.stop()
    desk.loop.run()
    assert desk.healed == []


# ---------------------------------------------------------------------- partitions and brokers
def test_a_flusher_with_a_mark_and_no_call(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        flusher_of(producer)._look.handle = lost_call()
        delivery = producer.send("t", b"v")
        await delivered(delivery)
        assert heals == ["partitions are ready, nothing is in flight to their broker, and no look at them comes"]
        assert producer.metrics()["stalls_healed"] == 1

    on(scenario)


def test_a_flusher_without_a_connection_whose_dial_is_not_begun(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        flusher = flusher_of(producer)
        cluster.close_connections()
        await asyncio.sleep(0.1)
        assert flusher.connection is None
        flusher._look.handle = lost_call()
        await delivered(producer.send("t", b"v"), 2.0)
        assert heals == ["partitions are ready, nothing is in flight to their broker, and no look at them comes"]

    on(scenario)


def test_a_member_of_the_ready_set_that_is_in_no_line(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        delivery = producer.send("t", b"v")
        flusher_of(producer).aggregator._ready.clear()
        await delivered(delivery)
        assert heals == ["a partition counts as ready, and is not looked at"]

    on(scenario)


def test_a_batch_that_no_broker_looks_at(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        delivery = producer.send("t", b"v")
        flusher_of(producer).aggregator.remove(queue_of(producer))
        await delivered(delivery)
        assert heals == ["a batch may be sent, and no look at it comes"]

    on(scenario)


def test_the_timer_of_lingers_is_lost(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        delivery = producer.send("t", b"v")
        cancel(backend_of(producer).brokers._wakes._timer)
        await delivered(delivery, 0.05 + HEALED_S)
        assert heals == ["linger or backoff is over, and nothing looks at the partition"]

    on(scenario, linger_ms=50)


def test_the_alarm_of_a_linger_is_lost(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        delivery = producer.send("t", b"v")
        backend_of(producer).brokers._wakes.stop()
        await delivered(delivery, 0.05 + HEALED_S)
        assert heals == ["a batch may be sent, and no look at it comes"]

    on(scenario, linger_ms=50)


def test_the_timer_of_expiries_is_lost(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        held = cluster.hold("Produce")
        delivery = producer.send("t", b"v")
        await asyncio.sleep(0.1)
        cancel(backend_of(producer)._expiries._timer)
        await asyncio.sleep(3 + HEALED_S)
        assert isinstance(delivery.exception(), DeliveryTimeoutError)
        assert heals == ["records are due to expire, and nothing looks at them"]
        cluster.release(held)

    on(scenario, delivery_timeout_ms=3_000, request_timeout_ms=2_500)


def test_a_partition_with_the_mark_of_an_alarm_and_no_alarm(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        held = cluster.hold("Produce")
        delivery = producer.send("t", b"v")
        await asyncio.sleep(0.1)
        backend_of(producer)._expiries.stop()
        await asyncio.sleep(3 + HEALED_S)
        assert isinstance(delivery.exception(), DeliveryTimeoutError)
        assert heals == ["records have no alarm for the end of their delivery_timeout_ms"]
        cluster.release(held)

    on(scenario, is_warm=False, delivery_timeout_ms=3_000, request_timeout_ms=2_500)


def test_a_partition_that_does_not_follow_its_leader(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        queue_of(producer).node = -1
        await delivered(producer.send("t", b"v"))
        assert heals == ["a partition does not follow its leader"]

    on(scenario)


def test_a_leader_that_is_not_asked_for(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.move_leader("t", 0, None)
        delivery = producer.send("t", b"v")
        await asyncio.sleep(1)
        cluster.move_leader("t", 0, 1)
        schedule = cluster_of(producer).cache._schedule
        schedule.is_wanted = False
        await delivered(delivery, 5.0)
        assert heals == ["a partition with records has no leader, and metadata is not asked for"]

    on(scenario)


# ---------------------------------------------------------------------- records that wait
def test_the_timer_of_parked_records_is_lost(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        delivery = producer.send("nope", b"v")
        cancel(backend_of(producer).parking._blocked._timer)
        await asyncio.sleep(2 + HEALED_S)
        assert isinstance(delivery.exception(), UnknownTopicError)
        assert heals == ["max_block_ms of records is over, and nothing looks at them"]

    on(scenario, max_block_ms=2_000)


@pytest.mark.parametrize("has_mark", [True, False])
def test_parked_records_without_an_alarm(has_mark: bool, heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        delivery = producer.send("nope", b"v")
        parking = backend_of(producer).parking
        parking._blocked.stop()
        parking.dispatcher("nope").has_alarm = has_mark
        await asyncio.sleep(2 + HEALED_S)
        assert isinstance(delivery.exception(), UnknownTopicError)
        assert heals == ["records wait for their topic, for room or a serializer, without an alarm for max_block_ms"]

    on(scenario, max_block_ms=2_000)


def test_a_topic_that_is_not_asked_for(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.create_topic("new")
        delivery = producer.send("new", b"v")
        cluster_of(producer).cache._schedule.is_wanted = False
        await delivered(delivery, 2.0)
        assert heals == ["records wait for the metadata of their topic, and it is not asked for"]

    on(scenario)


def test_a_request_for_metadata_that_is_due_and_not_sent(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.create_topic("new")
        wake = cluster_of(producer).cache._wake
        assert wake is not None
        wake.handle = lost_call()
        await delivered(producer.send("new", b"v"), 2.0)
        assert heals == ["a request for metadata is due, and is not sent"]

    on(scenario)


def test_a_topic_whose_metadata_is_here_and_not_known_to_its_dispatcher(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        parking = backend_of(producer).parking
        parking.dispatcher("t").learn(None, 0.0)
        await delivered(producer.send("t", b"v"))
        assert heals == ["records wait for a topic whose metadata is here"]

    on(scenario)


def test_a_serializer_that_no_task_awaits(heals: list[str]) -> None:
    async def slowly(topic: str, headers: object, data: bytes) -> bytes:
        await asyncio.sleep(0.001)
        return data

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        deliveries = [producer.send("t", b"%d" % number) for number in range(3)]
        pipeline = producer._pipeline
        assert pipeline is not None
        (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "aiokprod-serialize-t"]
        pipeline._tasks.cancel(task)
        await asyncio.sleep(0)
        pipeline.parking._lines.clear()  # cancelled before its first step, the task does not do it
        await delivered(deliveries[-1])
        assert heals == ["records wait for their serializers, and no task awaits these"]
        assert [record.value for record in cluster.records("t")] == [b"before", b"0", b"1", b"2"]

    on(scenario, value_serializer=slowly)


def test_room_that_nothing_grants(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        held = cluster.hold("Produce")
        waiting = [producer.send("t", b"x" * 300) for _ in range(3)][-1]
        gate = backend_of(producer).parking.gate
        assert gate.waiting_count == 1
        gate.limit_bytes += 1_000
        gate.open_bytes += 1_000
        await asyncio.sleep(HEALED_S)
        assert gate.waiting_count == 0
        cluster.release(held)
        await delivered(waiting)
        assert heals == ["there is room for a record that waits for it, and it is not given"]

    on(scenario, **room(1_000))


def test_a_task_that_waits_for_room_and_is_not_woken(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        held = cluster.hold("Produce")
        sent = [producer.send("t", b"x" * 300) for _ in range(2)][-1]
        with pytest.raises(BufferFullError):
            producer.try_send("t", b"x" * 300)
        waiting = asyncio.ensure_future(producer.ready())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        gate = backend_of(producer).parking.gate
        gate.limit_bytes += 1_000
        gate.open_bytes += 1_000
        await asyncio.sleep(HEALED_S)
        assert waiting.done()
        cluster.release(held)
        await delivered(sent)
        assert heals == ["there is room that a task waits for, and the task is not woken"]

    on(scenario, **room(1_000))


def test_the_timer_of_send_timeouts_is_lost(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        held = cluster.hold("Produce")
        delivery = producer.send("t", b"v", timeout=0.2)
        cancel(backend_of(producer).parking._timeouts._timer)
        await asyncio.sleep(0.2 + HEALED_S)
        assert isinstance(delivery.exception(), SendTimeoutError)
        assert heals == ["the timeout of a send is over, and nothing looks at it"]
        cluster.release(held)

    on(scenario)


# ---------------------------------------------------------------------- identities, effects
def test_a_producer_id_that_no_task_asks_for(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        pipeline, retry = producer._pipeline, backend_of(producer).retry
        retry.identity = None
        delivery = producer.send("t", b"v", partition=1)
        assert pipeline is not None
        assert retry._asking is not None
        pipeline._tasks.cancel(retry._asking)
        await delivered(delivery)
        assert heals == ["partitions wait for a producer id, and none is asked for"]

    on(scenario, partitions=2)


def test_effects_that_wait_for_the_end_of_a_state_change_that_is_over(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        deliveries = [producer.send("t", b"v" * 300) for _ in range(3)]
        backend_of(producer)._context.effects.begin()  # and an exception comes before `end`
        await delivered(deliveries[-1], 2.0)
        assert heals == ["what a state change leads to was not carried out"]

    on(scenario, **room(1_000))


# ---------------------------------------------------------------------- connections
def test_a_throttle_that_nothing_ends(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        connection = flusher_of(producer).connection
        assert connection is not None
        connection.mute(0.2)
        cancel(connection._throttle._timer)
        await delivered(producer.send("t", b"v"), 0.2 + HEALED_S)
        assert heals == ["a throttle is over, and the connection still obeys it"]

    on(scenario)


def test_a_request_whose_timeout_nothing_looks_at(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        held = cluster.hold("Produce")
        delivery = producer.send("t", b"v")
        await asyncio.sleep(0.1)
        connection = flusher_of(producer).connection
        assert connection is not None
        cancel(connection._clock._timer)
        await asyncio.sleep(2 + HEALED_S)
        assert not connection.is_open
        cluster.release(held)
        await delivered(delivery, 5.0)
        assert set(heals) == {"a request has no answer, and no timer ends the wait for it"}

    on(scenario, request_timeout_ms=2_000)


def test_a_dial_without_a_task(heals: list[str]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        delivery = producer.send("t", b"v")
        while not (dials := cluster_of(producer).pool._dials):
            await asyncio.sleep(0)
        for dial in dials.values():
            assert dial.task is not None
            cluster_of(producer).tasks.cancel(dial.task)
        await delivered(delivery, 2.0)
        assert set(heals) == {"a connection is waited for, and no task opens it"}

    on(scenario, is_warm=False)
