"""Exactly-once writes on a real Kafka, with Spark's calls made by hand: what the in-process cluster cannot vouch for."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from drivers import open_transactions, read_by_librdkafka, write_behind
from exactly_once_rig import ROWS, DiedError, Spark, dealt, die_at, forget_processes, rows_of

from aiokprod.spark.exactly_once import protocol
from aiokprod.spark.exactly_once.errors import CheckpointRewoundError, FactsMissingError, NewerDriverError
from aiokprod.testing.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.real
ONCE = Counter(ROWS)
STEPS = ("before WriteDecision", "inside WriteDecision", "after WriteDecision", "after EndTxn", "after WriteDone")


def of(cluster: KafkaCluster, topic: str, **options: str) -> Spark:
    return Spark(cluster, {"topic": topic, "sinkId": topic, **options})


@pytest.mark.slow
def test_every_step_of_a_commit_may_be_the_last_of_its_driver(
    kafka_cluster: KafkaCluster, kafka_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = of(kafka_cluster, kafka_topic)
    rows = Counter(rows_of(0))
    spark.batch(0, dealt(rows_of(0), 3))
    for number, step in enumerate(STEPS, 1):
        with monkeypatch.context() as patch:
            writer = spark.writer()
            told = [spark.task(writer, number, at, part) for at, part in enumerate(dealt(rows_of(number), 3))]
            die_at(patch, step)
            with pytest.raises(DiedError):
                spark.commit(writer, told, number)
        forget_processes()
        replay = spark.batch(number, dealt(list(reversed(rows_of(number))), 2))
        assert all((each.rows == 0) == (number > 2) for each in replay), step
        rows += Counter(rows_of(number))
    with pytest.raises(CheckpointRewoundError):
        spark.batch(2, [ROWS])
    forget_processes()
    assert read_by_librdkafka(kafka_cluster.bootstrap_servers, kafka_topic) == rows


def test_of_two_drivers_the_newer_one_writes(kafka_cluster: KafkaCluster, kafka_topic: str) -> None:
    spark = of(kafka_cluster, kafka_topic)
    older = spark.writer()
    told = [spark.task(older, 0, at, part) for at, part in enumerate(dealt(ROWS, 2))]
    newer = spark.writer()
    with pytest.raises(NewerDriverError):
        spark.commit(older, told, 0)
    spark.abort(older, told, 0)
    again = [spark.task(newer, 0, at, part) for at, part in enumerate(dealt(ROWS, 3))]
    spark.task(older, 0, 1, ROWS, attempt=0)  # a zombie that begins late
    spark.commit(newer, again, 0)
    spark.batch(1, [rows_of(1)])
    forget_processes()
    assert read_by_librdkafka(kafka_cluster.bootstrap_servers, kafka_topic) == ONCE + Counter(rows_of(1))


@pytest.mark.slow
def test_facts_go_with_the_marker_topic_and_stay_where_it_grows(kafka_cluster: KafkaCluster, kafka_topic: str) -> None:
    markers = f"{kafka_topic}-markers"
    kafka_cluster.create_topic(markers, 3)
    spark = of(kafka_cluster, kafka_topic, markerTopic=markers)
    for number in range(2):
        spark.batch(number, dealt(rows_of(number), 4))
    kafka_cluster.delete_topic(markers)
    kafka_cluster.create_topic(markers, 1)
    with pytest.raises(FactsMissingError, match="nothing is recorded about this query"):
        spark.batch(2, [rows_of(2)])
    spark.options["onMissingFacts"] = "write"
    spark.batch(2, dealt(rows_of(2), 4))
    del spark.options["onMissingFacts"]
    kafka_cluster.add_partitions(markers, 5)
    for number in (2, 3):
        spark.batch(number, dealt(rows_of(number), 6))
    forget_processes()
    kafka_cluster.delete_topic(markers)
    written = Counter([row for number in range(4) for row in rows_of(number)])
    assert read_by_librdkafka(kafka_cluster.bootstrap_servers, kafka_topic) == written


@pytest.mark.slow
def test_a_job_that_fails_leaves_nothing_and_readers_go_on(kafka_cluster: KafkaCluster, kafka_topic: str) -> None:
    servers = kafka_cluster.bootstrap_servers
    spark = Spark(kafka_cluster, {"topic": kafka_topic, "txnAppId": kafka_topic, "txnVersion": "5"}, query=None)
    writer = spark.writer()
    sink = writer.options.exactly_once.sink
    told = [spark.task(writer, 0, 0, ROWS)]
    failing = Counter(rows_of(1))
    for attempt in range(4):
        # It raises when what it has sent is in the log.
        sent = Counter(dict.fromkeys(failing, attempt + 1))
        seen = partial(wait_sent, servers, kafka_topic, ONCE + sent)
        with pytest.raises(ValueError, match="end here"):
            spark.task(writer, 0, 1, rows_of(1), attempt=attempt, fails=True, behind_rows=seen)
    assert len(open_transactions(servers, f"{sink}.")) == 1  # of the task that has reported
    spark.abort(writer, [*told, None], 0)
    assert open_transactions(servers, f"{sink}.") == []
    assert read_by_librdkafka(servers, kafka_topic, committed=False).total() == 5 * len(ROWS)
    behind = write_behind(servers, kafka_topic)
    assert read_by_librdkafka(servers, kafka_topic) == behind  # readers wait for nothing
    for _ in range(2):
        spark.batch(0, dealt(ROWS, 3))
    forget_processes()
    assert read_by_librdkafka(servers, kafka_topic) == ONCE + behind


@pytest.mark.slow
def test_a_query_that_comes_back_when_its_markers_have_expired_and_its_decision_has_not_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol, "MARKERS_LAST_S", 60)  # below the retention, as six days are below a week
    with KafkaCluster(brokers=1, config=FORGETFUL) as cluster:
        topic = "t"
        cluster.create_topic(topic, 3)
        spark = of(cluster, topic)
        layout = dealt(ROWS, 3)
        writer = spark.writer()
        told = [spark.task(writer, 0, partition, rows) for partition, rows in enumerate(layout)]
        time.sleep(BETWEEN_S)
        with monkeypatch.context() as patch:
            die_at(patch, "after EndTxn", times=3)
            with pytest.raises(DiedError):
                spark.commit(writer, told, 0)
        forget_processes()
        servers = cluster.bootstrap_servers
        wait_for_facts(servers, "t.m0", 3)  # the coordinator of transactions answers an EndTxn before it writes markers
        wait_for_facts(servers, "t.m0", 0)
        assert facts_in(servers, "t.0") == 1, "the decision is there"
        for number in (0, 1):
            with pytest.raises(
                FactsMissingError, match="batch 0 was decided days ago, and the records of its parts may have"
            ):
                spark.batch(number, layout)
        forget_processes()
        assert read_by_librdkafka(servers, topic) == ONCE


BETWEEN_S = 40
"""Between the markers and the decision: time enough to find the one and not the other. The token's id must live as long, and
those of the tasks must be gone when the markers are."""
FORGETFUL = {
    "offsets.retention.minutes": "2",
    "offsets.retention.check.interval.ms": "500",
    "transactional.id.expiration.ms": "60000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}


def facts_in(servers: str, group: str) -> int:
    """Return the number of committed offsets of a group."""
    admin = AdminClient({"bootstrap.servers": servers})  # without this name it ends before its answer comes
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=30)
    return len(next(iter(found.values())).result().topic_partitions)


def wait_for_facts(servers: str, group: str, number: int) -> None:
    until = time.monotonic() + 240
    while facts_in(servers, group) != number:
        assert time.monotonic() < until
        time.sleep(0.5)


def wait_sent(servers: str, topic: str, rows: Counter[str]) -> None:
    until = time.monotonic() + 60
    while read_by_librdkafka(servers, topic, committed=False) != rows:
        assert time.monotonic() < until
        time.sleep(0.05)
