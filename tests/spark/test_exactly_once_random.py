"""Drivers that are killed at random steps, brokers that are killed beside them, and two judges: librdkafka, and the audit.

    AIOKPROD_TEST_SPARK_BATCHES=2000 AIOKPROD_TEST_SPARK_SEED=7 pytest -m slow tests/spark/test_exactly_once_random.py

runs 2,000 micro-batches; 200 are the default.
"""

from __future__ import annotations

import os
import threading
import time
from functools import reduce
from pathlib import Path
from random import Random

import pytest
from driver_program import numbered
from drivers import PATIENCE_S, Query, driver, expected, read_by_librdkafka, write_input
from pyspark.sql import DataFrame
from sessions import read_back, spark_session

from aiokprod import audit
from aiokprod.testing.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.real, pytest.mark.slow]
BATCHES = int(os.environ.get("AIOKPROD_TEST_SPARK_BATCHES", "200"))
SEED = int(os.environ.get("AIOKPROD_TEST_SPARK_SEED", "1"))
QUERIES = 4
NEVER = 10**9
FILES_OF_A_BATCH = 2
KILLS = max(4, BATCHES // 40)
STEPS_OF_A_BATCH = 15  # of the driver, without faults
TIME_LIMIT_S = 300.0 + 3 * BATCHES  # three times what it takes on an idle machine


def test_no_row_is_lost_or_doubled_by_random_kills(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    random, cluster = Random(SEED), kafka_cluster
    files = BATCHES // QUERIES * FILES_OF_A_BATCH
    rows = write_input(tmp_path / "input", files)
    names = [f"random-{number}" for number in range(QUERIES)]
    for name in names:
        cluster.create_topic(name, 3)
    kills, batches, is_over = 0, 0, False
    while not is_over:
        queries = [Query(name, rows, tasks=random.randint(1, 3), files=FILES_OF_A_BATCH) for name in names]
        at = random.randint(5, 2 * BATCHES * STEPS_OF_A_BATCH // KILLS)
        rules = {"*": ["*", at if kills < KILLS else NEVER, "kill"]}
        victim = random.choice(list(cluster.brokers)) if kills % 3 == 1 else None
        has_ended = threading.Event()
        with driver(
            tmp_path / f"run-{kills}", cluster.bootstrap_servers, [queries], home=tmp_path, rules=rules
        ) as running:
            running.go(0)
            counted = tmp_path / f"run-{kills}" / "all"
            breaking = threading.Thread(target=kill_and_start, args=(cluster, victim, counted, at // 3, has_ended))
            breaking.start()
            until = time.monotonic() + max(PATIENCE_S, BATCHES)
            pid = tmp_path / f"run-{kills}" / "jvm.pid"
            while len(running.results) < QUERIES and running.process.poll() is None and time.monotonic() < until:
                if pid.exists() and not Path("/proc", pid.read_text()).exists():
                    break
                time.sleep(0.1)
            results = running.results
            has_died = any((tmp_path / f"run-{kills}").glob("*.held"))
            has_ended.set()
            breaking.join()
        batches += sum(len(each["batches"]) for each in results.values())
        is_over = len(results) == QUERIES and all(each["error"] is None for each in results.values())
        if not is_over:
            assert has_died, results  # it was killed, and did not fail by itself
            kills += 1
    assert kills >= min(KILLS, 3)
    for name in names:
        found = read_by_librdkafka(cluster.bootstrap_servers, name)
        assert found == expected(files), name
    with spark_session("local[2]", tmp_path) as spark:
        sent = [numbered(spark.read.text(str(rows)), Query(name, rows).run, name) for name in names]
        claims = audit.claims_of(reduce(DataFrame.union, sent), delivery="exactly_once")
        log = read_back(spark, cluster.bootstrap_servers, ",".join(names), committed=True)
        verdict = audit.run(spark, claims, log, order=False)
        assert verdict.is_clean, verdict.line
        assert claims.count() == QUERIES * expected(files).total()
    print(f"{BATCHES} micro-batches, {kills} drivers killed: {verdict.line}")


def kill_and_start(
    cluster: KafkaCluster, victim: int | None, counted: Path, after: int, has_ended: threading.Event
) -> None:
    """Kill a broker when the driver has passed so many steps, and start it again."""
    if victim is None:
        return
    while not (counted.exists() and counted.stat().st_size >= after):
        if has_ended.wait(0.05):
            return
    cluster.broker(victim).kill()
    time.sleep(2)
    cluster.broker(victim).start()
    cluster.wait_ready()
