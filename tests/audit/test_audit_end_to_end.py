"""The whole loop on Apache Kafka: a producer claims while a broker dies, the log is read back, the verdict is the truth."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiokprod import Producer, audit
from aiokprod.audit import Finding
from aiokprod.audit.command import main
from aiokprod.claims import HEADER, Claims, Status, encode_identity
from aiokprod.claims.readback import read_back
from aiokprod.claims.writer import ClaimsWriter
from aiokprod.logs import StateLog
from aiokprod.testing.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS, RUN, STREAM = 20_000, 4_711, 3
PLANTED_STREAM = 8

pytestmark = [pytest.mark.slow, pytest.mark.real]


def topic_frame(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    return source.option("includeHeaders", "true").load()


async def send_while_a_broker_dies(cluster: KafkaCluster, topic: str, claims: Claims) -> None:
    """Send a third of the records, kill a broker, send a third, restart the broker, send a third."""
    victim = cluster.leaders(topic)[0]
    async with Producer(cluster.bootstrap_servers, interceptors=[claims], request_timeout_ms=5_000) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"value %d" % number, key=b"key %d" % (number % 100))
            if number % 500 == 0:
                await producer.ready()
                await asyncio.sleep(0)
            if number == RECORDS // 3:
                await asyncio.to_thread(cluster.broker(victim).kill)
            elif number == 2 * RECORDS // 3:
                await asyncio.to_thread(cluster.broker(victim).start)
        await producer.flush()


async def plant(cluster: KafkaCluster, topic: str) -> None:
    """Send, without claims, a duplicate, a phantom, and two records in the wrong order."""

    def header(stream: int, seq: int) -> list[tuple[str, bytes | None]]:
        return [(HEADER, encode_identity(RUN, stream, seq))]

    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send(topic, b"again", key=b"key 7", headers=header(STREAM, 7))
        await producer.send(topic, b"never sent", key=b"key 7", headers=header(STREAM, 999_999))
        for seq in (1, 0):
            await producer.send(topic, b"swapped", key=b"key 7", headers=header(PLANTED_STREAM, seq))
        await producer.send(topic, b"of another program")


def plant_claims(folder: Path, topic: str) -> None:
    """Claim the two swapped records, and one that is in no log."""
    writer = ClaimsWriter(folder, RUN, PLANTED_STREAM, StateLog("planted"), rows_per_file=10, most_rows=10, flush_s=1.0)
    writer.begin()
    for seq in (0, 1, 2):
        writer.add(seq, -2, topic, -1, -1, Status.ACKED, 1, 2)
    writer.end()
    assert writer.wait(30)


def test_a_killed_broker_loses_nothing_and_planted_trouble_is_found_exactly(
    spark_with_kafka: SparkSession, kafka_cluster: KafkaCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, folder = f"audit-{uuid.uuid4().hex[:8]}", tmp_path / "claims"
    kafka_cluster.create_topic(topic, partitions=3, config={"message.timestamp.type": "LogAppendTime"})
    claims = Claims(folder, run=RUN, stream=STREAM)
    asyncio.run(send_while_a_broker_dies(kafka_cluster, topic, claims))
    assert claims.wait(30)
    assert claims.report().rows == RECORDS

    verdict = audit.run(spark_with_kafka, folder, topic_frame(spark_with_kafka, kafka_cluster.bootstrap_servers, topic))
    assert verdict.exit_status == 0, verdict.line
    assert (verdict.claims, verdict.log_records, verdict.statuses) == (RECORDS, RECORDS, {"acked": RECORDS})
    assert sum(sum(each.buckets.values()) for each in verdict.latencies if each.kind == "append") == RECORDS
    assert verdict.quantiles("ack")["p50"] > 0

    asyncio.run(plant(kafka_cluster, topic))
    plant_claims(folder, topic)
    verdict = audit.run(spark_with_kafka, folder, topic_frame(spark_with_kafka, kafka_cluster.bootstrap_servers, topic))
    assert {finding: verdict.identities(finding) for finding in verdict.counts} == {
        Finding.LOST: [(RUN, PLANTED_STREAM, 2)],
        Finding.DUPLICATE: [(RUN, STREAM, 7)],
        Finding.PHANTOM: [(RUN, STREAM, 999_999)],
    }
    # The repeat stands behind all the others of its key and is not late; the phantom has the greatest seq of all.
    assert [(late.stream, late.seq, late.depth) for late in verdict.named_late] == [(PLANTED_STREAM, 0, 1)]
    assert verdict.not_ours == 1

    dump, out = tmp_path / "dump", tmp_path / "out"
    count = asyncio.run(read_back(kafka_cluster.bootstrap_servers, [topic], dump))
    assert count == RECORDS + 5
    by_dump = audit.run(spark_with_kafka, folder, dump)
    assert (by_dump.counts, by_dump.late) == (verdict.counts, verdict.late)
    status = main([str(folder), "--bootstrap", kafka_cluster.bootstrap_servers, "--topic", topic, "--out", str(out)])
    assert status == 1
    assert "lost 1, duplicate 1, phantom 1, reordered 1" in capsys.readouterr().out
    assert json.loads((out / "summary.json").read_text())["findings"]["lost"]["ids"] == [[RUN, PLANTED_STREAM, 2]]
    assert "<svg" in (out / "index.html").read_text()

    arguments = [str(folder), "--bootstrap", kafka_cluster.bootstrap_servers, "--topic", topic, "--kafka-source"]
    assert main(arguments) == 1
    assert "lost 1, duplicate 1, phantom 1, reordered 1" in capsys.readouterr().out
