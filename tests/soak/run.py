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
from certificates import Certificates
from changes import QUOTA_WINDOWS
from clients import Client
from copiers import copiers_of, read_copies, until_copied
from evidence import Evidence, Life, Verdict
from figures import figures_of, throttled_ms
from image import Copies, complaints_of_copies
from names import ADDRESSES, NAME
from nemesis import Nemesis
from plan import LONG_FROM_MINUTES, Plan, form_for
from profiles import LOGIN, PLAIN, PROFILES, TLS, TOPICS, VOLATILE
from read_back import read_topics
from verdict import CANARY, COVERED_FROM_S, complaints_of

from aiokprod.testing import KafkaCluster
from aiokprod.testing.kafka_cluster import ClusterSecurity

UNDER_WAY_S = 120.0  # on a busy machine it takes a while until every client has begun
CALM_S = 3.0  # before the first fault
SESSION_S = 5.0  # so long may a client stay that does not log in again
LISTENERS = (PLAIN, LOGIN, TLS)
MECHANISM, USER, PASSWORD = "SCRAM-SHA-512", "soak", f"{CANARY} of the soak"
DRAIN_S = 150.0  # longer than any delivery timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """The settings of a soak. `options`, by profile, go on top of its producers' own: to plant a defect."""

    minutes: float
    seed: int
    rate: float = 100.0  # records per second of each workload
    profiles: tuple[str, ...] = tuple(each.name for each in PROFILES)
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    plan: Plan | None = None
    copies: bool = True
    """Consume, transform and produce in transactions beside the workloads (W2)."""

    def run(self, keep: Path | None = None) -> tuple[Evidence, Verdict]:
        """Run the soak: its minutes and what start, drain and reading back take.

        `keep` is a directory for books, logs and the batches of partitions, written only if the verdict is bad.
        """
        with (
            tempfile.TemporaryDirectory(prefix="aiokprod-soak-") as made,
            tempfile.TemporaryDirectory(prefix="aiokprod-soak-tls-") as stores,
        ):
            folder, certificates = Path(made), Certificates(Path(stores))
            evidence, verdict = self._on_a_cluster(folder, certificates, keep)
        return evidence, verdict

    def _on_a_cluster(self, folder: Path, certificates: Certificates, keep: Path | None) -> tuple[Evidence, Verdict]:
        security = ClusterSecurity(tls=certificates.files, users={USER: PASSWORD}, mechanisms=(MECHANISM,))
        with KafkaCluster(
            brokers=3,
            listeners=LISTENERS,
            proxied=LISTENERS,
            advertised_host=NAME,
            security=security,
            heap="512m",
            config=self._broker_options(),
            features=self._features(),
        ) as cluster:
            for topic, partitions in TOPICS.items():
                cluster.create_topic(topic, partitions)
            evidence, copies = self._run_on(cluster, folder, certificates)
            print(f"{len(evidence.log):,} records read back; the verdict:")
            complaints = [*complaints_of(evidence)]
            figures = figures_of(evidence)
            if copies is not None:
                complaints += complaints_of_copies(copies, COVERED_FROM_S)
                figures |= copies.figures()
            verdict = Verdict(complaints, figures)
            if keep is not None and not verdict.is_good:
                keep_batches(cluster, folder, verdict.complaints)
                shutil.copytree(folder, keep, dirs_exist_ok=True)
        return evidence, verdict

    def _run_on(
        self, cluster: KafkaCluster, folder: Path, certificates: Certificates
    ) -> tuple[Evidence, Copies | None]:
        job = {
            "address": ADDRESSES[0],
            "rate": self.rate,
            "seed": self.seed,
            "session_s": 30.0 if self.minutes >= LONG_FROM_MINUTES else 12.0,
        }
        clients = [
            Client(
                each.name,
                folder,
                job
                | {"servers": cluster.bootstrap_for(each.listener), "options": self.options.get(each.name, {})}
                | {"security": security_of(each.listener, certificates)},
            )
            for each in PROFILES
            if each.name in self.profiles
        ]
        copiers = (
            copiers_of(cluster, folder, job | {"servers": cluster.bootstrap_for(PLAIN)}, self.options)
            if self.copies
            else []
        )
        plan = self.plan or Plan(self.seed, form_for(self.minutes), clients=len(clients))
        nemesis = Nemesis(cluster, clients, plan, certificates, copiers=copiers)
        dials: list[tuple[float, dict[int, int]]] = []
        try:
            for client in (*clients, *copiers):
                client.start()
            _under_way([*clients, *copiers])
            time.sleep(CALM_S)
            began = time.monotonic()
            with _counting(cluster, dials):
                nemesis.run(self.minutes * 60)
                ended = time.monotonic()
                statuses = _drain(clients)
                if copiers:
                    until_copied(cluster, DRAIN_S)
                    statuses |= _drain(copiers)
        finally:
            for client in (*clients, *copiers):
                client.end()
        print(f"drained in {time.monotonic() - ended:.1f} s; reading back")
        timeout_s = 120 + 60 * self.minutes
        log = read_topics(cluster, nemesis.topics, timeout_s)
        committed = read_topics(cluster, nemesis.topics, timeout_s, isolation="read_committed")
        evidence = Evidence(
            began=began,
            ended=ended,
            lives=[life for client in clients for life in _lives(client, statuses[client.name])],
            injections=nemesis.done,
            log=log,
            dials=dials,
            volatile=VOLATILE,
            authentications=cluster.proxies[LOGIN].requests_seen("SaslHandshake"),
            session_s=SESSION_S
            if any(each.listener == LOGIN and each.name in self.profiles for each in PROFILES)
            else None,
            uncommitted=len(set(log) ^ set(committed)),
        )
        for injection in evidence.injections:
            if injection.kind == "quota" and injection.failure is None:
                injection.met = throttled_ms(evidence, injection)
                injection.text += f"; it was told to wait {injection.met} ms"
        copies = read_copies(cluster, copiers, statuses, log, ended - began) if copiers else None
        return evidence, copies

    def _broker_options(self) -> dict[str, str]:
        """Return the options of the brokers; with half of the seeds they forget idle producers soon."""
        return {
            "producer.id.expiration.ms": "60000" if self.seed % 2 else "86400000",
            "connections.max.reauth.ms": str(int(SESSION_S * 1000)),
            "quota.window.num": str(QUOTA_WINDOWS),
            "log.segment.bytes": str(
                16 * 1024 * 1024
            ),  # a killed broker reads its last segments before it serves again
            "ssl.allow.dn.changes": "true",  # a new certificate may have another name of its owner
        }

    def _features(self) -> dict[str, int]:
        """Return the features; half of the seeds, of either half above, lack the second version of transactions (KIP-890)."""
        return {"transaction.version": 2 if self.seed // 2 % 2 else 0}


def security_of(listener: str, certificates: Certificates) -> dict[str, str]:
    """Return the options of a producer that speaks to this listener."""
    if listener == LOGIN:
        return {
            "security_protocol": LOGIN,
            "sasl_mechanism": MECHANISM,
            "sasl_username": USER,
            "sasl_password": PASSWORD,
        }
    return {"security_protocol": TLS, "ssl_cafile": str(certificates.files.authority)} if listener == TLS else {}


def _under_way(clients: Sequence[Client]) -> None:
    """Wait until a record of each client has been acknowledged, or there is nothing that a fault could meet."""
    until = time.monotonic() + UNDER_WAY_S
    while not all(client.has_delivered() for client in clients) and time.monotonic() < until:
        time.sleep(0.2)


def _drain(clients: Sequence[Client]) -> dict[str, int | None]:
    """Let all clients drain: everything is healed, so all records must settle now."""
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
            counts = {
                node: sum(each.connections(node) for each in cluster.proxies.values()) for node in cluster.brokers
            }
            into.append((time.monotonic(), counts))

    thread = threading.Thread(target=count, name="dials")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
