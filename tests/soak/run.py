"""One soak: a real cluster, workloads, the nemesis, then the reading back, the verdict and the report."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batches import keep_batches
from book import Book
from clients import Client
from evidence import Evidence, Life, Verdict
from figures import figures_of
from nemesis import Nemesis
from plan import LONG_FROM_MINUTES, Plan, form_for
from profiles import PROFILES, TOPICS, VOLATILE
from read_back import read_topics
from verdict import complaints_of

from aiokprod.testing import KafkaCluster

CALM_S = 3.0  # before the first deed
DRAIN_S = 150.0  # longer than any delivery timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """What is to be done. `options`, by profile, go on top of its producers' own: to plant a defect."""

    minutes: float
    seed: int
    rate: float = 300.0  # records per second of each workload
    profiles: tuple[str, ...] = tuple(each.name for each in PROFILES)
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    plan: Plan | None = None

    def run(self, keep: Path | None = None) -> tuple[Evidence, Verdict]:
        """Do it: minutes and what start, drain and reading back take.

        `keep` is a directory for books, logs and the batches of partitions, written only if the verdict is bad.
        """
        with (
            tempfile.TemporaryDirectory(prefix="aiokprod-soak-") as made,
            KafkaCluster(brokers=3, proxied=True, heap="384m", config=self._broker_options()) as cluster,
        ):
            folder = Path(made)
            for topic, partitions in TOPICS.items():
                cluster.create_topic(topic, partitions)
            evidence = self._run_on(cluster, folder)
            print(f"{len(evidence.log):,} records read back; the verdict:")
            verdict = Verdict(complaints_of(evidence), figures_of(evidence))
            if keep is not None and not verdict.is_good:
                keep_batches(cluster, folder, verdict.complaints)
                shutil.copytree(folder, keep, dirs_exist_ok=True)
        return evidence, verdict

    def _run_on(self, cluster: KafkaCluster, folder: Path) -> Evidence:
        job = {
            "servers": cluster.bootstrap_servers,
            "rate": self.rate,
            "seed": self.seed,
            "session_s": 30.0 if self.minutes >= LONG_FROM_MINUTES else 12.0,
        }
        clients = [Client(name, folder, job | {"options": self.options.get(name, {})}) for name in self.profiles]
        plan = self.plan or Plan(self.seed, form_for(self.minutes), clients=len(clients))
        nemesis = Nemesis(cluster, clients, plan)
        dials: list[tuple[float, dict[int, int]]] = []
        try:
            for client in clients:
                client.start()
            time.sleep(CALM_S)
            began = time.monotonic()
            with _counting(cluster, dials):
                nemesis.run(self.minutes * 60)
                ended = time.monotonic()
                statuses = _drain(clients)
        finally:
            for client in clients:
                client.end()
        print(f"drained in {time.monotonic() - ended:.1f} s; reading back")
        log = read_topics(cluster, nemesis.topics, timeout_s=120 + 60 * self.minutes)
        return Evidence(
            began=began,
            ended=ended,
            lives=[life for client in clients for life in _lives(client, statuses[client.name])],
            deeds=nemesis.done,
            log=log,
            dials=dials,
            volatile=VOLATILE,
        )

    def _broker_options(self) -> dict[str, str]:
        """Half of the seeds make brokers forget idle producers soon."""
        return {"producer.id.expiration.ms": "60000" if self.seed % 2 else "86400000"}


def _drain(clients: Sequence[Client]) -> dict[str, int | None]:
    """Everything is healed: what was sent must now be settled."""
    for client in clients:
        client.tell("drain")
    until = time.monotonic() + DRAIN_S
    return {client.name: client.wait(max(1.0, until - time.monotonic())) for client in clients}


def _lives(client: Client, last_status: int | None) -> Iterator[Life]:
    for name in client.lives:
        yield Life(
            name=name,
            client=client.name,
            book=Book.read(client.book(name)),
            log=client.log(name).read_text(encoding="utf-8", errors="replace"),
            killed_at=client.killed_at.get(name),
            status=last_status if name == client.lives[-1] else None,
            away=client.away,
        )


@contextlib.contextmanager
def _counting(cluster: KafkaCluster, into: list[tuple[float, dict[int, int]]]) -> Iterator[None]:
    """Note every second how many connections the proxy has taken."""
    stop = threading.Event()

    def count() -> None:
        while not stop.wait(1.0):
            into.append((time.monotonic(), {node: cluster.proxy.connections(node) for node in cluster.brokers}))

    thread = threading.Thread(target=count, name="dials")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
