"""Exactly-once writes with drawn options, rows and mishaps on an in-process cluster, with Spark's calls made by hand.

    AIOKPROD_TEST_SPARK_DRAWN=500 pytest tests/spark/test_exactly_once_drawn.py

runs 500 seeds; 12 are the default. What the exploration of the protocol draws in a model happens here on the wire.
"""

from __future__ import annotations

import os
import string
from collections import Counter
from random import Random
from typing import Any

import pytest
from exactly_once_rig import TOPIC, DiedError, Spark, abort_by_id, die_at, forget_processes, visible

from aiokprod.spark.exactly_once import requests
from aiokprod.spark.exactly_once.errors import (
    BatchUnfinishedError,
    CheckpointRewoundError,
    NewerDriverError,
    ReplayMismatchError,
)
from aiokprod.testing.mock import MockCluster

SEEDS = int(os.environ.get("AIOKPROD_TEST_SPARK_DRAWN", "12"))
BATCHES = 5
STEPS = (
    "before WriteDecision", "inside WriteDecision", "after WriteDecision", "before CommitAll", "after EndTxn",
    "after CommitAll", "before WriteDone", "after WriteDone", "before ListLeftovers", "after ListLeftovers",
)  # fmt: skip
SIGNS = string.ascii_letters + string.digits + "_-"


class Drawn:
    """One schedule: a stream or jobs of one name, batch after batch, each with some mishap at each try."""

    def __init__(self, seed: int, cluster: MockCluster, patch: pytest.MonkeyPatch) -> None:
        self.random = random = Random(seed)
        self.cluster = cluster
        self.patch = patch
        self.is_stream = random.random() < 0.5
        self.moves = random.random() < 0.5
        self.has_timed_out = False
        topics = [f"t{number}" for number in range(random.randint(1, 3))] if random.random() < 0.5 else []
        for topic in (TOPIC, *topics):
            cluster.create_topic(topic, partitions=random.randint(1, 5))
        self.topics = topics or [TOPIC]
        options = {"sinkId": "".join(random.choices(SIGNS, k=random.choice([1, 7, 100])))}
        if random.random() < 0.3:
            cluster.create_topic("markers", partitions=random.randint(1, 2))
            options["markerTopic"] = "markers"
        if not self.is_stream:
            options["txnAppId"] = "".join(random.choices(string.printable, k=random.choice([1, 300]))) + "!"
        self.spark = Spark(cluster, options, query="query" if self.is_stream else None, topics=topics)
        self.number = 0
        self.finished: Counter[str] = Counter()

    def run(self) -> None:
        for number in range(BATCHES):
            self.number = number if self.is_stream else self.number + self.random.randint(1, 10**6)
            self.spark.options |= {} if self.is_stream else {"txnVersion": str(self.number)}
            rows = [f"{number}-{row}" for row in range(self.random.choice([0, 1, 5, 20]))]
            layout = self.layout(rows)
            for tried in range(6):
                if self.moves:
                    layout = self.layout(rows)
                try:
                    if self.tried(layout, is_calm=tried == 5):
                        break
                except ReplayMismatchError:
                    assert self.moves and self.has_timed_out
                    self.check(rows)
                    return
                finally:
                    forget_processes()
            self.finished.update(rows)
        self.check([])
        self.spark.options |= {} if self.is_stream else {"txnVersion": str(self.number - 1)}
        with pytest.raises(CheckpointRewoundError):
            self.spark.batch(self.number - 1, [["never"]])

    def layout(self, rows: list[str]) -> list[list[str]]:
        tasks: list[list[str]] = [[] for _ in range(self.random.randint(1, 4))]
        for row in rows:
            self.random.choice(tasks).append(row)
        return tasks

    def tried(self, layout: list[list[str]], *, is_calm: bool) -> bool:
        """Run the batch once; return whether Spark takes it for finished."""
        random, spark, number = self.random, self.spark, self.number
        mishap = (
            "none"
            if is_calm
            else random.choice(["none", "dies", "fails", "second", "timeout", "timeout later", "lost"])
        )
        writer = spark.writer()
        told: list[Any] = []
        for at, rows in enumerate(layout):
            if random.random() < 0.2:
                spark.task(writer, number, at, rows)  # denied, or its executor dies
                told.append(spark.task(writer, number, at, rows, attempt=1))
            elif mishap == "fails" and at == len(layout) - 1:
                with pytest.raises(ValueError, match="end here"):
                    spark.task(writer, number, at, rows, fails=True)
                spark.abort(writer, told, number)
                return False
            else:
                told.append(spark.task(writer, number, at, rows))
        if mishap == "second":
            spark.writer()  # takes over
        if mishap == "lost":
            self.cluster.drop_answer("EndTxn", times=random.randint(1, 3))
        with self.patch.context() as patch:
            if mishap == "dies":
                die_at(patch, random.choice(STEPS), random.randint(1, 2))
            if mishap.startswith("timeout"):
                self.time_out(patch, writer, told, is_late=mishap.endswith("later"))
            try:
                spark.commit(writer, told, number)
            except DiedError:
                return False
            except (NewerDriverError, BatchUnfinishedError):
                assert mishap == "second" or self.has_timed_out
                spark.abort(writer, told, number)
                return False
        return random.random() < 0.8  # or Spark dies before its own commit log

    def time_out(self, patch: pytest.MonkeyPatch, writer: Any, told: list[Any], *, is_late: bool) -> None:
        """Let one transaction time out before the decision, or behind it."""
        prepared = [each.exactly_once.report.attempt for each in told if each.exactly_once.report.attempt is not None]
        if not prepared:
            return
        self.has_timed_out = True
        one = self.random.choice(prepared)
        name = f"{writer.options.exactly_once.sink}.{one.generation}.{one.partition}.{one.attempt}"
        if is_late:

            def reached(step: str, _: str) -> None:
                if step == "after WriteDecision":
                    abort_by_id(self.cluster, name)

            patch.setattr(requests, "reached", reached)
        else:
            abort_by_id(self.cluster, name)

    def check(self, unfinished: list[str]) -> None:
        found = sum((visible(self.cluster, topic) for topic in self.topics), Counter())
        rest = found - self.finished
        assert found - rest == self.finished
        assert set(rest) <= set(unfinished)
        assert set(rest.values()) <= {1}


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_row_of_a_finished_batch_is_there_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with MockCluster(2, transaction_version=1 + seed % 2, transaction_completion_ms=2) as cluster:
        try:
            Drawn(seed, cluster, monkeypatch).run()
        finally:
            forget_processes()
        assert cluster.counters.crashes == []
