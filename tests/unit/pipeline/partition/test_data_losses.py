"""Acknowledged records that the cluster has lost: they are told once, by each of the ways there are; nothing else is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from virtual_rig import kinds, outcomes, run

from aiokprod import Producer, ProducerInterceptor
from aiokprod.cluster.client import ClusterClient
from aiokprod.cluster.metadata.snapshot import PartitionSnapshot, TopicSnapshot
from aiokprod.errors import AcknowledgedRecordsLostError, ProducerFailedError
from aiokprod.hooks import DataLoss
from aiokprod.interceptor_chain import InterceptorChain
from aiokprod.logs import StateLog
from aiokprod.metrics import Metrics
from aiokprod.model import ProducerState
from aiokprod.pipeline.partition.data_losses import NAMED, SETTLES_S, DataLosses, Suspicion
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork
from aiokprod.wire.reader import ZERO_UUID

TOPIC_ID = b"a" * 16
TOLD_S = 3.0
"""so long after the batch that shows it, a loss is told"""


class Losses(ProducerInterceptor):
    """The losses that an interceptor was told of."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int, int, int]] = []

    def on_data_loss(self, loss: DataLoss) -> None:
        assert loss.at > 0
        self.told.append((loss.topic, loss.partition, loss.first_offset, loss.last_offset, loss.records))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [text for text in texts if "that it had acknowledged" in text]


# ---------------------------------------------------------------------- on a cluster
@asynccontextmanager
async def started(network: VirtualNetwork, **options: Any) -> AsyncIterator[tuple[MockCluster, Producer, Losses]]:
    """Yield a cluster with the topic "t" on three brokers, of which the followers copy nothing more; five records are there."""
    losses = Losses()
    async with MockCluster(brokers=3, network=network, seed=1, auto_create_topics=False) as cluster:
        cluster.create_topic("t")
        options = {"acks": 1, "enable_idempotence": False, "linger_ms": 0} | options
        producer = Producer(cluster.bootstrap_servers, dialer=network.dial, interceptors=[losses], **options)
        async with producer:
            for number in range(5):
                await producer.send("t", b"%d" % number)
            cluster.freeze_replicas("t", 0)
            yield cluster, producer, losses


def lose(cluster: MockCluster) -> None:
    """Elect a leader without what it has not copied."""
    former = cluster.leader("t")
    cluster.move_leader("t", 0, next(node for node in cluster.broker_ids if node != former), lose_uncopied=True)
    cluster.thaw_replicas("t", 0)


@pytest.mark.parametrize("acks", [1, "all"])
def test_records_that_an_election_has_lost_are_told(acks: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, acks=acks, enable_idempotence=acks == "all") as (cluster, producer, losses):
            leader = cluster.leader("t")
            assert leader is not None
            cluster.set_isr("t", 0, [leader])
            assert [(await producer.send("t", b"%d" % number)).offset for number in (5, 6, 7)] == [5, 6, 7]
            lose(cluster)
            assert (await producer.send("t", b"8")).offset == 5
            await asyncio.sleep(TOLD_S)
            assert losses.told == [("t", 0, 5, 7, 3)]
            assert producer.metrics()["acknowledged_records_lost"] == 3
            (text,) = warnings(caplog)
            assert "t-0" in text and "offsets 5 to 7" in text and "up to 3 records" in text
            health = producer.health()
            assert health.state is ProducerState.READY and "has lost up to 3 records" in str(health.last_error)
            assert (await producer.send("t", b"9")).offset == 6
            await asyncio.sleep(TOLD_S)
            assert len(losses.told) == 1

    run(scenario)


def test_a_loss_is_fatal_if_it_is_asked_for() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, fail_on_data_loss=True) as (cluster, producer, losses):
            await producer.send("t", b"5")
            lose(cluster)
            await producer.send("t", b"6")
            await asyncio.sleep(TOLD_S)
            assert producer.health().state is ProducerState.FAILED
            assert losses.told == [("t", 0, 5, 5, 1)]
            with pytest.raises(ProducerFailedError) as caught:
                await producer.send("t", b"7")
            assert isinstance(caught.value.__cause__, AcknowledgedRecordsLostError)

    run(scenario)


def test_a_close_tells_what_is_certain_by_then_and_does_not_fail(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, fail_on_data_loss=True) as (cluster, producer, losses):
            await producer.send("t", b"5")
            lose(cluster)
            await producer.send("t", b"6")
            report = await producer.close()
            assert report.is_clean
            assert losses.told == [("t", 0, 5, 5, 1)] and len(warnings(caplog)) == 1
            assert producer.health().state is ProducerState.CLOSED

    run(scenario)


@pytest.mark.parametrize("by", ["name", "id"])
def test_a_topic_that_was_made_again_has_lost_nothing(by: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, acks="all", enable_idempotence=True) as (cluster, producer, losses):
            cluster.thaw_replicas("t", 0)
            if by == "name":
                for node in cluster.broker_ids:
                    cluster.cap_versions(node, "Produce", 3, 9)
                cluster.close_connections()
                await producer.send("t", b"5")
            cluster.recreate_topic("t")
            assert kinds(await outcomes([producer.send("t", b"6")])) == ["RecordMetadata"]
            await producer.send("t", b"7")
            assert producer.metrics()["records_failed"] == 0
            await asyncio.sleep(TOLD_S)
            assert losses.told == [] and warnings(caplog) == []
            assert producer.metrics()["acknowledged_records_lost"] == 0

    run(scenario)


@pytest.mark.parametrize("trouble", ["lost answers", "moved", "deleted records", "restarted"])
def test_troubles_that_lose_nothing_are_not_told(trouble: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, acks="all", enable_idempotence=True) as (cluster, producer, losses):
            cluster.thaw_replicas("t", 0)
            for number in range(30):
                if number % 5 == 1:
                    if trouble == "lost answers":
                        cluster.omit_partition("Produce", "t", 0)
                        cluster.drop_answer("Produce", nth=2)
                    elif trouble == "moved":
                        leader = cluster.leader("t")
                        cluster.move_leader("t", 0, next(node for node in cluster.broker_ids if node != leader))
                    elif trouble == "deleted records":
                        cluster.delete_records("t", 0, number)
                    else:
                        cluster.stop_broker(cluster.leader("t") or 1)
                sent = [producer.send("t", b"%d-%d" % (number, each)) for each in range(3)]
                await asyncio.sleep(0)
                sent.append(producer.send("t", b"%d-last" % number))
                await outcomes(sent)
                if trouble == "restarted":
                    for node in cluster.broker_ids:
                        cluster.start_broker(node)
            await asyncio.sleep(TOLD_S)
            assert losses.told == [] and warnings(caplog) == []

    run(scenario)


# ---------------------------------------------------------------------- suspicions
class Client:
    """Knows one topic, or none."""

    def __init__(self, snapshot: TopicSnapshot | None) -> None:
        self.snapshot = snapshot
        self.answered = 7
        self.asked: list[str] = []

    def topic(self, name: str) -> TopicSnapshot | None:
        return self.snapshot

    def last_answered(self, name: str) -> int:
        return self.answered

    def refresh(self, why: str) -> None:
        self.asked.append(why)


def snapshot_of(topic_id: bytes = TOPIC_ID, epoch: int = 4, incarnation: int = 0) -> TopicSnapshot:
    return TopicSnapshot(name="t", topic_id=topic_id, partitions=(partition_of(epoch),), incarnation=incarnation)


def partition_of(epoch: int) -> PartitionSnapshot:
    return PartitionSnapshot(partition=0, leader_id=1, leader_epoch=epoch)


def suspicion(
    topic: str = "t", first: int = 5, last: int = 9, topic_id: bytes = TOPIC_ID, epoch: int = 3, incarnation: int = 0
) -> Suspicion:
    return Suspicion(topic, 0, first, last, 1, topic_id, incarnation, epoch, 0.0)


class Rig:
    def __init__(self, snapshot: TopicSnapshot | None) -> None:
        self.client = Client(snapshot)
        self.metrics = Metrics()
        self.use(Losses())

    def use(self, hook: Losses) -> None:
        self.hook = hook
        log = StateLog("producer")
        self.losses = DataLosses(self.metrics, log, InterceptorChain([self.hook], log))

    def look(self, now: float, **options: bool) -> AcknowledgedRecordsLostError | None:
        return self.losses.look(cast("ClusterClient", self.client), now, **options)

    def settled(self) -> AcknowledgedRecordsLostError | None:
        """Look until metadata have come that were asked for after the suspicion."""
        assert self.look(SETTLES_S / 2) is None and not self.client.asked
        assert self.look(SETTLES_S) is None and len(self.client.asked) == 1
        assert self.look(SETTLES_S + 1) is None and len(self.client.asked) == 1 and not self.hook.told
        self.client.answered += 1
        error = self.look(SETTLES_S + 2)
        assert self.look(SETTLES_S + 3) is None
        return error


@pytest.mark.parametrize(
    ("suspected", "snapshot", "is_lost"),
    [
        (suspicion(), snapshot_of(), True),
        (suspicion(epoch=4), snapshot_of(), True),  # ids are enough
        (suspicion(), snapshot_of(b"b" * 16), False),
        (suspicion(), None, False),
        (suspicion(topic_id=ZERO_UUID), snapshot_of(ZERO_UUID), True),
        (suspicion(topic_id=ZERO_UUID, epoch=4), snapshot_of(ZERO_UUID), False),
        (suspicion(topic_id=ZERO_UUID, epoch=-1), snapshot_of(ZERO_UUID), False),
        (suspicion(topic_id=ZERO_UUID), snapshot_of(ZERO_UUID, incarnation=1), False),
        (suspicion(topic_id=ZERO_UUID), replace(snapshot_of(ZERO_UUID), partitions=()), False),
    ],
)
def test_a_suspicion_is_a_loss_if_the_topic_is_the_same(
    suspected: Suspicion, snapshot: TopicSnapshot | None, is_lost: bool
) -> None:
    rig = Rig(snapshot)
    rig.losses.suspect(suspected)
    error = rig.settled()
    assert rig.hook.told == ([("t", 0, 5, 9, 5)] if is_lost else [])
    assert rig.metrics.acknowledged_records_lost.value == (5 if is_lost else 0)
    assert (error is not None) == is_lost
    if error is not None:
        assert (error.topic, error.partition) == ("t", 0) and "offsets 5 to 9" in str(error)


def test_two_losses_of_one_partition_are_told_as_one_and_those_of_another_topic_replace_them() -> None:
    rig = Rig(snapshot_of())
    rig.losses.suspect(suspicion(first=5, last=9))
    rig.losses.suspect(suspicion(first=3, last=6))
    rig.settled()
    assert rig.hook.told == [("t", 0, 3, 9, 7)]
    rig = Rig(snapshot_of())
    rig.losses.suspect(suspicion(topic_id=b"b" * 16))
    rig.losses.suspect(suspicion(first=1, last=1))
    rig.settled()
    assert rig.hook.told == [("t", 0, 1, 1, 1)]


def test_the_last_look_waits_for_nothing() -> None:
    rig = Rig(snapshot_of())
    rig.losses.suspect(suspicion())
    assert rig.look(0.1, is_last=True) is not None
    assert rig.hook.told and not rig.client.asked


@pytest.mark.parametrize("ends", [SystemExit, KeyboardInterrupt])
def test_a_hook_that_ends_the_program_hides_no_further_loss(ends: type[BaseException]) -> None:
    """A notebook's loop goes on after Ctrl-C: the other losses were told to nothing, and a producer that is to fail did not."""
    rig = Rig(snapshot_of())
    looked: list[AcknowledgedRecordsLostError | None] = []

    class Ends(Losses):
        def on_data_loss(self, loss: DataLoss) -> None:
            super().on_data_loss(loss)
            raise ends

    async def scenario() -> None:
        for number in range(3):
            rig.losses.suspect(suspicion(topic=f"t{number}"))
        looked.append(rig.look(0.1, is_last=True))
        await asyncio.get_running_loop().create_future()  # which the end of the loop cancels

    rig.use(Ends())
    with pytest.raises(ends):
        asyncio.run(scenario())
    assert looked[0] is not None and looked[0].topic == "t0"
    assert len(rig.hook.told) == rig.metrics.acknowledged_records_lost.value / 5 == 3


def test_many_losses_at_once_have_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(snapshot_of())
    for number in range(NAMED + 4):
        rig.losses.suspect(suspicion(topic=f"t{number}"))
    rig.look(SETTLES_S)
    rig.client.answered += 1
    rig.look(SETTLES_S + 1)
    assert len(rig.hook.told) == NAMED + 4
    texts = warnings(caplog)
    assert len(texts) == NAMED + 1
    assert "in 4 more partitions" in texts[-1] and "up to 20 records" in texts[-1]
