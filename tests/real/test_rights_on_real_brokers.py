"""A real broker with an authorizer: what a producer may not do is told at once, and is done when it may."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from delivery_check import DELIVERED, NOT, Told, judge, read_log
from sending import send_numbered

from aiokprod import Persistence, Producer, RecordMetadata
from aiokprod.errors import AiokprodError, ClusterAuthorizationError, ProducerFailedError, TopicAuthorizationError
from aiokprod.testing import KafkaCluster
from aiokprod.testing.checker import Outcome
from aiokprod.testing.kafka_cluster import ClusterSecurity
from aiokprod.testing.kafka_cluster.spec import HOST, INTERNAL, version_tuple

pytestmark = pytest.mark.real

PATIENCE_S = 60.0  # a broker hears of a change a little later
AT_ONCE_S = 10.0  # far below any timeout of the producer's, on a busy machine too
USERS = {"alice": "alice-secret", "bob": "bob-secret"}
ELSEWHERE = "elsewhere"  # alice may always write there: without such a topic there is no idempotence
WRITE, DESCRIBE = AclOperation.WRITE, AclOperation.DESCRIBE


class Rights:
    """The rights of users, to be given and taken away."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._admin = AdminClient({"bootstrap.servers": f"{HOST}:{cluster.brokers[1].node.bound[INTERNAL]}"})

    def close(self) -> None:
        del self._admin  # that is how its connections end: before the cluster does

    def grant(self, topic: str, *operations: AclOperation, user: str = "alice") -> None:
        for done in self._admin.create_acls([AclBinding(*rule(topic, each, user)) for each in operations]).values():
            done.result()

    def revoke(self, topic: str, operation: AclOperation, user: str = "alice") -> None:
        for done in self._admin.delete_acls([AclBindingFilter(*rule(topic, operation, user))]).values():
            assert len(done.result()) == 1


def rule(topic: str, operation: AclOperation, user: str) -> tuple[Any, ...]:
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return ResourceType.TOPIC, topic, literal, f"User:{user}", "*", operation, allow


@pytest.fixture(scope="module")
def cluster(kafka_version: str) -> Iterator[KafkaCluster]:
    with_zookeeper = version_tuple(kafka_version) < (3, 0)
    config = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"
        if with_zookeeper
        else "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # the brokers among themselves, and our admin client
    }
    security = ClusterSecurity(users=USERS, mechanisms=("PLAIN",))
    with KafkaCluster(
        brokers=1, version=kafka_version, listeners=["SASL_PLAINTEXT"], security=security, config=config
    ) as started:
        started.create_topic(ELSEWHERE)
        yield started


@pytest.fixture(scope="module")
def rights(cluster: KafkaCluster) -> Iterator[Rights]:
    found = Rights(cluster)
    found.grant(ELSEWHERE, WRITE)
    yield found
    found.close()


def producer_of(cluster: KafkaCluster, user: str = "alice", **options: Any) -> Producer:
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    login |= {"sasl_username": user, "sasl_password": USERS[user]}
    return Producer(cluster.bootstrap_servers, **login, **options)  # type: ignore[arg-type]


async def refused(producer: Producer, topic: str) -> TopicAuthorizationError:
    """Return the error of a record."""
    async with asyncio.timeout(AT_ONCE_S):
        with pytest.raises(TopicAuthorizationError) as raised:
            await producer.send(topic, b"-2 refused")
    assert raised.value.persistence is Persistence.NOT_PERSISTED
    assert raised.value.topic == topic
    return raised.value


async def taken(producer: Producer, topic: str) -> RecordMetadata:
    """Return the place of a record, sent until the broker knows that the user may write."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await producer.send(topic, b"-1 of no numbers")
        except TopicAuthorizationError:
            assert time.monotonic() < deadline, "never granted"
            await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "never came true"
        await asyncio.sleep(0.01)


def test_a_topic_without_the_right_to_see_it_fails_at_once_and_works_after_the_grant(
    cluster: KafkaCluster, rights: Rights, kafka_name: str
) -> None:  # faults: T4
    cluster.create_topic(kafka_name)

    async def scenario() -> None:
        async with producer_of(cluster) as producer:
            error = await refused(producer, kafka_name)
            assert error.partition is None
            with pytest.raises(AiokprodError, match="TOPIC_AUTHORIZATION_FAILED"):
                await producer.partitions_for(kafka_name)
            await taken(producer, ELSEWHERE)
            await asyncio.to_thread(rights.grant, kafka_name, WRITE)
            assert (await taken(producer, kafka_name)).offset == 0
            assert producer.health().buffered_bytes == 0

    asyncio.run(scenario())


def test_a_record_for_a_topic_without_the_right_to_write_fails_at_once_and_arrives_after_the_grant(
    cluster: KafkaCluster, rights: Rights, kafka_name: str
) -> None:  # faults: P15
    cluster.create_topic(kafka_name)
    rights.grant(kafka_name, DESCRIBE)

    async def scenario() -> None:
        async with producer_of(cluster) as producer:
            await taken(producer, ELSEWHERE)
            await producer.partitions_for(kafka_name)
            for _ in range(3):
                error = await refused(producer, kafka_name)
                assert (error.partition, error.attempts) == (0, 1), "asked once, and not again and again"
                assert "WRITE" in "".join(error.__notes__)
                await taken(producer, ELSEWHERE)
            await asyncio.to_thread(rights.grant, kafka_name, WRITE)
            assert (await taken(producer, kafka_name)).offset == 0
            assert (await taken(producer, kafka_name)).offset == 1
            assert producer.metrics()["epoch_bumps"] == 0, (
                "a refused batch is certainly not there: its numbers are used again"
            )

    asyncio.run(scenario())


def test_a_right_that_is_taken_away_under_load_fails_the_records_of_its_topic_alone(
    cluster: KafkaCluster, rights: Rights, kafka_name: str
) -> None:  # faults: S20, P15
    cluster.create_topic(kafka_name)
    rights.grant(kafka_name, WRITE)
    told: dict[str, list[Told]] = {kafka_name: [], ELSEWHERE: []}
    first = cluster.end_offsets(ELSEWHERE)[0]

    def outcomes(topic: str, since: int) -> set[Outcome | None]:
        return {record.outcome for record in told[topic][since:]} - {None}

    async def scenario() -> None:
        async with producer_of(cluster, linger_ms=0, batch_size=1_000) as producer:
            await producer.partitions_for(kafka_name)

            async def keep_sending() -> None:
                while True:
                    for topic, of in told.items():
                        for _ in range(5):
                            of.append(Told(0, len(of)))
                            send_numbered(producer, topic, of[-1])
                    await asyncio.sleep(0.005)
                    await producer.ready()

            sender = asyncio.create_task(keep_sending())
            await until(lambda: DELIVERED in outcomes(kafka_name, 0))
            await asyncio.to_thread(rights.revoke, kafka_name, WRITE)
            await until(lambda: NOT in outcomes(kafka_name, 0))
            await asyncio.to_thread(rights.grant, kafka_name, WRITE)
            granted = len(told[kafka_name])
            await until(lambda: DELIVERED in outcomes(kafka_name, granted))
            assert not sender.done()
            sender.cancel()
            await producer.flush()
            assert producer.metrics()["epoch_bumps"] == 0

    asyncio.run(scenario())
    for topic, of in told.items():
        log = read_log_as_admin(cluster, topic)[0]
        assert judge(of, {0: log[first:] if topic == ELSEWHERE else log}) == []
    assert {record.outcome for record in told[ELSEWHERE]} == {DELIVERED}
    assert {record.outcome for record in told[kafka_name]} == {DELIVERED, NOT}


def read_log_as_admin(cluster: KafkaCluster, topic: str) -> dict[int, list[tuple[int, int]]]:
    servers = f"{HOST}:{cluster.brokers[1].node.bound[INTERNAL]}"
    return read_log(servers, topic, cluster.end_offsets(topic))


def test_a_user_without_rights_is_told_so_at_once_and_writes_without_idempotence_when_that_is_granted(
    cluster: KafkaCluster, rights: Rights, kafka_name: str
) -> None:  # faults: P16
    cluster.create_topic(kafka_name)
    rights.grant(kafka_name, DESCRIBE, user="bob")

    async def scenario() -> None:
        async with producer_of(cluster, "bob") as producer:
            async with asyncio.timeout(AT_ONCE_S):
                with pytest.raises(ProducerFailedError) as raised:
                    await producer.send(kafka_name, b"v")
            cause = raised.value.__cause__
            assert isinstance(cause, ClusterAuthorizationError)
            assert "WRITE on the topic" in "".join(cause.__notes__)
            assert raised.value.persistence is Persistence.NOT_PERSISTED
            await producer.close()
            await asyncio.to_thread(rights.grant, kafka_name, WRITE, user="bob")
            await until_written(cluster, kafka_name)

    asyncio.run(scenario())


async def until_written(cluster: KafkaCluster, topic: str) -> None:
    """Start producers until one may write."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        async with producer_of(cluster, "bob") as producer:
            try:
                assert (await producer.send(topic, b"v")).offset == 0
                return
            except (ProducerFailedError, TopicAuthorizationError):
                assert time.monotonic() < deadline, "never granted"
