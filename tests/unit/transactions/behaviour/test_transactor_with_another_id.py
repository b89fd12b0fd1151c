"""A producer that goes on with another transactional id on its connections, on a `MockCluster` in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any

import pytest
from txn_rig import CLUSTERS, QUICK, committed, started

from aiokprod import PreparedTransaction, Producer, end_transaction
from aiokprod.errors import ClusterAuthorizationError, ProducerFencedError, UsageError
from aiokprod.producer import go_on_as
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual
from aiokprod.wire.codes import ErrorCode

EVERY = pytest.mark.parametrize("version", list(CLUSTERS))
End = Callable[[PreparedTransaction, bool], Coroutine[Any, Any, bool]]


def on(version: str, scenario: Callable[[MockCluster, Producer, End], Awaitable[None]]) -> None:
    async def whole(network: VirtualNetwork, random: Random) -> None:
        async with started(network, CLUSTERS[version]) as (cluster, producer):

            async def end(prepared: PreparedTransaction, commit: bool) -> bool:
                return await end_transaction(cluster.bootstrap_servers, prepared, commit, dialer=network.dial, **QUICK)

            async with asyncio.timeout(1000):  # virtual
                await scenario(cluster, producer, end)

    run_virtual(whole, seed=1)


@EVERY
def test_each_prepared_transaction_has_an_id_and_an_end_of_its_own(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        prepared: list[PreparedTransaction] = []
        connections = {seen.connection for seen in cluster.requests("Produce")}
        for number in range(6):
            if number:
                await go_on_as(producer, f"tx-{number}", 10)
            producer.begin_transaction()
            for partition in range(3):
                producer.send("t", b"%d" % number, partition=partition)
            await producer.send_offsets_to_transaction({("t", 0): number}, f"group-{number}")
            prepared.append(await producer.prepare_transaction())
        assert [each.transactional_id for each in prepared] == ["tx", *(f"tx-{number}" for number in range(1, 6))]
        assert [each.count for each in prepared] == [3] * 6
        assert len({(each.producer_id, each.epoch) for each in prepared}) == 6
        assert await committed(cluster) == []
        for number, each in enumerate(prepared):
            assert await end(each, number % 2 == 0) is (number % 2 == 0)
        assert sorted(await committed(cluster), key=str) == [b"0"] * 3 + [b"2"] * 3 + [b"4"] * 3
        made = {(seen.broker, seen.connection) for seen in cluster.requests("Produce")} - connections
        assert len(made) <= 3  # one for each leader

    on(version, scenario)


@EVERY
def test_after_a_commit_it_can_go_on_too_and_commit_again(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        async with producer.transaction():
            producer.send("t", b"a", partition=0)
        await go_on_as(producer, "other", None)
        async with producer.transaction():
            producer.send("t", b"b", partition=0)
        assert await committed(cluster) == [b"a", b"b"]

    on(version, scenario)


def test_inside_a_transaction_it_is_refused_and_nothing_has_changed() -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        producer.begin_transaction()
        producer.send("t", b"a", partition=0)
        with pytest.raises(UsageError, match=r"a transaction is open already: .* docs/exactly_once\.md"):
            await go_on_as(producer, "other", 10)
        await producer.commit_transaction()
        assert await committed(cluster) == [b"a"]

    on("TV2", scenario)


def test_another_instance_with_the_former_id_does_no_harm() -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        producer.begin_transaction()
        producer.send("t", b"a", partition=0)
        prepared = await producer.prepare_transaction()
        await go_on_as(producer, "other", 10)
        producer.begin_transaction()
        producer.send("t", b"b", partition=0)
        assert await end(prepared, False) is False
        await producer.commit_transaction()
        assert await committed(cluster) == [b"b"]

    on("TV2", scenario)


def test_an_id_that_is_refused_leaves_a_producer_that_can_be_closed() -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        cluster.fail_next("InitProducerId", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        with pytest.raises(ClusterAuthorizationError):
            await go_on_as(producer, "other", 10)
        with pytest.raises((ClusterAuthorizationError, UsageError, ProducerFencedError)):
            producer.begin_transaction()

    on("TV2", scenario)
