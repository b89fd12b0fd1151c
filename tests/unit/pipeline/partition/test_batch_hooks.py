"""Hooks of batches: what each event says, in which order, and that no hook harms a batch."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from random import Random
from traceback import TracebackException
from typing import Any

import pytest
from column_rig import column
from stage_rig import ManualLoop
from virtual_rig import Told, kinds, log, outcomes, run, started

from aiokprod import Delivery, Producer
from aiokprod.errors import DeliveryTimeoutError, RecordTooLargeError, TransactionAbortedError
from aiokprod.hooks import (
    BatchAnswered,
    BatchEvent,
    BatchSealed,
    BatchSent,
    BatchSettled,
    ProducerInterceptor,
    RecordOutcome,
    Server,
)
from aiokprod.interceptor_chain import InterceptorChain
from aiokprod.logs import StateLog
from aiokprod.model import Record
from aiokprod.pipeline.partition.batch_hooks import BatchHooks
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork

SEALED = BatchSealed(batch=1, topic="t", partition=0, records=1, at=1.0, opened_at=0.0, size_bytes=1)


class Follows(ProducerInterceptor):
    """Notes every event of every batch."""

    def __init__(self) -> None:
        self.events: list[BatchEvent] = []

    def on_batch_sealed(self, batch: BatchSealed) -> None:
        self.events.append(batch)

    def on_batch_sent(self, batch: BatchSent) -> None:
        self.events.append(batch)

    def on_batch_answered(self, batch: BatchAnswered) -> None:
        self.events.append(batch)

    def on_batch_settled(self, batch: BatchSettled) -> None:
        self.events.append(batch)

    def lines(self) -> list[str]:
        return [line(event) for event in self.events]

    def settled(self) -> list[BatchSettled]:
        return [event for event in self.events if isinstance(event, BatchSettled)]


def line(event: BatchEvent) -> str:
    """Return the event in a few words."""
    stage = type(event).__name__.removeprefix("Batch").lower()
    text = f"{event.batch} {stage} {event.records}"
    if isinstance(event, BatchSent):
        return f"{text} attempt {event.attempt}"
    if isinstance(event, BatchAnswered):
        return f"{text} attempt {event.attempt}: {event.error}"
    if isinstance(event, BatchSettled):
        error = None if event.error is None else type(event.error).__name__
        return f"{text} after {event.attempts}: {error}" + ("" if event.is_last else ", not the last")
    return text


async def sent(producer: Producer, values: Sequence[bytes]) -> list[str]:
    return kinds(await outcomes([producer.send("t", value) for value in values]))


def test_a_batch_is_sealed_sent_answered_and_settled() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        hook = Follows()
        async with started(network, interceptors=[hook], linger_ms=2_000) as (_, producer):
            deliveries = [producer.send("t", b"v" * 100) for _ in range(3)]
            await asyncio.sleep(3)
            await outcomes(deliveries)
        assert hook.lines() == [
            "1 sealed 3", "1 sent 3 attempt 1", "1 answered 3 attempt 1: None", "1 settled 3 after 1: None",
        ]  # fmt: skip
        sealed, written, answered, settled = hook.events
        assert isinstance(sealed, BatchSealed) and isinstance(written, BatchSent)
        assert isinstance(answered, BatchAnswered) and isinstance(settled, BatchSettled)
        assert {(event.topic, event.partition) for event in hook.events} == {("t", 0)}
        assert sealed.at - sealed.opened_at == pytest.approx(2.0, abs=0.1)
        assert 300 < written.size_bytes <= sealed.size_bytes
        assert (answered.code, answered.request_s >= 0) == (0, True)
        assert (settled.base_offset, settled.error) == (0, None)
        assert settled.at - settled.opened_at == pytest.approx(2.0, abs=0.1)

    run(scenario)


def test_batches_that_pass_by_have_no_events_and_no_number() -> None:
    class Some(Follows):
        def __init__(self) -> None:
            super().__init__()
            self.passing: list[int | None] = [2, 0, 0, None]
            self.batches: list[int | None] = []

        def skip_batches(self) -> int | None:
            return self.passing.pop(0)

        def on_record_settled(self, record: Record, outcome: RecordOutcome) -> None:
            self.batches.append(outcome.batch)

    async def scenario(network: VirtualNetwork) -> None:
        hook = Some()
        async with started(network, interceptors=[hook]) as (cluster, producer):
            cluster.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")  # the first one has more events than others
            for _ in range(7):
                await producer.send("t", b"v")
        assert hook.batches == [None, None, 1, 2, 3, None, None]
        assert [event.batch for event in hook.events if isinstance(event, BatchSettled)] == [1, 2, 3]
        assert len(hook.events) == 3 * 4

    run(scenario)


@pytest.mark.parametrize("ends", [SystemExit, KeyboardInterrupt])
def test_events_behind_one_whose_hook_ends_the_program_are_told_if_the_loop_goes_on(ends: type[BaseException]) -> None:
    class Ends(Follows):
        def on_batch_sealed(self, batch: BatchSealed) -> None:
            super().on_batch_sealed(batch)
            if batch.records != 2:
                raise ends

    loop = ManualLoop()
    hook = Ends()
    hooks = BatchHooks(loop, InterceptorChain((hook,), StateLog("producer")))
    for records in (1, 2, 3, 4):
        hooks._add(replace(SEALED, records=records))
    told = []
    while loop.soon:
        with suppress(ends):
            loop.run()
        told.append(len(hook.events))
    assert told == [1, 3, 4] and [event.records for event in hook.events] == [1, 2, 3, 4]


class Acts(Follows):
    """A follower that acts when it is asked which batches may pass by."""

    def __init__(self) -> None:
        super().__init__()
        self.act: Callable[[], object] | None = None

    def skip_batches(self) -> int:
        act, self.act = self.act, None
        if act is not None:
            act()
        return 0


class Settles(ProducerInterceptor):
    """A follower of outcomes only, which acts there, too."""

    def __init__(self) -> None:
        self.settled: list[tuple[int, int, int, bool]] = []
        self.act: Callable[[], object] | None = None

    def skip_batches(self) -> int:
        act, self.act = self.act, None
        if act is not None:
            act()
        return 0

    def on_batch_settled(self, batch: BatchSettled) -> None:
        self.settled.append((batch.batch, batch.first, batch.records, batch.is_last))


def test_a_skip_of_batches_may_send_while_batches_are_sealed() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        hook = Acts()
        async with started(network, interceptors=[hook], batch_size=200, linger_ms=50) as (cluster, producer):
            nested: list[Delivery] = []
            hook.act = lambda: nested.append(producer.send("t", b"nested"))
            values = [b"%03d" % number + b"x" * 50 for number in range(6)]
            assert await sent(producer, values) == ["RecordMetadata"] * 6
            await nested[0]
            assert [record.value for record in cluster.records("t") if record.value != b"nested"] == values
            await asyncio.sleep(1)
        stages = Counter((event.batch, type(event)) for event in hook.events)
        assert {batch for batch, _ in stages} == set(range(1, len(stages) // 4 + 1)) and set(stages.values()) == {1}

    run(scenario)


def test_a_skip_of_batches_that_sends_while_records_expire_loses_nothing() -> None:
    """The question came inside the state change: the record went into a batch that the next action settled without it."""

    async def scenario(network: VirtualNetwork) -> None:
        hook = Settles()
        options = {"batch_size": 200, "linger_ms": 1_000, "delivery_timeout_ms": 3_000, "request_timeout_ms": 1_000}
        async with started(network, brokers=3, interceptors=[hook], **options) as (cluster, producer):
            await producer.send("t", b"first")
            for broker in (1, 2, 3):
                cluster.stop_broker(broker)
            await asyncio.sleep(5)
            nested: list[Delivery] = []
            hook.act = lambda: nested.append(producer.send("t", b"nested"))
            expired = await sent(producer, [b"%03d" % number + b"x" * 50 for number in range(4)])
            assert expired == ["DeliveryTimeoutError"] * 4
            for broker in (1, 2, 3):
                cluster.start_broker(broker)
            await asyncio.wait_for(producer.flush(), 60)
            await outcomes(nested)
            assert producer.health().buffered_bytes == 0

    run(scenario)


def test_a_skip_of_batches_that_recalls_leaves_a_batch_its_number() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        hook = Settles()
        async with started(network, interceptors=[hook], linger_ms=50) as (_, producer):
            deliveries = [producer.send("t", b"%d" % number) for number in range(4)]
            hook.act = deliveries[1].recall
            assert deliveries[0].recall()
            await outcomes(deliveries)
        assert hook.settled == [(1, 0, 1, False), (1, 1, 1, False), (1, 2, 2, True)]

    run(scenario)


def test_what_may_pass_by_is_asked_at_each_start() -> None:
    class Counts(Follows):
        asked = 0

        def skip_batches(self) -> None:
            self.asked += 1

    async def scenario(network: VirtualNetwork) -> None:
        hook = Counts()
        async with started(network, interceptors=[hook]) as (_, producer):
            assert hook.asked == 1
            await producer.close()
            await producer.start()
            assert hook.asked == 2

    run(scenario)


def test_an_attempt_that_is_refused_or_lost_is_answered_and_sent_again() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        hook = Follows()
        async with started(network, interceptors=[hook], retry_backoff_ms=10) as (cluster, producer):
            cluster.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
            await producer.send("t", b"a")
            cluster.drop_answer("Produce")
            await producer.send("t", b"b")
        first, second = [[text for text in hook.lines() if text[0] == number] for number in "12"]
        assert first == [
            "1 sealed 1", "1 sent 1 attempt 1", "1 answered 1 attempt 1: NOT_LEADER_OR_FOLLOWER",
            "1 sent 1 attempt 2", "1 answered 1 attempt 2: None", "1 settled 1 after 2: None",
        ]  # fmt: skip
        assert second[:4] == [
            "2 sealed 1", "2 sent 1 attempt 1", "2 answered 1 attempt 1: NO_ANSWER", "2 sent 1 attempt 2",
        ]  # fmt: skip
        assert second[-1] == "2 settled 1 after 2: None"

    run(scenario)


def test_a_batch_that_is_split_is_settled_in_parts() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        hook = Follows()
        async with started(network, interceptors=[hook], linger_ms=100) as (cluster, producer):
            cluster.fail_next("Produce", "MESSAGE_TOO_LARGE")
            assert await sent(producer, [b"v" * 500] * 8) == ["RecordMetadata"] * 8
        assert {event.batch for event in hook.events} == {1}
        assert hook.lines()[:3] == ["1 sealed 8", "1 sent 8 attempt 1", "1 answered 8 attempt 1: MESSAGE_TOO_LARGE"]
        settled = hook.settled()
        assert sum(event.records for event in settled) == 8
        assert [event.is_last for event in settled] == [False] * (len(settled) - 1) + [True]
        offsets = [event.base_offset for event in settled]
        assert len(offsets) > 1 and offsets == sorted(offsets, key=lambda offset: offset or 0)

    run(scenario)


def test_records_that_leave_alone_are_settled_before_the_rest() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        hook = Follows()
        async with started(network, interceptors=[hook], linger_ms=500) as (_, producer):
            deliveries = [producer.send("t", b"v") for _ in range(3)]
            assert deliveries[1].recall()
            await producer.flush()
            await outcomes(deliveries)
        assert hook.lines() == [
            "1 settled 1 after 0: RecordRecalledError, not the last", "1 sealed 2", "1 sent 2 attempt 1",
            "1 answered 2 attempt 1: None", "1 settled 1 after 1: None, not the last", "1 settled 1 after 1: None",
        ]  # fmt: skip
        assert [event.first for event in hook.settled()] == [1, 0, 2]

    run(scenario)


def test_a_batch_that_expires_in_flight_is_settled_before_its_answer() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        hook = Follows()
        options = {"delivery_timeout_ms": 3_000, "request_timeout_ms": 2_900, "linger_ms": 0}
        async with started(network, interceptors=[hook], **options) as (cluster, producer):
            held = cluster.hold("Produce")
            assert await sent(producer, [b"v"]) == ["DeliveryTimeoutError"]
            cluster.release(held)
            await asyncio.sleep(5)
        (settled,) = hook.settled()
        assert isinstance(settled.error, DeliveryTimeoutError) and settled.is_last and settled.base_offset is None
        assert [text.split()[1] for text in hook.lines()].count("answered") >= 1

    run(scenario)


def test_columns_are_followed_and_acks_0_has_no_answers() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        hook = Follows()
        async with started(network, interceptors=[hook]) as (_, producer):
            await producer.send_columns("t", column([b"v"] * 10))
        assert hook.lines() == [
            "1 sealed 10", "1 sent 10 attempt 1", "1 answered 10 attempt 1: None", "1 settled 10 after 1: None",
        ]  # fmt: skip
        without = Follows()
        async with started(network, interceptors=[without], acks=0) as (_, producer):
            await producer.send("t", b"v")
        assert without.lines() == ["1 sealed 1", "1 sent 1 attempt 1", "1 settled 1 after 1: None"]
        assert without.settled()[0].base_offset is None

    run(scenario)


def test_an_aborted_transaction_settles_its_batches() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        hook = Follows()
        async with started(network, interceptors=[hook], transactional_id="i", linger_ms=60_000) as (_, producer):
            producer.begin_transaction()
            kept = producer.send("t", b"a")
            await producer.commit_transaction()
            await kept
            producer.begin_transaction()
            dropped = producer.send("t", b"b")
            await producer.abort_transaction()
            await outcomes([dropped])
        delivered, failed = hook.settled()
        assert (delivered.error, delivered.base_offset) == (None, 0)
        assert isinstance(failed.error, TransactionAbortedError) and failed.attempts == 0

    run(scenario)


class Places(Follows):
    """Notes where each batch and each record went last."""

    may_miss_columns = True

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Server | None] = []

    def on_record_settled(self, record: Record, outcome: RecordOutcome) -> None:
        self.records.append(outcome.server)

    @property
    def batches(self) -> list[Server | None]:
        return [event.server for event in self.settled()]


def server_of(cluster: MockCluster, broker: int) -> Server:
    address = cluster.bootstrap_servers.split(",")[broker - 1]
    host, port = address.rsplit(":", 1)
    return Server(broker=broker, host=host, port=int(port), cluster_id=cluster.cluster_id)


def test_an_outcome_names_the_server_of_the_last_attempt() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        hook = Places()
        async with started(network, interceptors=[hook], brokers=3, linger_ms=0) as (cluster, producer):
            cluster.move_leader("t", 0, 1)
            await producer.send("t", b"a")
            cluster.move_leader("t", 0, 2)
            moved = producer.send("t", b"b")
            await moved
            assert moved.attempts == 2
            await producer.send_columns("t", column([b"v"] * 10))
            first, second = server_of(cluster, 1), server_of(cluster, 2)
        assert hook.batches == [first, second, second]
        assert hook.records == [first, second]

    run(scenario)


def test_what_was_never_written_names_no_server() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        hook = Places()
        options: dict[str, Any] = {"linger_ms": 500, "batch_size": 5_000, "max_request_size": 10_000}
        async with started(network, interceptors=[hook], **options) as (cluster, producer):
            deliveries = [producer.send("t", b"v") for _ in range(3)]
            assert deliveries[1].recall()
            await producer.flush()
            with pytest.raises(RecordTooLargeError):
                producer.send("t", b"v" * 10_000)  # in no batch
            await asyncio.sleep(1)
            there = server_of(cluster, 1)
        assert hook.batches == [None, there, there]
        assert sorted(hook.records, key=str) == sorted([None, None, there, there], key=str)

    run(scenario)


def test_a_server_that_has_left_the_cluster_is_still_named() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        hook = Places()
        options = {"delivery_timeout_ms": 3_000, "request_timeout_ms": 2_000, "linger_ms": 0}
        async with started(network, interceptors=[hook], brokers=2, **options) as (cluster, producer):
            there = server_of(cluster, 1)
            cluster.create_topic("one-copy", replication_factor=1)
            cluster.move_leader("one-copy", 0, 1)
            await producer.partitions_for("one-copy")
            cluster.hold("Produce")
            delivery = producer.send("one-copy", b"v")
            await asyncio.sleep(0.5)
            cluster.kill_broker(1)
            with pytest.raises(DeliveryTimeoutError):
                await delivery
            await asyncio.sleep(1)
            assert 1 not in producer._pipeline.client.snapshot.brokers  # type: ignore[attr-defined]
        assert hook.batches == hook.records == [there]

    run(scenario)


def test_a_connection_to_another_address_of_a_broker_is_named_from_then_on() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        hook = Places()
        async with started(network, interceptors=[hook], linger_ms=0) as (cluster, producer):
            await producer.send("t", b"a")
            before = server_of(cluster, 1)
            cluster.kill_broker(1)
            await asyncio.sleep(1)
            cluster.start_broker(1)
            await producer.send("t", b"b")
            after = server_of(cluster, 1)
        assert hook.batches == [before, after]

    run(scenario)


class Breaks(Follows):
    def on_batch_sent(self, batch: BatchSent) -> None:
        raise RuntimeError("broken")


class IsCancelled(ProducerInterceptor):
    def on_batch_settled(self, batch: BatchSettled) -> None:
        raise asyncio.CancelledError


def test_a_hook_that_raises_harms_neither_the_batch_nor_the_other_hooks(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        last = Follows()
        async with started(network, interceptors=[Breaks(), IsCancelled(), last]) as (cluster, producer):
            assert await sent(producer, [b"a", b"b"]) == ["RecordMetadata"] * 2
            assert log(cluster) == [b"a", b"b"]
        assert last.lines()[-1] == "1 settled 2 after 1: None"

    with caplog.at_level(logging.ERROR):
        run(scenario)
    told = " ".join(record.getMessage() for record in caplog.records)
    assert "Breaks.on_batch_sent" in told and "IsCancelled.on_batch_settled" in told


def test_a_hook_may_send() -> None:
    class Sends(Follows):
        producer: Producer

        def on_batch_sealed(self, batch: BatchSealed) -> None:
            super().on_batch_sealed(batch)
            if batch.batch == 1:
                self.producer.send("t", b"more")

    async def scenario(network: VirtualNetwork) -> None:
        hook = Sends()
        async with started(network, interceptors=[hook]) as (cluster, producer):
            hook.producer = producer
            await producer.send("t", b"v")
            await producer.flush()
            assert log(cluster) == [b"v", b"more"]

    run(scenario)


def test_records_are_not_seen_by_a_producer_that_only_follows_batches() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, interceptors=[Follows()]) as (_, producer):
            assert producer._checks.is_plain  # type: ignore[attr-defined]
            assert producer._pipeline.context.batch_hooks is not None  # type: ignore[attr-defined]
        async with started(network) as (_, producer):
            assert producer._pipeline.context.batch_hooks is None  # type: ignore[attr-defined]

    run(scenario)


@pytest.mark.parametrize("event", [BatchSealed, BatchSent, BatchAnswered, BatchSettled])
def test_no_event_has_content_of_a_record(event: type[BatchEvent]) -> None:
    content = {"value", "key", "headers", "values", "keys"}
    assert not content & {field.name for field in fields(event)}


SECRET = "swordfish"


def texts_of(event: BatchEvent) -> str:
    """Return all that an event tells: its fields, and its error with notes, causes and the variables of tracebacks."""
    texts = [repr(event)]
    error = event.error if isinstance(event, BatchSettled) else None
    if error is not None:
        texts += [str(error), repr(error), repr(error.args), repr(vars(error))]
        texts += TracebackException.from_exception(error, capture_locals=True).format()
    return "\n".join(texts)


def test_no_event_of_a_failure_has_content_of_a_record_that_is_kept() -> None:
    secret = SECRET.encode()
    whole: dict[str, Any] = {"value": secret + b"v" * 100, "key": secret + b"k", "headers": {SECRET: secret}}

    async def scenario(network: VirtualNetwork) -> None:
        hook, told = Follows(), Told()
        options: dict[str, Any] = {"delivery_timeout_ms": 3_000, "request_timeout_ms": 2_000, "linger_ms": 100}
        options |= {"keep_failed_records": True, "on_delivery_error": told}
        async with started(network, interceptors=[hook], **options) as (cluster, producer):
            cluster.fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED")
            producer.send("t", **whole)
            await producer.flush()
            cluster.create_topic("compact", cleanup_policy="compact")
            for each in (whole, whole | {"key": None}, whole):  # the second one is refused by name
                producer.send("compact", **each)
            await producer.flush()
            cluster.alter_topic("t", max_message_bytes=600)
            for each in (whole, whole | {"value": secret + Random(1).randbytes(1_000)}, whole):
                producer.send("t", **each)
            await producer.flush()
            held = cluster.hold("Produce")
            producer.send("t", **whole)
            await asyncio.sleep(5)
            cluster.release(held)
            producer.send("t", **whole)
            assert producer.send("t", **whole).recall()
            await producer.flush()
            held = cluster.hold("Produce")
            producer.send("t", **whole)
            await producer.close(timeout=0.5)
            cluster.release(held)
            await asyncio.sleep(1)
        failed = [event.error for event in hook.settled() if event.error is not None]
        assert {type(error).__name__ for error in failed} == {
            "TopicAuthorizationError", "InvalidRecordError", "RecordTooLargeError", "DeliveryTimeoutError",
            "RecordRecalledError", "UndeliveredAtCloseError",
        }  # fmt: skip
        assert {type(event) for event in hook.events} == {BatchSealed, BatchSent, BatchAnswered, BatchSettled}
        assert len(told.errors) == len(failed) - 1  # the program recalled one itself
        assert all(error.record is not None and SECRET in repr(error.record) for error in told.errors)  # it was kept
        assert [error.record for error in failed] == [None] * len(failed)
        for event in hook.events:
            assert SECRET not in texts_of(event)

    run(scenario)


def test_events_are_told_before_the_interceptor_is_closed() -> None:
    class Closes(Follows):
        at_close = 0

        def close(self) -> None:
            self.at_close = len(self.events)

    async def scenario(network: VirtualNetwork) -> None:
        hook = Closes()
        async with MockCluster(network=network, seed=1) as cluster:
            cluster.create_topic("t")
            producer = Producer(cluster.bootstrap_servers, dialer=network.dial, interceptors=[hook], linger_ms=60_000)
            await producer.start()
            await producer.partitions_for("t")
            held = cluster.hold("Produce")
            producer.send("t", b"v")
            report = await producer.close(1.0)
            assert report.count == 1
            cluster.release(held)
        assert hook.at_close == len(hook.events) == 4

    run(scenario)
