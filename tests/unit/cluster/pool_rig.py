"""A real pool whose dials are decided by the test, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from fake_connection import FakeConnection
from virtual_time import run_virtual

from aiokprod.cluster.metadata.snapshot import BrokerNode
from aiokprod.cluster.owned_tasks import OwnedTasks
from aiokprod.cluster.pool import BrokerPool, Purpose
from aiokprod.config import ProducerConfig
from aiokprod.errors import AiokprodError, ConnectionLostError

PRODUCE, CONTROL = Purpose.PRODUCE, Purpose.CONTROL


def node(node_id: int, host: str | None = None, port: int = 9000) -> BrokerNode:
    return BrokerNode(id=node_id, host=host or f"host{node_id}", port=port)


class PoolRig:
    """A pool, what it dialled and what it told."""

    def __init__(self, *ids: int, **options: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.dials: list[tuple[float, int, str, Purpose, float]] = []
        self.takes_s = 0.001
        self.dialling: dict[tuple[int, Purpose], int] = {}
        self.refuse: Callable[[BrokerNode], BaseException | None] = lambda node: None
        self.slow: dict[int, float] = {}
        self.prepare: Callable[[FakeConnection], None] = lambda connection: None
        self.opened: list[FakeConnection] = []
        self.ready: list[tuple[int, FakeConnection]] = []
        self.failed: list[tuple[int, AiokprodError]] = []
        self.crashes: list[BaseException] = []
        self.tasks = OwnedTasks(self.crashes.append)
        self.pool = BrokerPool(
            ProducerConfig(bootstrap_servers="b:1", **options),
            open_connection=self.open,  # type: ignore[arg-type]
            tasks=self.tasks,
            ready=lambda node_id, connection: self.ready.append((node_id, connection)),  # type: ignore[arg-type]
            failed=lambda node_id, error: self.failed.append((node_id, error)),
            clock=self.loop.time,
            random=Random(1),
        )
        self.pool.know([node(node_id) for node_id in ids])

    async def open(self, where: BrokerNode, purpose: Purpose, timeout_s: float) -> FakeConnection:
        key = (where.id, purpose)
        assert not self.dialling.get(key), "two dials of one kind at a time"
        self.dialling[key] = 1
        self.dials.append((self.loop.time(), where.id, where.host, purpose, timeout_s))
        try:
            await asyncio.sleep(self.slow.get(where.id, self.takes_s))
        finally:
            self.dialling[key] = 0
        error = self.refuse(where)
        if error is not None:
            raise error
        connection = FakeConnection(where.id, where.host, where.port)
        connection.idle_since = self.loop.time()
        self.prepare(connection)
        self.opened.append(connection)
        return connection

    async def connect(self, node_id: int, purpose: Purpose = PRODUCE) -> FakeConnection:
        return await self.pool.connecting(node_id, purpose)  # type: ignore[return-value]

    async def end(self) -> None:
        await self.tasks.close()
        await self.pool.close(ConnectionLostError("the test is over"))
        assert not self.pool.open_for(PRODUCE)
        assert not self.pool.open_for(CONTROL)


def refused(where: BrokerNode) -> ConnectionLostError:
    return ConnectionLostError("refused", host=where.host, port=where.port)


def scene(play: Callable[[PoolRig], Awaitable[None]], *ids: int, **options: Any) -> None:
    async def scenario() -> None:
        rig = PoolRig(*(ids or (1, 2, 3)), **options)
        try:
            await play(rig)
        finally:
            await rig.end()
        assert rig.crashes == []

    run_virtual(scenario())
