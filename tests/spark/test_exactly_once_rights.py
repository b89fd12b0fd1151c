"""Exactly-once writes on a real broker with an authorizer: the rights of docs/spark.md are enough; each is needed and is named.

Spark's calls are made by hand, but for one test. Each case is a user of its own, with all rights but one.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from drivers import Query, Rule, driver, expected, read_by_librdkafka, write_input
from exactly_once_rig import ROWS, TOPIC, Spark, dealt, forget_processes

from aiokprod.errors import AiokprodError
from aiokprod.spark.exactly_once.errors import NewerDriverError
from aiokprod.testing.kafka_cluster import ClusterSecurity, KafkaCluster
from aiokprod.testing.kafka_cluster.spec import HOST, INTERNAL
from aiokprod.transactions.admin import TransactionAdmin

pytestmark = [pytest.mark.real, pytest.mark.slow]
TIME_LIMIT_S = 1_800.0
SINK = "rights"
MARKERS = "markers"
FILES = 6  # two batches of three files
MANY = ["x" * 1000] * 3000  # more than a task gathers before it sends
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


class Right(NamedTuple):
    """Operations on a resource."""

    kind: ResourceType
    name: str
    operations: tuple[AclOperation, ...]


IDS = Right(ResourceType.TRANSACTIONAL_ID, SINK, (WRITE, DESCRIBE))
GROUPS = Right(ResourceType.GROUP, SINK, (READ,))
LEFT = "left"
STREAMS = {  # each with the step at which its driver is killed, or stays behind
    "rights-undecided": ("before WriteDecision", 2),
    "rights-decided": ("after EndTxn", 5),
    "rights-zombie": ("before WriteDecision", 2),
}
DATA = Right(ResourceType.TOPIC, TOPIC, (WRITE, DESCRIBE))
MARKER = Right(ResourceType.TOPIC, MARKERS, (READ,))
ALL = (IDS, GROUPS, DATA, MARKER)
# The right that is missing, what is there of it all the same, and how the error names it.
MISSING = {
    "ids": (IDS, (), "WRITE and DESCRIBE on transactional ids"),
    "ids-write": (IDS, (DESCRIBE,), "WRITE and DESCRIBE on transactional ids"),
    "groups": (GROUPS, (), "READ on groups"),
    "groups-read": (GROUPS, (DESCRIBE,), "READ on groups"),
    "data": (DATA, (), "WRITE and DESCRIBE on the topics"),
    "data-write": (DATA, (DESCRIBE,), "WRITE and DESCRIBE on the topics"),
    "markers": (MARKER, (), "READ on the marker topic"),
    "markers-read": (MARKER, (DESCRIBE,), "READ on the marker topic"),
}
# Operations that the page names, and that Kafka grants with another one of the same line.
IMPLIED = {"ids-describe": (IDS, (WRITE,)), "data-describe": (DATA, (WRITE,))}
USERS = (*MISSING, *IMPLIED, "everything")


def rules(user: str, right: Right, operations: tuple[AclOperation, ...]) -> list[AclBinding]:
    is_prefix = right.kind is not ResourceType.TOPIC
    pattern = ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL
    allow = AclPermissionType.ALLOW
    names = (TOPIC, LEFT, *STREAMS) if right is DATA else (right.name,)
    return [
        AclBinding(right.kind, name, pattern, f"User:{user}", "*", each, allow) for name in names for each in operations
    ]


def inside(cluster: KafkaCluster) -> str:
    """Return the address at which clients may do everything."""
    return f"{HOST}:{cluster.brokers[1].node.bound[INTERNAL]}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    security = ClusterSecurity(users={user: f"{user}-secret" for user in USERS}, mechanisms=("PLAIN",))
    with KafkaCluster(brokers=1, listeners=["SASL_PLAINTEXT"], security=security, config=config) as started:
        for topic in (TOPIC, LEFT, *STREAMS, MARKERS):
            started.create_topic(topic, 2)
        granted: list[AclBinding] = []
        for user in USERS:
            missing, rest, *_ = MISSING.get(user) or IMPLIED.get(user) or (None, ())
            granted += chain.from_iterable(
                rules(user, right, rest if right is missing else right.operations) for right in ALL
            )
        admin = AdminClient({"bootstrap.servers": inside(started)})
        for done in admin.create_acls(granted).values():
            done.result()
        del admin  # that is how its connections end: before the cluster does
        written(started, "everything")  # a broker hears of rights a little later, and of these at last
        yield started


def login(user: str) -> dict[str, str]:
    given = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": user}
    given |= {"kafka.sasl.password": f"{user}-secret", "kafka.allow.auto.create.topics": "false"}
    return given | {"markerTopic": MARKERS}


def spark(cluster: KafkaCluster, user: str, **options: str) -> Spark:
    return Spark(cluster, login(user) | {"sinkId": f"{SINK}-{user}"} | options)


def left_open(cluster: KafkaCluster, sink: str) -> list[str]:
    """Return the ids of the open transactions of a sink, as an operator sees them."""

    async def ask() -> list[str]:
        async with TransactionAdmin(inside(cluster)) as admin:
            return [each.transactional_id for each in await admin.transactional_ids(f"{sink}.", states=["Ongoing"])]

    return asyncio.run(ask())


def leave(cluster: KafkaCluster, sink: str) -> Spark:
    """Prepare the tasks of a batch, as a driver that is killed then."""
    running = spark(cluster, "everything", sinkId=sink, topic=LEFT)
    writer = running.writer()
    for at, rows in enumerate(dealt(ROWS, 2)):
        running.task(writer, 0, at, rows)
    forget_processes()
    assert len(left_open(cluster, sink)) == 2
    return running


def written(cluster: KafkaCluster, user: str) -> None:
    for attempt in range(100):
        try:
            spark(cluster, user).batch(0, dealt(ROWS, 2))
        except AiokprodError:
            if attempt == 99:
                raise
        else:
            break
    forget_processes()


def test_the_rights_of_the_page_are_enough(cluster: KafkaCluster) -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    table = dict(
        re.findall(r"^\| (transactional ids|groups|the topics|the marker topic)[^|]*\| ([A-Z, ]+) \|", page, re.M)
    )
    told = {name: tuple(AclOperation[each] for each in operations.split(", ")) for name, operations in table.items()}
    assert list(told.values()) == [right.operations for right in ALL]
    assert read_by_librdkafka(inside(cluster), TOPIC) == Counter(ROWS)


@pytest.mark.parametrize("user", MISSING)
def test_a_right_that_is_missing_is_named(cluster: KafkaCluster, user: str) -> None:
    name = MISSING[user][2]
    running = spark(cluster, user)
    with pytest.raises(AiokprodError, match=rf"Grant this principal .*{name}"):
        running.batch(0, dealt(ROWS, 2))
    forget_processes()
    assert read_by_librdkafka(inside(cluster), TOPIC) == Counter(ROWS)


@pytest.mark.parametrize("user", IMPLIED)
def test_describe_comes_with_write(cluster: KafkaCluster, user: str) -> None:
    before = read_by_librdkafka(inside(cluster), LEFT)
    leave(cluster, f"{SINK}-{user}")
    running = spark(cluster, user, topic=LEFT)
    running.batch(0, dealt(ROWS, 3))
    forget_processes()
    assert left_open(cluster, f"{SINK}-{user}") == []
    assert read_by_librdkafka(inside(cluster), LEFT) == before + Counter(ROWS)


@pytest.mark.parametrize("user", MISSING)
def test_a_right_that_is_missing_behind_a_killed_driver_is_named_and_then_what_it_left_is_ended(
    cluster: KafkaCluster, user: str
) -> None:
    before = read_by_librdkafka(inside(cluster), LEFT)
    sink = f"{SINK}-left-{user}"
    running = leave(cluster, sink)
    with pytest.raises(AiokprodError, match=rf"Grant this principal .*{MISSING[user][2]}"):
        spark(cluster, user, sinkId=sink, topic=LEFT).batch(0, dealt(ROWS, 2))
    forget_processes()
    running.batch(0, dealt(ROWS, 3))
    forget_processes()
    assert left_open(cluster, sink) == []
    assert read_by_librdkafka(inside(cluster), LEFT) == before + Counter(ROWS)


def test_with_the_rights_of_the_page_a_zombie_is_fenced(cluster: KafkaCluster) -> None:
    before = read_by_librdkafka(inside(cluster), LEFT)
    sink = f"{SINK}-fences"
    running = spark(cluster, "everything", sinkId=sink, topic=LEFT)
    older = running.writer()
    told = [running.task(older, 0, 0, ROWS)]
    newer: list[Any] = []

    def take_over() -> None:
        while len(left_open(cluster, sink)) < 2:  # the rows of the zombie are sent beside it
            time.sleep(0.05)
        newer.append(running.writer())
        assert left_open(cluster, sink) == []

    with pytest.raises(AiokprodError, match=r"INVALID_PRODUCER_EPOCH|fenced|TransactionAbortedError"):
        running.task(older, 0, 1, MANY, behind_rows=take_over)
    with pytest.raises(NewerDriverError):
        running.commit(older, told, 0)
    running.commit(newer[0], [running.task(newer[0], 0, 0, ROWS)], 0)
    forget_processes()
    assert read_by_librdkafka(inside(cluster), LEFT) == before + Counter(ROWS)


def test_with_the_rights_of_the_page_killed_drivers_of_spark_are_followed_and_zombies_fenced(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    servers = cluster.bootstrap_servers
    rows = write_input(tmp_path / "input", FILES)
    queries = [Query(name, rows, options=login("everything")) for name in STREAMS]
    again = {each.name: replace(each, tasks=2) for each in queries}
    rules: dict[str, list[Rule]] = {sink: [(*step, "hold")] for sink, step in STREAMS.items()}
    with driver(tmp_path / "first", servers, [queries], home=tmp_path, rules=rules) as first:
        first.go(0)
        first.wait_held(*STREAMS)
        zombie = again.pop("rights-zombie")
        with driver(tmp_path / "second", servers, [[zombie], list(again.values())], home=tmp_path) as second:
            second.go(0)
            second.wait_ended("rights-zombie")
            first.release("rights-zombie")
            first.wait_ended("rights-zombie")
            assert "NewerDriverError" in first.results["rights-zombie"]["error"]
            first.kill()
            for name in again:
                assert left_open(cluster, name), name
            second.go(1)
            second.wait_ended(*again)
            assert {result["error"] for result in second.results.values()} == {None}, second.results
    for name in STREAMS:
        assert left_open(cluster, name) == []
        assert read_by_librdkafka(inside(cluster), name) == expected(FILES)
