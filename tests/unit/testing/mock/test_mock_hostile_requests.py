"""Requests that ask for more than there is: what is named again is answered once, and elements have a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from mock_client import RawClient
from mock_group_requests import join, sync
from mock_transaction_requests import offset_commit

from aiokprod.testing import MockCluster
from aiokprod.testing.mock.groups import classic_roster
from aiokprod.testing.mock.groups.protocols import subscribed_topics
from aiokprod.testing.mock.handlers.api import MOST_ELEMENTS
from aiokprod.testing.virtual import VirtualNetwork, run_virtual
from aiokprod.wire.messages import consumer_group_describe as describing
from aiokprod.wire.messages import describe_producers as producers
from aiokprod.wire.messages import offset_delete as deleting
from aiokprod.wire.messages import offset_fetch as fetching
from aiokprod.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from aiokprod.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from aiokprod.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from aiokprod.wire.messages.join_group import JoinGroupResponse
from aiokprod.wire.messages.offset_commit import OffsetCommitResponse
from aiokprod.wire.messages.sync_group import SyncGroupResponse


def on(scenario: Callable[[MockCluster, RawClient], Awaitable[None]]) -> None:
    async def run(network: VirtualNetwork, _random: Random) -> None:
        async with MockCluster(1, network=network) as cluster:
            cluster.create_topic("t", partitions=2)
            async with RawClient(cluster) as client:
                await scenario(cluster, client)
            assert cluster.counters.crashes == []

    run_virtual(run, seed=1)


def test_what_is_named_again_is_described_once() -> None:
    async def scenario(_: MockCluster, client: RawClient) -> None:
        names = ["g", "h"] * 1000
        for request, kind, version in (
            (DescribeGroupsRequest(groups=names), DescribeGroupsResponse, 5),
            (describing.ConsumerGroupDescribeRequest(group_ids=names), describing.ConsumerGroupDescribeResponse, 1),
        ):
            answer = await client.ask(request, kind, version)
            assert [group.group_id for group in answer.groups] == ["g", "h"]
        told: Any = await client.ask(
            DescribeTransactionsRequest(transactional_ids=names), DescribeTransactionsResponse, 0
        )
        assert [each.transactional_id for each in told.transaction_states] == ["g", "h"]
        wanted = DescribeConfigsRequest(resources=[DescribeConfigsResource(2, "t", None)] * 1000)
        told = await client.ask(wanted, DescribeConfigsResponse, 4)
        assert [each.resource_name for each in told.results] == ["t"]

    on(scenario)


def test_partitions_that_are_named_again_are_answered_once() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        assert (await client.ask(offset_commit(9, cluster, 7), OffsetCommitResponse, 9)).topics[0].partitions[
            0
        ].error_code == 0
        topics = [fetching.OffsetFetchRequestTopic("t", [0, 0, 1] * 100)] * 10
        answer: Any = await client.ask(
            fetching.OffsetFetchRequest(group_id="g", topics=topics), fetching.OffsetFetchResponse, 7
        )
        assert [[each.committed_offset for each in topic.partitions] for topic in answer.topics] == [[7, -1]]
        group = fetching.OffsetFetchRequestGroup(
            group_id="g", topics=[fetching.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 0, 1] * 100)] * 10
        )
        answer = await client.ask(fetching.OffsetFetchRequest(groups=[group] * 10), fetching.OffsetFetchResponse, 9)
        (told,) = answer.groups
        assert [[each.committed_offset for each in topic.partitions] for topic in told.topics] == [[7, -1]]
        wanted = producers.DescribeProducersRequest([producers.TopicRequest("t", [0, 1, 0] * 100)] * 10)
        answer = await client.ask(wanted, producers.DescribeProducersResponse, 0)
        assert [[each.partition_index for each in topic.partitions] for topic in answer.topics] == [[0, 1]]

    on(scenario)


def test_a_request_of_too_many_elements_ends_its_connection() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        client.send(DescribeGroupsRequest(groups=[""] * (MOST_ELEMENTS + 1)), 5)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.frame()
        async with RawClient(cluster) as another:
            answer = await another.ask(DescribeGroupsRequest(groups=["g"] * 1000), DescribeGroupsResponse, 5)
            assert len(answer.groups) == 1

    on(scenario)


def test_the_metadata_of_members_are_read_once_for_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []

    def counted(metadata: bytes) -> set[str] | None:
        read.append(metadata)
        return subscribed_topics(metadata)

    monkeypatch.setattr(classic_roster, "subscribed_topics", counted)

    async def scenario(_: MockCluster, client: RawClient) -> None:
        given = await client.ask(join(9), JoinGroupResponse, 9)
        joined = await client.ask(join(9, given.member_id), JoinGroupResponse, 9)
        name = joined.member_id
        assert (
            await client.ask(sync(5, name, joined.generation_id, **{name: b"a"}), SyncGroupResponse, 5)
        ).error_code == 0
        topics = [
            deleting.OffsetDeleteRequestTopic(f"{number}", [deleting.OffsetDeleteRequestPartition(0)])
            for number in range(1000)
        ]
        answer = await client.ask(
            deleting.OffsetDeleteRequest(group_id="g", topics=topics), deleting.OffsetDeleteResponse, 0
        )
        assert {topic.partitions[0].error_code for topic in answer.topics} == {3}
        assert len(read) == 1

    on(scenario)
