"""A world that is too small: little room, little time, brokers that come and go, and calls of every kind. From one seed.

At its end everything is compared: the log with what each call was told, what was told with what failed, and the books of the
pipeline with nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any

from column_rig import column
from ledger_states import complaints
from rig import backend_of
from virtual_rig import Told

from aiokprod import Delivery, Producer, Record, SendReport
from aiokprod.cluster.metadata.snapshot import LeaderHint
from aiokprod.errors import AiokprodError, RecordPurgedError, RecordRecalledError, SendManyError
from aiokprod.model import Persistence
from aiokprod.pipeline.pipeline import Pipeline
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork

TOPICS = ("t", "u", "later", "never")  # two that are there, one that comes, one that does not
CODES = ("NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "TOPIC_AUTHORIZATION_FAILED", "LEADER_NOT_AVAILABLE")
PAUSES_S = (0, 0, 0, 0.001, 0.01, 0.1, 0.7)


class Sent:
    """A record that `send` has taken."""

    def __init__(self, delivery: Delivery, topic: str, number: int, *, is_nested: bool) -> None:
        self.delivery = delivery
        self.topic = topic
        self.number = number
        self.is_nested = is_nested  # by a hook of the user, from within another `send`: before it or after it


class LogHandler(logging.Handler):
    """A log handler of the user."""

    def __init__(self, hook: Callable[[float], None]) -> None:
        super().__init__(logging.ERROR)
        self.hook = hook

    def emit(self, record: logging.LogRecord) -> None:
        self.hook(0.3)


class SmallWorld:
    """One run.

    Args:
        serializes: some values come from an awaitable serializer.
        is_quiet: no call waits for anything, so that every failure is to be told.
    """

    def __init__(self, network: VirtualNetwork, random: Random, *, serializes: bool, is_quiet: bool) -> None:
        self.network = network
        self.random = random
        self.serializes = serializes
        self.is_quiet = is_quiet
        self.partitions = random.choice([1, 2, 3])
        self.told = Told()
        self.sent: list[Sent] = []
        self.many: list[tuple[str, list[int], SendReport]] = []
        self.placed: list[tuple[str, list[int], list[Delivery]]] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.number = 0
        self.depth = 0  # of hooks that send
        self.producer: Producer
        self.cluster: MockCluster

    def options(self) -> dict[str, Any]:
        random = self.random
        size = random.choice([3_000, 6_000, 20_000])
        options: dict[str, Any] = {
            "buffer_memory": size, "max_request_size": size, "batch_size": random.choice([0, 400, 1_000, size]),
            "max_waiting_bytes": random.choice([0, 2_000, 20_000, 1_000_000]), "linger_ms": random.choice([0, 5, 300]),
            "max_block_ms": random.choice([300, 1_000, 60_000]), "request_timeout_ms": random.choice([300, 1_000]),
            "delivery_timeout_ms": random.choice([1_500, 5_000, 120_000]), "retry_backoff_ms": 5,
            "retry_backoff_max_ms": 50, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 50,
            "metadata_max_age_ms": random.choice([500, 300_000]), "on_delivery_error": self.failed,
            "max_in_flight_requests_per_connection": random.choice([1, 5]), "dialer": self.network.dial,
        }  # fmt: skip
        if random.random() < 0.4:
            options["partitioner"] = self.choose
        if self.serializes:
            options["value_serializer"] = self.serialize
        return options

    # ------------------------------------------------------------------ hooks of the user
    def hook(self, chance: float) -> None:
        """Act as user code may from within ours: send, and take something back."""
        if self.depth < 2 and self.random.random() < chance:
            self.depth += 1
            try:
                self.send()
                if self.sent and self.random.random() < 0.3:
                    self.random.choice(self.sent).delivery.recall()
            finally:
                self.depth -= 1

    def failed(self, error: AiokprodError) -> None:
        self.told(error)
        self.hook(0.1)

    def choose(self, key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
        if self.random.random() < 0.03:
            raise RuntimeError("no partition for this one")
        self.hook(0.05)
        return self.random.choice(partitions)

    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: bytes) -> object:
        self.hook(0.05)
        return data if self.random.random() < 0.5 else self._serialized(data)

    async def _serialized(self, data: bytes) -> bytes:
        await asyncio.sleep(self.random.choice([0, 0.001, 0.05, 0.5, 5]))
        if self.random.random() < 0.05:
            raise ValueError("no bytes for this one")
        return data

    # ------------------------------------------------------------------ calls
    def value(self) -> bytes:
        self.number += 1
        return b"%06d" % self.number + b"x" * self.random.choice([0, 10, 100, 300, 900, 2_000])

    def send(self) -> None:
        random, value, number = self.random, self.value(), self.number
        topic = random.choices(TOPICS, [6, 3, 1, 1])[0]
        partition = random.choice([None, None, 0, self.partitions - 1, self.partitions])
        call = self.producer.try_send if random.random() < 0.1 else self.producer.send
        try:
            delivery = call(topic, value, partition=partition, timeout=random.choice([None, None, None, 0.2, 1.0, 3.0]))
        except AiokprodError:
            return  # refused: nothing was taken
        self.sent.append(Sent(delivery, topic, number, is_nested=self.depth > 0))
        if not self.is_quiet and random.random() < 0.2:
            self.task(delivery.wait())

    async def send_many(self) -> None:
        random, topic = self.random, self.random.choice("tu")
        values = [self.value() for _ in range(random.randint(1, 30))]
        records = [Record(value=value, timeout=random.choice([None, 0.5])) for value in values]
        try:
            report = await self.producer.send_many(topic, records, timeout=random.choice([None, None, 1.0]))
        except SendManyError as failed:
            report = failed.report
        assert report.delivered + len(report.failures) == len(values)
        self.many.append((topic, [int(value[:6]) for value in values], report))

    async def send_columns(self) -> None:
        values = [self.value() for _ in range(self.random.randint(1, 40))]
        await self.producer.send_columns(self.random.choice("tu"), column(values))

    async def send_batch(self) -> None:
        topic, numbers = self.random.choice("tu"), list[int]()
        batch = self.producer.create_batch(topic, 0, size=self.random.choice([None, 5_000]))
        for _ in range(self.random.randint(1, 30)):
            value = self.value()
            if len(value) > 1_000 or not batch.append(value):
                break
            numbers.append(self.number)
        self.placed.append((topic, numbers, await self.producer.send_batch(batch)))

    async def flush(self) -> None:
        """Check that what was sent before the call has its outcome when it returns."""
        before = [sent.delivery for sent in self.sent]
        await self.producer.flush()
        for delivery in before:
            holder, index = delivery._position()
            assert holder.is_settled(index), str(delivery.explain())

    def purged(self) -> int:
        """Count the records of `send` that were purged."""
        positions = [sent.delivery._position() for sent in self.sent]
        errors = [holder.error(index) for holder, index in positions if holder.is_settled(index)]
        return sum(isinstance(error, RecordPurgedError) for error in errors)

    def purge(self) -> None:
        """Let go of a part of what is queued, or of all."""
        topic = self.random.choice([None, "t", "u", "never"])
        partition = None if topic is None else self.random.choice([None, 0, self.partitions])
        before = self.purged()
        report = self.producer.purge(topic, partition)
        if self.is_quiet:  # no other call has records
            assert report.purged == self.purged() - before

    def task(self, work: Coroutine[Any, Any, object]) -> None:
        self.tasks.append(asyncio.create_task(work))

    def act(self) -> None:
        """Make one of the calls, or let something happen to the cluster."""
        random, cluster, broker = self.random, self.cluster, self.random.choice([1, 2])
        what = random.random()
        if what < 0.5:
            for _ in range(random.choice([1, 1, 5, 20])):
                self.send()
        elif what < 0.6 and not self.is_quiet:
            if what < 0.52 and not self.serializes:
                self.task(self.send_batch())
            else:
                self.task(self.send_many() if what < 0.56 or self.serializes else self.send_columns())
        elif what < 0.66 and self.sent:
            if random.random() < 0.1:
                self.purge()
            for _ in range(random.choice([1, 10])):
                random.choice(self.sent[-60:]).delivery.recall()
        elif what < 0.7 and self.tasks:
            random.choice(self.tasks).cancel()
        elif what < 0.75:
            self.task(self.flush() if what < 0.73 else self.producer.ready())
        elif what < 0.78:
            cluster.refuse_connections(broker)
        elif what < 0.82:
            cluster.allow_connections(broker)
        elif what < 0.85:
            cluster.close_connections(broker, abort=random.random() < 0.5)
        elif what < 0.88:
            cluster.move_leader("t", random.randrange(self.partitions), broker)
        elif what < 0.91:
            api = random.choice(["Produce", "Produce", "Metadata"])
            cluster.fail_next(api, random.choice(CODES), topic=random.choice("tu"), times=random.choice([1, 3]))
        elif what < 0.93:
            held = cluster.hold(random.choice(["Produce", "Metadata", "InitProducerId"]))
            asyncio.get_running_loop().call_later(random.choice([0.1, 1, 3]), cluster.release, held)
        elif what < 0.94 and "later" not in cluster.topics:
            cluster.create_topic("later", partitions=1)
        elif what < 0.97:
            self.reset_while_a_leader_is_learnt(broker)

    def reset_while_a_leader_is_learnt(self, broker: int) -> None:
        """Abort the transport, which reports it in the loop's next turn, and learn the new leader in this one."""
        backend = backend_of(self.producer)
        for flusher in backend.brokers.flushers.values():
            if flusher.connection is not None and flusher.connection._transport is not None:
                flusher.connection._transport.abort()
        self.cluster.move_leader("t", 0, broker)
        for queue in list(backend.partitions):
            if (queue.topic, queue.partition) == ("t", 0):
                backend.client.hint_leaders([LeaderHint("t", 0, broker, queue.ledger.leader_epoch + 1, None)])

    # ------------------------------------------------------------------ the run
    async def run(self) -> None:
        handler = LogHandler(self.hook)
        logger = logging.getLogger("aiokprod")
        async with MockCluster(brokers=2, network=self.network, seed=1, validate_records=True) as self.cluster:
            for topic in ("t", "u"):
                self.cluster.create_topic(topic, partitions=self.partitions)
            self.producer = Producer(self.cluster.bootstrap_servers, **self.options())
            await self.producer.start()
            pipeline = self.producer._pipeline
            assert pipeline is not None
            logger.addHandler(handler)
            try:
                await self._live(pipeline)
            finally:
                logger.removeHandler(handler)
            self._compare(pipeline)
            assert not self.cluster.counters.crashes

    async def _live(self, pipeline: Pipeline) -> None:
        gate = pipeline.parking.gate
        for _ in range(self.random.choice([30, 120])):
            self.act()
            assert 0 <= gate.used_bytes <= gate.limit_bytes
            assert not [wrong for queue in backend_of(self.producer).partitions for wrong in complaints(queue.ledger)]
            assert (
                gate.waiting_bytes >= 0 and gate.reserved_bytes >= 0 and gate.waiting_count >= gate.waiting_tasks >= 0
            )
            await asyncio.sleep(self.random.choice(PAUSES_S))
        assert pipeline.failure is None
        for broker in (1, 2):
            self.cluster.allow_connections(broker)
        if self.random.random() < 0.5:
            async with asyncio.timeout(1_000):
                await self.flush()
        await self.producer.close(timeout=self.random.choice([0.2, 500.0]))
        for task in self.tasks:
            task.cancel()
        for ended in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(ended, Exception) and not isinstance(ended, AiokprodError):
                raise ended
        await asyncio.sleep(1)
        assert pipeline.failure is None

    # ------------------------------------------------------------------ what must hold
    def _compare(self, pipeline: Pipeline) -> None:
        gate = pipeline.parking.gate
        assert (gate.used_bytes, gate.reserved_bytes) == (0, 0)
        assert (gate.waiting_bytes, gate.waiting_count, gate.waiting_tasks) == (0, 0, 0)
        assert not any(pipeline.context.flushes._pending.values())
        assert not any(dispatcher.waiting for dispatcher in pipeline.parking.topics.values())
        places = self._places()
        for sent in self.sent:
            place = places.get((sent.topic, sent.number))
            assert sent.delivery.done(), (sent.number, repr(sent.delivery))
            error = sent.delivery.exception()
            if error is None:
                metadata = sent.delivery.result()
                assert place is not None, sent.number
                assert metadata.offset is None or place == (metadata.partition, metadata.offset)
            elif error.persistence is Persistence.NOT_PERSISTED:
                assert place is None, (sent.number, error)
        for topic, numbers, deliveries in self.placed:
            in_log: list[int] = []
            for number, delivery in zip(numbers, deliveries, strict=True):
                assert delivery.done(), (number, repr(delivery))
                failed = delivery.exception()
                if failed is None:
                    in_log.append(places[topic, number][1])
                elif failed.persistence is Persistence.NOT_PERSISTED:
                    assert (topic, number) not in places, (number, failed)
            assert in_log == sorted(in_log)
        for topic, numbers, report in self.many:
            failures = dict(report.failures)
            for at, number in enumerate(numbers):
                if at not in failures:
                    assert (topic, number) in places, number
                elif failures[at].persistence is Persistence.NOT_PERSISTED:
                    assert (topic, number) not in places, number
        if self.is_quiet:
            errors = [error for sent in self.sent if (error := sent.delivery.exception()) is not None]
            failed = Counter(type(error).__name__ for error in errors if not isinstance(error, RecordRecalledError))
            assert Counter(self.told.kinds) == failed
            metrics = self.producer.metrics()
            assert metrics["records_failed"] + metrics["records_delivered"] == len(self.sent)

    def _places(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return partition and offset of each number in the log; each must be there once, and each caller's in order."""
        in_order = {sent.number for sent in self.sent if not sent.is_nested}
        places: dict[tuple[str, int], tuple[int, int]] = {}
        for topic, partitions in self.cluster.topics.items():
            for partition in range(partitions):
                numbers = [int((record.value or b"")[:6]) for record in self.cluster.records(topic, partition)]
                for offset, number in enumerate(numbers):
                    assert (topic, number) not in places, f"{number} is twice in the log"
                    places[topic, number] = partition, offset
                ours = [number for number in numbers if number in in_order]
                assert ours == sorted(ours), f"{topic}-{partition} is out of order"
        return places
