"""The broker that a control request goes to, with a real pool in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from fake_connection import FakeConnection
from pool_rig import CONTROL, PoolRig, node, refused
from virtual_time import run_virtual

from aiokprod.cluster.control import ControlRoute
from aiokprod.cluster.metadata.bootstrap import BootstrapServers
from aiokprod.errors import (
    AuthenticationError,
    BootstrapError,
    BrokerAnswerError,
    ClusterIdMismatchError,
    ConnectionLostError,
    RequestTimeoutError,
)

SERVERS = [("boot1", 1), ("boot2", 2), ("boot3", 3)]
BROKERS = (1, 2, 3)


class Rig(PoolRig):
    def __init__(self, *, may_rebootstrap: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.bootstrap = BootstrapServers(SERVERS)
        self.route = ControlRoute(self.pool, self.bootstrap, may_rebootstrap=may_rebootstrap, random=Random(1))

    def arrived(self) -> None:
        """Note the brokers, as after a first Metadata answer."""
        nodes = [node(node_id) for node_id in BROKERS]
        self.pool.know(nodes)
        self.route.succeeded(nodes)

    async def ask(self) -> FakeConnection:
        return await self.route.connection(BROKERS)  # type: ignore[return-value]


def scene(play: Callable[[Rig], Awaitable[None]], **options: Any) -> None:
    async def scenario() -> None:
        rig = Rig(**options)
        try:
            await play(rig)
        finally:
            await rig.end()

    run_virtual(scenario())


# ---------------------------------------------------------------------- the beginning


def test_it_begins_at_a_bootstrap_server() -> None:
    async def play(rig: Rig) -> None:
        connection = await rig.ask()
        assert connection.node_id < 0
        assert len(rig.dials) == 1
        assert await rig.ask() is connection

    scene(play)


def test_a_server_that_refuses_costs_no_time() -> None:
    async def play(rig: Rig) -> None:
        rig.refuse = lambda where: None if where.host == "boot2" else refused(where)
        began = rig.loop.time()
        assert (await rig.ask()).host == "boot2"
        assert rig.loop.time() - began < 0.01

    scene(play)


def test_servers_that_swallow_packets_do_not_hold_up_the_others() -> None:  # faults: N17
    async def play(rig: Rig) -> None:
        rig.slow = {-1: 10.0, -2: 10.0}
        rig.pool.know(await rig.bootstrap.nodes())
        began = rig.loop.time()
        assert (await rig.ask()).host == "boot3"
        assert rig.loop.time() - began < 0.6

    scene(play)


def test_when_no_broker_answers_the_error_names_all_of_them() -> None:  # faults: T15
    async def play(rig: Rig) -> None:
        rig.refuse = refused
        with pytest.raises(BootstrapError) as caught:
            await rig.ask()
        assert [(host, port) for host, port, _ in caught.value.tried] == SERVERS
        assert all(str(cause) == "refused" for *_, cause in caught.value.tried)
        assert all(f"{host}:{port}: refused" in str(caught.value) for host, port in SERVERS)
        dials = len(rig.dials)
        with pytest.raises(BootstrapError, match="boot1:1: refused"):  # all in backoff: no broker is dialled
            await rig.ask()
        assert len(rig.dials) == dials

    scene(play)


def test_wrong_credentials_end_the_beginning_at_once() -> None:  # faults: S8
    async def play(rig: Rig) -> None:
        rig.slow = {-1: 10.0, -2: 10.0, -3: 10.0}
        rig.pool.know(await rig.bootstrap.nodes())
        rig.slow[-2] = 0.1
        rig.refuse = lambda where: AuthenticationError("wrong password") if where.host == "boot2" else None
        began = rig.loop.time()
        with pytest.raises(AuthenticationError):
            await rig.ask()
        assert rig.loop.time() - began < 1

    scene(play)


def test_cancelling_leaves_the_dials_to_the_next_request() -> None:
    async def play(rig: Rig) -> None:
        rig.takes_s = 1.0
        asking = asyncio.create_task(rig.ask())
        await asyncio.sleep(0.1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await rig.ask()
        await asyncio.sleep(2)
        assert len({(node_id, purpose) for _, node_id, _, purpose, _ in rig.dials}) == len(rig.dials)

    scene(play)


# ---------------------------------------------------------------------- known brokers


def test_known_brokers_are_asked_from_then_on() -> None:
    async def play(rig: Rig) -> None:
        await rig.ask()
        rig.arrived()
        connection = await rig.ask()
        assert connection.node_id in BROKERS
        assert await rig.ask() is connection

    scene(play)


def test_a_server_that_is_a_broker_is_not_dialled_twice() -> None:
    async def play(rig: Rig) -> None:
        server = await rig.ask()
        nodes = [node(1, server.host, server.port), node(2), node(3)]
        rig.pool.know(nodes)
        rig.route.succeeded(nodes)
        assert await rig.ask() is server
        assert server.node_id == 1
        assert len(rig.dials) == 1

    scene(play)


def test_a_server_that_two_brokers_announce_is_neither() -> None:  # faults: B15
    async def play(rig: Rig) -> None:
        server = await rig.ask()
        nodes = [node(1, server.host, server.port), node(2, server.host, server.port)]
        rig.pool.know(nodes)
        rig.route.succeeded(nodes)
        assert server.node_id < 0
        assert await rig.ask() is not server

    scene(play)


def test_an_idle_connection_is_preferred_and_a_busy_one_avoided() -> None:
    async def play(rig: Rig) -> None:
        rig.arrived()
        first = await rig.ask()
        first.in_flight = 1
        second = await rig.ask()
        assert second is not first
        second.is_writable = False  # throttled
        third = await rig.ask()
        assert third not in (first, second)
        first.in_flight = 0
        third.in_flight = 3
        assert await rig.ask() is first

    scene(play)


def test_the_least_loaded_connection_is_used_when_all_are_busy() -> None:
    async def play(rig: Rig) -> None:
        rig.arrived()
        connections = [await rig.connect(node_id, CONTROL) for node_id in BROKERS]
        for load, connection in zip((3, 1, 2), connections, strict=True):
            connection.in_flight = load
        assert await rig.ask() is connections[1]

    scene(play)


def test_a_busy_connection_is_used_when_the_others_cannot_be_reached_soon() -> None:
    async def play(rig: Rig) -> None:
        rig.arrived()
        busy = await rig.connect(1, CONTROL)
        busy.in_flight = 1
        rig.slow = {2: 30.0, 3: 30.0}
        began = rig.loop.time()
        assert await rig.ask() is busy
        assert 0.9 <= rig.loop.time() - began <= 1.1

    scene(play)


def test_a_broker_that_failed_is_asked_last() -> None:  # faults: T17
    async def play(rig: Rig) -> None:
        rig.arrived()
        first = await rig.ask()
        rig.route.failed(first, RequestTimeoutError("no answer"))  # type: ignore[arg-type]
        for _ in range(20):
            assert await rig.ask() is not first
        rig.route.succeeded([])
        for connection in rig.opened:
            connection.in_flight = 0 if connection is first else 1
        assert await rig.ask() is first

    scene(play)


def test_a_broker_whose_answer_is_doubted_is_asked_last() -> None:  # faults: T8
    async def play(rig: Rig) -> None:
        rig.route.doubt()  # of nothing, as no answer has come
        rig.arrived()
        first = await rig.ask()
        rig.route.answered(first)  # type: ignore[arg-type]
        assert await rig.ask() is first
        rig.route.doubt()
        second = await rig.ask()
        assert second is not first
        rig.route.answered(second)  # type: ignore[arg-type]
        rig.route.succeeded([])
        rig.route.doubt()
        assert {await rig.ask() for _ in range(20)} == {first}

    scene(play)


def test_the_only_broker_is_asked_again_though_it_failed() -> None:
    async def play(rig: Rig) -> None:
        rig.pool.know([node(1)])
        rig.route.succeeded([])
        first = await rig.route.connection([1])
        rig.route.failed(first, RequestTimeoutError("no answer"))
        assert await rig.route.connection([1]) is first
        first.close(ConnectionLostError("reset"))
        await asyncio.sleep(2)
        assert (await rig.route.connection([1])).node_id == 1

    scene(play)


# ---------------------------------------------------------------------- beginning again


def only_servers(where: Any) -> ConnectionLostError | None:
    return None if where.id < 0 else refused(where)


def test_when_no_known_broker_can_be_reached_it_begins_again() -> None:  # faults: T16
    async def play(rig: Rig) -> None:
        rig.arrived()
        rig.refuse = only_servers
        connection = await rig.ask()
        assert connection.node_id < 0
        assert {node_id for _, node_id, *_ in rig.dials if node_id > 0} == set(BROKERS)

    scene(play)


def swallowed(rig: Rig, *ids: int) -> None:
    """Let dials of these brokers end after half a minute."""
    rig.slow = dict.fromkeys(ids, 30.0)


def test_known_addresses_that_swallow_everything_are_waited_for_alone_a_second_only() -> None:  # faults: T21
    async def play(rig: Rig) -> None:
        rig.arrived()
        swallowed(rig, *BROKERS)
        began = rig.loop.time()
        assert (await rig.ask()).node_id < 0
        assert rig.loop.time() - began < 1.1
        assert {node_id for _, node_id, *_ in rig.dials if node_id > 0} == set(BROKERS)

    scene(play)


def test_a_known_address_that_answers_late_is_taken_when_the_servers_swallow_everything_too() -> None:  # faults: T21
    async def play(rig: Rig) -> None:
        rig.arrived()
        rig.pool.know(await rig.bootstrap.nodes())
        swallowed(rig, *BROKERS, -1, -2, -3)
        rig.slow[2] = 3.0
        began = rig.loop.time()
        assert (await rig.ask()).node_id == 2
        assert rig.loop.time() - began < 3.6

    scene(play)


def test_the_only_broker_that_failed_and_now_swallows_everything_is_not_waited_for() -> None:  # faults: T21
    async def play(rig: Rig) -> None:
        rig.pool.know([node(1)])
        rig.route.succeeded([])
        first = await rig.route.connection([1])
        rig.route.failed(first, RequestTimeoutError("no answer"))
        first.close(ConnectionLostError("reset"))
        await asyncio.sleep(2)
        swallowed(rig, 1)
        began = rig.loop.time()
        assert (await rig.route.connection([1])).node_id < 0
        assert rig.loop.time() - began < 1.1

    scene(play)


def test_two_requests_without_a_word_lead_to_the_servers_over_new_connections() -> None:  # faults: T21
    async def play(rig: Rig) -> None:
        server = await rig.ask()
        rig.arrived()
        connections = [await rig.connect(node_id, CONTROL) for node_id in BROKERS]
        for _ in range(2):
            silent = await rig.ask()
            assert silent in connections
            rig.route.failed(silent, RequestTimeoutError("no answer"))  # type: ignore[arg-type]
        assert not any(connection.is_open for connection in (server, *connections))
        found = await rig.ask()
        assert found.node_id < 0
        assert found is not server

    scene(play)


def test_errors_that_brokers_answer_are_no_silence() -> None:
    async def play(rig: Rig) -> None:
        rig.arrived()
        for _ in range(6):
            rig.route.failed(await rig.ask(), BrokerAnswerError("an error"))  # type: ignore[arg-type]
        assert (await rig.ask()).node_id > 0

    scene(play)


def test_known_brokers_are_asked_again_when_the_servers_cannot_be_reached_either() -> None:  # faults: T21
    async def play(rig: Rig) -> None:
        rig.arrived()
        for _ in range(2):
            rig.route.failed(await rig.ask(), RequestTimeoutError("no answer"))  # type: ignore[arg-type]
        rig.refuse = lambda where: refused(where) if where.id < 0 else None
        assert (await rig.ask()).node_id in BROKERS

    scene(play)


def test_if_the_strategy_is_none_known_brokers_are_waited_for() -> None:
    async def play(rig: Rig) -> None:
        rig.arrived()
        rig.slow = dict.fromkeys(BROKERS, 5.0)
        for _ in range(3):
            connection = await rig.ask()
            assert connection.node_id in BROKERS
            rig.route.failed(connection, RequestTimeoutError("no answer"))  # type: ignore[arg-type]

    scene(play, may_rebootstrap=False)


def test_it_does_not_begin_again_if_the_strategy_is_none() -> None:
    async def play(rig: Rig) -> None:
        rig.arrived()
        rig.refuse = only_servers
        with pytest.raises(BootstrapError):
            await rig.ask()
        assert rig.route.rebootstrap("why") is False
        assert all(node_id > 0 for _, node_id, *_ in rig.dials)

    scene(play, may_rebootstrap=False)


def test_the_first_beginning_does_not_depend_on_the_strategy() -> None:
    async def play(rig: Rig) -> None:
        assert (await rig.ask()).node_id < 0

    scene(play, may_rebootstrap=False)


def test_beginning_again_closes_what_is_known_and_asks_the_servers() -> None:  # faults: T16
    async def play(rig: Rig) -> None:
        rig.arrived()
        old = await rig.ask()
        produce = await rig.connect(1)
        assert rig.route.rebootstrap("a broker asked for it") is True
        assert rig.route.rebootstrap("twice") is False
        assert not old.is_open
        assert produce.is_open
        assert (await rig.ask()).node_id < 0

    scene(play)


def test_a_server_that_failed_is_not_asked_again_while_there_are_others() -> None:  # faults: T17
    async def play(rig: Rig) -> None:
        first = await rig.ask()
        rig.route.failed(first, RequestTimeoutError("no answer"))  # type: ignore[arg-type]
        second = await rig.ask()
        assert second is not first
        rig.refuse = refused
        second.close(ConnectionLostError("reset"))
        rig.route.failed(second, ConnectionLostError("reset"))  # type: ignore[arg-type]
        assert await rig.ask() is first

    scene(play)


def test_the_error_of_a_request_to_a_server_is_told_too() -> None:
    async def play(rig: Rig) -> None:
        server = await rig.ask()
        rig.route.failed(server, RequestTimeoutError("no metadata"))  # type: ignore[arg-type]
        server.close(ConnectionLostError("reset"))
        rig.refuse = refused
        with pytest.raises(BootstrapError, match="no metadata"):
            await rig.ask()

    scene(play)


# ---------------------------------------------------------------------- another cluster


def test_addresses_of_another_cluster_are_asked_when_all_others_have_been() -> None:  # faults: T18, T22
    async def play(rig: Rig) -> None:
        rig.arrived()
        asked: list[int] = []
        everyone = set(BROKERS) | {-1, -2, -3}
        for _ in range(len(everyone)):
            assert not rig.route.are_strangers(everyone)
            connection = await rig.ask()
            mismatch = ClusterIdMismatchError("another cluster")
            connection.close(mismatch)
            rig.route.failed(connection, mismatch)  # type: ignore[arg-type]
            asked.append(connection.node_id)
        assert set(asked[:3]) == set(BROKERS)
        assert set(asked) == everyone
        assert rig.route.are_strangers(BROKERS)
        await asyncio.sleep(2)
        connection = await rig.ask()
        rig.arrived()
        assert not rig.route.are_strangers(BROKERS)

    scene(play)
