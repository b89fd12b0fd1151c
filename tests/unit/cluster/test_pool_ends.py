"""The pool alone, in virtual time: connections that are idle, whose credentials expire, and the end of all."""

from __future__ import annotations

import asyncio

import pytest
from fake_connection import FakeConnection
from pool_rig import CONTROL, PRODUCE, PoolRig, scene

from aiokprod.errors import ConnectionLostError


def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    async def play(rig: PoolRig) -> None:
        idle, busy, used = [await rig.connect(node_id) for node_id in (1, 2, 3)]
        busy.in_flight, busy.idle_since = 1, None
        for _ in range(25):
            await asyncio.sleep(50)
            used.idle_since = rig.loop.time()
        assert "idle" in str(idle.cause)
        assert busy.is_open
        assert used.is_open
        busy.in_flight, busy.idle_since = 0, rig.loop.time()
        await asyncio.sleep(1081)
        assert not busy.is_open

    scene(play, connections_max_idle_ms=540_000)


def test_idle_connections_stay_if_the_option_says_so() -> None:
    async def play(rig: PoolRig) -> None:
        connection = await rig.connect(1)
        await asyncio.sleep(1_000_000)
        assert connection.is_open

    scene(play, connections_max_idle_ms=-1)


def test_closing_an_idle_connection_is_no_fault_of_the_broker() -> None:
    async def play(rig: PoolRig) -> None:
        await rig.connect(1)
        await asyncio.sleep(0.5)
        began = rig.loop.time()
        assert not rig.opened[0].is_open
        await rig.connect(1)
        assert rig.loop.time() - began < 0.01

    scene(play, connections_max_idle_ms=200)


def expiring(connection: FakeConnection) -> None:
    connection.expires_at = asyncio.get_running_loop().time() + 100.0


def test_a_connection_is_replaced_before_its_credentials_expire() -> None:  # faults: S15
    async def play(rig: PoolRig) -> None:
        rig.prepare = expiring
        connection = await rig.connect(1)
        await asyncio.sleep(84)
        assert connection.is_open
        await asyncio.sleep(12)
        assert not connection.is_open
        assert not connection.is_retired

    scene(play)


def test_what_is_in_flight_is_answered_before_a_connection_is_replaced() -> None:  # faults: S15
    async def play(rig: PoolRig) -> None:
        rig.prepare = expiring
        connection = await rig.connect(1)
        connection.in_flight = 5
        await asyncio.sleep(96)
        assert connection.is_open
        assert rig.pool.get(1, PRODUCE) is None
        assert connection.is_retired  # nothing new is sent meanwhile
        assert connection.mutes == []  # and the clock of what is in flight goes on
        connection.in_flight = 0
        await asyncio.sleep(0.1)
        assert not connection.is_open

    scene(play)


def test_a_connection_does_not_outlive_its_credentials() -> None:  # faults: S16
    async def play(rig: PoolRig) -> None:
        rig.prepare = expiring
        connection = await rig.connect(1)
        connection.in_flight = 5
        await asyncio.sleep(100.1)
        assert not connection.is_open

    scene(play)


def test_close_ends_everything_and_waits_for_the_sockets() -> None:  # faults: L19, L27
    async def play(rig: PoolRig) -> None:
        open_ones = [await rig.connect(1), await rig.connect(2, CONTROL)]
        earlier = await rig.connect(2)
        earlier.close(ConnectionLostError("reset"))
        rig.slow[3] = 1e6
        waiter = asyncio.create_task(rig.connect(3))
        await asyncio.sleep(0.01)
        await rig.end()
        with pytest.raises(ConnectionLostError):
            await waiter
        assert all(connection.waited_for for connection in [*open_ones, earlier])
        rig.pool.dial(1, PRODUCE)
        with pytest.raises(ConnectionLostError, match="closed"):
            await rig.connect(1)

    scene(play)
