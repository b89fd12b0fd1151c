"""Virtual time itself: the clock, the order, the network; and rows of the fault catalogue that need exact times."""

from __future__ import annotations

import asyncio
import math
import re
import sys
from random import Random
from typing import Any

import pytest

from aiokprod import Persistence, Producer
from aiokprod.errors import DeliveryTimeoutError, UnknownTopicError
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import (
    DeadlockError,
    LeftoverError,
    Leftovers,
    VirtualLoop,
    VirtualNetwork,
    VirtualRun,
    WorkCount,
    run_virtual,
)
from aiokprod.testing.virtual.turns import MOST_TURNS_AT_ONCE


class Notes(asyncio.Protocol):
    """A protocol that notes what it is told."""

    def __init__(self) -> None:
        self.data = b""
        self.lost: list[Exception | None] = []
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


async def joined(network: VirtualNetwork) -> tuple[Notes, Notes]:
    server, client = Notes(), Notes()
    network.listen(1, lambda: server).is_open = True
    await network.dial("host", 1, None, lambda: client)
    return client, server


def test_an_hour_passes_in_no_time_and_at_its_own_pace() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(3600)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await loop.create_future()
        return loop.time() - began

    assert run_virtual(scenario, seed=1) == 3610


def test_the_order_of_ready_callbacks_is_drawn_and_that_of_one_owner_kept() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> list[str]:
        seen: list[str] = []

        class Owner:
            def __init__(self, name: str) -> None:
                self.name = name

            def note(self, number: int) -> None:
                seen.append(f"{self.name}{number}")

        owners = [Owner(name) for name in "abc"]
        for number in range(5):
            for owner in owners:
                asyncio.get_running_loop().call_soon(owner.note, number)
        await asyncio.sleep(0.001)
        return seen

    orders = {tuple(run_virtual(scenario, seed=seed)) for seed in range(20)}
    assert len(orders) > 10
    for order in orders:
        for name in "abc":
            assert [item for item in order if item[0] == name] == [f"{name}{number}" for number in range(5)]
    assert run_virtual(scenario, seed=3) == run_virtual(scenario, seed=3)
    plain = run_virtual(scenario, seed=3, shuffled=False)
    assert plain[:4] == ["a0", "b0", "c0", "a1"]


def test_a_task_that_waits_for_ever_is_told() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(DeadlockError, match="nothing is ready"):
        run_virtual(scenario, seed=1)


def test_a_timer_never_rings_early() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        loop = asyncio.get_running_loop()
        rang: list[tuple[float, float]] = []
        for start in (0.1, 1.0, 1000.0, 1e7):
            when = start
            for _ in range(5):
                when = math.nextafter(when, math.inf)
                loop.call_at(when, lambda when=when: rang.append((when, loop.time())))
        await asyncio.sleep(2e7)
        assert len(rang) == 20
        assert all(when == now for when, now in rang)

    run_virtual(scenario, seed=1)


def test_a_wait_until_a_moment_ends_though_something_else_happens_just_before_it() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        loop = asyncio.get_running_loop()
        cluster, producer = await started(network)
        loop.call_at(math.nextafter(loop.time() + 1.0, 0), lambda: None)
        with pytest.raises(UnknownTopicError):
            await producer.partitions_for("nowhere", timeout=1.0)
        await ended(cluster, producer)

    for seed in range(5):
        run_virtual(scenario, seed=seed)


def test_a_loop_that_spins_is_told_with_what_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_TURNS_AT_ONCE == 100_000
    monkeypatch.setattr("aiokprod.testing.virtual.turns.MOST_TURNS_AT_ONCE", 1_000)

    async def wake(mine: asyncio.Event, other: asyncio.Event) -> None:
        while True:
            await mine.wait()
            mine.clear()
            other.set()

    async def scenario(network: VirtualNetwork, random: Random) -> None:
        ping, pong = asyncio.Event(), asyncio.Event()
        tasks = [
            asyncio.create_task(wake(ping, pong), name="ping"),
            asyncio.create_task(wake(pong, ping), name="pong"),
        ]
        await asyncio.sleep(3)
        ping.set()
        await asyncio.wait(tasks)

    with pytest.raises(DeadlockError, match=r"1000 turns of the loop at one instant, 3\.000000 s: ") as told:
        run_virtual(scenario, seed=1)
    for name in ("ping", "pong"):
        assert re.search(rf"\d+ x task '{name}' in \S*wake \(test_virtual.py:\d+\)", str(told.value))

    async def by_timers(network: VirtualNetwork, random: Random) -> None:
        loop = asyncio.get_running_loop()

        def again() -> None:
            loop.call_later(0, again)

        again()
        await asyncio.sleep(1)

    with pytest.raises(DeadlockError, match=r"50 x test_virtual\.\S*\.again"):
        run_virtual(by_timers, seed=1)


def test_many_turns_at_many_instants_are_no_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiokprod.testing.virtual.turns.MOST_TURNS_AT_ONCE", 1_000)

    async def scenario(network: VirtualNetwork, random: Random) -> None:
        for _ in range(3):
            for _ in range(900):
                await asyncio.sleep(0)
            await asyncio.sleep(0.001)

    run_virtual(scenario, seed=1)


def test_what_there_is_at_the_end_is_told() -> None:
    left: list[Leftovers] = []

    async def scenario(network: VirtualNetwork, random: Random) -> None:
        network.listen(7, Notes).is_open = True
        network.listen(8, Notes)
        loop = asyncio.get_running_loop()
        loop.call_later(1000, print, "late")
        loop.call_later(2000, print, "cancelled").cancel()

    run_virtual(scenario, seed=1, left=left.append)
    assert left == [Leftovers(timers=("1000.000 s: builtins.print",), ports=(7,))]


def test_a_producer_and_a_cluster_leave_nothing() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        cluster, producer = await started(network, compression_type="gzip", batch_size=100_000, linger_ms=0)
        cluster.create_topic("t")
        for number in range(20):
            await asyncio.gather(*(producer.send("t", bytes(2_000)) for _ in range(30 + number)))
        await ended(cluster, producer)

    for seed in range(5):
        left: list[Leftovers] = []
        run_virtual(scenario, seed=seed, left=left.append)
        assert left == [Leftovers()]


def test_what_there_is_can_be_watched() -> None:
    with VirtualRun(1) as run:

        async def scenario() -> None:
            client, _ = await joined(run.network)
            sleeper = asyncio.create_task(asyncio.sleep(5), name="sleeper")
            thread = asyncio.get_running_loop().run_in_executor(None, int)
            now = run.leftovers()
            assert (now.tasks, now.connections, now.ports, now.threads) == (("sleeper",), (1, 1), (1,), 1)
            asyncio.get_running_loop().call_exception_handler({"message": "for the test"})
            assert "for the test" in run.leftovers().errors[0]
            run.loop.faults.clear()
            await asyncio.gather(sleeper, thread)
            assert client.transport is not None
            client.transport.close()

        run.wait_for(scenario())
        run.check()
        assert run.leftovers() == Leftovers(ports=(1,))


def test_the_work_of_the_largest_callback_is_counted() -> None:
    def busy(times: int) -> None:
        for _ in range(times):
            len("")

    async def scenario(network: VirtualNetwork, random: Random) -> WorkCount:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        with loop.counting_work() as work:
            for times in (10, 1_000, 100):
                loop.call_soon(busy, times)
                await asyncio.sleep(0.001)
        busy(5_000)
        return work

    before = sys.getprofile()
    work, again = (run_virtual(scenario, seed=1) for _ in range(2))
    assert sys.getprofile() is before
    assert 1_000 <= work.most < 1_050
    assert "busy" in work.most_of
    assert work.callbacks > 5 and work.calls > 1_110
    assert (work.most, work.calls, work.callbacks) == (again.most, again.calls, again.callbacks)
    assert (WorkCount().most, WorkCount().most_of) == (0, "")


def test_what_is_left_behind_is_named() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        leftovers.append(asyncio.create_task(asyncio.sleep(1e9), name="forgotten"))

    leftovers: list[asyncio.Task[Any]] = []
    with pytest.raises(LeftoverError, match="forgotten"):
        run_virtual(scenario, seed=1)

    async def unseen(network: VirtualNetwork, random: Random) -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)

    with pytest.raises(LeftoverError, match="ZeroDivisionError"):
        run_virtual(unseen, seed=1)


def test_bytes_arrive_in_order_and_an_end_after_them() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        client, server = await joined(network)
        assert client.transport is not None
        sent = b""
        for number in range(200):
            piece = b"%d," % number
            sent += piece
            client.transport.write(piece)
            if number % 50 == 0:
                await asyncio.sleep(0.001)
        client.transport.close()
        await asyncio.sleep(1)
        assert server.data == sent
        assert (client.lost, server.lost) == ([None], [None])
        assert network.open_ends == 0

    for seed in range(20):
        run_virtual(scenario, seed=seed)


def test_a_reset_is_told_to_both_ends_and_a_silent_port_to_none() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        client, server = await joined(network)
        assert client.transport is not None
        network.silence(1, 5.0)
        client.transport.write(b"late")
        await asyncio.sleep(4.9)
        assert server.data == b"" and not client.lost
        await asyncio.sleep(0.2)
        assert server.data == b"late"
        network.reset(1)
        await asyncio.sleep(0.1)
        assert len(client.lost) == len(server.lost) == 1
        with pytest.raises(ConnectionRefusedError):
            await network.dial("host", 2, None, Notes)

    run_virtual(scenario, seed=1)


def test_a_writer_that_is_ahead_is_paused_and_resumed() -> None:
    class Paced(Notes):
        def __init__(self) -> None:
            super().__init__()
            self.told: list[str] = []

        def pause_writing(self) -> None:
            self.told.append("pause")

        def resume_writing(self) -> None:
            self.told.append("resume")

    async def scenario(network: VirtualNetwork, random: Random) -> None:
        server, client = Notes(), Paced()
        network.listen(1, lambda: server).is_open = True
        await network.dial("host", 1, None, lambda: client)
        assert client.transport is not None
        client.transport.write(b"x" * 100_000)
        assert client.told == ["pause"]
        await asyncio.sleep(1)
        assert client.told == ["pause", "resume"]
        assert len(server.data) == 100_000
        client.transport.close()

    run_virtual(scenario, seed=1)


# ---------------------------------------------------------------------- rows that need exact times
async def started(network: VirtualNetwork, **options: Any) -> tuple[MockCluster, Producer]:
    cluster = MockCluster(brokers=3, network=network, seed=1, auto_create_topics=False)
    await cluster.__aenter__()
    producer = Producer(cluster.bootstrap_servers, dialer=network.dial, **options)
    await producer.start()
    return cluster, producer


async def ended(cluster: MockCluster, producer: Producer) -> None:
    await producer.close()
    await cluster.__aexit__(None, None, None)


def test_the_delivery_timeout_runs_from_send_also_while_the_topic_is_unknown() -> None:  # faults: G1
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        cluster, producer = await started(network, request_timeout_ms=5_000, delivery_timeout_ms=20_000)
        loop = asyncio.get_running_loop()
        began = loop.time()
        delivery = producer.send("t", b"v")
        await asyncio.sleep(15)
        cluster.create_topic("t")
        held = cluster.hold("Produce")
        with pytest.raises(DeliveryTimeoutError):
            await delivery
        assert 20.0 <= loop.time() - began < 20.1
        cluster.release(held)
        await ended(cluster, producer)

    for seed in range(5):
        run_virtual(scenario, seed=seed)


def test_an_unknown_topic_fails_at_max_block_to_the_millisecond() -> None:  # faults: T2
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        cluster, producer = await started(network, max_block_ms=60_000)
        loop = asyncio.get_running_loop()
        began = loop.time()
        before = cluster.requests_seen("Metadata")
        deliveries = [producer.send("nowhere", b"v") for _ in range(100)]
        outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {UnknownTopicError}
        assert 60.0 <= loop.time() - began < 60.01
        assert cluster.requests_seen("Metadata") - before < 75, "once a second after a few quick ones"
        assert producer.health().buffered_bytes == 0
        await ended(cluster, producer)

    run_virtual(scenario, seed=1)


def test_a_cluster_that_is_gone_for_ten_minutes_is_asked_in_moderation() -> None:  # faults: N16, B7
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        cluster, producer = await started(network, delivery_timeout_ms=1_200_000)
        cluster.create_topic("t", partitions=3)
        await producer.send("t", b"0", partition=0)
        for node in cluster.broker_ids:
            cluster.kill_broker(node, elect=False, lose_uncopied=False)
        before = {port: len(dials) for port, dials in network.dials.items()}
        deliveries = [producer.send("t", b"1", partition=number) for number in range(3)]
        await asyncio.sleep(600)
        assert not any(delivery.done() for delivery in deliveries)
        for port, dials in network.dials.items():
            assert len(dials) - before.get(port, 0) < 2 * 660, "once a second, for each of two purposes"
        for node in cluster.broker_ids:
            cluster.start_broker(node)
        assert [metadata.offset for metadata in await asyncio.gather(*deliveries)] == [1, 0, 0]
        await ended(cluster, producer)

    run_virtual(scenario, seed=1)


def test_a_throttle_holds_the_next_request_for_its_whole_time_and_no_longer() -> None:  # faults: P25
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        cluster, producer = await started(network, linger_ms=0)
        cluster.create_topic("t")
        loop = asyncio.get_running_loop()
        cluster.throttle_next("Produce", 5_000)
        await producer.send("t", b"0")
        began = loop.time()
        await producer.send("t", b"1")
        assert 4.99 <= loop.time() - began < 5.05
        await ended(cluster, producer)

    run_virtual(scenario, seed=1)


def test_an_expired_batch_in_flight_is_possibly_persisted_and_one_behind_it_is_not() -> None:  # faults: I8, P8
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        cluster, producer = await started(
            network, linger_ms=0, batch_size=100, request_timeout_ms=30_000, delivery_timeout_ms=30_000,
            max_in_flight_requests_per_connection=1,
        )  # fmt: skip
        cluster.create_topic("t")
        await producer.send("t", b"0")
        held = cluster.hold("Produce")
        flying = producer.send("t", b"x" * 90)
        await asyncio.sleep(0.01)
        waiting = producer.send("t", b"y" * 90)
        loop = asyncio.get_running_loop()
        began = loop.time()
        outcomes = await asyncio.gather(flying, waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [DeliveryTimeoutError] * 2
        assert [outcome.persistence for outcome in outcomes if isinstance(outcome, DeliveryTimeoutError)] == [
            Persistence.POSSIBLY_PERSISTED,
            Persistence.NOT_PERSISTED,
        ]
        assert 29.9 <= loop.time() - began <= 30.1
        cluster.release(held)
        await ended(cluster, producer)

    run_virtual(scenario, seed=1)


def test_a_connection_that_fails_while_closing_is_tried_again() -> None:
    async def scenario(network: VirtualNetwork, _: Random) -> None:
        async with MockCluster(1, network=network, seed=1) as cluster:
            cluster.create_topic("t")
            producer = Producer(cluster.bootstrap_servers, dialer=network.dial)
            await producer.start()
            producer.send("t", b"v")
            cluster.drop_answer("ApiVersions")  # of the connection that will be dialled for it
            report = await producer.close(timeout=60)
            assert report.count == 0
            assert [record.value for record in cluster.records("t")] == [b"v"]

    for seed in range(10):
        run_virtual(scenario, seed=seed)
