"""Drivers killed at random steps, coordinators killed beside them, and two judges: librdkafka, and the audit.

    AIOKPROD_TEST_SPARK_BATCHES=2000 AIOKPROD_TEST_SPARK_SEED=7 pytest -m slow tests/spark/test_exactly_once_random.py

runs 2,000 micro-batches; 200 are the default. Each kill is planned, and the test fails if one of them does not take place.
"""

from __future__ import annotations

import os
import time
from functools import reduce
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from driver_program import numbered
from drivers import (
    PATIENCE_S,
    Driver,
    Query,
    Rule,
    coordinator_of,
    driver,
    expected,
    read_by_librdkafka,
    wait_none_open,
    write_input,
)
from pyspark.sql import DataFrame
from sessions import read_back, spark_session

from aiokprod import audit
from aiokprod.testing.kafka_cluster import KafkaCluster
from aiokprod.testing.kafka_cluster.backend import BrokerState
from aiokprod.transactions.coordinator import CoordinatorKind

pytestmark = [pytest.mark.real, pytest.mark.slow]
QUERIES = 4
BATCHES = int(os.environ.get("AIOKPROD_TEST_SPARK_BATCHES", "200")) // QUERIES * QUERIES
SEED = int(os.environ.get("AIOKPROD_TEST_SPARK_SEED", "1"))
FILES_OF_A_BATCH = 2
KILLS = max(4, BATCHES // 40)
STEPS_OF_A_BATCH = 14  # of the driver, at least: one with one task, and without faults
# If each driver is killed within so many steps, rows are left for all of them, and for the one that ends.
LONGEST_LIFE = STEPS_OF_A_BATCH * BATCHES // (KILLS + 1)
COORDINATORS = {"ctl": CoordinatorKind.TRANSACTION, "0": CoordinatorKind.GROUP}  # of the token, and of the decision
DOWN_S = 2.0
TIME_LIMIT_S = 1_800.0 + 600 * KILLS + 20 * BATCHES  # on a busy machine a driver may start for two minutes


class Plan(NamedTuple):
    """The life of one driver: at which of its steps it is killed, and at which a coordinator of which name is."""

    killed_at: int
    held_at: int | None
    name: str


class BrokerKill(NamedTuple):
    """A broker that was killed while a sink was held at a step: the coordinator of that sink's transactional id or group."""

    kind: str
    key: str
    node: int
    step: str


def plans(random: Random) -> list[Plan]:
    """Draw the life of each driver that is killed; beside all but the first one a coordinator is, of each kind in turn."""
    drawn = [Plan(random.randint(5, LONGEST_LIFE), None, "")]
    for number in range(1, KILLS):
        held_at = random.randint(5, LONGEST_LIFE // 3)
        killed_at = random.randint(LONGEST_LIFE * 2 // 3, LONGEST_LIFE)
        drawn.append(Plan(killed_at, held_at, list(COORDINATORS)[number % 2]))
    return drawn


def test_no_row_is_lost_or_doubled_by_random_kills(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    random, cluster, servers = Random(SEED), kafka_cluster, kafka_cluster.bootstrap_servers
    names = [f"random-{number}" for number in range(QUERIES)]
    files = dict.fromkeys(names, BATCHES // QUERIES * FILES_OF_A_BATCH)
    for name in names:
        cluster.create_topic(name, 3)
        write_input(tmp_path / name, files[name])
    kept = str(BATCHES)  # in Spark's logs, which are counted

    def queries() -> list[Query]:
        return [Query(name, tmp_path / name, random.randint(1, 3), FILES_OF_A_BATCH) for name in names]

    planned = plans(random)
    killed: list[dict[str, str]] = []
    brokers: list[BrokerKill] = []
    for number, plan in enumerate(planned):
        rules: list[Rule] = [("*", plan.killed_at, "kill")]
        if plan.held_at is not None:
            rules.append(("*", plan.held_at, "hold"))
        folder = tmp_path / f"run-{number}"
        with driver(
            folder,
            servers,
            [queries()],
            home=tmp_path,
            rules={"*": rules},
            spark__sql__streaming__minBatchesToRetain=kept,
        ) as running:
            running.go(0)
            if plan.held_at is not None:
                brokers.append(kill_coordinator(cluster, running, plan.name))
            wait_over(running)
            assert running.killed(), running.results  # by its rule, and not by anything else
            killed.append(running.killed())
    with driver(
        tmp_path / "last",
        servers,
        [queries(), queries()],
        home=tmp_path,
        spark__sql__streaming__minBatchesToRetain=kept,
    ) as running:
        for phase in range(2):
            running.go(phase)
            wait_over(running)
            assert {each["error"] for each in running.results.values()} == {None}, running.results
            assert running.results.keys() == set(names)
            running.forget_results()
            if phase:
                break
            # A driver that dies before Spark has planned a batch may leave the files of two for the next one.
            for name in names:
                files[name] += FILES_OF_A_BATCH * (BATCHES // QUERIES - len(batches(tmp_path, name)))
                write_input(tmp_path / name, files[name])
    assert len(killed) == len(planned) == KILLS
    assert [each.kind for each in brokers] == [plan.name for plan in planned[1:]]
    assert {each.kind for each in brokers} == set(COORDINATORS)
    wait_none_open(servers, "random-")
    for name in names:
        assert batches(tmp_path, name) == list(range(BATCHES // QUERIES)), name
        assert read_by_librdkafka(servers, name) == expected(files[name]), name
    with spark_session("local[2]", tmp_path) as spark:
        sent = [numbered(spark.read.text(str(tmp_path / name)), Query(name, tmp_path).run, name) for name in names]
        claims = audit.claims_of(reduce(DataFrame.union, sent), delivery="exactly_once")
        log = read_back(spark, servers, ",".join(names), committed=True)
        verdict = audit.run(spark, claims, log, order=False)
        assert verdict.is_clean, verdict.line
        assert claims.count() == sum(expected(each).total() for each in files.values())
    print(f"{BATCHES} micro-batches, {len(killed)} drivers killed: {verdict.line}", *killed, *brokers, sep="\n")


def batches(folder: Path, name: str) -> list[int]:
    """Return the batches of a query in Spark's commit log."""
    committed = folder / "checkpoints" / name / "commits"
    return sorted(int(path.name) for path in committed.iterdir() if path.name.isdigit())


def kill_coordinator(cluster: KafkaCluster, running: Driver, kind: str) -> BrokerKill:
    """Wait until a sink is held; kill the broker that is its coordinator; let the sink go on, and start the broker again."""
    running.wait_for("a sink is held", lambda: bool(running.held()))
    (sink,) = running.held()
    step = (running.folder / f"{sink}.held").read_text()
    key = f"{sink}.{kind}"
    victim = cluster.broker(coordinator_of(cluster.bootstrap_servers, COORDINATORS[kind], key))
    assert victim.state is BrokerState.RUNNING
    victim.kill()
    assert cluster.broker(victim.node_id).state is BrokerState.STOPPED
    running.release(sink)
    time.sleep(DOWN_S)  # its requests find no coordinator for as long as a broker takes that is started again at once
    victim.start()
    cluster.wait_ready()
    return BrokerKill(kind, key, victim.node_id, step)


def wait_over(running: Driver) -> None:
    """Wait until the driver is killed, or all of its queries have ended."""
    until = time.monotonic() + max(PATIENCE_S, 3 * BATCHES)
    while len(running.results) < QUERIES and not running.has_died():
        assert time.monotonic() < until, (running.folder / "log").read_text()[-6000:]
        time.sleep(0.1)
