"""Drawn ends of transactions under drawn faults: prepared or not, by their producer, by strangers, by an administrator.

Calls are cancelled at drawn turns and have drawn timeouts; producers are closed and started again in the middle. Whatever
happens, readers of committed records see all of a transaction or nothing, and all that are told how it ended are told the same.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from txn_rig import CLUSTERS, ID, QUICK, producer_of

from aiokprod import PreparedTransaction, Producer, TransactionOutcome, end_transaction
from aiokprod.errors import (
    AiokprodError,
    ProducerFailedError,
    TransactionOutcomeUnknownError,
)
from aiokprod.pipeline.wall_clock import wall_ms
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual
from aiokprod.transactions.admin import TransactionAdmin

SEEDS = 25
TRANSACTIONS = 10
PARTITIONS = 3
APIS = ("Produce", "EndTxn", "AddPartitionsToTxn", "InitProducerId", "TxnOffsetCommit", "FindCoordinator", "Fetch")
CODES = (6, 7, 14, 15, 16, 19, 51, -1)
SHORT: dict[str, Any] = {"delivery_timeout_ms": 2500, "request_timeout_ms": 1000, "transaction_timeout_ms": 3000}
CANCELLED = object()
TOLD = {TransactionOutcome.COMMITTED: True, TransactionOutcome.ABORTED: False}


class Drawn:
    """One transaction, and how it was told to have ended."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.values: list[int] = []
        self.told: set[bool] = set()

    def tell(self, outcome: object) -> None:
        """Take what a call returned: an outcome, or True for committed."""
        told = TOLD.get(outcome) if isinstance(outcome, TransactionOutcome) else outcome
        if isinstance(told, bool):
            self.told.add(told)


class World:
    """A cluster, one transactional id, and what has become of its transactions."""

    def __init__(self, cluster: MockCluster, network: VirtualNetwork, random: Random) -> None:
        self.cluster = cluster
        self.network = network
        self.random = random
        self.drawn: list[Drawn] = []
        self.open: Drawn | None = None  # the last one that was begun
        self.prepared: list[tuple[Drawn, PreparedTransaction]] = []

    def fault(self) -> None:
        random, cluster = self.random, self.cluster
        api = random.choice(APIS)
        match random.randrange(7):
            case 0:
                cluster.drop_answer(api, after_append=random.random() < 0.8, reset=random.random() < 0.5)
            case 1:
                cluster.fail_next(api, random.choice(CODES), times=random.randint(1, 3))
            case 2:
                cluster.delay_next(api, random.uniform(0.1, 8), before_serving=random.random() < 0.5)
            case 3:
                cluster.blackhole_next(api, before_serving=random.random() < 0.5)
            case 4:
                cluster.move_coordinator(ID, random.randint(1, 3))
            case 5:
                cluster.close_connections(random.randint(1, 3), abort=random.random() < 0.5)
            case _:
                node = random.randint(1, 3)
                cluster.kill_broker(node)
                asyncio.get_running_loop().call_later(random.uniform(0.5, 5), cluster.start_broker, node)

    async def call(self, make: Callable[[], Awaitable[Any]]) -> object:
        """Make a call, and perhaps cancel it; return its result or its error, CANCELLED if it was cancelled."""
        random = self.random
        task = asyncio.ensure_future(make())
        if random.random() < 0.2:
            await asyncio.wait([task], timeout=random.choice((0, 0.0005, 0.003, 0.05, 0.5, 5)))
            for _ in range(random.randrange(4)):
                await asyncio.sleep(0)
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            return CANCELLED
        except AiokprodError as error:
            return error

    # ------------------------------------------------------------------ one transaction
    async def step(self, producer: Producer, admin: TransactionAdmin) -> None:
        random = self.random
        drawn = Drawn(len(self.drawn))
        if random.random() < 0.2:
            self.drawn.append(drawn)
            await self.block(producer, drawn)
            return
        try:
            producer.begin_transaction()
        except AiokprodError as refused:  # the last one has not ended
            await self.end(producer, self.open)
            if isinstance(refused, ProducerFailedError):
                await self.reopen(producer)
            return
        self.drawn.append(drawn)
        self.open = drawn
        await self.fill(producer, drawn)
        what = random.random()
        if what < 0.15:
            await self.end(producer, drawn)
        elif what < 0.22:
            await self.reopen(producer)
        elif what < 0.32:
            await self.call(lambda: admin.abort(ID))
            await self.end(producer, drawn)
        else:
            await self.prepare(producer, drawn)

    async def block(self, producer: Producer, drawn: Drawn) -> None:
        transaction = producer.transaction()

        async def body() -> None:
            async with transaction:
                self.open = drawn
                await self.fill(producer, drawn)

        await self.call(body)
        drawn.tell(transaction.outcome)

    async def fill(self, producer: Producer, drawn: Drawn) -> None:
        for index in range(self.random.randint(0, 6)):
            if self.random.random() < 0.15:
                self.fault()
            try:
                producer.send("t", b"%d:%d" % (drawn.number, index), partition=self.random.randrange(PARTITIONS))
            except AiokprodError:
                continue
            drawn.values.append(index)
            await asyncio.sleep(self.random.choice((0, 0, 0.001, 0.05)))
        if self.random.random() < 0.2:
            await self.call(lambda: producer.send_offsets_to_transaction({("in", 0): drawn.number}, "g"))

    async def end(self, producer: Producer, drawn: Drawn | None) -> None:
        timeout = self.random.choice((None, None, 0.01, 1))
        if self.random.random() < 0.5:
            done = await self.call(lambda: producer.commit_transaction(timeout))
            told: object = True if done is None else done
        else:
            told = await self.call(lambda: producer.abort_transaction(timeout))
        if drawn is not None:
            drawn.tell(told)

    async def prepare(self, producer: Producer, drawn: Drawn) -> None:
        found = await self.call(lambda: producer.prepare_transaction(self.random.choice((None, None, 0.01, 5))))
        if not isinstance(found, PreparedTransaction):
            return
        self.prepared.append((drawn, pickle.loads(pickle.dumps(found))))
        is_left = self.random.random() < 0.3
        if is_left:
            await producer.close()
        if self.random.random() < 0.15:
            await asyncio.sleep(70)  # longer than the transaction may take
        for _ in range(self.random.randint(0, 3)):
            await self.strangers()
        if is_left:
            await self.reopen(producer)
        else:
            await self.end(producer, drawn)

    async def strangers(self) -> None:
        """Let one or two processes end a prepared transaction, perhaps with opposite verdicts."""
        random = self.random
        drawn, prepared = self.prepared[-1] if random.random() < 0.8 else random.choice(self.prepared)
        if random.random() < 0.2:
            self.fault()

        async def end(commit: bool) -> None:
            told = await self.call(
                lambda: end_transaction(
                    self.cluster.bootstrap_servers,
                    prepared,
                    commit,
                    timeout=random.choice((60.0, 60.0, 0.2)),
                    dialer=self.network.dial,
                    **QUICK,
                )
            )
            assert told is CANCELLED or isinstance(told, bool | TransactionOutcomeUnknownError), told
            if prepared.is_begun:  # an empty one has no end that could be told
                drawn.tell(told)

        await asyncio.gather(*(end(random.random() < 0.6) for _ in range(random.choice((1, 1, 2)))))

    async def reopen(self, producer: Producer) -> None:
        await producer.close(self.random.choice((None, 0, 0.01, 5)))
        self.open = None
        for _ in range(20):
            try:
                await producer.start()
                break
            except AiokprodError:
                await asyncio.sleep(0.5)

    # ------------------------------------------------------------------ what readers see
    async def judge(self) -> int:
        """Compare what is read with what was told; return the number of transactions that are committed."""
        self.cluster.clear_faults()
        await asyncio.sleep(100)
        async with producer_of(self.cluster, self.network):
            pass  # it ends what is left open
        await asyncio.sleep(10)
        seen: dict[int, list[int]] = {}
        for partition in range(PARTITIONS):
            for record in self.cluster.records("t", partition, committed=True):
                number, index = map(int, (record.value or b"").split(b":"))
                seen.setdefault(number, []).append(index)
        for drawn in self.drawn:
            found = sorted(seen.pop(drawn.number, []))
            assert found in ([], drawn.values), f"transaction {drawn.number} is torn"
            assert len(drawn.told) < 2, f"transaction {drawn.number} was told to have ended in both ways"
            if drawn.values and drawn.told:
                assert drawn.told == {bool(found)}, f"transaction {drawn.number} was told wrongly"
        assert not seen
        return sum(True in drawn.told for drawn in self.drawn)


@pytest.mark.parametrize("version", list(CLUSTERS))
def test_readers_see_what_was_told(version: str) -> None:
    committed = 0

    async def scenario(network: VirtualNetwork, random: Random) -> None:
        nonlocal committed
        options: dict[str, Any] = {"auto_create_topics": False, "now_ms": wall_ms} | CLUSTERS[version]
        async with MockCluster(3, network=network, seed=1, **options) as cluster:
            cluster.create_topic("t", partitions=PARTITIONS)
            cluster.create_topic("in")
            world = World(cluster, network, random)
            async with asyncio.timeout(20_000):  # virtual: a hang fails the test
                producer = producer_of(cluster, network, **random.choice(({}, SHORT)))
                servers = cluster.bootstrap_servers
                async with TransactionAdmin(servers, timeout=5, dialer=network.dial, **QUICK) as admin:
                    await producer.start()
                    for _ in range(TRANSACTIONS):
                        await world.step(producer, admin)
                    await producer.close()
                committed += await world.judge()
            assert cluster.counters.crashes == []

    for seed in range(SEEDS):
        try:
            run_virtual(scenario, seed=seed)
        except AssertionError as wrong:
            raise AssertionError(f"seed {seed}: {wrong}") from wrong
    assert committed > SEEDS, "most of what is drawn does nothing"
