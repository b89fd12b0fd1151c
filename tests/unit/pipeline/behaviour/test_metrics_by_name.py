"""Metrics by error, broker and topic, and of records that only another attempt has delivered."""

from __future__ import annotations

import asyncio

import pytest
from virtual_rig import kinds, outcomes, run, started

from aiokprod.errors import RetriesExhaustedError, UnknownTopicError
from aiokprod.metrics import IDLE_LOOKS, LOOK_S, MOST_TOPICS, OTHER_TOPICS
from aiokprod.testing.virtual import VirtualNetwork


def test_attempts_are_counted_by_the_name_of_their_code() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0) as (cluster, producer):
            await producer.send("t", b"v")
            assert producer.error_metrics() == {}
            cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=3)
            await producer.send("t", b"w")
            cluster.drop_answer("Produce")
            await producer.send("t", b"x")
            cluster.fail_next("Produce", 999)
            assert kinds(await outcomes([producer.send("t", b"y")])) == ["BrokerRejectedError"]
            assert producer.error_metrics() == {
                "NOT_ENOUGH_REPLICAS": {"attempts_failed": 3},
                "NO_ANSWER": {"attempts_failed": 1},
                "(other)": {"attempts_failed": 1},
                "BrokerRejectedError": {"records_failed": 1},
            }
            assert producer.metrics()["attempts_failed"] == 5
            assert producer.metrics()["records_failed"] == 1

    run(scenario)


def test_records_that_fail_are_counted_by_the_class_of_their_error() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=5, retries=1, max_block_ms=1_000) as (cluster, producer):
            cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=2)
            failed = await outcomes([producer.send("t", b"v"), producer.send("t", b"w"), producer.send("no", b"x")])
            assert [type(error) for error in failed] == [
                RetriesExhaustedError,
                RetriesExhaustedError,
                UnknownTopicError,
            ]
            told = producer.error_metrics()
            assert told["RetriesExhaustedError"] == {"records_failed": 2}
            assert told["UnknownTopicError"] == {"records_failed": 1}
            assert producer.metrics()["records_failed"] == 3

    run(scenario)


@pytest.mark.parametrize("by", ["retry", "proof"])
def test_records_that_another_attempt_has_delivered_are_counted(by: str) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0) as (cluster, producer):
            await producer.send("t", b"v")
            if by == "retry":
                cluster.drop_answer("Produce")
                await producer.send("t", b"w")
            else:
                cluster.omit_partition("Produce", "t", 0)
                cluster.fail_next("Produce", "MESSAGE_TOO_LARGE", nth=2)  # the second attempt of the first batch
                first = producer.send("t", b"w")
                for _ in range(5):
                    await asyncio.sleep(0)
                assert producer.metrics()["requests_in_flight"] == 1
                second = producer.send("t", b"x")
                assert kinds(await outcomes([first, second])) == ["RecordMetadata", "RecordMetadata"]
            metrics = producer.metrics()
            told = {name: metrics[f"delivered_by_{name}"] for name in ("retry", "proof")}
            assert told == {"retry": int(by == "retry"), "proof": int(by == "proof")}

    run(scenario)


def test_requests_are_counted_and_timed_by_broker() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0, brokers=2, partitions=2) as (cluster, producer):
            leaders = [cluster.leader("t", partition) for partition in range(2)]
            await outcomes([producer.send("t", b"v", partition=partition) for partition in range(2)])
            cluster.delay_next("Produce", 3.0, broker=leaders[1])
            sent = [producer.send("t", b"v", partition=partition) for partition in range(2)]
            await sent[0]
            by_broker = producer.broker_metrics()
            flying = {node: metrics["requests_in_flight"] for node, metrics in by_broker.items()}
            assert flying == {str(leaders[0]): 0, str(leaders[1]): 1}
            await sent[1]
            told = producer.broker_metrics()
            for node, least_s, most_s in ((leaders[0], 0.0, 1.0), (leaders[1], 3.0, 4.0)):
                seconds = told[str(node)]["request_seconds"]
                assert seconds.count == told[str(node)]["requests_sent"] == 2
                assert least_s <= seconds.total < most_s
            assert producer.metrics()["request_seconds"].count == 4

    run(scenario)


def test_a_topic_that_sends_gets_the_place_of_one_that_is_idle() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0) as (cluster, producer):
            for number in range(MOST_TOPICS):
                cluster.create_topic(f"t{number}")
                await producer.send(f"t{number}", b"v")
            assert (await producer.send("t", b"v")).offset == 0
            assert "t" not in producer.topic_metrics()
            for _ in range(IDLE_LOOKS + 2):
                await producer.send("t0", b"v")
                await producer.send("t", b"v")
                await asyncio.sleep(LOOK_S)
            await producer.send("t", b"v")
            told = producer.topic_metrics()
            assert set(told) == {"t", "t0", OTHER_TOPICS}
            assert told["t0"]["records_delivered"] == IDLE_LOOKS + 3
            total = told["t"]["records_delivered"] + told[OTHER_TOPICS]["records_delivered"]
            assert total == told["t"]["batches_sent"] + told[OTHER_TOPICS]["batches_sent"] == IDLE_LOOKS + 4
            assert told["t"]["records_delivered"] >= 1

    run(scenario)
