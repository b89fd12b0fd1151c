"""One run of the whole producer against a MockCluster in virtual time, all of it drawn from a seed.

What the producer is asked, which faults meet cluster and network, and when, comes from the seed; what must hold never does:
every record settles once and in time, what is acknowledged is in the log once at its offset, what failed for certain is
not, order per partition is the order of the sends, nothing is left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from aiokprod import Delivery, Producer
from aiokprod.errors import DeliveryTimeoutError, UndeliveredAtCloseError
from aiokprod.model import ProducerState
from aiokprod.testing import MockCluster
from aiokprod.testing.checker import Finding, Kind, Promise, SendBook, Sent, check_rate, log_of
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

TOPIC = "t"
METADATA = 3
PATIENCE_S = 30.0  # in a healthy cluster
RETRIABLE = [
    "CORRUPT_MESSAGE", "UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER",
    "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NETWORK_EXCEPTION",
    "KAFKA_STORAGE_ERROR", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "UNKNOWN_TOPIC_ID",
]  # fmt: skip
APPENDED = ["REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NOT_LEADER_OR_FOLLOWER"]


@dataclass(slots=True)
class Run:
    """The steps of a run and its errors."""

    seed: int
    options: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    sends: list[Sent] = field(default_factory=list)
    wrongs: list[Finding | str] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    virtual_s: float = 0.0

    @property
    def story(self) -> str:
        return "\n".join(
            [f"seed {self.seed}: {self.options}", *self.faults, *(f"WRONG {wrong}" for wrong in self.wrongs)]
        )


def explore(seed: int) -> Run:
    """Run one seed. The wrongs are in the result; a deadlock or leftovers raise."""
    run = Run(seed)

    async def scenario(network: VirtualNetwork, random: Random) -> None:
        await World(run, network, random).play()

    run_virtual(scenario, seed=seed, shuffled=seed % 4 != 0)
    return run


class World:
    """A cluster, a producer, a nemesis and the books."""

    brokers = 3

    def __init__(self, run: Run, network: VirtualNetwork, random: Random) -> None:
        self.run = run
        self.network = network
        self.random = random
        self.loop = asyncio.get_running_loop()
        self.partitions = random.choice([1, 1, 2, 4])
        self.is_idempotent = random.random() < 0.85
        self.cluster = self._make_cluster(seed=random.getrandbits(32))
        self.down: set[int] = set()
        self.healed_at = 0.0
        self.metadata_asked_at: list[float] = []
        self.cluster.counters.watchers.add(self._note_request)
        self.book = SendBook(self.loop.time)
        run.sends = self.book.sends

    def _make_cluster(self, **options: Any) -> MockCluster:
        return MockCluster(
            brokers=self.brokers,
            network=self.network,
            now_ms=lambda: int(1000 * self.loop.wall_s()),  # type: ignore[attr-defined]
            auto_create_topics=False,
            **options,
        )

    async def play(self) -> None:
        random, run = self.random, self.run
        request_timeout_ms = random.choice([200, 1_000, 5_000])
        linger_ms = random.choice([0, 0, 1, 5, 50])
        batch_size = random.choice([100, 300, 1_000, 16_384])
        least_ms = request_timeout_ms + linger_ms
        delivery_ms = random.choice([least_ms, least_ms, 2 * least_ms, 5_000 + request_timeout_ms, 120_000])
        run.options = options = {
            "linger_ms": linger_ms,
            "batch_size": batch_size,
            "request_timeout_ms": request_timeout_ms,
            "delivery_timeout_ms": delivery_ms,
            "max_in_flight_requests_per_connection": random.choice([1, 2, 5]),
            "enable_idempotence": self.is_idempotent,
            "retry_backoff_ms": random.choice([1, 20, 100]),
            "retries": random.choice([2**31 - 1, 2**31 - 1, 2**31 - 1, 1, 4]),
            "retry_backoff_max_ms": 200,
            "reconnect_backoff_ms": 10,
            "reconnect_backoff_max_ms": 200,
            "max_request_size": random.choice([max(2_000, batch_size), 1_000_000]),
            "metadata_max_age_ms": random.choice([500, 300_000]),
        }
        async with self.cluster:
            is_late_topic = random.random() < 0.3
            if not is_late_topic:
                self._create_topic()
            producer = Producer(
                self.cluster.bootstrap_servers,
                dialer=self.network.dial,
                buffer_memory=random.choice([2_000_000, 32_000_000]),
                **options,
            )
            await producer.start()
            if is_late_topic:
                self.loop.call_later(random.random() * 2, self._create_topic)
            nemesis = asyncio.create_task(self._nemesis(), name="nemesis")
            try:
                deliveries = await self._send_all(producer, delivery_ms / 1000)
            finally:
                nemesis.cancel()
                await asyncio.wait([nemesis])
            if not nemesis.cancelled():
                nemesis.result()  # a bug of its own is not to pass for peace
            began = self.loop.time()
            healing = self.loop.call_later(random.choice([0.0, 0.0, 0.0, 0.01, 0.3, 3.0]), self._heal)
            if random.random() < 0.15:
                self._refuse_connections()  # while it closes
            if random.random() < 0.6:
                await producer.flush()
                if not all(delivery.done() for delivery in deliveries):
                    run.wrongs.append("flush returned before everything was settled")
            if Random(f"alive {run.seed}").random() < 0.5:  # else it closes at work
                await self._judge_alive(producer, healing.when(), deliveries)
            bound_s = random.choice([0.0, 0.5, 300.0])
            closing = self.loop.time()
            await producer.close(timeout=bound_s)
            if self.loop.time() - closing > bound_s + 1.0:
                run.wrongs.append(f"close({bound_s}) took {self.loop.time() - closing:.2f} s")
            given_up = [sent for sent in run.sends if sent.error.startswith(UndeliveredAtCloseError.__name__)]
            if bound_s > delivery_ms / 1000 and given_up:
                run.wrongs.append(f"close({bound_s}) gave up what had {delivery_ms} ms: {given_up[0]}")
            run.metrics = producer.metrics()
            await asyncio.sleep(max(2 * request_timeout_ms / 1000, healing.when() - self.loop.time() + 1.0))
            run.virtual_s = self.loop.time() - began
            self._judge()

    def _note_request(self) -> None:
        if self.cluster.counters.recent[-1].api_key == METADATA:
            self.metadata_asked_at.append(self.loop.time())

    # ------------------------------------------------------------------ sending
    def _create_topic(self) -> None:
        if self._exists():
            return
        self.cluster.create_topic(TOPIC, partitions=self.partitions)
        for partition in range(self.partitions):
            if self.random.random() < 0.2:
                self.cluster.freeze_replicas(TOPIC, partition)
                self.loop.call_later(self.random.random(), self.cluster.thaw_replicas, TOPIC, partition)

    async def _send_all(self, producer: Producer, delivery_s: float) -> list[Delivery]:
        random = self.random
        waiting: list[Delivery] = []
        for number in range(random.choice([5, 40, 200])):
            waiting.append(self._send(producer, number, delivery_s))
            draw = random.random()
            if draw < 0.1:
                await asyncio.sleep(random.choice([0.001, 0.05, 0.5]))
            elif draw < 0.2:
                await asyncio.sleep(0)
            elif draw < 0.25:
                await asyncio.gather(waiting[-1].wait(), return_exceptions=True)
            elif draw < 0.27:
                await producer.flush()
            elif draw < 0.30:
                waiting[random.randrange(len(waiting))].recall()
        return waiting

    def _send(self, producer: Producer, number: int, delivery_s: float) -> Delivery:
        random = self.random
        timeout = random.choice([0.05, 1.0]) if random.random() < 0.03 else None
        partition = random.randrange(self.partitions)
        value = b"%d " % number + b"x" * random.choice([0, 10, 80, 400])
        delivery = producer.send(TOPIC, value, partition=partition, timeout=timeout)
        self.book.watch(
            delivery, b"%d" % number, TOPIC, partition=partition, within_s=delivery_s if timeout is None else timeout
        )
        return delivery

    # ------------------------------------------------------------------ faults
    def _faults(self) -> list[Callable[[], str]]:
        return [
            self._fail, self._fail, self._fail, self._drop, self._drop, self._omit, self._delay, self._throttle, self._move,
            self._move, self._leaderless, self._kill, self._start, self._start, self._silence, self._reset, self._close,
            self._forget, self._shrink, self._stop, self._refuse_metadata, self._late_and_moved, self._late_and_moved,
            self._old_identity, self._refuse_connections,
        ]  # fmt: skip

    async def _nemesis(self) -> None:
        random, faults = self.random, self._faults()
        for _ in range(random.choice([0, 3, 10, 30])):
            await asyncio.sleep(random.choice([0.0, 0.002, 0.02, 0.2, 1.0]))
            fault = random.choice(faults)()
            self.run.faults.append(f"{self.loop.time():8.3f} {fault}")

    def _partition(self) -> int:
        return self.random.randrange(self.partitions)

    def _fail(self) -> str:
        after_append = self.random.random() < 0.3
        code = self.random.choice(APPENDED if after_append else RETRIABLE)
        times = self.random.choice([1, 1, 2, 4])
        self.cluster.fail_next("Produce", code, after_append=after_append, times=times)
        return f"{times} answers say {code}{' after the append' if after_append else ''}"

    def _drop(self) -> str:
        after_append = self.random.random() < 0.7
        self.cluster.drop_answer("Produce", after_append=after_append)
        return f"an answer is dropped {'after' if after_append else 'before'} the append"

    def _omit(self) -> str:
        self.cluster.omit_partition("Produce", TOPIC, self._partition())
        return "an answer leaves a partition out"

    def _delay(self) -> str:
        seconds = self.random.choice([0.01, 0.3, 3.0])
        self.cluster.delay_next("Produce", seconds, before_serving=self.random.random() < 0.5)
        return f"a request takes {seconds} s"

    def _throttle(self) -> str:
        self.cluster.throttle_next("Produce", self.random.choice([10, 500]))
        return "a broker throttles"

    def _move(self) -> str:
        if self.run.sends and self._exists():
            up = [node for node in self.cluster.broker_ids if node not in self.down]
            partition, node = self._partition(), self.random.choice(up)
            self.cluster.move_leader(TOPIC, partition, node)
            return f"broker {node} leads partition {partition}"
        return "nothing"

    def _late_and_moved(self) -> str:
        """Move the leader while the old one still owes answers (faults: I7)."""
        leader = self.cluster.leader(TOPIC, partition := self._partition()) if self._exists() else None
        others = [node for node in self.cluster.broker_ids if node not in self.down and node != leader]
        if leader is None or not others:
            return "nothing"
        node, seconds = self.random.choice(others), self.random.choice([0.02, 0.2])
        before = self.random.random() < 0.5
        self.cluster.delay_next(
            "Produce", seconds, broker=leader, before_serving=before, times=self.random.choice([1, 3])
        )
        self.loop.call_later(self.random.random() * seconds, self._lead, partition, node)
        when = "before" if before else "after"
        return f"broker {leader} is {seconds} s late {when} serving while {node} takes over {partition}"

    def _old_identity(self) -> str:
        code = self.random.choice(["UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_EPOCH"])
        self.cluster.fail_next("Produce", code, topic=TOPIC, partition=self._partition())
        return f"an answer says {code}"

    def _lead(self, partition: int, node: int) -> None:
        if node not in self.down:
            self.cluster.move_leader(TOPIC, partition, node)

    def _exists(self) -> bool:
        try:
            self.cluster.topic_id(TOPIC)
        except (KeyError, ValueError, LookupError):
            return False
        return True

    def _leaderless(self) -> str:
        if not self._exists():
            return "nothing"
        partition = self._partition()
        self.cluster.move_leader(TOPIC, partition, None)

        def back() -> None:
            up = [node for node in self.cluster.broker_ids if node not in self.down]
            self.cluster.move_leader(TOPIC, partition, up[0])

        self.loop.call_later(self.random.random(), back)
        return f"partition {partition} has no leader"

    def _kill(self) -> str:
        up = [node for node in self.cluster.broker_ids if node not in self.down]
        if len(up) < 2:
            return "nothing"
        node = self.random.choice(up)
        self.down.add(node)
        # What only the leader had is lost by design of acks=1; with acks=all nothing acknowledged may be.
        self.cluster.kill_broker(node, lose_uncopied=True)
        return f"broker {node} is killed"

    def _stop(self) -> str:
        up = [node for node in self.cluster.broker_ids if node not in self.down]
        if len(up) < 2:
            return "nothing"
        node = self.random.choice(up)
        self.down.add(node)
        self.cluster.stop_broker(node)
        return f"broker {node} stops"

    def _start(self) -> str:
        if not self.down:
            return "nothing"
        node = self.random.choice(sorted(self.down))
        self.down.discard(node)
        self.cluster.start_broker(node)
        return f"broker {node} is back"

    def _port(self) -> int:
        return self.cluster.broker(self.random.choice(self.cluster.broker_ids)).port

    def _silence(self) -> str:
        port, seconds = self._port(), self.random.choice([0.1, 1.0, 8.0])
        self.network.silence(port, seconds)
        return f"port {port} is silent for {seconds} s"

    def _reset(self) -> str:
        port = self._port() if self.random.random() < 0.7 else None
        return f"{self.network.reset(port)} connection ends are reset (port {port})"

    def _close(self) -> str:
        return f"brokers close {self.cluster.close_connections(abort=self.random.random() < 0.5)} connections"

    def _forget(self) -> str:
        # A broker forgets an idle producer; a resend of a batch it has forgotten is appended twice by every client
        # (broker: 1.6). What the ledger protects against is a broker without state after a second of rest (R5.2).
        now = self.loop.time()
        if self._exists() and all(sent.settled and sent.settled_at < now - 1.0 for sent in self.run.sends):
            for partition in range(self.partitions):
                self.cluster.forget_producers(TOPIC, partition)
            return "the brokers forget the producer"
        return "nothing"

    def _shrink(self) -> str:
        if not self._exists():
            return "nothing"
        partition = self._partition()
        self.cluster.freeze_replicas(TOPIC, partition)
        self.loop.call_later(self.random.choice([0.05, 0.5]), self.cluster.thaw_replicas, TOPIC, partition)
        return f"the followers of partition {partition} fall behind"

    def _refuse_metadata(self) -> str:
        self.cluster.drop_answer("Metadata", times=self.random.choice([1, 3]))
        return "Metadata goes unanswered"

    def _refuse_connections(self) -> str:
        self.network.reset(None)
        self.cluster.drop_answer("ApiVersions", times=self.random.choice([1, 3]))
        return "connections end, and new ones too"

    def _heal(self) -> None:
        self.healed_at = self.loop.time()
        self.cluster.clear_faults()
        for node in sorted(self.down):
            self.cluster.start_broker(node)
        self.down.clear()
        if not self._exists():
            self._create_topic()
        for partition in range(self.partitions):
            self.cluster.thaw_replicas(TOPIC, partition)
            if self.cluster.leader(TOPIC, partition) is None:
                self.cluster.move_leader(TOPIC, partition, 1)

    # ------------------------------------------------------------------ judging
    async def _judge_alive(self, producer: Producer, healed_at: float, deliveries: list[Delivery]) -> None:
        """Check that everything goes on when the faults are over: what is pending settles, a fresh record is delivered."""
        wrongs, request_s = self.run.wrongs, self.run.options["request_timeout_ms"] / 1000
        await asyncio.sleep(max(0.0, healed_at - self.loop.time()) + 0.001)
        until = self.loop.time() + PATIENCE_S + request_s
        while not all(delivery.done() for delivery in deliveries) and self.loop.time() < until:
            await asyncio.sleep(0.05)
        left = [delivery for delivery in deliveries if not delivery.done()]
        if left:
            wrongs.append(f"pending for ever: {len(left)} records, such as {left[0].explain()}")
        fresh = await self._fresh(producer, until + PATIENCE_S)
        if fresh is not None:
            wrongs.append(f"delivers nothing though all is well: {fresh!r}")
        until = self.loop.time() + PATIENCE_S + request_s  # calls of send_columns may still fill the buffer
        while not producer.health().ready and self.loop.time() < until:
            await asyncio.sleep(0.05)
        health = producer.health()
        if health.state is not ProducerState.READY or not (health.ready and health.live):
            wrongs.append(f"not ready though all is well: {health}")

    async def _fresh(self, producer: Producer, until: float) -> BaseException | None:
        """Deliver a further record; return the last error if none is."""
        error: BaseException | None = None
        while self.loop.time() < until:
            number = 1_000_000 + len(self.run.sends)  # no record has it
            delivery = self._send(producer, number, self.run.options["delivery_timeout_ms"] / 1000)
            (outcome,) = await asyncio.gather(delivery.wait(), return_exceptions=True)
            if not isinstance(outcome, BaseException):
                return None
            error = outcome
            await asyncio.sleep(0.2)
        return error

    def _judge(self) -> None:
        wrongs = self.run.wrongs
        wrongs += self.book.check(
            log_of(self.cluster.records(TOPIC)),
            promise=Promise.EXACTLY_ONCE if self.is_idempotent else Promise.AT_LEAST_ONCE,
            undelivered_keep_order=self.is_idempotent,
        )
        for sent in self.run.sends:
            healthy_s = sent.settled_at - self.healed_at
            if healthy_s > PATIENCE_S and sent.error.startswith(DeliveryTimeoutError.__name__):
                wrongs.append(f"{sent}, {healthy_s:.1f} s after everything was well again")
        if self.run.metrics["buffer_used_bytes"]:
            text = f"{self.run.metrics['buffer_used_bytes']} bytes are still charged"
            wrongs.append(Finding(Kind.LEAKED_MEMORY, text))
        if self.run.metrics["stalls_healed"]:
            wrongs.append(f"stood still and was healed: {self.run.metrics['stalls_healed']} times")
        if self.run.metrics["defects_caught"]:
            wrongs.append(f"a defect was caught: {self.run.metrics['defects_caught']} times")
        for port, dials in self.network.dials.items():
            wrongs += check_rate(f"connections to port {port}", dials, most=60)
        wrongs += check_rate("Metadata requests", self.metadata_asked_at, most=30)
