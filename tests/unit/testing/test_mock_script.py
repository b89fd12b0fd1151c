"""Scripted faults of the mock cluster, over real sockets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mock_batches import batch
from mock_client import RawClient
from mock_requests import WHO_ASKS, all_topics, mock, values

from aiokprod.wire.messages.api_versions import ApiVersionsResponse
from aiokprod.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from aiokprod.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from aiokprod.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from aiokprod.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from aiokprod.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse
from aiokprod.wire.messages.produce import ProduceResponse

# ---- scripted faults


def test_fail_next_refuses_untouched_or_after_the_append() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            rule = cluster.fail_next("Produce", 999, topic="t", partition=0, message="text", times=2)
            first = await client.produce("t", batch(b"a"))
            assert (first.error_code, first.base_offset, first.error_message) == (999, -1, "text")
            assert (await client.produce("t", batch(b"a"))).error_code == 999
            assert rule.hits == 2 and values(cluster) == []
            cluster.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", after_append=True, with_hint=True)
            answer = await client.produce("t", batch(b"b"))
            assert (answer.error_code, answer.base_offset, answer.current_leader.leader_id) == (6, 0, 1)
            assert (await client.produce("t", batch(b"c"))).base_offset == 1
            assert values(cluster) == [b"b", b"c"]

    asyncio.run(scenario())


FAILED = [
    (InitProducerIdRequest(transactional_id=None), InitProducerIdResponse, 4, lambda a: a.error_code),
    (
        WHO_ASKS,
        ApiVersionsResponse,
        3,
        lambda a: a.error_code,
    ),
    (DescribeClusterRequest(), DescribeClusterResponse, 1, lambda a: a.error_code),
    (
        FindCoordinatorRequest(coordinator_keys=["k"]),
        FindCoordinatorResponse,
        4,
        lambda a: a.coordinators[0].error_code,
    ),
    (MetadataRequest(topics=None), MetadataResponse, 12, lambda a: a.topics[0].error_code),
    (
        CreateTopicsRequest(topics=[CreatableTopic(name="n", num_partitions=1, replication_factor=1)]),
        CreateTopicsResponse,
        7,
        lambda a: a.topics[0].error_code,
    ),
    (
        DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]),
        DeleteTopicsResponse,
        6,
        lambda a: a.responses[0].error_code,
    ),
    (
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=9)]),
        CreatePartitionsResponse,
        3,
        lambda a: a.results[0].error_code,
    ),
]


@pytest.mark.parametrize(("request_", "response", "version", "code"), FAILED, ids=lambda v: type(v).__name__)
def test_every_api_can_be_failed_once(request_: Any, response: Any, version: int, code: Any) -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            cluster.fail_next(request_.API_KEY, 14)
            assert code(await client.ask(request_, response, version)) == 14
            assert code(await client.ask(request_, response, version)) in (0, 15)

    asyncio.run(scenario())


def test_metadata_can_fail_or_leave_out_one_partition() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t", partitions=3)
            cluster.fail_next("Metadata", 5, topic="t", partition=1)
            partitions = (await all_topics(client))[0].partitions
            assert [p.error_code for p in partitions] == [0, 5, 0]
            cluster.omit_partition("Metadata", "t", 1)
            assert [p.partition_index for p in (await all_topics(client))[0].partitions] == [0, 2]

    asyncio.run(scenario())


def test_an_omitted_partition_is_missing_and_appended_or_not() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t", partitions=2)
            for appended in (True, False):
                cluster.omit_partition("Produce", "t", 1, after_append=appended)
                client.send_produce({("t", 0): batch(b"a"), ("t", 1): batch(b"b")})
                assert list(await client.produced()) == [("t", 0)]
            assert values(cluster, partition=1) == [b"b"] and values(cluster, partition=0) == [b"a", b"a"]

    asyncio.run(scenario())


@pytest.mark.parametrize("appended", [True, False])
def test_a_dropped_answer_closes_the_connection(appended: bool) -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            cluster.drop_answer("Produce", after_append=appended, topic="t", nth=2)
            assert (await client.produce("t", batch(b"a"))).error_code == 0
            client.send_produce({("t", 0): batch(b"b")})
            assert await client.is_closed()
            assert values(cluster) == ([b"a", b"b"] if appended else [b"a"])

    asyncio.run(scenario())


@pytest.mark.parametrize("before", [True, False])
def test_held_requests_wait_in_order_until_released(before: bool) -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            rule = cluster.hold("Produce", before_serving=before)
            client.send_produce({("t", 0): batch(b"a")})
            client.send(MetadataRequest(), 12)
            await cluster.until_seen("Produce")
            assert await client.is_silent()
            assert len(cluster.log("t")) == (0 if before else 1)
            cluster.release(rule)
            assert (await client.produced())["t", 0].error_code == 0
            await client.receive(MetadataResponse, 12)
            assert (await client.produce("t", batch(b"b"))).error_code == 0

    asyncio.run(scenario())


def test_a_delay_holds_up_its_own_connection_only() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client, RawClient(cluster) as other:
            cluster.delay_next("Metadata", 0.2, before_serving=True)
            started = asyncio.get_running_loop().time()
            client.send(MetadataRequest(), 12)
            await cluster.until_seen("Metadata")
            await other.ask(MetadataRequest(), MetadataResponse, 12)
            assert not client.has_bytes
            await client.receive(MetadataResponse, 12)
            assert asyncio.get_running_loop().time() - started >= 0.19

    asyncio.run(scenario())


@pytest.mark.parametrize("acks", [-1, 0])  # broker: 14.1, 14.2, 14.4
def test_a_throttle_answers_at_once_and_mutes_the_channel(acks: int) -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            cluster.throttle_next("Produce", 60)
            client.send_produce({("t", 0): batch(b"a")}, acks=acks)
            client.send(MetadataRequest(), 12)
            await cluster.until_seen("Produce")
            started = asyncio.get_running_loop().time()
            if acks:
                response = await client.receive(ProduceResponse, 12)
                assert response.throttle_time_ms == 60 and cluster.requests_seen("Metadata") == 0
            await client.receive(MetadataResponse, 12)
            assert asyncio.get_running_loop().time() - started >= 0.05
            assert values(cluster) == [b"a"]

    asyncio.run(scenario())


def test_a_callable_may_answer_with_a_message_with_bytes_or_not_at_all() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            seen: list[object] = []

            def answer(request: object, version: int) -> object:
                seen.append((type(request), version))
                return InitProducerIdResponse(producer_id=5, producer_epoch=6)

            cluster.answer_with("InitProducerId", answer)
            request = InitProducerIdRequest(transactional_id=None)
            assert (await client.ask(request, InitProducerIdResponse, 4)).producer_epoch == 6
            assert seen == [(InitProducerIdRequest, 4)]
            cluster.answer_with("InitProducerId", lambda request, version: b"nonsense")
            cluster.answer_with("InitProducerId", lambda request, version: None)
            client.send(request, 4)
            assert (await client.frame()).endswith(b"nonsense")
            client.send(request, 4)
            await client.ask(MetadataRequest(), MetadataResponse, 12)  # the one before it was not answered

    asyncio.run(scenario())


def test_a_callable_that_raises_is_recorded_and_closes_one_connection_only() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client, RawClient(cluster) as other:

            def answer(request: object, version: int) -> object:
                raise LookupError("a mistake of the test")

            cluster.answer_with("Metadata", answer)
            client.send(MetadataRequest(), 12)
            assert await client.is_closed()
            assert [type(crash) for crash in cluster.counters.crashes] == [LookupError]
            await other.ask(MetadataRequest(), MetadataResponse, 12)

    asyncio.run(scenario())


def test_something_can_happen_just_before_the_nth_request() -> None:
    async def scenario() -> None:
        async with mock(3) as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            cluster.on_request("Produce", lambda: cluster.move_leader("t", 0, 2), nth=3)
            answers = [await client.produce("t", batch(b"v")) for _ in range(4)]
            assert [answer.error_code for answer in answers] == [0, 0, 6, 6]
            cluster.fail_next(None, 14, times=None)
            assert (await client.produce("t", batch(b"v"))).error_code == 14
            cluster.clear_faults()
            assert (await client.produce("t", batch(b"v"))).error_code == 6

    asyncio.run(scenario())
