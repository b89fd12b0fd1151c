"""Options of topics and brokers, described and altered on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from mock_batches import batch
from mock_client import RawClient
from mock_requests import mock

from aiokprod.testing import MockCluster
from aiokprod.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from aiokprod.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def with_client(scenario: Callable[[MockCluster, RawClient], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def run() -> None:
        async with mock(**options) as cluster, RawClient(cluster) as client:
            await scenario(cluster, client)

    asyncio.run(run())


async def describe(
    client: RawClient, name: str = "t", kind: int = TOPIC, keys: list[str] | None = None, **options: Any
) -> DescribeConfigsResult:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    answer = await client.ask(DescribeConfigsRequest(resources=[asked], **options), DescribeConfigsResponse, 4)
    (result,) = answer.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def alter(
    client: RawClient, *changes: tuple[str, int, str | None], name: str = "t", kind: int = TOPIC, **options: Any
) -> tuple[int, str | None]:
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    asked = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[asked], **options)
    (result,) = (await client.ask(request, IncrementalAlterConfigsResponse, 1)).responses
    return result.error_code, result.error_message


def test_a_topic_shows_what_was_set_and_what_it_obeys_by_itself() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        cluster.create_topic("t", max_message_bytes=500, segment_ms=7)
        found = {one.name: (one.value, one.config_source) for one in (await describe(client)).configs}
        assert found["max.message.bytes"] == ("500", 1) and found["segment.ms"] == ("7", 1)
        assert found["cleanup.policy"] == ("delete", 5) and found["min.insync.replicas"] == ("1", 5)
        (one,) = (await describe(client, keys=["max.message.bytes"], include_synonyms=True)).configs
        assert [(synonym.name, synonym.value, synonym.source) for synonym in one.synonyms] == [
            ("max.message.bytes", "500", 1)
        ]
        assert one.config_type == 3 and not one.read_only and one.documentation is None

    with_client(scenario)


def test_a_broker_shows_how_topics_come_to_be() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        result = await describe(client, "1", BROKER)
        assert {one.name: one.value for one in result.configs} == {
            "auto.create.topics.enable": "false",
            "num.partitions": "5",
        }
        assert all(one.read_only for one in result.configs)

    with_client(scenario, auto_create_topics=False, default_partitions=5)


def test_altered_options_act_on_the_next_batch_and_can_be_unset() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        cluster.create_topic("t")
        large = batch(b"x" * 1000)
        assert (await client.produce("t", large)).error_code == 0
        assert await alter(client, ("max.message.bytes", SET, "500")) == (0, None)
        assert (await client.produce("t", large)).error_code == 10
        assert await alter(client, ("max.message.bytes", DELETE, None)) == (0, None)
        assert (await client.produce("t", large)).error_code == 0

    with_client(scenario)


def test_a_list_can_be_lengthened_and_shortened() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        cluster.create_topic("t")

        async def policy() -> str | None:
            (one,) = (await describe(client, keys=["cleanup.policy"])).configs
            return one.value

        assert await alter(client, ("cleanup.policy", APPEND, "compact,delete")) == (0, None)
        assert await policy() == "delete,compact"
        assert await alter(client, ("cleanup.policy", SUBTRACT, "delete")) == (0, None)
        assert await policy() == "compact"

    with_client(scenario)


def test_a_rehearsal_alters_nothing() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        cluster.create_topic("t")
        assert await alter(client, ("max.message.bytes", SET, "500"), validate_only=True) == (0, None)
        assert await alter(client, ("max.message.bytes", SET, "many"), validate_only=True) != (0, None)
        assert (await describe(client, keys=["max.message.bytes"])).configs[0].config_source == 5

    with_client(scenario)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("max.message.bytes", SET, "many"), "Not a number"),
        (("max.message.bytes", SET, None), "Null value not supported"),
        (("max.message.bytes", APPEND, "5"), "operation 2 is not for max.message.bytes"),
        (("cleanup.policy", 9, "delete"), "operation 9 is not for cleanup.policy"),
    ],
)
def test_one_wrong_change_refuses_all_of_a_topic(change: tuple[str, int, str | None], text: str) -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        cluster.create_topic("t")
        code, message = await alter(client, ("segment.ms", SET, "7"), change)
        assert code == 40 and message is not None and text in message
        assert (await describe(client, keys=["segment.ms"])).configs == []

    with_client(scenario)


def test_what_is_not_there_is_refused_by_its_code() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        cluster.create_topic("t")
        assert (await describe(client, "nowhere")).error_code == 3
        assert (await describe(client, "9", BROKER)).error_code == 42
        assert (await describe(client, "group", 32)).error_code == 42
        assert (await alter(client, ("segment.ms", SET, "7"), name="nowhere"))[0] == 3
        assert (await alter(client, ("num.partitions", SET, "7"), name="1", kind=BROKER))[0] == 42
        cluster.fail_next(32, "TOPIC_AUTHORIZATION_FAILED")
        cluster.fail_next(44, "TOPIC_AUTHORIZATION_FAILED", topic="t")
        assert (await describe(client)).error_code == 29
        assert (await alter(client, ("segment.ms", SET, "7")))[0] == 29

    with_client(scenario)
