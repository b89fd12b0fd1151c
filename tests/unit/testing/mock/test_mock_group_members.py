"""Groups by their requests, in virtual time: members, coordinators, tools, offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from mock_client import RawClient
from mock_group_requests import join, leave, offset_delete, subscription, sync
from mock_transaction_requests import offset_commit

from aiokprod.testing import MockCluster
from aiokprod.testing.mock.groups import cluster_groups
from aiokprod.testing.virtual import VirtualNetwork, run_virtual
from aiokprod.wire.messages import consumer_group_describe as describing
from aiokprod.wire.messages import consumer_group_heartbeat as beating
from aiokprod.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from aiokprod.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from aiokprod.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokprod.wire.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from aiokprod.wire.messages.leave_group import LeaveGroupResponse
from aiokprod.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from aiokprod.wire.messages.offset_commit import OffsetCommitResponse
from aiokprod.wire.messages.offset_delete import OffsetDeleteResponse
from aiokprod.wire.messages.sync_group import SyncGroupResponse


def on(scenario: Callable[[MockCluster, RawClient], Awaitable[None]], brokers: int = 1, **options: Any) -> None:
    async def run(network: VirtualNetwork, _random: Random) -> None:
        async with MockCluster(brokers, network=network, **options) as cluster:
            cluster.create_topic("t", partitions=2)
            cluster.create_topic("u")
            async with RawClient(cluster, cluster.group_coordinator("g")) as client:
                await scenario(cluster, client)
            assert cluster.counters.crashes == []

    run_virtual(run, seed=1)


async def joined(client: RawClient, version: int = 9, **options: Any) -> tuple[str, int]:
    """Join, with an id that is given first, and return it and the generation."""
    answer = await client.ask(join(version, **options), JoinGroupResponse, version)
    if answer.error_code == 79:
        answer = await client.ask(join(version, answer.member_id, **options), JoinGroupResponse, version)
    assert answer.error_code == 0
    return answer.member_id, answer.generation_id


async def member(client: RawClient, version: int = 9, assignment: bytes = b"a", **options: Any) -> tuple[str, int]:
    """Make a stable group of one member."""
    name, generation = await joined(client, version, **options)
    wanted = sync(min(version, 5), name, generation, **{name: assignment})
    answer = await client.ask(wanted, SyncGroupResponse, min(version, 5))
    assert (answer.error_code, answer.assignment) == (0, assignment)
    return name, generation


async def beat(client: RawClient, name: str, generation: int, version: int = 4) -> int:
    request = HeartbeatRequest(group_id="g", member_id=name, generation_id=generation)
    code: int = (await client.ask(request, HeartbeatResponse, version)).error_code
    return code


async def described(client: RawClient, version: int = 5, group: str = "g") -> DescribedGroup:
    answer = await client.ask(DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse, version)
    found: DescribedGroup = answer.groups[0]
    return found


async def commit_code(client: RawClient, cluster: MockCluster, name: str, generation: int, version: int = 9) -> int:
    request = offset_commit(version, cluster, 7, generation_id_or_member_epoch=generation, member_id=name)
    code: int = (await client.ask(request, OffsetCommitResponse, version)).topics[0].partitions[0].error_code
    return code


# ---------------------------------------------------------------------- members


@pytest.mark.parametrize("version", range(10))
def test_every_version_makes_a_group(version: int) -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        name, generation = await member(client, version)
        assert generation == 1 and name.startswith("raw-") and len(name) == 40
        assert await beat(client, name, generation, min(version, 4)) == 0
        found = await described(client, min(version, 6))
        assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
        (one,) = found.members
        assert (one.member_id, one.client_id, one.client_host) == (name, "raw", "/127.0.0.1")
        assert (one.member_metadata, one.member_assignment) == (subscription("t"), b"a")
        left = await client.ask(leave(min(version, 5), name), LeaveGroupResponse, min(version, 5))
        assert (left.error_code, [each.error_code for each in left.members]) == (0, [0] if version >= 3 else [])
        assert (await described(client)).group_state == "Empty"

    on(scenario)


def test_a_second_member_is_waited_for() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        name, generation = await member(client)
        async with RawClient(cluster) as other:
            second = asyncio.create_task(joined(other))
            while await beat(client, name, generation) == 0:
                await asyncio.sleep(0.1)
            assert (await described(client)).group_state == "PreparingRebalance"
            answer = await client.ask(join(9, name), JoinGroupResponse, 9)
            other_name, other_generation = await second
            assert (answer.generation_id, other_generation, len(answer.members)) == (2, 2, 2)
            waiting = asyncio.create_task(other.ask(sync(5, other_name, 2), SyncGroupResponse, 5))
            given = {name: b"1", other_name: b"2"}
            assert (await client.ask(sync(5, name, 2, **given), SyncGroupResponse, 5)).assignment == b"1"
            assert (await waiting).assignment == b"2"

    on(scenario)


def test_a_member_that_falls_silent_is_out_after_its_session() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        name, generation = await member(client)
        await asyncio.sleep(9)
        assert await beat(client, name, generation) == 0
        await asyncio.sleep(9)
        assert (await described(client)).group_state == "Stable"
        await asyncio.sleep(1.1)
        assert (await described(client)).group_state == "Empty" and await beat(client, name, generation) == 25

    on(scenario)


def test_a_client_that_is_gone_leaves_a_member_until_its_time_is_over() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        name, _ = await member(client)
        async with RawClient(cluster) as other:
            given = await other.ask(join(9), JoinGroupResponse, 9)
            other.send(join(9, given.member_id), 9)
            await asyncio.sleep(1)
        assert len((await described(client)).members) == 2
        answer = await client.ask(join(9, name), JoinGroupResponse, 9)
        assert (answer.generation_id, len(answer.members)) == (2, 2)
        await client.ask(sync(5, name, 2), SyncGroupResponse, 5)
        for _ in range(11):
            code = await beat(client, name, 2)
            await asyncio.sleep(1)
        assert code == 27 and len((await described(client)).members) == 1

    on(scenario)


def test_requests_that_are_refused() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        async def code(request: Any, kind: Any, version: int) -> int:
            answer: int = (await client.ask(request, kind, version)).error_code
            return answer

        assert await code(join(9, group_id=""), JoinGroupResponse, 9) == 24
        assert await code(join(9, session_timeout_ms=5_999), JoinGroupResponse, 9) == 26
        assert await code(join(9, session_timeout_ms=1_800_001), JoinGroupResponse, 9) == 26
        assert await code(join(9, "stranger"), JoinGroupResponse, 9) == 25
        nameless = sync(4, "stranger", 1)
        assert await code(nameless, SyncGroupResponse, 5) == 23 and await code(nameless, SyncGroupResponse, 4) == 25
        long_name = "x" * 40_000
        assert await code(join(9, group_id=long_name), JoinGroupResponse, 9) == 24
        for api, kind in (("JoinGroup", JoinGroupResponse), ("SyncGroup", SyncGroupResponse)):
            cluster.fail_next(api, "COORDINATOR_NOT_AVAILABLE")
            request: Any = join(9) if api == "JoinGroup" else sync(5, "stranger", 1)
            assert await code(request, kind, 9 if api == "JoinGroup" else 5) == 15

    on(scenario)


# ---------------------------------------------------------------------- the consumer protocol


async def heartbeat(client: RawClient, name: str, epoch: int, **options: Any) -> beating.ConsumerGroupHeartbeatResponse:
    if epoch == 0:
        options = {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["t"], "topic_partitions": [], **options}
    request = beating.ConsumerGroupHeartbeatRequest(group_id="g", member_id=name, member_epoch=epoch, **options)
    answer: beating.ConsumerGroupHeartbeatResponse = await client.ask(
        request, beating.ConsumerGroupHeartbeatResponse, 1
    )
    return answer


async def consumers(client: RawClient) -> describing.DescribedGroup:
    request = describing.ConsumerGroupDescribeRequest(group_ids=["g"])
    found: describing.DescribedGroup = (await client.ask(request, describing.ConsumerGroupDescribeResponse, 1)).groups[
        0
    ]
    return found


def test_a_member_of_the_consumer_protocol_that_falls_silent_is_out_after_its_session() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        joined = await heartbeat(client, "m", 0)
        assert joined.assignment is not None
        assert [(one.topic_id, one.partitions) for one in joined.assignment.topic_partitions] == [
            (cluster.topic_id("t"), [0, 1])
        ]
        await asyncio.sleep(40)
        assert (await heartbeat(client, "m", 1)).error_code == 0
        await asyncio.sleep(40)
        assert (await consumers(client)).group_state == "Stable"
        await asyncio.sleep(6)
        assert (await consumers(client)).group_state == "Empty" and (await heartbeat(client, "m", 1)).error_code == 25

    on(scenario)


def test_a_join_that_is_refused_leaves_no_group_behind() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        assert (await heartbeat(client, "m", 0, subscribed_topic_regex="(")).error_code == 128
        assert (await heartbeat(client, "m", 0, rack_id="r" * 32_768)).error_code == 42
        assert (await consumers(client)).error_code == 69

    on(scenario)


def test_the_protocols_do_not_mix() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        name, generation = await member(client)
        refused = await heartbeat(client, "m", 0)
        assert (refused.error_code, refused.error_message) == (69, "Group g is not a consumer group.")
        assert await beat(client, name, generation) == 0
        await client.ask(leave(5, name), LeaveGroupResponse, 5)
        assert (await heartbeat(client, "m", 0)).error_code == 0
        assert (await client.ask(join(9), JoinGroupResponse, 9)).error_code == 23
        assert await beat(client, "m", 1) == 25
        assert (await client.ask(leave(5, "m"), LeaveGroupResponse, 5)).members[0].error_code == 25
        assert await commit_code(client, cluster, "m", 1) == 0 and await commit_code(client, cluster, "m", 2) == 113

    on(scenario)


def test_members_of_the_consumer_protocol_go_on_with_another_coordinator() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        await heartbeat(client, "m", 0)
        there = cluster.group_coordinator("g") % 3 + 1
        cluster.move_group_coordinator("g", there)
        assert (await heartbeat(client, "m", 1)).error_code == 16 and (await consumers(client)).error_code == 16
        async with RawClient(cluster, there) as other:
            assert (await heartbeat(other, "m", 1)).error_code == 0

    on(scenario, brokers=3)


# ---------------------------------------------------------------------- coordinators


def test_only_the_coordinator_answers_and_a_new_one_knows_the_members() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        name, generation = await member(client)
        here = cluster.group_coordinator("g")
        there = here % 3 + 1
        async with RawClient(cluster, there) as stranger:
            assert await beat(stranger, name, generation) == 16
            assert (await stranger.ask(join(9), JoinGroupResponse, 9)).error_code == 16
            assert (await stranger.ask(leave(5, name), LeaveGroupResponse, 5)).error_code == 16
            assert (await described(stranger)).error_code == 16
            assert (await stranger.ask(ListGroupsRequest(), ListGroupsResponse, 5)).groups == []
            async with RawClient(cluster, here) as waiter:
                given = await waiter.ask(join(9), JoinGroupResponse, 9)
                waits = asyncio.create_task(waiter.ask(join(9, given.member_id), JoinGroupResponse, 9))
                await asyncio.sleep(1)
                cluster.move_group_coordinator("g", there)
                assert (await waits).error_code == 16
            assert await beat(client, name, generation) == 16 and await beat(stranger, name, generation) == 0

    on(scenario, brokers=3)


def test_members_go_on_with_the_next_broker_when_theirs_dies() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        name, generation = await member(client)
        cluster.kill_broker(cluster.group_coordinator("g"))
        async with RawClient(cluster, cluster.group_coordinator("g")) as other:
            assert await beat(other, name, generation) == 0

    on(scenario, brokers=3)


# ---------------------------------------------------------------------- offsets and tools


def test_offsets_are_committed_in_the_name_of_members() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        name, generation = await member(client)
        codes = [await commit_code(client, cluster, name, each) for each in (generation, generation + 1, -1)]
        assert codes == [0, 22, 22]
        assert await commit_code(client, cluster, "stranger", generation) == 25
        assert await commit_code(client, cluster, "", -1) == 25
        assert cluster.committed_offsets("g")["t", 0].offset == 7
        await client.ask(leave(5, name), LeaveGroupResponse, 5)
        assert await commit_code(client, cluster, "", -1) == 0

    on(scenario)


def test_groups_are_listed_with_filters() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        async def listed(version: int = 5, **filters: Any) -> list[tuple[str, str, str]]:
            answer = await client.ask(ListGroupsRequest(**filters), ListGroupsResponse, version)
            return [(group.group_id, group.group_state, group.group_type) for group in answer.groups]

        await member(client)
        other = offset_commit(9, cluster, 1)
        other.group_id = "simple"
        await client.ask(other, OffsetCommitResponse, 9)
        assert await listed() == [("g", "Stable", "classic"), ("simple", "Empty", "classic")]
        assert [name for name, _, _ in await listed(0)] == ["g", "simple"]
        assert await listed(states_filter=["empty"]) == [("simple", "Empty", "classic")]
        assert await listed(types_filter=["consumer"]) == [] and len(await listed(types_filter=["Classic"])) == 2

    on(scenario)


def test_empty_groups_are_deleted_with_their_offsets() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        async def deleted() -> list[int]:
            request = DeleteGroupsRequest(groups_names=["g", "none", ""])
            answer = await client.ask(request, DeleteGroupsResponse, 2)
            return [each.error_code for each in answer.results]

        name, generation = await member(client)
        assert await commit_code(client, cluster, name, generation) == 0
        assert await deleted() == [68, 69, 24]
        await client.ask(leave(5, name), LeaveGroupResponse, 5)
        assert await deleted() == [0, 69, 24] and cluster.committed_offsets("g") == {}
        assert (await described(client)).group_state == "Dead"
        assert (await described(client, 6)).error_code == 69

    on(scenario)


def test_offsets_of_topics_that_have_no_subscriber_are_deleted() -> None:
    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        async def deleted(*topics: str, partition: int = 0) -> Any:
            return await client.ask(offset_delete(*topics, partition=partition), OffsetDeleteResponse, 0)

        assert (await deleted("t")).error_code == 69
        name, generation = await member(client)
        assert await commit_code(client, cluster, name, generation) == 0
        answer = await deleted("t", "u", "nothing")
        assert [topic.partitions[0].error_code for topic in answer.topics] == [86, 0, 3]
        await client.ask(leave(5, name), LeaveGroupResponse, 5)
        assert (await deleted("t", partition=9)).topics[0].partitions[0].error_code == 3
        assert (await deleted("t")).topics[0].partitions[0].error_code == 0
        assert cluster.committed_offsets("g") == {}
        await member(
            client, 4, protocol_type="connect", protocols=[JoinGroupRequestProtocol(name="range", metadata=b"?")]
        )
        assert (await deleted("t")).error_code == 68

    on(scenario)


def test_the_number_of_groups_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:  # broker: 21.16
    monkeypatch.setattr(cluster_groups, "MAX_GROUPS", 3)

    async def scenario(cluster: MockCluster, client: RawClient) -> None:
        for name in ("a", "b"):
            request = offset_commit(9, cluster, 1)
            request.group_id = name
            await client.ask(request, OffsetCommitResponse, 9)
        await member(client)
        assert (await client.ask(join(9, group_id="more"), JoinGroupResponse, 9)).error_code == 44
        request = offset_commit(9, cluster, 1)
        request.group_id = "more"
        answer = await client.ask(request, OffsetCommitResponse, 9)
        assert answer.topics[0].partitions[0].error_code == 44
        cluster.kill_broker(1)  # it forgets what no log has: nothing here

    on(scenario)
