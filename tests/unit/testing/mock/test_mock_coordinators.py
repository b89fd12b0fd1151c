"""Where coordinators are, how they move, load, freeze and die, and what writers and readers see of transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from mock_client import RawClient
from mock_requests import NOW_MS, fetch_request, mock
from mock_transactions import TransactionalClient, transactional

from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual
from aiokprod.wire.messages.fetch import FetchResponse
from aiokprod.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aiokprod.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

Scenario = Callable[[TransactionalClient], Awaitable[None]]


def on(scenario: Scenario, version: int = 2, **options: Any) -> None:
    async def run() -> None:
        async with transactional(version, **options) as client:
            await client.start()
            await scenario(client)

    asyncio.run(run())


# ---------------------------------------------------------------------- FindCoordinator


@pytest.mark.parametrize("version", range(7))
def test_coordinators_of_ids_and_of_groups_are_found(version: int) -> None:
    async def scenario() -> None:
        async with mock(3) as cluster, RawClient(cluster) as client:
            for key_type in (0, 1) if version else (0,):
                asked = {"coordinator_keys": ["one", "tx"]} if version >= 4 else {"key": "tx"}
                request = FindCoordinatorRequest(key_type=key_type, **asked)  # type: ignore[arg-type]
                answer = await client.ask(request, FindCoordinatorResponse, version)
                found = answer.coordinators[-1] if version >= 4 else answer
                node = cluster.coordinator("tx") if key_type else cluster.group_coordinator("tx")
                broker = cluster.broker(node)
                assert (found.error_code, found.node_id, found.port) == (0, node, broker.port)
                assert len(answer.coordinators) == (2 if version >= 4 else 0)

    asyncio.run(scenario())


def test_a_key_of_another_type_is_refused_and_the_script_is_obeyed() -> None:
    async def scenario() -> None:
        async with mock(1) as cluster, RawClient(cluster) as client:
            request = FindCoordinatorRequest(key_type=9, coordinator_keys=["tx"])
            assert (await client.ask(request, FindCoordinatorResponse, 6)).coordinators[0].error_code == 42
            cluster.fail_next("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", message="soon")
            request = FindCoordinatorRequest(key_type=1, key="tx")
            answer = await client.ask(request, FindCoordinatorResponse, 3)
            assert (answer.error_code, answer.error_message, answer.node_id, answer.port) == (15, "soon", -1, -1)

    asyncio.run(scenario())


def test_another_broker_answers_16_and_a_loading_one_14() -> None:
    async def scenario() -> None:
        async with mock(2) as cluster:
            request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000)

            async def init(node: int) -> int:
                async with RawClient(cluster, node) as client:
                    code: int = (await client.ask(request, InitProducerIdResponse, 5)).error_code
                    return code

            here = cluster.coordinator("tx")
            there = 3 - here
            assert (await init(here), await init(there)) == (0, 16)
            cluster.move_coordinator("tx", there)
            cluster.load_coordinator("tx")
            assert (await init(here), await init(there)) == (16, 14)
            cluster.load_coordinator("tx", False)
            assert await init(there) == 0
            cluster.kill_broker(there, elect=False)
            assert cluster.coordinator("tx") == there  # not noticed. broker: 10.11
            cluster.elect_leaders(there)
            assert cluster.coordinator("tx") == here and await init(here) == 0

    asyncio.run(scenario())


# ---------------------------------------------------------------------- markers on their way


def test_the_first_write_after_an_end_waits_for_the_markers() -> None:  # broker: 10.6
    async def scenario(client: TransactionalClient) -> None:
        await client.transaction()
        assert client.cluster.transaction("tx").is_completing
        assert await client.code(0) == 0
        assert not client.cluster.transaction("tx").is_completing
        client.pair = (await client.end(True))[1]
        assert await client.commit_offset(3) == 0

    on(scenario, transaction_completion_ms=20)


def test_a_write_is_told_51_when_the_markers_take_too_long_and_an_old_one_19() -> None:
    async def scenario(client: TransactionalClient) -> None:
        client.cluster.hold_markers()
        await client.transaction()
        assert await client.code(0) == 51
        answer = await client.write(0, version=11)
        assert answer.error_code == 19 and "CONCURRENT_TRANSACTIONS" in (answer.error_message or "")
        assert [await client.commit_offset(1, version=v) for v in (4, 5)] == [15, 51]
        assert await client.add() == [51]
        client.cluster.release_markers()
        assert await client.code(0) == 0

    on(scenario)


def test_a_marker_waits_for_a_leader_and_for_replicas() -> None:
    async def scenario() -> None:
        async with mock(3) as cluster, RawClient(cluster) as raw:
            cluster.create_topic("t", partitions=2, min_insync_replicas=2)
            cluster.move_coordinator("tx", 1)
            cluster.move_leader("t", 0, 1)
            client = TransactionalClient(cluster, raw, lambda: NOW_MS)  # type: ignore[arg-type]
            await client.start()
            assert await client.code(0) == 0
            assert await client.add(("t", 1)) == [0]
            cluster.move_leader("t", 0, None)
            cluster.set_isr("t", 1, [2])
            assert (await client.end(True))[0] == 0
            assert cluster.transaction("tx").is_completing and len(cluster.log("t", 0)) == 1
            cluster.set_isr("t", 1, [2, 3])
            assert cluster.log("t", 1)[-1].is_control and cluster.transaction("tx").is_completing
            cluster.move_leader("t", 0, 1)
            assert cluster.log("t", 0)[-1].is_control and not cluster.transaction("tx").is_completing

    asyncio.run(scenario())


def test_a_marker_that_a_new_leader_lacks_is_written_again() -> None:
    async def scenario() -> None:
        async with mock(2) as cluster, RawClient(cluster) as raw:
            cluster.create_topic("t")
            cluster.move_coordinator("tx", 1)
            client = TransactionalClient(cluster, raw, lambda: NOW_MS)  # type: ignore[arg-type]
            await client.start()
            assert await client.code(0) == 0
            cluster.freeze_replicas("t", 0, [2])
            assert (await client.end(False))[0] == 0
            assert cluster.log("t")[-1].is_control and cluster.transaction("tx").is_completing
            cluster.move_leader("t", 0, 2, lose_uncopied=True)
            cluster.thaw_replicas("t", 0)
            assert [batch.is_control for batch in cluster.log("t")] == [False, True]
            assert cluster.transaction("tx").state.value == "CompleteAbort"
            assert cluster.partition("t").last_stable_offset == 2

    asyncio.run(scenario())


def test_a_deleted_topic_needs_no_marker() -> None:
    async def scenario(client: TransactionalClient) -> None:
        assert await client.code(0) == 0 and await client.code(0, partition=1) == 0
        client.cluster.move_leader("t", 1, None)
        assert (await client.end(True))[0] == 0
        assert client.cluster.transaction("tx").is_completing
        client.cluster.delete_topic("t")
        assert not client.cluster.transaction("tx").is_completing

    on(scenario)


def test_the_coordinators_clock_aborts_what_is_late() -> None:
    async def scenario(client: TransactionalClient) -> None:
        assert await client.code(0) == 0
        client.clock.now_ms += 60_001
        aborted = asyncio.Event()
        client.cluster.partition("t").watchers.add(aborted.set)
        async with asyncio.timeout(10):
            await aborted.wait()
        client.cluster.partition("t").watchers.discard(aborted.set)
        assert client.cluster.transaction("tx").state.value == "CompleteAbort"

    on(scenario, transaction_check_interval_ms=5)


# ---------------------------------------------------------------------- coordinators that cannot be reached


def test_a_frozen_coordinator_stops_a_first_write_for_thirty_seconds() -> None:  # broker: 10.12
    async def scenario(client: TransactionalClient, there: int) -> None:
        cluster, loop = client.cluster, asyncio.get_running_loop()
        assert await client.code(0) == 0
        cluster.freeze_broker(there)
        assert await client.code(1) == 0  # the partition was added before
        began = loop.time()
        answer = await client.write(0, partition=1)
        assert answer.error_code == 19 and answer.error_message == (
            "Unable to verify the partition has been added to the transaction. Underlying error: NETWORK_EXCEPTION"
        )
        assert 30 <= loop.time() - began < 31
        loop.call_later(5, cluster.thaw_broker, there)
        assert await client.code(0, partition=1) == 0
        assert 35 <= loop.time() - began < 36
        cluster.kill_broker(there, elect=False)
        assert await client.commit_offset(1) == 15
        cluster.elect_leaders(there)
        assert await client.commit_offset(1) == 0

    async def world(network: VirtualNetwork, _chance: Random) -> None:
        async with MockCluster(2, now_ms=lambda: NOW_MS, network=network) as cluster:
            cluster.create_topic("t", partitions=2)
            cluster.move_coordinator("tx", 1)
            cluster.move_group_coordinator("g", 2)
            for index in range(2):
                cluster.move_leader("t", index, 2)
            async with RawClient(cluster, 1) as first, RawClient(cluster, 2) as second:
                client = TransactionalClient(cluster, first, lambda: NOW_MS)  # type: ignore[arg-type]
                await client.start()
                client.raw = second
                await scenario(client, 1)

    run_virtual(world, seed=1)


# ---------------------------------------------------------------------- readers


def test_readers_of_committed_records_and_the_others() -> None:  # broker: 12.1, 12.2
    async def scenario(client: TransactionalClient) -> None:
        cluster, raw = client.cluster, client.raw

        async def fetch(level: int, version: int = 12) -> tuple[int, int, int, list[tuple[int, int]] | None]:
            request = fetch_request(version, cluster, isolation_level=level)
            (found,) = (await raw.ask(request, FetchResponse, version)).responses[0].partitions
            aborted = found.aborted_transactions
            return (
                found.high_watermark,
                found.last_stable_offset,
                len(found.records),
                None if aborted is None else [(one.producer_id, one.first_offset) for one in aborted],
            )

        async def latest(level: int) -> int:
            asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
            request = ListOffsetsRequest(
                replica_id=-1, isolation_level=level, topics=[ListOffsetsTopic(name="t", partitions=[asked])]
            )
            answer = await raw.ask(request, ListOffsetsResponse, 7)
            offset: int = answer.topics[0].partitions[0].offset
            return offset

        assert await client.code(0, pair=(7, 0), transactional=False, transactional_id=None) == 0
        assert await client.code(0) == 0
        assert await client.code(1, pair=(7, 0), transactional=False, transactional_id=None) == 0
        sizes = [len(batch.data) for batch in cluster.log("t")]
        assert await fetch(1) == (3, 1, sizes[0], [])
        assert await fetch(0) == (3, 1, sum(sizes), None)
        assert (await latest(1), await latest(0)) == (1, 3)
        await client.end(False)
        sizes.append(len(cluster.log("t")[-1].data))
        assert await fetch(1) == (4, 4, sum(sizes), [(client.pair[0], 1)])
        assert await fetch(0) == (4, 4, sum(sizes), None)
        assert (await latest(1), await latest(0)) == (4, 4)
        assert [record.value for record in cluster.records("t", 0, committed=True)] == [b"v0", b"v1"]
        assert len(cluster.records("t", 0)) == 3

    on(scenario)


def test_a_cluster_that_closes_leaves_nothing_of_its_transactions() -> None:
    async def world(network: VirtualNetwork, _chance: Random) -> None:
        cluster = MockCluster(1, now_ms=lambda: NOW_MS, network=network, transaction_completion_ms=1000)
        async with cluster, RawClient(cluster) as raw:
            cluster.create_topic("t", partitions=2)
            client = TransactionalClient(cluster, raw, lambda: NOW_MS)  # type: ignore[arg-type]
            await client.start()
            assert await client.code(0) == 0
            cluster.move_leader("t", 0, None)
            assert (await client.end(True))[0] == 0
            await asyncio.sleep(2)
            partition = cluster.partition("t")
            assert partition.watchers and cluster.transaction("tx").is_completing
        assert not partition.watchers
        assert not cluster._transactions._timers

    run_virtual(world, seed=2)
