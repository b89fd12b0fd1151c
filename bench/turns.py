"""A client's turn: a process and a topic of its own; the acknowledgements are compared with the log."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import IO

from brokers import HERE, broker_cpu_s, client_core, proxy_cpu_s
from compiled import environment_of
from items import TRANSACTIONAL_ID, Entry, Item
from job import Job, Measured

from aiokprod.testing import KafkaCluster

LIMIT_S = 600.0
LEADERS_S = 30.0  # time within which a new topic has a leader


class Turns:
    """The turns of the clients; one object per run.

    Args:
        compiled: the interpreter with the compiled form.
    """

    def __init__(self, compiled: str) -> None:
        self.python = {"compiled": compiled, "pure": sys.executable, "": sys.executable}
        self._topics = 0
        self._kept: set[str] = set()  # topics created once for many turns

    def take(self, cluster: KafkaCluster, item: Item, entry: Entry, scale: float) -> Measured:
        """Run one client once."""
        job = self._job(cluster, item, entry, scale)
        before = self._written(cluster, item, job)
        child = [self.python[entry.form], str(HERE / "child.py"), job.to_json()]
        with subprocess.Popen(
            child, stdout=subprocess.PIPE, text=True, cwd=HERE, env=environment_of(entry.form or "pure")
        ) as running:
            assert running.stdout is not None
            expect(running.stdout, "begin")
            broker_s, proxy_s = broker_cpu_s(cluster), proxy_cpu_s(cluster)
            expect(running.stdout, "end")
            broker_s, proxy_s = broker_cpu_s(cluster) - broker_s, proxy_cpu_s(cluster) - proxy_s
            line = running.stdout.readline()
            if running.wait(LIMIT_S) != 0:
                raise SystemExit(f"{entry.name} failed")
        told = json.loads(line)
        measured = Measured(**told["measured"])
        measured.broker_cpu_s, measured.proxy_cpu_s = broker_s, proxy_s
        written = self._written(cluster, item, job) - before
        sent = measured.records + told["before"] + 1
        most = sent + markers_of(job, item)
        assert sent <= written <= most, f"{entry.name}: {sent} were acknowledged, the log has {written}"
        if not is_kept(item):
            cluster.delete_topic(job.topic)
        return measured

    def _job(self, cluster: KafkaCluster, item: Item, entry: Entry, scale: float) -> Job:
        self._topics += 1
        topics = item.common.get("topics", 1)
        kept = f"bench-{item.brokers}-brokers-{item.partitions}-partitions-{topics}-topics"
        name = kept if is_kept(item) else f"bench-{self._topics}"
        job = Job(
            client=entry.client,
            way=entry.way,
            servers=cluster.bootstrap_servers,
            topic=name,
            count=max(100, int(entry.count * scale)),
            core=client_core(),
            settings={name: own_id(value, self._topics) for name, value in entry.settings.items()},
            **(dict(item.common) | dict(entry.own)),
        )
        if name in self._kept:
            return job
        if name == kept:
            self._kept.add(name)
        if topics == 1:
            cluster.create_topic(name, partitions=item.partitions, replication_factor=1)
        else:
            create_together(cluster, job.topic_list())
        return job

    def _written(self, cluster: KafkaCluster, item: Item, job: Job) -> int:
        """Return the number of records in the topics of the job."""
        if is_kept(item):
            return ends_together(
                cluster, [(name, number) for name in job.topic_list() for number in range(item.partitions)]
            )
        return sum(cluster.end_offsets(job.topic))


def own_id(value: object, turn: int) -> object:
    """Return the setting; a transactional id becomes one of this turn, which takes over no other."""
    return f"{TRANSACTIONAL_ID}-{turn}" if value == TRANSACTIONAL_ID else value


def markers_of(job: Job, item: Item) -> int:
    """Return how many markers of transactions the log may have at most: one for each partition of each transaction."""
    if job.per_transaction:
        return (1 + len([*job.transaction_sizes()])) * item.partitions
    return job.count if job.transaction_ms else 0


def is_kept(item: Item) -> bool:
    """Create many partitions, once for all turns: creating them takes longer than a turn."""
    return int(item.common.get("topics", 1)) > 1 or item.partitions >= 100


def create_together(cluster: KafkaCluster, names: list[str]) -> None:
    """Create many topics of one partition, in one request."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in names], operation_timeout=60).values():
        made.result()


def ends_together(cluster: KafkaCluster, partitions: list[tuple[str, int]]) -> int:
    """Return the number of records in many partitions; ask again while new ones have no leader yet."""
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 5})  # 6 would log its end
    give_up_at = time.monotonic() + LEADERS_S
    while True:
        asked = admin.list_offsets({TopicPartition(*partition): OffsetSpec.latest() for partition in partitions})
        try:
            return sum(int(answer.result().offset) for answer in asked.values())
        except KafkaException:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.2)


def expect(lines: IO[str], word: str) -> None:
    for line in lines:
        if line.strip() == word:
            return
    raise SystemExit(f"the client ended before it said {word!r}")
