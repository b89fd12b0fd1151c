"""Drivers of Spark as processes that tests kill: `driver_program.py` with its queries, steps at which it is held, results."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from zlib import crc32

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

import aiokprod
from aiokprod.cluster.client import ClusterClient
from aiokprod.cluster.cluster_listener import SilentListener
from aiokprod.config import ProducerConfig
from aiokprod.metrics import Metrics
from aiokprod.transactions.admin import TransactionAdmin
from aiokprod.transactions.coordinator import CoordinatorKind
from aiokprod.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

HERE = Path(__file__).parent
PATIENCE_S = 300.0
ROWS_OF_A_FILE = 20
Rule: TypeAlias = "tuple[str, int, str]"
"""A step, which time of it, and what happens then: see `sitecustomize.py`."""


@dataclass(frozen=True)
class Query:
    """A stream; its name is its sink id too.

    Args:
        name: sink id, topic, and folder of the checkpoint.
        tasks: partitions of each batch.
        options: further ones of the sink.
    """

    name: str
    input: Path
    tasks: int = 3
    files: int = 3
    topic: str | None = None
    checkpoint: str | None = None
    options: dict[str, str] = field(default_factory=dict)

    @property
    def run(self) -> int:
        """The number by which the audit knows its rows."""
        return crc32(self.name.encode())

    def described(self, servers: str, folder: Path) -> dict[str, Any]:
        options = {"kafka.bootstrap.servers": servers, "delivery": "exactly_once", "sinkId": self.name}
        options |= {"kafka.linger.ms": "0", "kafka.retry.backoff.ms": "20", "kafka.request.timeout.ms": "8000"}
        return {
            "name": self.name,
            "topic": self.topic or self.name,
            "checkpoint": str(folder / "checkpoints" / (self.checkpoint or self.name)),
            "input": str(self.input),
            "run": self.run,
            "tasks": self.tasks,
            "files": self.files,
            "options": options | self.options,
        }


def write_input(folder: Path, files: int, rows: int = ROWS_OF_A_FILE) -> Path:
    """Write text files, which a stream reads in this order."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        path = folder / f"{number:05d}.txt"
        path.write_text("".join(f"{number:05d}-{row:03d}\n" for row in range(rows)))
        os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))
    return folder


def expected(files: int, rows: int = ROWS_OF_A_FILE) -> Counter[str]:
    return Counter(f"{number:05d}-{row:03d}" for number in range(files) for row in range(rows))


class Driver:
    """A running driver."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self.process = process

    def go(self, phase: int) -> None:
        """Let a phase begin."""
        (self.folder / f"go.{phase}").touch()

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """How each query has ended that has."""
        path = self.folder / "results.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        whole = [line for line in lines if line.endswith("\n")]  # a long one is written in parts
        return {each["name"]: each for each in map(json.loads, whole)}

    def forget_results(self) -> None:
        """Remove the results, so that those of the next phase can be told."""
        (self.folder / "results.jsonl").unlink()

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; fail if the driver ends or its JVM dies before, or after minutes."""
        until = time.monotonic() + PATIENCE_S
        while not condition():
            has_died = self.has_died() and not condition()
            if has_died or time.monotonic() > until:
                log = (self.folder / "log").read_text()[-6000:]
                state = f"driver {'dead' if has_died else 'alive'}, held {self.held()}, killed {self.killed()}"
                raise AssertionError(f"{what}: not seen ({state}), {self.results}\n{log}")
            time.sleep(0.05)

    def wait_held(self, *sinks: str) -> None:
        """Wait until these sinks are at their steps."""
        self.wait_for(f"{sinks} held", lambda: all((self.folder / f"{sink}.held").exists() for sink in sinks))

    def release(self, sink: str) -> None:
        """Let a sink that is held go on."""
        (self.folder / f"{sink}.release").touch()

    def held(self) -> list[str]:
        """Return the sinks that are held."""
        return sorted(path.stem for path in self.folder.glob("*.held"))

    def killed(self) -> dict[str, str]:
        """Return the sinks that have killed the driver by their rule, with the step; several may have reached it."""
        return {path.stem: path.read_text() for path in self.folder.glob("*.killed")}

    def has_died(self) -> bool:
        """Return whether the JVM has ended, or the program has: it outlives a JVM that is killed."""
        written = self.folder / "jvm.pid"
        pid = written.read_text() if written.exists() else ""
        return (pid != "" and not is_alive(pid)) or self.process.poll() is not None

    def wait_ended(self, *names: str) -> None:
        """Wait until these queries have ended."""
        self.wait_for(f"{names} ended", lambda: set(names) <= self.results.keys())

    def stop(self, name: str) -> None:
        """Call `stop` of a query; return when Spark has begun to stop it, which may be long before its batch has ended."""
        (self.folder / f"{name}.stop").touch()
        begun = self.folder / f"{name}.stopping"
        self.wait_for(f"{name} is stopped", begun.exists)
        begun.unlink()

    def kill(self) -> None:
        """SIGKILL the JVM first, as a crash of the driver is, then what is left of the process group."""
        pid = self.folder / "jvm.pid"
        if pid.exists():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid.read_text()), signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


def is_alive(pid: str) -> bool:
    """Return whether a process runs; one that has ended, and that its parent has not waited for, does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


@contextmanager
def driver(
    folder: Path,
    servers: str,
    phases: Sequence[Sequence[Query]],
    *,
    home: Path,
    rules: dict[str, list[Rule]] | None = None,
    master: str = "local[2,4]",
    **settings: str,
) -> Iterator[Driver]:
    """Run a driver; kill it at the end of the block.

    Args:
        folder: of this run.
        home: of the checkpoints, which later runs share.
        rules: of each sink.
        **settings: of Spark, with `__` for a dot.
    """
    folder.mkdir(parents=True)
    program = {
        "master": master,
        "settings": {name.replace("__", "."): value for name, value in settings.items()},
        "phases": [[query.described(servers, home) for query in queries] for queries in phases],
    }
    (folder / "program.json").write_text(json.dumps(program))
    (folder / "rules.json").write_text(json.dumps(rules or {}))
    path = [str(HERE / "steps_at_start"), str(Path(aiokprod.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path), "AIOKPROD_TEST_STEPS": str(folder), "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "driver_program.py"), str(folder)],
            stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True, cwd=folder,
        )  # fmt: skip
    running = Driver(folder, process)
    try:
        yield running
    finally:
        running.kill()


def coordinator_of(servers: str, kind: CoordinatorKind, key: str) -> int:
    """Return the node id of the broker that is the coordinator of a transactional id or a group now."""

    async def find() -> int:
        client = ClusterClient(ProducerConfig(bootstrap_servers=servers), Metrics(), SilentListener())
        await client.start(60)
        try:
            while True:
                message = FindCoordinatorRequest(key_type=int(kind), coordinator_keys=[key])
                answer: FindCoordinatorResponse = await client.request(message, node_id=None, timeout_s=10)
                (found,) = answer.coordinators
                if not found.error_code:
                    return found.node_id
                await asyncio.sleep(0.1)
        finally:
            await client.close()

    return asyncio.run(asyncio.wait_for(find(), 120))


def read_by_librdkafka(servers: str, topic: str, *, committed: bool = True) -> Counter[str]:
    """Return what a reader that is not ours sees, up to the last stable offset, behind the markers of ended transactions."""
    if committed:
        asyncio.run(asyncio.wait_for(wait_for_markers(servers), 120))
    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True,
        "isolation.level": "read_committed" if committed else "read_uncommitted", "auto.offset.reset": "earliest",
    })  # fmt: skip
    try:
        known = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in known])
        left = set(known)
        found: Counter[str] = Counter()
        until = time.monotonic() + 60
        while left and time.monotonic() < until:
            for message in consumer.consume(500, 0.5):
                error = message.error()
                if error is None:
                    found[(message.value() or b"").decode()] += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise AssertionError(error.str())
        assert not left
        return found
    finally:
        consumer.close()


async def wait_for_markers(servers: str, prefix: str = "") -> None:
    """Wait until the transactions that have ended are visible: a coordinator answers EndTxn before it writes the markers."""
    async with TransactionAdmin(servers) as admin:
        while await admin.transactional_ids(prefix, states=["PrepareCommit", "PrepareAbort"]):
            await asyncio.sleep(0.05)


def open_transactions(servers: str, prefix: str) -> list[str]:
    """Return the transactional ids with this beginning that have an open transaction; the markers of ended ones are written.

    Those of a stream begin with its sink id and a dot, those of a job with its sink id and a hyphen.
    """

    async def find() -> list[str]:
        async with TransactionAdmin(servers) as admin:
            listed = await admin.transactional_ids(prefix, states=["Ongoing"])
        await wait_for_markers(servers, prefix)
        return [each.transactional_id for each in listed]

    return asyncio.run(asyncio.wait_for(find(), 120))


def wait_none_open(servers: str, prefix: str) -> None:
    """Wait until none of these ids has an open transaction: an attempt that Spark has killed may still be at its abort."""
    until = time.monotonic() + 60  # their own timeout is 15 minutes
    while still_open := open_transactions(servers, prefix):
        assert time.monotonic() < until, still_open
        time.sleep(0.1)


def write_behind(servers: str, topic: str) -> Counter[str]:
    """Write a row to each partition, with no sink, and return them: readers of committed rows see them if nothing is open."""
    producer = Producer({"bootstrap.servers": servers})
    partitions = producer.list_topics(topic, timeout=30).topics[topic].partitions
    for number in partitions:
        producer.produce(topic, f"behind-{number}", partition=number)
    assert producer.flush(60) == 0
    return Counter(f"behind-{number}" for number in partitions)
