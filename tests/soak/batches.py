"""The batches of a partition as the log has them: producer id, epoch and sequence show why a record is twice there.

Once as the leader hands them out (`.batches`), and once as Kafka's own tool reads the files of each replica (`.dump`).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from evidence import Complaint

from aiokprod.records.decoder import DecodedBatch, decode_batches
from aiokprod.testing import KafkaCluster
from aiokprod.testing.kafka_cluster.blocking import BlockingConnection
from aiokprod.testing.kafka_cluster.jars import find_java, kafka_classpath
from aiokprod.testing.kafka_cluster.processes import ProcessBroker
from aiokprod.testing.kafka_cluster.spec import HOST, INTERNAL
from aiokprod.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

FETCH_BYTES = 8 * 1024 * 1024
MOST_PARTITIONS = 6
DUMP_TOOL = "org.apache.kafka.tools.DumpLogSegments"
DUMP_S = 60.0


def keep_batches(cluster: KafkaCluster, folder: Path, complaints: list[Complaint]) -> None:
    """Write a file for each of the first partitions that a complaint names."""
    places = dict.fromkeys(each.place for each in complaints if each.place is not None)
    for topic, partition in list(places)[:MOST_PARTITIONS]:
        for node, broker in cluster.brokers.items():
            if isinstance(broker, ProcessBroker):
                dumped = dump_of(cluster.version, broker.process.log_file.parent / "data" / f"{topic}-{partition}")
                (folder / f"{topic}-{partition}-on-{node}.dump").write_text(dumped, encoding="utf-8")
        lines = [line_of(batch) for batch in batches_of(cluster, topic, partition)]
        (folder / f"{topic}-{partition}.batches").write_text("\n".join([*lines, ""]), encoding="utf-8")


def dump_of(version: str, directory: Path) -> str:
    """Return what `kafka-dump-log` prints of the segments of a replica."""
    segments = ",".join(str(path) for path in sorted(directory.glob("*.log")))
    if not segments:
        return f"no segments in {directory.name}\n"
    command = [find_java(), "-Xmx128m", "-cp", kafka_classpath(version), DUMP_TOOL, "--files", segments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DUMP_S, check=False)
    return done.stdout + done.stderr


def line_of(batch: DecodedBatch) -> str:
    """Return everything but the records as a line."""
    return (
        f"offsets {batch.base_offset}-{batch.base_offset + batch.last_offset_delta} leader-epoch {batch.leader_epoch} "
        f"producer {batch.producer_id} epoch {batch.producer_epoch} base-sequence {batch.base_sequence} "
        f"count {batch.count} bytes {batch.size_bytes} codec {batch.codec} timestamp {batch.max_timestamp_ms}"
    )


def batches_of(cluster: KafkaCluster, topic: str, partition: int) -> Iterator[DecodedBatch]:
    """Yield the batches of a partition in order, fetched from its leader."""
    end = cluster.end_offsets(topic)[partition]
    leader = cluster.broker(cluster.leaders(topic)[partition])
    connection = BlockingConnection(HOST, leader.node.bound[INTERNAL], 30.0)
    try:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        topic_id = connection.request(asked, MetadataResponse).topics[0].topic_id
        at = 0
        while at < end:
            wanted = FetchPartition(partition=partition, fetch_offset=at, partition_max_bytes=FETCH_BYTES)
            request = FetchRequest(
                max_wait_ms=500,
                max_bytes=FETCH_BYTES,
                topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])],
            )
            before = at
            for batch in decode_batches(
                connection.request(request, FetchResponse).responses[0].partitions[0].records or b""
            ):
                at = batch.base_offset + batch.last_offset_delta + 1
                yield batch
            if at == before:
                return  # its beginning was deleted, or it has another leader: what there is has been told
    finally:
        connection.close()
