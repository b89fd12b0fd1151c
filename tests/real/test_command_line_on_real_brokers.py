"""The command line on a real Apache Kafka: records there and back, topics, and broken set-ups that `doctor` explains."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, TopicPartition
from fake_registry import FakeRegistry

from aiokprod import Producer
from aiokprod.cli.commands import group
from aiokprod.integrations.schema_registry import SchemaRegistry, key_serializer, value_serializer
from aiokprod.testing import KafkaCluster
from aiokprod.testing.kafka_cluster import ClusterSecurity
from aiokprod.testing.kafka_cluster.spec import CONTROLLER

pytestmark = [pytest.mark.real, pytest.mark.slow]

PASSWORD = "the-password-of-alice"
COMMANDS = group("0", "version")


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # alice has no right at all
        "auto.create.topics.enable": "false",
    }
    security = ClusterSecurity(users={"alice": PASSWORD}, mechanisms=("SCRAM-SHA-256",))
    listeners = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL")
    with KafkaCluster(brokers=1, listeners=listeners, security=security, config=config) as started:
        started.create_topic("orders", partitions=2)
        yield started


def run(cluster: KafkaCluster, *arguments: str, listener: str = "PLAINTEXT", input: str | None = None) -> Result:
    servers = () if "-b" in arguments else ("-b", cluster.bootstrap_for(listener))
    environment = {"AIOKPROD_BOOTSTRAP_SERVERS": "", "KAFKA_PORT": ""}
    done = CliRunner().invoke(COMMANDS, [*arguments, *servers], input=input, env=environment, prog_name="aiokprod")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert PASSWORD not in done.output
    return done


def ok(cluster: KafkaCluster, *arguments: str, **more: Any) -> str:
    done = run(cluster, *arguments, **more)
    assert done.exit_code == 0, done.output
    return done.stdout


def sasl(mechanism: str = "SCRAM-SHA-256", password: str = PASSWORD) -> tuple[str, ...]:
    pairs = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }
    return tuple(word for name, value in pairs.items() for word in ("-X", f"{name}={value}"))


def test_records_go_there_and_back_and_are_copied(cluster: KafkaCluster) -> None:
    cluster.create_topic("from", partitions=2)
    cluster.create_topic("to", partitions=2)
    lines = "".join(f"k{number}:v{number}\n" for number in range(200))
    ok(cluster, "produce", "from", "-K", ":", "-H", "h=1", input=lines)
    written = ok(cluster, "read", "from", "--json")
    assert len(written.splitlines()) == 200
    ok(cluster, "produce", "to", "--json", input=written)

    def records(topic: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in ok(cluster, "read", topic, "--json").splitlines()]
        return [each | {"topic": ""} for each in found]

    assert records("to") == records("from")
    assert ok(cluster, "tail", "to", "--from", "-1", "-n", "2", "-k").count("\t") == 2
    assert ok(cluster, "read", "to", "--from", "1d", "--grep", "v199") == "v199\n"


def test_values_of_a_schema_registry_are_written_and_shown(cluster: KafkaCluster) -> None:
    cluster.create_topic("registered", partitions=1)
    schema = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}'

    async def send(registry: SchemaRegistry, place: Any) -> None:
        options: dict[str, Any] = {
            "key_serializer": key_serializer(registry, '"string"', schema_id=place),
            "value_serializer": value_serializer(registry, schema, schema_id=place),
        }
        async with Producer(cluster.bootstrap_for("PLAINTEXT"), **options) as producer:
            await producer.send("registered", {"id": "a7"}, key="k")

    with FakeRegistry() as fake:
        for place in ("prefix", "header"):
            asyncio.run(send(SchemaRegistry(fake.url), place))
        shown = ok(cluster, "read", "registered", "--key", "--registry", fake.url)
    assert shown == '"k"\t{"id": "a7"}\n' * 2


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_listed_and_described_with_its_lag(cluster: KafkaCluster, protocol: str) -> None:
    topic = f"read-by-{protocol}"
    cluster.create_topic(topic, partitions=2)
    ok(cluster, "produce", topic, "--partition", "1", input="a\nb\nc\n")
    options = {
        "bootstrap.servers": cluster.bootstrap_for("PLAINTEXT"), "group.id": topic, "client.id": "till",
        "group.protocol": protocol, "enable.auto.commit": False, "auto.offset.reset": "earliest",
    }  # fmt: skip
    consumer: Any = Consumer(options)
    consumer.subscribe([topic])
    try:
        assert consumer.consume(1, 60.0)
        consumer.commit(offsets=[TopicPartition(topic, 1, 1)], asynchronous=False)
        listed = [json.loads(line) for line in ok(cluster, "groups", "list", "--json").splitlines()]
        found = json.loads(ok(cluster, "groups", "describe", topic, "--json"))
    finally:
        consumer.close()
    assert [(each["type"], each["state"]) for each in listed if each["group"] == topic] == [(protocol, "Stable")]
    [member] = found["members"]
    assert (found["type"], found["lag"], member["client"], member["host"]) == (protocol, 2, "till", "127.0.0.1")
    assert found["partitions"] == [
        {"topic": topic, "partition": 0, "offset": None, "end": 0, "lag": None, "member": member["member"]},
        {"topic": topic, "partition": 1, "offset": 1, "end": 3, "lag": 2, "member": member["member"]},
    ]
    assert "0 members, lag 2" in ok(cluster, "groups", "describe", topic)
    missing = run(cluster, "groups", "describe", f"{topic}s")
    assert missing.exit_code == 2 and f"Did you mean '{topic}'?" in missing.stderr


def test_a_topic_is_altered(cluster: KafkaCluster) -> None:
    cluster.create_topic("altered", partitions=2)
    alter = ("topics", "alter", "altered", "--partitions", "4", "-o", "retention.ms=60000")
    said = run(cluster, *alter)
    assert said.exit_code == 2 and "keys move" in said.stderr and "add --yes" in said.stderr
    wrong = run(cluster, "topics", "alter", "altered", "--partitions", "4", "-o", "retention.ms=long", "--yes")
    assert wrong.exit_code == 2 and "INVALID_CONFIG" in wrong.stderr

    def described() -> tuple[int, dict[str, str]]:
        found = json.loads(ok(cluster, "topics", "describe", "altered", "--json"))
        return len(found["partitions"]), found["options"]

    assert described() == (2, {})
    ok(cluster, *alter, "--yes")
    assert described() == (4, {"retention.ms": "60000"})
    ok(cluster, "topics", "alter", "altered", "--unset", "retention.ms", "--yes")
    assert described() == (4, {})


def test_a_format_prints_records(cluster: KafkaCluster) -> None:
    cluster.create_topic("formatted", partitions=1)
    ok(cluster, "produce", "formatted", "-K", ":", "-H", "h=1", input="k:one\nk:two\n")
    shown = ok(cluster, "read", "formatted", "-f", r"%t-%p@%o %k=%s (%K, %S) %h\n")
    assert shown == "formatted-0@0 k=one (1, 3) h=1\nformatted-0@1 k=two (1, 3) h=1\n"


def test_a_topic_is_made_described_and_deleted(cluster: KafkaCluster) -> None:
    said = run(cluster, "topics", "create", "made", "--partitions", "3")
    assert said.exit_code == 2 and "add --yes" in said.stderr
    ok(cluster, "topics", "create", "made", "--partitions", "3", "-o", "retention.ms=60000", "--yes")
    again = run(cluster, "topics", "create", "made", "--yes")
    assert again.exit_code == 2 and "TOPIC_ALREADY_EXISTS" in again.stderr
    assert "retention.ms  60000" in ok(cluster, "topics", "describe", "made")
    ok(cluster, "topics", "delete", "made", "--yes")
    assert "made" not in ok(cluster, "topics", "list")


def test_ping_verify_and_perf(cluster: KafkaCluster) -> None:
    assert json.loads(ok(cluster, "ping", "--json"))["error"] is None
    assert json.loads(ok(cluster, "verify", "-n", "5000", "--json"))["lost"] == 0
    found = [json.loads(line) for line in ok(cluster, "perf", "-n", "5000", "--rate", "20000", "--json").splitlines()]
    assert [(each["client"], each["acknowledged"]) for each in found] == [("aiokprod", 5000), ("confluent-kafka", 5000)]
    assert "aiokprod-" not in ok(cluster, "topics", "list")


def doctor(cluster: KafkaCluster, *arguments: str, listener: str = "PLAINTEXT") -> dict[str, str]:
    done = run(cluster, "doctor", *arguments, "--json", "--timeout", "10", listener=listener)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == any(each["state"] == "wrong" for each in found)
    return {each["finding"]: each["change"] for each in found if each["change"]}


def test_nothing_is_wrong_with_a_good_set_up(cluster: KafkaCluster) -> None:
    assert doctor(cluster, "orders", "--send") == {}
    pairs = ("-X", "security.protocol=SSL", "-X", f"ssl.ca.location={cluster.tls.authority}")
    assert doctor(cluster, "orders", *pairs, listener="SSL") == {}


def test_the_listener_is_another_one(cluster: KafkaCluster) -> None:
    assert doctor(cluster, listener="SSL") == {"tls-expected": "security.protocol=SSL"}
    assert list(doctor(cluster, "-X", "security.protocol=SSL")) == ["plaintext-expected"]
    assert list(doctor(cluster, "-X", "security.protocol=SSL", listener="SSL")) == ["tls-authority"]
    wanted = doctor(cluster, listener="SASL_PLAINTEXT")
    assert wanted["sasl-wanted"].startswith("security.protocol=SASL_PLAINTEXT")
    assert list(doctor(cluster, *sasl())) == ["sasl-not-spoken"]


def test_the_credentials_are_wrong(cluster: KafkaCluster) -> None:
    mechanism = doctor(cluster, *sasl("PLAIN"), listener="SASL_PLAINTEXT")
    assert mechanism == {"sasl-mechanism": "sasl.mechanism=SCRAM-SHA-256"}
    assert list(doctor(cluster, *sasl(password="another"), listener="SASL_PLAINTEXT")) == ["sasl-password"]


def test_the_principal_has_no_rights(cluster: KafkaCluster) -> None:
    found = doctor(cluster, "orders", *sasl(), listener="SASL_PLAINTEXT")
    assert set(found) == {"acl", "acl-idempotent"}
    assert "--allow-principal User:alice" in found["acl"] and "--topic orders" in found["acl"]


def test_the_topic_does_not_fit(cluster: KafkaCluster) -> None:
    cluster.create_topic("strict", partitions=1, config={"min.insync.replicas": "2", "max.message.bytes": "100000"})
    found = doctor(cluster, "strict", "missing")
    assert set(found) == {"min-insync", "message-size", "topic-missing"}
    assert found["message-size"].startswith("max.request.size=100000  (or: aiokprod topics alter strict -o")


def test_the_port_is_one_of_a_controller(cluster: KafkaCluster) -> None:
    port = cluster.brokers[1].node.bound[CONTROLLER]
    assert list(doctor(cluster, "-b", f"127.0.0.1:{port}")) == ["no-broker"]


def test_a_port_where_nothing_listens(cluster: KafkaCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    assert list(doctor(cluster, "-b", f"127.0.0.1:{port}")) == ["refused"]
