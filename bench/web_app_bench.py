"""A real web application with and without the send: FastAPI under uvicorn and uvloop, load from a second process.

The application has one processor; the load generator shares the other with the broker, as the page says beside the figures.
The log must have as many records as requests were answered.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from statistics import median
from typing import Any

from brokers import BROKER_CORE, HERE, client_core, cpu_s
from compiled import environment_of

from aiokprod.testing import KafkaCluster

CONNECTIONS = 64
SECONDS = 3.0
LINES = (
    ("no send", "none", "pure"),
    ("aiokprod, compiled", "aiokprod", "compiled"),
    ("aiokprod, pure", "aiokprod", "pure"),
    ("aiokprod, compiled, not awaited", "aiokprod_later", "compiled"),
    ("confluent-kafka", "confluent_callback", ""),
    ("confluent-kafka, AIOProducer", "confluent_asyncio", ""),
    ("aiokafka", "aiokafka", ""),
    ("kafka-python", "kafka_python", ""),
)


def measure(cluster: KafkaCluster, compiled: str, *, rounds: int, quick: bool) -> dict[str, Any]:
    """Measure; line -> figure -> [median, minimum, maximum]."""
    runs: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for name, client, form in LINES:
            python = compiled if form == "compiled" else sys.executable
            run = one(cluster, python, form or "pure", client, 1.0 if quick else SECONDS)
            runs.setdefault(name, []).append(run)
            print(
                f"fastapi: {name}: {run['requests_per_s']:,.0f}/s p99 {run['p99_ms']:.1f}", file=sys.stderr, flush=True
            )
    return {
        name: {
            figure: [round(pick([run[figure] for run in found]), 2) for pick in (median, min, max)]
            for figure in found[0]
        }
        for name, found in runs.items()
    }


def one(cluster: KafkaCluster, python: str, form: str, client: str, seconds: float) -> dict[str, float]:
    topic = "bench-web"
    cluster.create_topic(topic, partitions=6, replication_factor=1)
    port = free_port()
    core = client_core()
    given = {"client": client, "servers": cluster.bootstrap_servers, "topic": topic, "port": port, "core": core}
    command = [python, str(HERE / "web_app.py"), json.dumps(given)]
    with subprocess.Popen(command, cwd=HERE, env=environment_of(form)) as app:
        try:
            wait_for(port, app)
            warm = loaded(port, 1.0)
            before_s = cpu_s(app.pid)
            measured = loaded(port, seconds)
            used_s = cpu_s(app.pid) - before_s
        finally:
            app.terminate()  # uvicorn ends the lifespan: the producer is closed, everything is in the log
            app.wait(60)
    answered = int(warm["requests"] + measured["requests"])
    written = sum(cluster.end_offsets(topic))
    assert written == (0 if client == "none" else answered), f"{client}: {answered} answered, {written} in the log"
    cluster.delete_topic(topic)
    return {
        "requests_per_s": measured["requests"] / measured["seconds"],
        "p50_ms": measured["p50_ms"],
        "p99_ms": measured["p99_ms"],
        "cpu_us": used_s / measured["requests"] * 1e6,
    }


def loaded(port: int, seconds: float) -> dict[str, float]:
    """Run the load generator on the brokers' processor."""
    cores = os.sched_getaffinity(0)
    try:
        if len(cores) > 1:
            os.sched_setaffinity(0, {BROKER_CORE})
        command = [sys.executable, str(HERE / "web_load.py"), str(port), str(seconds), str(CONNECTIONS)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    finally:
        os.sched_setaffinity(0, cores)
    told: dict[str, float] = json.loads(done.stdout)
    return told


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])


def wait_for(port: int, app: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and app.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit("the application did not come up")
