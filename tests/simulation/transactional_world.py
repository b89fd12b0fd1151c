"""One run of transactional producers against a MockCluster in virtual time, all of it drawn from a seed.

One producer, two of different ids, or two of one id, of which the second takes over while the first is at work. They send
in every way, commit, abort, are cancelled and closed, while brokers and coordinators fail. What readers of committed
records see is judged by `check_transactions`; records, calls and the liveness of the producers by `_judge_transactions`.

    python tests/simulation/transactional_world.py SEED     prints what happens in one world
"""

from __future__ import annotations

import asyncio
import sys
from random import Random
from typing import Any

from transactional_faults import IN, TransactionalFaults
from transactional_instance import Instance, Journal
from world import METADATA, TOPIC, Run

from aiokprod.testing import MockCluster
from aiokprod.testing.checker import (
    Finding,
    Kind,
    LogRecord,
    Outcome,
    check_delivery,
    check_rate,
    check_transactions,
    log_of,
)
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

LEVELS = (2, 2, 1, 0)
PRODUCE = 0
NEVER_MS = 900_000
OUTAGE_S = 30.0
PATIENT_MS = 10_000  # longer than followers are away when a topic is made


def explore_transactions(seed: int) -> Run:
    """Run one seed. The wrongs are in the result; a deadlock or leftovers raise."""
    run = Run(seed)

    async def scenario(network: VirtualNetwork, random: Random) -> None:
        async with asyncio.timeout(20_000):
            await TransactionalWorld(run, network, random).play()

    run_virtual(scenario, seed=seed, shuffled=seed % 4 != 0)
    return run


class TransactionalWorld(TransactionalFaults):
    """A cluster, one or two transactional producers, a nemesis and the books."""

    soon_s = 400.0
    """from the end of the faults to a transaction that commits"""
    may_lose_ids = False

    def _make_cluster(self, **options: Any) -> MockCluster:
        random = self.random
        self.level = self.highest_level = random.choice(LEVELS)
        self.produced: set[int] = set()  # versions of Produce that were seen
        return super()._make_cluster(
            transaction_version=self.level,
            transaction_completion_ms=random.choice([0, 5, 5, 50]),
            transaction_check_interval_ms=500,
            **options,
        )

    def _note_request(self) -> None:
        seen = self.cluster.counters.recent[-1]
        if seen.api_key == METADATA:
            self.metadata_asked_at.append(self.loop.time())
        elif seen.api_key == PRODUCE:
            self.produced.add(seen.version)

    async def play(self) -> None:
        random, run = self.random, self.run
        self.arrangement = random.choice(["one", "one", "two", "successor"])
        self.ids = ["first", "second"] if self.arrangement == "two" else ["first"]
        # Faults that nothing survives for certain: then an abort or a fence needs no other cause.
        self.timeout_ms = NEVER_MS if random.random() < 0.75 else random.choice([2_000, 6_000])
        run.options = self._draw_options()
        run.faults.append(f"transaction.version {self.level}, {self.arrangement}")
        async with self.cluster:
            self._create_topic()
            self.cluster.create_topic(IN)
            journal = Journal(self.book)
            instances = [self._instance(journal, name, index) for index, name in enumerate(self.ids)]
            if self.arrangement == "successor":
                instances.append(self._instance(journal, "first", 1))
            nemesis = asyncio.create_task(self._nemesis_and_healing(), name="nemesis")
            try:
                await asyncio.gather(*(self._run(instance) for instance in instances))
            finally:
                nemesis.cancel()
                await asyncio.wait([nemesis])
            if not nemesis.cancelled():
                nemesis.result()  # a bug of its own is not to pass for peace
            self._heal()
            await asyncio.sleep(5.0)
            for instance in instances:
                await instance.finish(self.loop.time() + self.soon_s)
            await asyncio.sleep(5.0)
            self._judge_transactions(instances, journal)
            run.faults += [
                f"transaction {each.name}: {each.outcome}, {len(each.sends)} records" for each in journal.runs
            ]

    def _draw_options(self) -> dict[str, Any]:
        random = self.random
        request_timeout_ms = random.choice([300, 1_000, 5_000])
        linger_ms = random.choice([0, 0, 1, 5, 50])
        least_ms = request_timeout_ms + linger_ms
        batch_size = random.choice([100, 300, 1_000, 16_384])
        return {
            "linger_ms": linger_ms,
            "batch_size": batch_size,
            "request_timeout_ms": request_timeout_ms,
            "delivery_timeout_ms": random.choice([2 * least_ms, 10_000 + least_ms, 120_000]),
            "max_block_ms": random.choice([2_000, 60_000]),
            "max_in_flight_requests_per_connection": random.choice([1, 2, 5]),
            "retry_backoff_ms": random.choice([1, 20, 100]),
            "retry_backoff_max_ms": 200,
            "reconnect_backoff_ms": 10,
            "reconnect_backoff_max_ms": 200,
            "max_request_size": random.choice([max(2_000, batch_size), 1_000_000]),
            "metadata_max_age_ms": random.choice([500, 300_000]),
            "buffer_memory": random.choice([20_000, 2_000_000]),
            "transaction_timeout_ms": self.timeout_ms,
        }

    def _instance(self, journal: Journal, name: str, index: int) -> Instance:
        options = self.run.options | {"transactional_id": name, "dialer": self.network.dial}
        options["max_request_size"] = min(options["max_request_size"], options["buffer_memory"])
        return Instance(
            journal, self.cluster.bootstrap_servers, options, f"{name}-{index}", self.partitions, self.random
        )

    async def _run(self, instance: Instance) -> None:
        """Run one producer; the successor begins when its predecessor is at work, or when that ends a transaction."""
        if instance.name == "first-1":
            if self.random.random() < 0.5:
                await asyncio.sleep(self.random.choice([0.0, 0.05, 0.5, 3.0]))
            else:
                begun = asyncio.Event()
                after = self.random.random() < 0.5
                self.cluster.on_request("EndTxn", begun.set)
                self.cluster.drop_answer("EndTxn", after_append=after)
                self.run.faults.append(f"the second comes with an EndTxn that is {'' if after else 'not '}carried out")
                await asyncio.wait([asyncio.ensure_future(begun.wait())], timeout=10.0)
                begun.set()
                await asyncio.sleep(0)
        await instance.run(self.random.choice([2, 4, 8]))

    async def _nemesis_and_healing(self) -> None:
        """Mend what the faults have left, after a while: without a leader for its markers no transaction ever ends."""
        await self._nemesis()
        await asyncio.sleep(OUTAGE_S)
        self._heal()

    def _heal(self) -> None:
        super()._heal()
        self.cluster.release_markers()
        for name in self.ids:
            self.cluster.load_coordinator(name, False)

    # ------------------------------------------------------------------ judging
    def _judge_transactions(self, instances: list[Instance], journal: Journal) -> None:
        wrongs = self.run.wrongs
        wrongs += journal.wrongs
        every = log_of(self.cluster.records(TOPIC))
        seen = log_of(self.cluster.records(TOPIC, committed=True))
        offsets = {(group, *place): found.offset for group in journal.groups
                   for place, found in self.cluster.committed_offsets(group).items()}  # fmt: skip
        wrongs += check_transactions(journal.runs, seen, offsets)
        wrongs += self._of_all(every)
        is_patient = self.timeout_ms == NEVER_MS and self.run.options["delivery_timeout_ms"] >= PATIENT_MS
        is_calm = len(self.run.faults) == 1 and is_patient and self.arrangement != "successor"
        may_be_fenced = self.timeout_ms != NEVER_MS or self.arrangement == "successor" or self.may_lose_ids
        for instance in instances:
            if instance.fences and not may_be_fenced:
                wrongs.append(f"fenced without a cause: {instance.name}: {instance.fences[0]}")
            if instance.aborts and is_calm:
                wrongs.append(f"aborted without a cause: {instance.name}: {instance.aborts[0]}")
            if instance.leaked_bytes:
                wrongs.append(Finding(Kind.LEAKED_MEMORY, f"{instance.leaked_bytes} bytes of {instance.name}"))
        if self.highest_level < 2 and self.produced and max(self.produced) > 11:
            wrongs.append(f"the protocol of another version: Produce v{max(self.produced)} on level {self.level}")
        if self.cluster.counters.crashes:
            wrongs.append(f"the mock crashed: {self.cluster.counters.crashes[0]}")
        wrongs += check_rate("Metadata requests", self.metadata_asked_at, most=60)

    def _of_all(self, log: list[LogRecord]) -> list[Finding]:
        """Check the outcome of each record: delivered means appended, once, at this offset, in order."""
        counted = [sent for sent in self.book.sends if sent.outcome is Outcome.DELIVERED or sent.settled != 1]
        known = {sent.identity for sent in counted}
        found = check_delivery(counted, [record for record in log if record.identity in known], lenience_s=1.0)
        late = [sent for sent in self.book.sends if sent.settled == 1 and sent.outcome is not Outcome.DELIVERED]
        return found + [each for each in check_delivery(late, [], lenience_s=1.0) if each.kind is Kind.LATE]


if __name__ == "__main__":
    print(explore_transactions(int(sys.argv[1])).story)
