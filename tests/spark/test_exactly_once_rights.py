"""Exactly-once writes on a real broker with an authorizer: the rights of docs/spark.md are enough; each is needed and is named.

Spark's calls are made by hand. Each case is a user of its own, with all rights but one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from drivers import read_by_librdkafka
from exactly_once_rig import ROWS, TOPIC, Spark, dealt, forget_processes

from aiokprod.errors import AiokprodError
from aiokprod.testing.kafka_cluster import ClusterSecurity, KafkaCluster
from aiokprod.testing.kafka_cluster.spec import HOST, INTERNAL

pytestmark = [pytest.mark.real, pytest.mark.slow]
SINK = "rights"
MARKERS = "markers"
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


class Right(NamedTuple):
    """Operations on a resource."""

    kind: ResourceType
    name: str
    operations: tuple[AclOperation, ...]


IDS = Right(ResourceType.TRANSACTIONAL_ID, SINK, (WRITE, DESCRIBE))
GROUPS = Right(ResourceType.GROUP, SINK, (READ,))
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
USERS = (*MISSING, "everything")


def rules(user: str, right: Right, operations: tuple[AclOperation, ...]) -> list[AclBinding]:
    is_prefix = right.kind is not ResourceType.TOPIC
    pattern = ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL
    allow = AclPermissionType.ALLOW
    return [AclBinding(right.kind, right.name, pattern, f"User:{user}", "*", each, allow) for each in operations]


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
        for topic in (TOPIC, MARKERS):
            started.create_topic(topic, 2)
        granted: list[AclBinding] = []
        for user in USERS:
            missing, rest, _ = MISSING.get(user, (None, (), ""))
            granted += chain.from_iterable(
                rules(user, right, rest if right is missing else right.operations) for right in ALL
            )
        admin = AdminClient({"bootstrap.servers": inside(started)})
        for done in admin.create_acls(granted).values():
            done.result()
        del admin  # that is how its connections end: before the cluster does
        written(started, "everything")  # a broker hears of rights a little later, and of these at last
        yield started


def spark(cluster: KafkaCluster, user: str) -> Spark:
    login = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": user}
    login |= {"kafka.sasl.password": f"{user}-secret", "kafka.allow.auto.create.topics": "false"}
    return Spark(cluster, login | {"sinkId": f"{SINK}-{user}", "markerTopic": MARKERS})


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
