"""The memory of a producer: full buffers, a million pending records, and whether it grows with time.

The broker is stopped (SIGSTOP) while a buffer fills, so that all records that were sent are still pending.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from brokers import HERE, client_core
from compiled import environment_of
from memory_peers import PARTITIONS

from aiokprod.testing import KafkaCluster

SIZES = (10, 100, 1_000)
PEERS = (
    ("confluent-kafka, callback", "confluent_callback"),
    ("confluent-kafka, AIOProducer", "confluent_asyncio"),
    ("aiokafka", "aiokafka"),
    ("kafka-python", "kafka_python"),
)
PEERS_RECORDS = 100_000  # few enough that the slowest client sends them before anything times out
NOT_KEPT = "pending, Deliveries not kept"
RATE = 20_000
SETTLED = 0.2  # share of the time in which a process reaches its size: left out of the slope


def measure(cluster: KafkaCluster, compiled: str, *, quick: bool) -> dict[str, Any]:
    """Measure; form or peer -> what was done -> figures (see `memory_child`, `memory_peers`)."""
    found: dict[str, Any] = {}
    for form, python in (("compiled", compiled), ("pure", sys.executable)):
        rows = {f"full, {size:,} B values": child(cluster, python, form, "fill", size=size) for size in SIZES}
        many = 100_000 if quick else 1_000_000
        rows["pending"] = child(cluster, python, form, "million", count=many)
        rows[NOT_KEPT] = child(cluster, python, form, "million", count=many, is_kept=False)
        rows["pending, as the peers"] = child(cluster, python, form, "million", count=PEERS_RECORDS)
        found[form] = rows
    for name, client in PEERS:
        pending = child(cluster, sys.executable, "pure", client, "memory_peers.py", PARTITIONS, count=PEERS_RECORDS)
        found[name] = {"pending": pending}
    return found


def slope(cluster: KafkaCluster, compiled: str, minutes: float) -> dict[str, Any]:
    """Measure the compiled form's resident size under an even load, and its slope by least squares."""
    series = child(cluster, compiled, "compiled", "steady", rate=RATE, minutes=minutes)
    looked_at = [(at, mb) for at, mb in series if at >= SETTLED * minutes * 60]
    return {
        "minutes": minutes,
        "records_per_second": RATE,
        "slope_mb_per_hour": round(slope_of(looked_at) * 3600, 3),
        "first_mb": looked_at[0][1],
        "last_mb": looked_at[-1][1],
        "series": series,
    }


def slope_of(series: list[tuple[float, float]]) -> float:
    """Return the slope of the straight line with the least squares."""
    middle_x = sum(x for x, _ in series) / len(series)
    middle_y = sum(y for _, y in series) / len(series)
    return sum((x - middle_x) * (y - middle_y) for x, y in series) / sum((x - middle_x) ** 2 for x, _ in series)


def child(
    cluster: KafkaCluster,
    python: str,
    form: str,
    way: str,
    script: str = "memory_child.py",
    partitions: int = 6,
    **arguments: Any,
) -> Any:
    """Run one child; pause and resume the broker when it says so."""
    topic = f"bench-{way}"
    cluster.create_topic(topic, partitions=partitions, replication_factor=1)
    arguments |= {"servers": cluster.bootstrap_servers, "topic": topic, "core": client_core()}
    command = [python, str(HERE / script), way, json.dumps(arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE, env=environment_of(form)
    ) as running:
        assert running.stdin is not None and running.stdout is not None
        last = ""
        for line in running.stdout:
            last = line.strip()
            if last in ("pause", "resume"):
                getattr(cluster.broker(1), last)()
                running.stdin.write("done\n")
                running.stdin.flush()
    if running.returncode != 0:
        raise SystemExit(f"{way} failed")
    acknowledged, figures = json.loads(last)
    written = sum(cluster.end_offsets(topic))
    assert written == acknowledged, f"{way}: {acknowledged} were acknowledged, the log has {written}"
    cluster.delete_topic(topic)
    print(f"memory, {form}, {way}: {last[:300]}", file=sys.stderr, flush=True)
    return figures
