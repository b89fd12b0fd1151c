"""Offsets of groups without members, listings of transactions, and what each release of Kafka offers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mock_client import RawClient
from mock_requests import mock
from mock_transaction_requests import offset_commit, offset_fetch
from mock_transactions import TransactionalClient, transactional

from aiokprod.testing import MockCluster
from aiokprod.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokprod.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from aiokprod.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from aiokprod.wire.messages.offset_commit import OffsetCommitResponse
from aiokprod.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)


def on(scenario: Callable[[TransactionalClient], Awaitable[None]], version: int = 2, **options: Any) -> None:
    async def run() -> None:
        async with transactional(version, **options) as client:
            await client.start()
            await scenario(client)

    asyncio.run(run())


async def commit(client: TransactionalClient, offset: int, version: int = 9, **options: Any) -> int:
    request = offset_commit(version, client.cluster, offset, **options)
    answer = await client.raw.ask(request, OffsetCommitResponse, version)
    code: int = answer.topics[0].partitions[0].error_code
    return code


# ---------------------------------------------------------------------- OffsetCommit, OffsetFetch


@pytest.mark.parametrize("version", range(2, 11))
def test_what_is_committed_is_fetched(version: int) -> None:
    async def scenario(client: TransactionalClient) -> None:
        assert await client.fetch_offset(version=min(version, 10)) == (0, -1)
        assert await commit(client, 5 + version, version) == 0
        for fetch_version in range(1, 11):
            assert await client.fetch_offset(version=fetch_version) == (0, 5 + version)

    on(scenario)


def test_commits_that_are_refused() -> None:
    async def scenario(client: TransactionalClient) -> None:
        assert await commit(client, 1, topic="nothing") == 3
        assert await commit(client, 1, partition=9) == 3
        member: dict[str, Any] = {"generation_id_or_member_epoch": 4, "member_id": "me"}
        assert [await commit(client, 1, version, **member) for version in (8, 9)] == [22, 69]
        assert await commit(client, 1) == 0
        assert await commit(client, 2, **member) == 25
        big = offset_commit(9, client.cluster, 1)
        big.topics[0].partitions[0].committed_metadata = "m" * 4097
        answer = await client.raw.ask(big, OffsetCommitResponse, 9)
        assert answer.topics[0].partitions[0].error_code == 12
        unknown = offset_commit(10, client.cluster, 1)
        unknown.topics[0].topic_id = b"?" * 16
        assert (await client.raw.ask(unknown, OffsetCommitResponse, 10)).topics[0].partitions[0].error_code == 100
        client.cluster.fail_next("OffsetCommit", "REQUEST_TIMED_OUT", topic="t", partition=0)
        assert [await commit(client, 9), await commit(client, 1)] == [7, 0]
        client.cluster.load_group_coordinator("g")
        assert await commit(client, 1) == 14 and await client.commit_offset(1) == 14
        assert (await client.fetch_offset(version=1))[0] == 14
        answer = await client.raw.ask(offset_fetch(5, client.cluster), OffsetFetchResponse, 5)
        assert (answer.error_code, answer.topics) == (14, [])
        answer = await client.raw.ask(offset_fetch(9, client.cluster), OffsetFetchResponse, 9)
        assert (answer.groups[0].error_code, answer.groups[0].topics) == (14, [])

    on(scenario)


def test_commits_of_transactions_that_are_refused() -> None:
    async def scenario(client: TransactionalClient) -> None:
        assert await client.commit_offset(1, topic="nothing") == 3
        assert await client.commit_offset(1, generation_id=3, member_id="me", version=3) == 22
        client.cluster.fail_next("TxnOffsetCommit", "REQUEST_TIMED_OUT")
        assert [await client.commit_offset(1), await client.commit_offset(1)] == [7, 0]

    on(scenario)


def test_the_offsets_of_a_topic_that_is_made_again_are_gone_pending_ones_too() -> None:  # broker: 21.18
    async def scenario(client: TransactionalClient) -> None:
        await commit(client, 1)
        assert await client.commit_offset(5) == 0
        client.cluster.recreate_topic("t")
        assert await client.fetch_offset() == (0, -1)
        assert await client.fetch_offset(stable=True) == (0, -1)
        assert (await client.end(True))[0] == 0
        assert await client.fetch_offset() == (0, -1)
        assert await commit(client, 2) == 0
        assert await client.fetch_offset() == (0, 2)

    on(scenario)


def test_an_offset_whose_transaction_is_open_is_not_stable() -> None:
    async def scenario(client: TransactionalClient) -> None:
        await commit(client, 1)
        assert await client.commit_offset(5) == 0
        assert await client.fetch_offset(version=7) == (0, 1)
        assert [await client.fetch_offset(version=version, stable=True) for version in (7, 9)] == [(88, -1)] * 2
        client.pair = (await client.end(True))[1]
        assert await client.fetch_offset(stable=True) == (0, 5)

    on(scenario)


def test_every_offset_of_a_group_and_of_several_groups() -> None:
    async def scenario(client: TransactionalClient) -> None:
        await commit(client, 3, partition=1)
        await commit(client, 2)
        answer = await client.raw.ask(OffsetFetchRequest(group_id="g", topics=None), OffsetFetchResponse, 5)
        (topic,) = answer.topics
        assert [(one.partition_index, one.committed_offset, one.metadata) for one in topic.partitions] == [
            (0, 2, "m"), (1, 3, "m"),
        ]  # fmt: skip
        for version in (9, 10):
            everything = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("g", "other")]
            answer = await client.raw.ask(OffsetFetchRequest(groups=everything), OffsetFetchResponse, version)
            assert [len(group.topics) for group in answer.groups] == [1, 0]
            found = answer.groups[0].topics[0]
            known = client.cluster.topic_id("t") if version == 10 else "t"
            assert (found.topic_id if version == 10 else found.name) == known
        unknown = OffsetFetchRequestTopics(topic_id=b"?" * 16, partition_indexes=[0])
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[unknown])])
        answer = await client.raw.ask(request, OffsetFetchResponse, 10)
        assert answer.groups[0].topics[0].partitions[0].error_code == 100

    on(scenario)


# ---------------------------------------------------------------------- ListTransactions, DescribeTransactions


def test_transactions_are_listed_as_far_as_they_pass_every_filter() -> None:
    async def scenario(client: TransactionalClient) -> None:
        async def listed(version: int = 2, **filters: Any) -> list[tuple[str, str]]:
            answer = await client.raw.ask(ListTransactionsRequest(**filters), ListTransactionsResponse, version)
            assert answer.error_code == 0
            return [(one.transactional_id, one.transaction_state) for one in answer.transaction_states]

        assert await listed() == [("tx", "Empty")]
        assert await client.code(0) == 0
        client.clock.now_ms += 500
        here = [("tx", "Ongoing")]
        assert [await listed(version) for version in range(3)] == [here] * 3
        assert await listed(state_filters=["Ongoing", "Empty"]) == here and await listed(state_filters=["Empty"]) == []
        producer_id = client.pair[0]
        assert await listed(producer_id_filters=[producer_id]) == here
        assert await listed(producer_id_filters=[producer_id + 1]) == []
        assert await listed(duration_filter=499) == here and await listed(duration_filter=500) == []
        assert await listed(transactional_id_pattern="t.") == here
        assert await listed(transactional_id_pattern="t") == []
        unknown = ListTransactionsRequest(state_filters=["Nonsense"])
        answer = await client.raw.ask(unknown, ListTransactionsResponse, 2)
        assert (answer.unknown_state_filters, answer.transaction_states) == (["Nonsense"], [])
        broken = ListTransactionsRequest(transactional_id_pattern="(")
        assert (await client.raw.ask(broken, ListTransactionsResponse, 2)).error_code == 128
        burning = ListTransactionsRequest(transactional_id_pattern="(t?x?)*" * 100 + "-")
        assert (await client.raw.ask(burning, ListTransactionsResponse, 2)).transaction_states == []
        client.cluster.fail_next("ListTransactions", "COORDINATOR_LOAD_IN_PROGRESS")
        assert (await client.raw.ask(broken, ListTransactionsResponse, 2)).error_code == 14

    on(scenario)


def test_transactions_are_listed_by_their_coordinator_alone() -> None:
    async def scenario() -> None:
        async with mock(2) as cluster:
            cluster.create_topic("t")
            here = cluster.coordinator("tx")
            async with RawClient(cluster, here) as own, RawClient(cluster, 3 - here) as other:
                client = TransactionalClient(cluster, own, lambda: 0)  # type: ignore[arg-type]
                await client.start()
                for raw, count, code in ((own, 1, 0), (other, 0, 16)):
                    answer = await raw.ask(ListTransactionsRequest(), ListTransactionsResponse, 2)
                    assert len(answer.transaction_states) == count
                    request = DescribeTransactionsRequest(transactional_ids=["tx"])
                    answer = await raw.ask(request, DescribeTransactionsResponse, 0)
                    assert answer.transaction_states[0].error_code == code

    asyncio.run(scenario())


def test_a_transaction_is_described() -> None:
    async def scenario(client: TransactionalClient) -> None:
        async def described(name: str) -> Any:
            request = DescribeTransactionsRequest(transactional_ids=[name])
            return (await client.raw.ask(request, DescribeTransactionsResponse, 0)).transaction_states[0]

        idle = await described("tx")
        assert (idle.transaction_state, idle.transaction_start_time_ms, idle.topics) == ("Empty", -1, [])
        assert await client.add(("t", 1), ("t", 0)) == [0, 0]
        found = await described("tx")
        assert (found.producer_id, found.producer_epoch) == client.pair
        assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", 60_000)
        assert found.transaction_start_time_ms == client.clock.now_ms
        assert [(topic.topic, topic.partitions) for topic in found.topics] == [("t", [0, 1])]
        assert [(await described(name)).error_code for name in ("", "unknown")] == [42, 105]

    on(scenario)


# ---------------------------------------------------------------------- releases


@pytest.mark.parametrize(
    ("options", "produce", "end_txn", "list_transactions", "feature"),
    [
        ({}, (0, 13), (0, 5), (0, 2), 2),
        ({"transaction_version": 1}, (0, 13), (0, 5), (0, 2), 1),
        ({"transaction_version": 0}, (0, 13), (0, 5), (0, 2), None),
        ({"features": {"transaction.version": 1}}, (0, 13), (0, 5), (0, 2), 1),
        ({"kafka_version": "3.9.1"}, (3, 11), (0, 4), (0, 1), None),
        ({"kafka_version": "2.8"}, (3, 9), (0, 3), None, None),
        ({"kafka_version": "2.1"}, (3, 7), (0, 1), None, None),
        ({"kafka_version": "2.8", "api_versions": {"Produce": (3, 5)}}, (3, 5), (0, 3), None, None),
    ],
)
def test_each_release_offers_its_versions_and_features(
    options: dict[str, Any],
    produce: tuple[int, int],
    end_txn: tuple[int, int],
    list_transactions: tuple[int, int] | None,
    feature: int | None,
) -> None:
    async def scenario() -> None:
        async with mock(1, **options) as cluster, RawClient(cluster) as client:
            version = 3 if "kafka_version" not in options or options["kafka_version"] != "2.1" else 2
            request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
            answer = await client.ask(request, ApiVersionsResponse, version)
            offered = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
            assert (offered[0], offered[26], offered.get(66)) == (produce, end_txn, list_transactions)
            finalized = {one.name: one.max_version_level for one in answer.finalized_features}
            assert finalized.get("transaction.version") == feature

    asyncio.run(scenario())


def test_a_version_that_the_release_does_not_have_closes_the_connection() -> None:
    async def scenario() -> None:
        async with mock(1, kafka_version="2.8") as cluster, RawClient(cluster) as client:
            client.send(ListTransactionsRequest(), 0)
            assert await client.is_closed()

    asyncio.run(scenario())


def test_a_release_or_a_transaction_version_that_there_is_not() -> None:
    with pytest.raises(ValueError, match=re.escape("the mock knows Kafka 2.1, 2.8, 3.9, 4.3; not '1.0'")):
        MockCluster(kafka_version="1.0")
    with pytest.raises(ValueError, match="no transaction version 2"):
        MockCluster(kafka_version="3.9", transaction_version=2)
