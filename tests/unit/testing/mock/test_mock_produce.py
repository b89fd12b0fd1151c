"""Produce at the mock cluster, over real sockets: judgement, hints, waiting answers."""

from __future__ import annotations

import asyncio

import pytest
from mock_batches import batch, idempotent
from mock_client import RawClient
from mock_requests import NOW_MS, all_topics, fetch_request, mock, values

from aiokprod.wire.messages.fetch import FetchResponse
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse
from aiokprod.wire.messages.produce import ProduceResponse

# ---------------------------------------------------------------------- produce


def test_what_is_produced_can_be_read_back() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            assert (await client.produce("t", batch(b"a", b"b", keys=[b"k", None]))).base_offset == 0
            answer = await client.produce("t", batch(None))
            assert (answer.base_offset, answer.log_append_time_ms, answer.log_start_offset) == (2, -1, 0)
            assert [(r.offset, r.key, r.value) for r in cluster.records("t")] == [
                (0, b"k", b"a"),
                (1, None, b"b"),
                (2, None, None),
            ]
            fetched = await client.ask(fetch_request(12, cluster, 2), FetchResponse, 12)
            partition = fetched.responses[0].partitions[0]
            assert partition.records == cluster.log("t")[1].data and partition.high_watermark == 3
            assert cluster.counters.records_appended == 3 and cluster.counters.batches_appended == 2

    asyncio.run(scenario())


def test_sequences_and_duplicates_over_the_wire() -> None:  # broker: 2.1, 2.2, 2.6, 3.1
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            for n in range(3):
                assert (await client.produce("t", idempotent(n, timestamp_ms=NOW_MS))).base_offset == n
            again = await client.produce("t", idempotent(1, timestamp_ms=NOW_MS))
            assert (again.error_code, again.base_offset, again.log_append_time_ms) == (0, 1, NOW_MS)
            assert (await client.produce("t", idempotent(9))).error_code == 45
            assert (await client.produce("t", idempotent(0, epoch=1))).error_code == 0
            late = await client.produce("t", idempotent(3))
            assert (late.error_code, late.base_offset) == (47, -1)
            assert cluster.counters.duplicates == 1 and cluster.counters.refusals == {45: 1, 47: 1}
            cluster.kill_broker(1)
            assert await client.is_closed()
            cluster.start_broker(1)
            async with RawClient(cluster) as later:
                assert (await later.produce("t", idempotent(0, epoch=1))).base_offset == 3
                assert (await later.produce("t", idempotent(1, epoch=1))).base_offset == 4

    asyncio.run(scenario())


def test_answers_list_topics_in_an_order_of_their_own() -> None:  # broker: 4.9
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            names = ["a", "b", "c", "d"]
            for name in names:
                cluster.create_topic(name)
            orders = []
            for asked in (names, names[::-1], ["c", "a", "d", "b"]):
                client.send_produce({(name, 0): batch(b"v") for name in asked})
                orders.append([name for name, _ in await client.produced()])
            assert orders[0] == orders[1] == orders[2] != names

    asyncio.run(scenario())


def test_each_partition_of_a_request_has_its_own_code() -> None:  # broker: 4.9
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t", partitions=2)
            broken = bytearray(batch(b"x"))
            broken[-1] ^= 1
            asked = {("t", 0): batch(b"ok"), ("t", 1): bytes(broken), ("t", 2): batch(b"v"), ("none", 0): batch(b"v")}
            client.send_produce(asked)
            codes = {where: answer.error_code for where, answer in (await client.produced()).items()}
            assert codes == {("t", 0): 0, ("t", 1): 2, ("t", 2): 3, ("none", 0): 3}
            assert values(cluster) == [b"ok"] and "none" not in (t.name for t in (await all_topics(client)))  # 8.5

    asyncio.run(scenario())


def test_topic_ids_find_the_incarnation_and_names_the_name() -> None:  # broker: 7.1, 7.2, 7.4, 7.5
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            old = cluster.create_topic("t")
            assert (await client.produce(old, idempotent(3), version=13)).error_code == 0
            assert (await client.produce(old, batch(b"v"), version=13, partition=5)).error_code == 3
            assert (await client.produce(b"\x01" * 16, batch(b"v"), version=13)).error_code == 100
            new = cluster.recreate_topic("t")
            assert new != old
            assert (await client.produce(old, idempotent(4), version=13)).error_code == 100
            assert (await client.produce("t", idempotent(4), version=12)).base_offset == 0
            cluster.delete_topic("t")
            assert (await client.produce("t", batch(b"v"))).error_code == 3

    asyncio.run(scenario())


@pytest.mark.parametrize(("version", "hinted"), [(3, False), (9, False), (10, True), (12, True)])  # broker: 7.7
def test_a_follower_names_the_leader_from_version_10_on(version: int, hinted: bool) -> None:
    async def scenario() -> None:
        async with mock(3) as cluster, RawClient(cluster, 3) as client:
            cluster.create_topic("t")
            cluster.move_leader("t", 0, 2)
            client.send_produce({("t", 0): batch(b"v")}, version=version)
            response = await client.receive(ProduceResponse, version)
            answer = response.responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (6, -1)
            leader = (answer.current_leader.leader_id, answer.current_leader.leader_epoch)
            assert leader == ((2, 1) if hinted else (-1, -1))
            ports = [(node.node_id, node.port) for node in response.node_endpoints]
            assert ports == ([(2, cluster.broker(2).port)] if hinted else [])

    asyncio.run(scenario())


def test_a_partition_without_leader_hints_at_no_broker() -> None:  # broker: 7.8
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            cluster.move_leader("t", 0, None)
            answer = await client.produce("t", batch(b"v"))
            leader = answer.current_leader
            assert (answer.error_code, leader.leader_id, leader.leader_epoch) == (6, -1, 1)
            assert cluster.leader("t") is None

    asyncio.run(scenario())


@pytest.mark.parametrize(("version", "told"), [(7, False), (8, True), (12, True)])  # broker: 4.10
def test_record_errors_come_with_version_8(version: int, told: bool) -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t", cleanup_policy="compact")
            answer = await client.produce("t", batch(b"a", b"b", b"c", keys=[b"k", None, None]), version=version)
            assert answer.error_code == 87
            assert [bad.batch_index for bad in answer.record_errors] == ([1, 2] if told else [])
            assert (answer.error_message is not None) is told

    asyncio.run(scenario())


@pytest.mark.parametrize("acks", [2, -2])  # broker: 5.3
def test_other_acks_are_refused(acks: int) -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            assert (await client.produce("t", batch(b"v"), acks=acks)).error_code == 21

    asyncio.run(scenario())


def test_acks_zero_is_silent_until_an_error_closes_the_connection() -> None:  # broker: 5.1, 5.2
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            client.send_produce({("t", 0): idempotent(0, b"good")}, acks=0)
            client.send_produce({("t", 0): idempotent(0, b"again")}, acks=0)
            assert (await client.ask(MetadataRequest(topics=[]), MetadataResponse, 12)).topics == []
            client.send_produce({("t", 0): idempotent(7, b"gap")}, acks=0)
            client.send_produce({("t", 0): idempotent(1, b"behind it")}, acks=0)
            assert await client.is_closed()
            assert values(cluster) == [b"good"]

    asyncio.run(scenario())


def test_null_records_are_never_answered_and_the_connection_is_dead_but_open() -> None:  # broker: 13.5b
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            client.send_produce({("t", 0): None})
            client.send(MetadataRequest(), 12)
            assert await client.is_silent()
            assert cluster.requests_seen("Metadata") == 0 and not cluster.counters.crashes

    asyncio.run(scenario())


def test_log_append_time_is_the_brokers() -> None:  # broker: 13.8
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t", message_timestamp_type="LogAppendTime")
            assert (await client.produce("t", batch(b"v", timestamp_ms=5))).log_append_time_ms == NOW_MS
            assert [record.timestamp_ms for record in cluster.records("t")] == [NOW_MS]

    asyncio.run(scenario())


# ---------------------------------------------------------------------- waiting answers


def test_frozen_followers_give_7_with_the_base_offset_and_the_next_request_waits_its_turn() -> None:  # broker: 4.5, 6.1
    async def scenario() -> None:
        async with mock(3) as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            cluster.freeze_replicas("t", 0)
            client.send_produce({("t", 0): idempotent(0)}, timeout_ms=30)
            client.send_produce({("t", 0): idempotent(1)}, timeout_ms=30)
            await cluster.until_seen("Produce", 1)
            assert len(cluster.log("t")) == 1 and cluster.requests_seen("Produce") == 1
            first, second = [(await client.produced())["t", 0] for _ in range(2)]
            assert [(a.error_code, a.base_offset) for a in (first, second)] == [(7, 0), (7, 1)]
            cluster.thaw_replicas("t", 0)
            again = await client.produce("t", idempotent(0))
            assert (again.error_code, again.base_offset) == (0, 0) and len(cluster.log("t")) == 2

    asyncio.run(scenario())


def test_a_stuck_partition_holds_up_the_others_of_its_request_and_connection_only() -> None:  # broker: 4.6, 4.7
    async def scenario() -> None:
        async with mock(3) as cluster, RawClient(cluster) as stuck, RawClient(cluster) as other:
            cluster.create_topic("t")
            cluster.create_topic("free", replication_factor=1)
            cluster.freeze_replicas("t", 0)
            stuck.send_produce({("t", 0): batch(b"v"), ("free", 0): batch(b"v")}, timeout_ms=60_000)
            stuck.send(MetadataRequest(), 12)
            await cluster.until_seen("Produce")
            assert (await other.produce("free", batch(b"v"))).error_code == 0
            assert await stuck.is_silent()
            cluster.thaw_replicas("t", 0)
            assert {answer.error_code for answer in (await stuck.produced()).values()} == {0}
            await stuck.receive(MetadataResponse, 12)

    asyncio.run(scenario())


def test_a_leader_that_moves_while_a_batch_waits_gives_6_with_its_base_offset() -> None:  # broker: 6.4
    async def scenario() -> None:
        async with mock(3) as cluster, RawClient(cluster) as client, RawClient(cluster, 2) as new:
            cluster.create_topic("t")
            await client.produce("t", idempotent(0))
            cluster.freeze_replicas("t", 0)
            for n in (1, 2, 3):
                client.send_produce({("t", 0): idempotent(n)}, timeout_ms=60_000)
            await cluster.until_seen("Produce", 2)
            cluster.move_leader("t", 0, 2)
            answers = [(await client.produced())["t", 0] for _ in range(3)]
            assert [(a.error_code, a.base_offset) for a in answers] == [(6, 1), (6, -1), (6, -1)]
            assert {(a.current_leader.leader_id, a.current_leader.leader_epoch) for a in answers} == {(2, 1)}
            cluster.thaw_replicas("t", 0)
            assert [(await new.produce("t", idempotent(n))).base_offset for n in (1, 2, 3)] == [1, 2, 3]

    asyncio.run(scenario())


def test_too_few_replicas_are_19_for_all_and_nothing_for_one() -> None:  # broker: 4.4, 5.7
    async def scenario() -> None:
        async with mock(3) as cluster, RawClient(cluster) as client:
            cluster.create_topic("t", min_insync_replicas=2)
            cluster.set_isr("t", 0, [1])
            refused = await client.produce("t", batch(b"v"))
            assert (refused.error_code, refused.base_offset, refused.log_start_offset) == (19, -1, 0)
            assert (await client.produce("t", batch(b"v"), acks=1)).error_code == 0
            assert cluster.records("t", committed=True) == [] and len(cluster.records("t")) == 1

    asyncio.run(scenario())


def test_a_topic_deleted_while_a_batch_waits_answers_it() -> None:
    async def scenario() -> None:
        async with mock(3) as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            cluster.freeze_replicas("t", 0)
            client.send_produce({("t", 0): batch(b"v")}, timeout_ms=60_000)
            await cluster.until_seen("Produce")
            cluster.delete_topic("t")
            assert (await client.produced())["t", 0].error_code == 6

    asyncio.run(scenario())
