"""Transactional worlds of a year in production: upgrades in mid-life, ids that are forgotten, long outages, small clusters.

As `TransactionalWorld`, and: the feature `transaction.version` changes, an idle id is forgotten, all brokers are away for
longer than a transaction or its end may take, and one broker may be all. The program around a block does what the
documentation says, and no more: it calls nothing behind a block but after `TransactionOutcomeUnknownError`. Soon after the
last fault each producer has to commit, and to be ready.

    python tests/simulation/transactional_life.py SEED     prints what happens in one world
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from random import Random
from typing import Any

from transactional_instance import Instance, Journal
from transactional_world import OUTAGE_S, TransactionalWorld
from world import Run

from aiokprod.testing import MockCluster
from aiokprod.testing.checker import TransactionRun
from aiokprod.testing.virtual import VirtualNetwork, run_virtual
from aiokprod.transactions.machine_actions import State
from aiokprod.transactions.transaction import Transaction

OPEN_ENDS = ("block", "raise", "cancel")
"""Blocks behind which a program calls nothing."""


def explore_life(seed: int) -> Run:
    """Run one seed. The wrongs are in the result; a deadlock or leftovers raise."""
    run = Run(seed)

    async def scenario(network: VirtualNetwork, random: Random) -> None:
        async with asyncio.timeout(40_000):
            await LifeWorld(run, network, random).play()

    run_virtual(scenario, seed=seed, shuffled=seed % 4 != 0)
    return run


class LifeInstance(Instance):
    """A producer whose program follows the documentation and calls nothing else."""

    forget: Callable[[Instance], None]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._left: list[tuple[Transaction, TransactionRun]] = []

    @property
    def is_idle(self) -> bool:
        """True: nothing of it is on its way to a coordinator."""
        if not self._is_up or not self._producer.health().live:
            return False
        machine = self._producer._transactor()._machine
        return machine.state is State.READY and not machine._asked

    @property
    def transactional_id(self) -> str:
        return self._id  # type: ignore[no-any-return]

    async def _one(self, end: str, *, is_plain: bool = False) -> TransactionRun:
        if not is_plain and self._random.random() < 0.2:
            self.forget(self)
        return await super()._one(end, is_plain=is_plain)

    async def _until_known(self, transaction: Transaction, run: TransactionRun) -> None:
        if self._end in OPEN_ENDS and not self._is_unknown:
            self._left.append((transaction, run))
        else:
            await super()._until_known(transaction, run)

    def tell(self) -> None:
        """Write the outcomes down that were not known behind their blocks."""
        for transaction, run in self._left:
            run.outcome = transaction.outcome


class LifeWorld(TransactionalWorld):
    """A transactional world with what a year brings."""

    soon_s = 60.0
    may_lose_ids = True

    def _make_cluster(self, **options: Any) -> MockCluster:
        self.brokers = self.random.choice([1, 1, 3])
        self.away_until = 0.0
        return super()._make_cluster(**options)

    def _faults(self) -> list[Callable[[], str]]:
        return [*super()._faults(), *[self._change_version] * 6, *[self._go_away] * 2, *[self._refuse_record] * 3]

    def _change_version(self) -> str:
        # Not from 2 to 0: there the requests of a transaction that goes on wedge the id (broker: 10.1).
        levels = [level for level in (0, 1, 2) if level != self.level and (level or self.highest_level < 2)]
        before, self.level = self.level, self.random.choice(levels)
        self.highest_level = max(self.highest_level, self.level)
        self.cluster.set_transaction_version(self.level)
        told_by = self.random.choice(["all", "one", "one", "none"])  # brokers that restart tell it
        if told_by != "none":
            self.cluster.close_connections(None if told_by == "all" else self.random.choice(self.cluster.broker_ids))
        markers = f", {self._hold_markers()}" if self.random.random() < 0.5 else ""
        return f"transaction.version {before} becomes {self.level}, told by {told_by}{markers}"

    def _go_away(self) -> str:
        seconds = self.random.choice([3.0, 40.0, 250.0])
        for node in self.cluster.broker_ids:
            self.cluster.freeze_broker(node)
        self.away_until = self.loop.time() + seconds
        self.loop.call_at(self.away_until, self._come_back)
        return f"no broker answers for {seconds} s"

    def _come_back(self) -> None:
        if self.loop.time() >= self.away_until:
            for node in self.cluster.broker_ids:
                self.cluster.thaw_broker(node)

    async def _nemesis_and_healing(self) -> None:
        await self._nemesis()
        await asyncio.sleep(max(OUTAGE_S, self.away_until - self.loop.time()))
        self._heal()

    def _heal(self) -> None:
        self.away_until = 0.0
        self._come_back()
        super()._heal()

    def _instance(self, journal: Journal, name: str, index: int) -> Instance:
        options = self.run.options | {"transactional_id": name, "dialer": self.network.dial}
        options["max_request_size"] = min(options["max_request_size"], options["buffer_memory"])
        servers = self.cluster.bootstrap_servers
        instance = LifeInstance(journal, servers, options, f"{name}-{index}", self.partitions, self.random)
        instance.forget = self._forget_id
        return instance

    def _forget_id(self, instance: Instance) -> None:
        """Let the coordinator forget an id that is idle, as if seven days had passed."""
        assert isinstance(instance, LifeInstance)
        if not instance.is_idle:
            return
        try:
            found = self.cluster.transaction(instance.transactional_id)
        except KeyError:
            return
        if not found.is_ongoing and not found.is_completing:
            self.cluster.lose_transaction(instance.transactional_id)
            self.run.faults.append(f"{self.loop.time():8.3f} the id of {instance.name} is forgotten")

    def _judge_transactions(self, instances: list[Instance], journal: Journal) -> None:
        for instance in instances:
            assert isinstance(instance, LifeInstance)
            instance.tell()
            if instance.failures:
                self.run.wrongs.append(f"failed without a cause: {instance.name}: {instance.failures[0]}")
        super()._judge_transactions(instances, journal)


if __name__ == "__main__":
    print(explore_life(int(sys.argv[1])).story)
