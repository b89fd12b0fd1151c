"""`aiokprod groups`: groups of other clients on the mock cluster, as the command shows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cli_runs import objects, ok, run, write
from confluent_kafka import Consumer, TopicPartition

from aiokprod.cli.common.group_admin import GroupAdmin, GroupDescription, GroupMember, assignment_of
from aiokprod.testing import MockCluster

PATIENCE_S = 30.0


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(3) as started:
        started.create_topic("t", partitions=2)
        write(started, "t", [b"a", b"b", b"c"], partition=0)
        write(started, "t", [b"d"], partition=1)
        yield started


@contextmanager
def consumer(cluster: MockCluster, group: str = "g", **more: Any) -> Iterator[Any]:
    """Yield a consumer that has read the first record of partition 0, and committed that."""
    options = {
        "bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "client.id": "till",
        "enable.auto.commit": False, "auto.offset.reset": "earliest", **more,
    }  # fmt: skip
    made: Any = Consumer(options)
    made.subscribe(["t"])
    try:
        assert made.consume(1, PATIENCE_S)
        made.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_group_is_described_with_members_and_lag(cluster: MockCluster, kind: str) -> None:
    with consumer(cluster, **{"group.protocol": kind}):
        [listed] = objects(ok(cluster, "groups", "list", "--json"))
        assert (listed["group"], listed["type"], listed["state"], listed["protocol"]) == (
            "g",
            kind,
            "Stable",
            "consumer",
        )
        head, columns, *rows = ok(cluster, "groups", "describe", "g").splitlines()
        [found] = objects(ok(cluster, "groups", "describe", "g", "--json"))
    assert head.startswith(f"g: {kind}, Stable, ")
    assert head.endswith(f"coordinator {listed['coordinator']}, 1 member, lag 2")
    assert columns.split() == ["TOPIC", "PARTITION", "OFFSET", "END", "LAG", "MEMBER", "HOST", "CLIENT"]
    [member] = found["members"]
    assert rows[0].split() == ["t", "0", "1", "3", "2", member["member"], "127.0.0.1", "till"]
    assert rows[1].split() == ["t", "1", "-", "1", "-", member["member"], "127.0.0.1", "till"]
    assert found["lag"] == 2 and member["partitions"] == [["t", 0], ["t", 1]]
    assert [(each["partition"], each["offset"], each["end"], each["lag"]) for each in found["partitions"]] == [
        (0, 1, 3, 2), (1, None, 1, None),
    ]  # fmt: skip
    assert found["partitions"][0]["member"] == member["member"]


def test_a_group_without_members_keeps_its_offsets(cluster: MockCluster) -> None:
    with consumer(cluster):
        pass
    head, _, *rows = ok(cluster, "groups", "describe", "g").splitlines()
    assert head.startswith("g: classic, Empty, coordinator ") and head.endswith("0 members, lag 2")
    assert [row.split() for row in rows] == [["t", "0", "1", "3", "2", "-", "-", "-"]]


def test_a_member_without_partitions_has_a_line(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = GroupMember("m-1", None, "idle", "10.0.0.1", ())

    async def describe(admin: GroupAdmin, group: str) -> GroupDescription:
        return GroupDescription(group, "consumer", "Stable", "uniform", 2, (idle,))

    monkeypatch.setattr(GroupAdmin, "describe", describe)
    head, _, row = ok(cluster, "groups", "describe", "g").splitlines()
    assert head == "g: consumer, Stable, uniform, coordinator 2, 1 member, lag 0"
    assert row.split() == ["-", "-", "-", "-", "-", "m-1", "10.0.0.1", "idle"]


def test_a_topic_that_is_gone_has_no_end(cluster: MockCluster) -> None:
    with consumer(cluster):
        pass
    cluster.delete_topic("t")
    [found] = objects(ok(cluster, "groups", "describe", "g", "--json"))
    assert found["lag"] == 0 and all(each["end"] is None for each in found["partitions"])


def test_a_partition_without_a_leader_has_no_end(cluster: MockCluster) -> None:
    with consumer(cluster):
        pass
    cluster.move_leader("t", 0, None)
    [found] = objects(ok(cluster, "groups", "describe", "g", "--json"))
    assert found["partitions"] == [
        {"topic": "t", "partition": 0, "offset": 1, "end": None, "lag": None, "member": None}
    ]


@pytest.mark.parametrize("version", ["4.3", "2.1"])
def test_a_group_that_does_not_exist_is_told(version: str) -> None:
    with MockCluster(1, kafka_version=version) as cluster:
        cluster.create_topic("t")
        write(cluster, "t", [b"a"])
        done = run(cluster, "groups", "describe", "bill")
        assert (done.exit_code, done.stdout) == (2, "")
        assert "group 'bill' does not exist" in done.stderr and "groups list" in done.stderr
        with consumer(cluster, "billing"):
            pass
        assert "Did you mean 'billing'?" in run(cluster, "groups", "describe", "bill").stderr
        assert "lag 0" in ok(cluster, "groups", "describe", "billing")


def test_old_brokers_tell_no_type_and_no_state() -> None:
    with MockCluster(1, kafka_version="2.1") as cluster:
        cluster.create_topic("t")
        write(cluster, "t", [b"a"])
        with consumer(cluster):
            [row] = ok(cluster, "groups", "list").splitlines()[1:]
    assert row.split() == ["g", "-", "-", "consumer", "1"]


def test_it_waits_for_a_coordinator_that_loads(cluster: MockCluster) -> None:
    with consumer(cluster):
        pass
    cluster.fail_next("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS")
    cluster.fail_next("FindCoordinator", "COORDINATOR_NOT_AVAILABLE")
    cluster.fail_next("ListGroups", "COORDINATOR_LOAD_IN_PROGRESS")
    assert "lag 2" in ok(cluster, "groups", "describe", "g")
    assert len(ok(cluster, "groups", "list").splitlines()) == 2


def test_a_refusal_says_which_right_is_missing(cluster: MockCluster) -> None:
    cluster.fail_next("FindCoordinator", "GROUP_AUTHORIZATION_FAILED", times=None)
    done = run(cluster, "groups", "describe", "g")
    assert done.exit_code == 2 and "Grant this principal DESCRIBE on group 'g'" in done.stderr
    cluster.fail_next("ListGroups", "CLUSTER_AUTHORIZATION_FAILED", times=None)
    assert "DESCRIBE on the cluster" in run(cluster, "groups", "list").stderr


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x00\x00\x00\x00\x05", b"\x00\x01\xff\xff\xff\xff", b"\x00" * 6])
def test_an_assignment_that_is_none_gives_no_partitions(data: bytes) -> None:
    assert assignment_of(data) == ()
