"""The blocking producer beside kafka-python and confluent-kafka, on one real broker: `python bench/blocking.py`.

Measured are two shapes of programs without asyncio, all with acks=all and idempotence, values of 100 bytes:

    window   records are submitted in windows of 20,000, and then the outcome of each is asked for
    alone    one record at a time, waited for

Each client takes a turn per round, in a process of its own; printed are the medians: processor time per record, records per
second, and both as ratios of aiokprod to the others, computed round by round (above 1: aiokprod is better).
confluent-kafka has no future: a callback counts the outcomes, and alone it is flushed behind each record.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from brokers import CLIENT_CORE, started

OURS = "aiokprod"
VALUE = b"x" * 100
WINDOW = 20_000
LIMIT_S = 60.0


class Client(Protocol):
    def window(self, topic: str, records: int) -> None:
        """Submit so many records, and wait for the outcome of each."""

    def alone(self, topic: str) -> None:
        """Send one record, and wait for it."""


class Aiokprod:
    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def window(self, topic: str, records: int) -> None:
        submit = self._producer.submit
        for future in [submit(topic, VALUE) for _ in range(records)]:
            future.result()

    def alone(self, topic: str) -> None:
        self._producer.send(topic, VALUE)


class KafkaPython:
    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def window(self, topic: str, records: int) -> None:
        send = self._producer.send
        for future in [send(topic, VALUE) for _ in range(records)]:
            future.get(LIMIT_S)

    def alone(self, topic: str) -> None:
        self._producer.send(topic, VALUE).get(LIMIT_S)


class Confluent:
    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._delivered = 0

    def _told(self, error: object, message: object) -> None:
        assert error is None, error
        self._delivered += 1

    def window(self, topic: str, records: int) -> None:
        producer, told, due = self._producer, self._told, self._delivered + records
        for _ in range(records):
            producer.produce(topic, VALUE, on_delivery=told)
            producer.poll(0)
        producer.flush(LIMIT_S)
        assert self._delivered == due

    def alone(self, topic: str) -> None:
        self.window(topic, 1)


@contextmanager
def aiokprod(servers: str) -> Any:
    from aiokprod.blocking import Producer

    with Producer(servers) as producer:
        yield Aiokprod(producer)


@contextmanager
def kafka_python(servers: str) -> Any:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers, enable_idempotence=True, acks="all")
    yield KafkaPython(producer)
    producer.close()


@contextmanager
def confluent(servers: str) -> Any:
    from confluent_kafka import Producer

    yield Confluent(Producer({"bootstrap.servers": servers, "enable.idempotence": True}))


CLIENTS: dict[str, Callable[[str], AbstractContextManager[Client]]] = {
    OURS: aiokprod,
    "kafka-python": kafka_python,
    "confluent-kafka": confluent,
}
FIGURES = {
    "window_cpu_us": f"window of {WINDOW:,}: processor time per record, us",
    "window_rate": f"window of {WINDOW:,}: records per second",
    "alone_cpu_us": "one at a time: processor time per record, us",
    "alone_rate": "one at a time: records per second",
}


# ---------------------------------------------------------------------- one turn, in a process of its own
def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measured(work: Callable[[], None], times: int, records_each: int) -> tuple[float, float]:
    """Return processor time per record in microseconds, and records per second."""
    began, began_cpu, records = time.perf_counter(), cpu_s(), times * records_each
    for _ in range(times):
        work()
    return 1e6 * (cpu_s() - began_cpu) / records, records / (time.perf_counter() - began)


def turn(client: str, servers: str, topic: str, windows: int, window: int, alone: int) -> dict[str, float]:
    """Return the figures of one client."""
    with CLIENTS[client](servers) as producer:
        producer.window(topic, window)  # not counted
        of_windows = measured(lambda: producer.window(topic, window), windows, window)
        of_alone = measured(lambda: producer.alone(topic), alone, 1)
    return dict(zip(FIGURES, (*of_windows, *of_alone), strict=True))


# ---------------------------------------------------------------------- the run
def child(client: str, servers: str, topic: str, windows: int, alone: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--turn", client, servers, topic, str(windows), str(WINDOW), str(alone)]
    pinned = None if len(os.sched_getaffinity(0)) < 2 else lambda: os.sched_setaffinity(0, {CLIENT_CORE})
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, preexec_fn=pinned)
    figures: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return figures


def ratio(name: str, other: str, rounds: Sequence[dict[str, dict[str, float]]]) -> str:
    """Return how many times better aiokprod is than the other client: the median over the rounds, the least and the most."""
    found = sorted(
        each[OURS][name] / each[other][name] if name.endswith("rate") else each[other][name] / each[OURS][name]
        for each in rounds
    )
    return f"{statistics.median(found):.2f} ({found[0]:.2f} to {found[-1]:.2f})"


def table(rounds: Sequence[dict[str, dict[str, float]]]) -> str:
    clients = list(rounds[0])
    heads = ["", *clients, *(f"better than {client} by" for client in clients[1:])]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, text in FIGURES.items():
        cells = [f"{statistics.median(each[client][name] for each in rounds):,.1f}" for client in clients]
        cells += [ratio(name, client, rounds) for client in clients[1:]]
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--windows", type=int, default=5, help="of each turn")
    parser.add_argument("--alone", type=int, default=1_000, help="records of each turn that are sent one at a time")
    turn_of = ("CLIENT", "SERVERS", "TOPIC", "WINDOWS", "WINDOW", "ALONE")
    parser.add_argument("--turn", nargs=6, metavar=turn_of, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.turn:
        client, servers, topic, *counts = chosen.turn
        print(json.dumps(turn(client, servers, topic, *map(int, counts))))
        return
    with started(1, 0.0) as cluster:
        cluster.create_topic("blocking", partitions=1, replication_factor=1)
        servers = cluster.bootstrap_servers
        rounds = [
            {client: child(client, servers, "blocking", chosen.windows, chosen.alone) for client in CLIENTS}
            for _ in range(chosen.rounds)
        ]
    print(table(rounds))


if __name__ == "__main__":
    main()
