"""Client telemetry (KIP-714) as a real broker receives it: `broker_plugins/TelemetryToFile.java` writes down each push."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from otlp_reader import Read, read_metrics

from aiokprod import Producer
from aiokprod.telemetry import pusher
from aiokprod.testing import KafkaCluster
from aiokprod.testing.kafka_cluster.jars import kafka_classpath

pytestmark = [pytest.mark.real, pytest.mark.slow]

PLUGIN = Path(__file__).parent / "broker_plugins" / "TelemetryToFile.java"
PATIENCE_S = 120.0
INTERVAL_S = 0.2
KAFKA, OURS = "org.apache.kafka.producer.", "aiokprod.producer."


@dataclass(frozen=True)
class Push:
    """A push as the plugin of the broker was given it."""

    client_id: str
    instance_id: str
    is_last: bool
    content_type: str
    attributes: dict[str, str]
    metrics: dict[str, Read]

    @classmethod
    def of(cls, line: str) -> Push:
        client_id, instance_id, is_last, content_type, data = line.split(" ")
        return cls(client_id, instance_id, is_last == "true", content_type, *read_metrics(base64.b64decode(data)))


class Receiver:
    """A cluster whose brokers receive telemetry."""

    def __init__(self, cluster: KafkaCluster, file: Path) -> None:
        self.cluster = cluster
        self._file = file

    def pushes(self, client_id: str) -> list[Push]:
        """Return the pushes of a client, oldest first."""
        lines = self._file.read_text().splitlines(keepends=True) if self._file.exists() else []
        found = [Push.of(line.rstrip()) for line in lines if line.endswith("\n")]
        return [push for push in found if push.client_id == client_id]


class Subscription:
    """A subscription for the producers of one test."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._name = f"subscription-{uuid4().hex[:12]}"

    def ask(self, *names: str) -> None:
        """Ask for metrics whose names begin so."""
        match = f"client_software_name=aiokprod,client_id={self._name}.*"
        self._alter({"metrics": ",".join(names), "interval.ms": str(int(INTERVAL_S * 1_000)), "match": match})

    def take_back(self) -> None:
        """Ask for nothing."""
        self._alter({"metrics": None, "interval.ms": None, "match": None})

    def _alter(self, config: dict[str, str | None]) -> None:
        self._receiver.cluster.admin.alter_client_metrics(self._name, config)

    @asynccontextmanager
    async def producer(self, **options: Any) -> AsyncIterator[Producer]:
        """Yield a producer that pushes, and has sent one record: before its first one it has no connection to push over.

        One that came before the broker knew what to ask for would only ask again later.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert time.monotonic() < deadline, "the broker never asks for anything"
            servers, client_id = self._receiver.cluster.bootstrap_servers, f"{self._name}-{uuid4().hex[:12]}"
            async with Producer(servers, client_id=client_id, **options) as producer:
                if "transactional_id" in options:
                    async with producer.transaction():
                        await producer.send("orders", b"first")
                else:
                    await producer.send("orders", b"first")
                if await self._has_pushed(client_id):
                    yield producer
                    return

    async def _has_pushed(self, client_id: str) -> bool:
        for _ in range(100):
            if self._receiver.pushes(client_id):
                return True
            await asyncio.sleep(INTERVAL_S / 4)
        return False


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "never came true"
        await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory, kafka_version: str) -> Iterator[Receiver]:
    compiler = shutil.which("javac")
    assert compiler is not None, "no javac: install a JDK (Debian: apt install openjdk-17-jdk-headless)"
    folder = tmp_path_factory.mktemp("telemetry")
    command = [compiler, "-nowarn", "-cp", kafka_classpath(kafka_version), "-d", str(folder), str(PLUGIN)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    file = folder / "pushes"
    config = {"metric.reporters": PLUGIN.stem, "aiokprod.telemetry.file": str(file)}
    with KafkaCluster(
        brokers=1, backend="processes", version=kafka_version, class_path=[folder], config=config
    ) as cluster:
        cluster.create_topic("orders")
        yield Receiver(cluster, file)


def test_a_broker_receives_what_it_asks_for_and_a_last_push_at_the_close(receiver: Receiver) -> None:
    async def scenario() -> None:
        subscription = Subscription(receiver)
        subscription.ask(f"{KAFKA}connection.", f"{OURS}records.", f"{OURS}batch.records")
        async with subscription.producer() as producer:
            client_id = str(producer.config.client_id)
            first = len(receiver.pushes(client_id))
            await producer.send_many("orders", [b"v"] * 10)
            await until(lambda: len(receiver.pushes(client_id)) > first + 1)
            await producer.send_many("orders", [b"v"] * 5)
        metrics, pushes = producer.metrics(), receiver.pushes(client_id)
        assert [push.is_last for push in pushes] == [False] * (len(pushes) - 1) + [True]
        assert {push.content_type for push in pushes} == {"OTLP"} and len({push.instance_id for push in pushes}) == 1
        for push in pushes:
            assert set(push.metrics) == {
                f"{KAFKA}connection.creation.rate", f"{KAFKA}connection.creation.total", f"{OURS}records.delivered",
                f"{OURS}records.failed", f"{OURS}batch.records",
            }  # fmt: skip
            assert push.metrics[f"{OURS}records.delivered"].is_delta  # what brokers ask for
            assert push.attributes == {}

        def total(name: str) -> float:
            return sum([push.metrics[name].value for push in pushes])

        assert (total(f"{OURS}records.delivered"), total(f"{OURS}records.failed")) == (16, 0)
        assert 1 <= total(f"{KAFKA}connection.creation.total") <= metrics["connections_opened"]
        histograms = [push.metrics[f"{OURS}batch.records"].value for push in pushes]
        assert sum([sum(counts) for _, counts, _ in histograms]) == metrics["batch_records"].count
        assert sum([records for _, _, records in histograms]) == 16
        failed = [push.metrics[f"{OURS}records.failed"] for push in pushes]
        assert [metric.began_ns for metric in failed[1:]] == [metric.at_ns for metric in failed[:-1]]  # without a gap

    asyncio.run(scenario())


def test_a_subscription_that_changes_is_followed_and_one_that_is_taken_back_ends_the_pushes(receiver: Receiver) -> None:
    async def scenario() -> None:
        subscription = Subscription(receiver)
        subscription.ask(f"{OURS}records.")
        async with subscription.producer(transactional_id="shop") as producer:
            client_id = str(producer.config.client_id)

            def newest() -> set[str]:
                return set(receiver.pushes(client_id)[-1].metrics)

            assert newest() == {f"{OURS}records.delivered", f"{OURS}records.failed"}
            await asyncio.to_thread(subscription.ask, f"{OURS}transactions.")
            async with producer.transaction():
                await producer.send("orders", b"v")
            await until(lambda: newest() == {f"{OURS}transactions.committed", f"{OURS}transactions.aborted"})
            pushes = receiver.pushes(client_id)
            assert len({push.instance_id for push in pushes}) == 1
            assert all(push.attributes == {"transactional_id": "shop"} for push in pushes)
            await asyncio.to_thread(subscription.take_back)
            pipeline: Any = producer._pipeline
            await until(lambda: not pipeline.backend.telemetry.is_pushing)
            there = len(receiver.pushes(client_id))
            async with producer.transaction():
                await producer.send("orders", b"v")
        assert len(receiver.pushes(client_id)) == there  # no last push either: nothing is asked for

    asyncio.run(scenario())


@pytest.mark.parametrize("codec", ["zstd", "lz4", "gzip", "snappy", "none"])
def test_a_broker_reads_pushes_in_each_codec(receiver: Receiver, codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[str] = set()
    compress = pusher.compress

    def noted(name: str, level: int | None, data: bytes) -> bytes:
        used.add(name)
        return compress(name, level, data)

    monkeypatch.setattr(pusher, "usable_codecs", lambda: [codec])
    monkeypatch.setattr(pusher, "compress", noted)

    async def scenario() -> None:
        subscription = Subscription(receiver)
        subscription.ask("*")
        async with subscription.producer() as producer:
            await producer.send_many("orders", [b"v"] * 10)
        names = {name.replace("_", ".") for name in producer.metrics()}
        pushes = receiver.pushes(str(producer.config.client_id))
        last = pushes[-1]
        assert {name.removeprefix(OURS) for name in last.metrics if name.startswith(OURS)} == names
        assert len([name for name in last.metrics if name.startswith(KAFKA)]) == len(last.metrics) - len(names) == 5
        assert sum([push.metrics[f"{OURS}records.delivered"].value for push in pushes]) == 11 and last.is_last

    asyncio.run(scenario())
    assert used == {codec}
