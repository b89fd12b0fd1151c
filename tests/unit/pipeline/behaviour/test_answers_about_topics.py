"""Answers of the cluster about a topic count for the records that had asked before it, and for no later ones."""

from __future__ import annotations

import asyncio

import pytest
from column_rig import column
from rig import backend_of
from virtual_rig import kinds, log, outcomes, run, started

from aiokprod.cluster.metadata.snapshot import LeaderHint
from aiokprod.errors import ProducerClosedError, TopicAuthorizationError
from aiokprod.testing.virtual import VirtualNetwork


@pytest.mark.parametrize("seed", range(1, 4))
def test_an_answer_about_another_topic_refuses_no_partition(seed: int) -> None:
    """Any change of the metadata counted as the refresh that the record waits for."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (cluster, producer):
            cluster.create_topic("fresh")
            await producer.send("t", b"0", partition=0)
            await asyncio.sleep(1)
            cluster.add_partitions("t", 2)
            fresh = producer.send("fresh", b"x")  # its first record: a request for this topic alone is under way
            await asyncio.sleep(0.0005)
            added = producer.send("t", b"1", partition=1)
            assert kinds(await outcomes([fresh, added])) == ["RecordMetadata"] * 2
            assert log(cluster, 1) == [b"1"]

    run(scenario, seed)


def test_a_leader_hint_refuses_no_partition() -> None:
    """A Produce answer that names the new leader changes the metadata, too."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, brokers=2, linger_ms=0, retry_backoff_ms=5) as (cluster, producer):
            cluster.move_leader("t", 0, 1)
            await producer.send("t", b"0", partition=0)
            await asyncio.sleep(1)
            cluster.add_partitions("t", 2)
            held = cluster.hold("Metadata")
            added = producer.send("t", b"1", partition=1)
            while not held.hits:
                await asyncio.sleep(0.001)
            cluster.move_leader("t", 0, 2)
            pipeline = producer._pipeline
            assert pipeline is not None
            (queue,) = backend_of(producer).partitions
            pipeline.client.hint_leaders([LeaderHint("t", 0, 2, queue.ledger.leader_epoch + 1, None)])
            moved = producer.send("t", b"2", partition=0)
            await asyncio.sleep(0.1)
            assert queue.node == 2
            assert not added.done()
            cluster.release(held)
            assert kinds(await outcomes([added, moved])) == ["RecordMetadata"] * 2
            assert (log(cluster, 0), log(cluster, 1)) == ([b"0", b"2"], [b"1"])

    run(scenario)


def test_the_leader_hints_of_an_answer_are_one_change_of_what_is_known() -> None:  # faults: P7
    """A change is told to all partitions of the topic: one for each of them would be the square."""
    partitions = 50

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, partitions=partitions, brokers=2, linger_ms=10) as (cluster, producer):
            for partition in range(partitions):
                cluster.move_leader("t", partition, 1)
            await outcomes([producer.send("t", b"0", partition=partition) for partition in range(partitions)])
            await asyncio.sleep(1)
            held = cluster.hold("Metadata")
            for partition in range(partitions):
                cluster.move_leader("t", partition, 2)
            pipeline = producer._pipeline
            assert pipeline is not None
            version = pipeline.client.snapshot.version
            moved = [producer.send("t", b"1", partition=partition) for partition in range(partitions)]
            assert kinds(await outcomes(moved)) == ["RecordMetadata"] * partitions
            assert pipeline.client.snapshot.version == version + 1
            assert all(log(cluster, partition) == [b"0", b"1"] for partition in range(partitions))
            cluster.release(held)

    run(scenario)


def test_a_partition_that_is_still_not_there_is_refused_by_the_answer_it_asked_for() -> None:
    """The record waits no longer than that."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (_, producer):
            loop = asyncio.get_running_loop()
            await producer.send("t", b"0")
            await asyncio.sleep(1)
            began = loop.time()
            assert kinds(await outcomes([producer.send("t", b"x", partition=5)])) == ["PartitionOutOfRangeError"]
            assert loop.time() - began < 1

    run(scenario)


def test_a_record_sent_while_the_first_answer_is_on_its_way_has_an_answer_of_its_own() -> None:
    """That answer was asked for before the record came."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (cluster, producer):
            cluster.create_topic("u")
            held = cluster.hold("Metadata")
            first = producer.send("u", b"a")
            while not held.hits:
                await asyncio.sleep(0.001)
            second = producer.send("u", b"b", partition=2)
            await asyncio.sleep(0.01)
            cluster.release(held)
            assert kinds(await outcomes([first])) == ["RecordMetadata"]
            assert kinds(await outcomes([second], within_s=5)) == ["PartitionOutOfRangeError"]

    run(scenario)


@pytest.mark.parametrize("call", ["send", "send_many", "send_columns", "partitions_for"])
def test_a_topic_that_was_refused_once_is_asked_for_again(call: str) -> None:
    """The first answer was believed until metadata_max_age, by all but `send`."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (cluster, producer):
            cluster.create_topic("u")
            rule = cluster.fail_next("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic="u", times=1)

            async def use() -> object:
                if call == "send":
                    return await producer.send("u", b"x")
                if call == "send_many":
                    return await producer.send_many("u", [b"x"])
                if call == "send_columns":
                    return await producer.send_columns("u", column([b"x"]))
                return await producer.partitions_for("u")

            with pytest.raises(TopicAuthorizationError):
                await use()
            assert rule.hits == 1
            loop = asyncio.get_running_loop()
            began = loop.time()
            await use()  # the right was granted meanwhile
            assert loop.time() - began < 5

    run(scenario)


def test_a_topic_that_stays_refused_fails_each_call_soon() -> None:
    """Asking again is one request, and no wait for max_block_ms."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (cluster, producer):
            cluster.create_topic("u")
            cluster.fail_next("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic="u", times=None)
            loop = asyncio.get_running_loop()
            for _ in range(3):
                began = loop.time()
                with pytest.raises(TopicAuthorizationError):
                    await producer.partitions_for("u")
                with pytest.raises(TopicAuthorizationError):
                    await producer.send("u", b"x")
                assert loop.time() - began < 5

    run(scenario)


def test_a_record_sent_after_a_refusal_does_not_fail_on_it() -> None:
    """The call failed on the remembered code before the topic was asked for again."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (cluster, producer):
            cluster.create_topic("u")
            cluster.create_topic("v")
            cluster.fail_next("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic="u", times=1)
            assert kinds(await outcomes([producer.send("u", b"1")])) == ["TopicAuthorizationError"]
            other = producer.send("v", b"x")  # a request for another topic is under way
            await asyncio.sleep(0.0005)
            assert kinds(await outcomes([producer.send("u", b"2"), other])) == ["RecordMetadata"] * 2

    run(scenario)


def test_topics_that_do_not_exist_leave_nothing_behind() -> None:
    """3 kB for each name, walked twice a second."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, max_block_ms=200) as (_, producer):
            await producer.send("t", b"x")
            pipeline = producer._pipeline
            assert pipeline is not None
            for turn in range(3):
                deliveries = [producer.send(f"tenant-{turn}-{number}", b"x") for number in range(100)]
                recalled = [producer.send(f"gone-{turn}-{number}", b"x") for number in range(10)]
                assert len(pipeline.parking.topics) == 111
                assert all(delivery.recall() for delivery in recalled)
                assert set(kinds(await outcomes(deliveries))) == {"UnknownTopicError"}
                assert list(pipeline.parking.topics) == ["t"]
            await producer.send("t", b"y")
            assert producer.health().buffered_bytes == 0

    run(scenario)


@pytest.mark.parametrize("call", ["send_many", "send_columns", "partitions_for"])
@pytest.mark.parametrize("topic", ["nowhere", "unanswered"])
def test_a_call_that_waits_for_its_topic_when_the_producer_closes_is_told_so(call: str, topic: str) -> None:
    """The call was told that the topic is not there, and to make it."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (cluster, producer):
            if topic == "unanswered":
                cluster.hold("Metadata")
            if call == "send_many":
                waiting = asyncio.ensure_future(producer.send_many(topic, [b"x"]))
            elif call == "send_columns":
                waiting = asyncio.ensure_future(producer.send_columns(topic, column([b"x"])))
            else:
                waiting = asyncio.ensure_future(producer.partitions_for(topic))
            await asyncio.sleep(0.3)
            await producer.close(1)
            with pytest.raises(ProducerClosedError):
                await waiting

    run(scenario)
