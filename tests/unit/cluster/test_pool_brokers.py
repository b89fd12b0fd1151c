"""The pool alone, in virtual time: brokers come, move and go."""

from __future__ import annotations

import asyncio

import pytest
from pool_rig import CONTROL, PRODUCE, PoolRig, node, refused, scene

from aiokprod.cluster.pool import BrokerPool
from aiokprod.errors import ConnectionLostError


def test_a_broker_that_moved_is_dialled_at_its_new_address() -> None:  # faults: B12
    async def play(rig: PoolRig) -> None:
        old = {purpose: await rig.connect(1, purpose) for purpose in (PRODUCE, CONTROL)}
        rig.pool.know([node(1, "elsewhere"), node(2), node(3)])
        assert all(not connection.is_open for connection in old.values())
        assert "elsewhere" in str(old[PRODUCE].cause)
        new = await rig.connect(1)
        assert new.host == "elsewhere"
        assert rig.dials[-1][2] == "elsewhere"

    scene(play)


def test_a_dial_to_an_old_address_is_given_up() -> None:  # faults: B12
    async def play(rig: PoolRig) -> None:
        rig.slow[1] = 10.0
        waiter = asyncio.create_task(rig.connect(1))
        await asyncio.sleep(1)
        rig.slow.clear()
        rig.pool.know([node(1, "elsewhere"), node(2)])
        with pytest.raises(ConnectionLostError, match="elsewhere"):
            await waiter
        assert [node_id for node_id, _ in rig.failed] == [1]
        assert (await rig.connect(1)).host == "elsewhere"
        await asyncio.sleep(20)
        assert len(rig.opened) == 1

    scene(play)


def test_a_dial_that_waits_for_its_backoff_takes_the_new_address() -> None:
    async def play(rig: PoolRig) -> None:
        rig.refuse = refused
        for _ in range(8):
            with pytest.raises(ConnectionLostError):
                await rig.connect(1)
        rig.refuse = lambda where: None
        waiter = asyncio.create_task(rig.connect(1))
        await asyncio.sleep(0.1)
        rig.pool.know([node(1, "elsewhere")])
        assert (await waiter).host == "elsewhere"

    scene(play)


def test_a_removed_broker_is_dialled_no_more_and_keeps_what_is_in_flight() -> None:  # faults: B13
    async def play(rig: PoolRig) -> None:
        idle, busy = await rig.connect(1), await rig.connect(2)
        busy.in_flight = 1
        rig.pool.know([node(3)])
        assert not idle.is_open
        assert busy.is_open
        assert rig.pool.get(2, PRODUCE) is None
        await asyncio.sleep(1)
        assert busy.is_open
        assert busy.is_retired
        assert busy.mutes == []  # its clock must go on: the broker may be dead
        busy.in_flight = 0
        await asyncio.sleep(0.1)
        assert not busy.is_open
        dials = len(rig.dials)
        for node_id in (1, 2):
            with pytest.raises(ConnectionLostError, match="not among the brokers"):
                await rig.connect(node_id)
        assert len(rig.dials) == dials

    scene(play)


def test_brokers_that_leave_together_cost_one_look_at_the_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand brokers with new ids in each answer, and a look for each at all connections, were seconds of the loop."""
    looks: list[None] = []
    look = BrokerPool._look

    def counted(pool: BrokerPool) -> None:
        looks.append(None)
        look(pool)

    async def play(rig: PoolRig) -> None:
        rig.pool.know([node(node_id) for node_id in range(1, 1_000)])
        connections = [await rig.connect(node_id) for node_id in (1, 2, 500)]
        monkeypatch.setattr(BrokerPool, "_look", counted)
        rig.pool.know([node(node_id) for node_id in (2, *range(1_000, 2_000))])
        assert len(looks) == 1
        assert [connection.is_open for connection in connections] == [False, True, False]

    scene(play)


def test_a_broker_that_comes_back_is_dialled_again() -> None:
    async def play(rig: PoolRig) -> None:
        busy = await rig.connect(2)
        busy.in_flight = 1
        rig.pool.know([node(3)])
        rig.pool.know([node(2), node(3)])
        again = await rig.connect(2)
        assert again is not busy
        assert rig.pool.get(2, PRODUCE) is again
        busy.in_flight = 0
        await asyncio.sleep(0.1)
        assert not busy.is_open
        assert again.is_open

    scene(play)


def test_the_bootstrap_servers_are_not_touched_by_the_broker_list() -> None:
    async def play(rig: PoolRig) -> None:
        rig.pool.know([node(-1), node(-2)])
        server = await rig.connect(-1, CONTROL)
        rig.pool.know([node(5)])
        assert server.is_open
        rig.pool.know([node(-2)])
        assert not server.is_open
        assert (await rig.connect(5)).node_id == 5

    scene(play)


def test_a_bootstrap_connection_goes_on_under_the_id_of_its_broker() -> None:
    async def play(rig: PoolRig) -> None:
        rig.pool.know([node(-1)])
        server = await rig.connect(-1, CONTROL)
        rig.pool.adopt(-1, 2)
        assert rig.pool.get(2, CONTROL) is server
        assert rig.pool.get(-1, CONTROL) is None
        assert server.node_id == 2
        server.close(ConnectionLostError("reset"))
        assert rig.pool.get(2, CONTROL) is None
        assert not rig.pool.may_dial_now(-9, CONTROL)

    scene(play)


def test_backoffs_of_brokers_that_are_gone_do_not_pile_up() -> None:
    async def play(rig: PoolRig) -> None:
        rig.refuse = refused
        for first in range(0, 2_000, 10):
            ids = range(first, first + 10)
            rig.pool.know([node(node_id) for node_id in ids])
            for node_id in ids:
                rig.pool.dial(node_id, PRODUCE)
            await asyncio.sleep(0.01)
        assert len(rig.pool._paces) <= 120

    scene(play)
