"""Queries that are stopped by `query.stop()` in the middle of their batches, at drawn steps of the sink, and started again.

    AIOKPROD_TEST_SPARK_SEED=7 pytest -m slow tests/spark/test_exactly_once_stops.py

Half of them are stopped while the sink is held at the step, the others some time behind it: then tasks may be running.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random

import pytest
from drivers import Query, Rule, driver, expected, read_by_librdkafka, wait_none_open, write_input

from aiokprod.testing.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.real, pytest.mark.slow]
SEED = int(os.environ.get("AIOKPROD_TEST_SPARK_SEED", "1"))
NAMES = ("stops-0", "stops-1", "stops-2", "stops-3")
ROUNDS = 2
FILES = 10  # one for each batch: more than are written up to the last stop
# A batch has at least 14 steps of the driver. Between two stops are more than a stop may still pass, with its abort.
BETWEEN = (30, 50)
TIME_LIMIT_S = 1_800.0


def test_a_query_that_is_stopped_in_a_batch_and_started_again_writes_each_row_once(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    random, servers = Random(SEED), kafka_cluster.bootstrap_servers
    rows = write_input(tmp_path / "input", FILES)
    rules: dict[str, list[Rule]] = {}
    for name in NAMES:
        kafka_cluster.create_topic(name, 3)
        steps = [random.randint(5, BETWEEN[1])]
        for _ in range(ROUNDS - 1):
            steps.append(steps[-1] + random.randint(*BETWEEN))
        rules[name] = [("*", each, "hold") for each in steps]
    queries = [Query(name, rows, files=1) for name in NAMES]
    stopped: list[tuple[str, str, int]] = []
    with driver(tmp_path / "run", servers, [queries] * (ROUNDS + 1), home=tmp_path, rules=rules) as running:
        for number in range(ROUNDS):
            running.go(number)
            for name in random.sample(NAMES, len(NAMES)):
                running.wait_held(name)
                step = (running.folder / f"{name}.held").read_text()
                is_held = random.random() < 0.5
                if not is_held:
                    running.release(name)
                    time.sleep(random.random() / 4)
                running.stop(name)
                if is_held:
                    running.release(name)
                running.wait_ended(name)
                done = read_by_librdkafka(servers, name)
                assert set(done.values()) <= {1}, (name, step)
                assert done.total() < expected(FILES).total(), (name, step)  # it was stopped, and did not end by itself
                stopped.append((name, step, done.total()))
            assert {result["error"] for result in running.results.values()} == {None}
            running.forget_results()
        running.go(ROUNDS)
        running.wait_ended(*NAMES)
        assert {result["error"] for result in running.results.values()} == {None}
    wait_none_open(servers, "stops-")
    assert len(stopped) == ROUNDS * len(NAMES)
    for name in NAMES:
        assert read_by_librdkafka(servers, name) == expected(FILES), (name, stopped)
    print(*stopped, sep="\n")
