"""Releases that judge transactions in another way, and a cluster whose transaction.version changes."""

from __future__ import annotations

import asyncio

import pytest
from mock_transactions import TransactionalClient, transactional

from aiokprod.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse


@pytest.mark.parametrize(("kafka_version", "code"), [("4.3", 47), ("3.9", 120)])
def test_a_partition_that_knows_a_newer_epoch(kafka_version: str, code: int) -> None:
    async def run() -> None:
        async with transactional(kafka_version=kafka_version) as client:
            producer_id, epoch = await client.start()
            plain = (producer_id, epoch + 1)
            assert await client.code(0, version=9, pair=plain, transactional=False, transactional_id=None) == 0
            assert await client.code(0, version=11) == code

    asyncio.run(run())


@pytest.mark.parametrize(("kafka_version", "code"), [("4.3", 47), ("3.9", 0)])
def test_a_newer_epoch_where_a_transaction_is_open(kafka_version: str, code: int) -> None:
    async def run() -> None:
        async with transactional(kafka_version=kafka_version) as client:
            producer_id, epoch = await client.start()
            await client.add()
            assert await client.code(0, version=11) == 0
            assert await client.code(0, version=11, pair=(producer_id, epoch + 1)) == code

    asyncio.run(run())


@pytest.mark.parametrize("kafka_version", ["2.1", "2.8"])
def test_an_old_broker_does_not_ask_the_coordinator(kafka_version: str) -> None:
    async def run() -> None:
        async with transactional(kafka_version=kafka_version) as client:
            code, client.pair = await client.init(version=1)
            assert code == 0
            assert await client.code(0, version=7) == 0  # a transaction that is never ended
            assert client.cluster.transaction("tx").state.value == "Empty"
            assert client.cluster.partition("t").last_stable_offset == 0
            assert await client.commit_offset(3, version=2) == 0

    asyncio.run(run())


def test_the_version_is_raised_while_a_transaction_is_open() -> None:  # broker: 10.10
    async def run() -> None:
        async with transactional(0) as client:
            await scenario(client)

    async def scenario(client: TransactionalClient) -> None:
        async def features() -> dict[str, int]:
            request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
            answer = await client.raw.ask(request, ApiVersionsResponse, 4)
            return {one.name: one.max_version_level for one in answer.finalized_features}

        producer_id, epoch = await client.start()
        assert await client.add() == [0] and await client.code(0, version=11) == 0
        assert await features() == {}
        client.cluster.set_transaction_version(2)
        assert await features() == {"transaction.version": 2}
        assert await client.code(1, version=11) == 0 and await client.code(2) == 0
        assert await client.end(True) == (0, (producer_id, epoch + 1))
        with pytest.raises(ValueError, match="no transaction version 3"):
            client.cluster.set_transaction_version(3)
        client.cluster.set_transaction_version(0)
        assert await features() == {}

    asyncio.run(run())
