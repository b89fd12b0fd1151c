"""Drivers of Spark that are killed at each step of a commit, held while another one goes on, or restarted with other things.

One driver is killed with a query at each step, so that one kill is many. The numbers are the cases of
docs/spark_exactly_once.md.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient
from drivers import Query, Rule, driver, expected, open_transactions, read_by_librdkafka, write_input

from aiokprod.testing.kafka_cluster import KafkaCluster
from aiokprod.transactions.admin import TransactionAdmin

pytestmark = [pytest.mark.real, pytest.mark.slow]
TIME_LIMIT_S = 3_600.0
BATCH = 3  # files
FILES = 2 * BATCH
TASKS = 3
# Step, which time of it in the first run (batch 1 is meant), and whether batch 1 is decided by then.
KILLED = {
    "case7": ("before WriteDecision", 2),
    "case7-inside": ("inside WriteDecision", 2),
    "case8": ("after WriteDecision", 2),
    "case8-between": ("after EndTxn", TASKS + 2),
    "case9": ("after CommitAll", 2),
    "case9-done": ("after WriteDone", 2),
}
DECIDED = ("case8", "case8-between", "case9", "case9-done")
# Two of the three transactions of batch 1 are committed, the other one times out.
PART = ("after EndTxn", TASKS + 2)
LIVES = "case12-lives"  # its driver goes on with the commit, and with a restart of the query
TIMED_OUT = dict.fromkeys(("case12", "case12-moved", "case12-duplicate", LIVES), PART)
RAISING = {"case11": PART}
TWO_DRIVERS = {"case13": ("before WriteDecision", 2)}
SHORT = {"kafka.transaction.timeout.ms": "30000"}  # longer than the batches before
UNFINISHED = (
    "BatchUnfinishedError: batch 1: 1 of the transactions of 3 tasks are not committed"  # of BatchUnfinishedError
)
DUPLICATE = {"onReplayMismatch": "duplicate"}
SOON = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=1, config=SOON) as running:
        yield running


def test_whatever_step_a_driver_is_killed_at_every_row_is_there_once(cluster: KafkaCluster, tmp_path: Path) -> None:
    servers = cluster.bootstrap_servers
    rows = write_input(tmp_path / "input", FILES)
    held = KILLED | TIMED_OUT | TWO_DRIVERS
    rules: dict[str, list[Rule]] = {sink: [(*step, "hold")] for sink, step in held.items()}
    rules |= {sink: [(*step, "raise")] for sink, step in RAISING.items()}
    every = {
        name: Query(name, rows, options=SHORT if name in TIMED_OUT else {}) for name in (*held, *RAISING, "case16")
    }
    for name in every:
        cluster.create_topic(name, 3)
    again = {
        name: Query(
            name, rows, tasks=TASKS if name in ("case12", "case12-duplicate", LIVES) else 1, options=query.options
        )
        for name, query in every.items()
    }
    again["case12-duplicate"] = replace(again["case12-duplicate"], options=SHORT | DUPLICATE)
    for_one_run = replace(again["case12-moved"], options=SHORT | DUPLICATE)
    phases = [list(every.values()), [again.pop(LIVES)]]
    with driver(tmp_path / "first", servers, phases, home=tmp_path, rules=rules) as first:
        first.go(0)
        first.wait_ended("case11", "case16")
        assert "after EndTxn fails" in first.results["case11"]["error"]
        assert first.results["case16"]["error"] is None
        first.wait_held(*held)
        later = [again[name] for name in again if name not in (*TWO_DRIVERS, "case16")]
        phases = [[again["case13"]], later, [for_one_run], [again["case12-moved"]]]
        with driver(tmp_path / "second", servers, phases, home=tmp_path) as second:
            second.go(0)  # beside the first one: case 13
            second.wait_ended("case13")
            assert second.results["case13"]["error"] is None
            first.release("case13")
            first.wait_ended("case13")
            assert "NewerDriverError" in first.results["case13"]["error"]
            wait_timed_out(servers, "case12")
            first.release(LIVES)
            first.wait_ended(LIVES)
            assert UNFINISHED in first.results[LIVES]["error"]
            first.forget_results()
            first.go(1)
            first.wait_ended(LIVES)
            assert first.results[LIVES]["error"] is None
            first.kill()
            before = read_by_librdkafka(servers, "case12-moved")
            second.go(1)  # other parallelism, but for case 12: case 18
            second.wait_ended(*(query.name for query in later))
            errors = {name: result["error"] for name, result in second.results.items()}
            found = read_by_librdkafka(servers, "case12-moved")
            assert found == before  # nothing new is visible
            for phase in (2, 3):  # as the error says: duplicate for one run, and then without it
                second.forget_results()
                second.go(phase)
                second.wait_ended("case12-moved")
                assert second.results["case12-moved"]["error"] is None
    assert open_transactions(servers, "") == []
    moved = errors.pop("case12-moved")
    assert moved is not None
    assert "ReplayMismatchError" in moved
    assert set(errors.values()) == {None}, errors
    for name in (*errors, "case16", LIVES):
        assert read_by_librdkafka(servers, name) == expected(FILES), name
        finished, _ = recorded(servers, f"{name}.done")
        assert finished == 1, name
    assert set(found.values()) == {1}
    assert set(found) < set(expected(FILES))
    twice = found - expected(FILES // 2)  # what was committed of batch 1
    assert twice
    assert read_by_librdkafka(servers, "case12-moved") == expected(FILES) + twice
    for name in DECIDED:
        assert read_by_librdkafka(servers, name, committed=False) == expected(FILES), name  # nothing was sent again
    # Case 20: what was aborted is there for readers of uncommitted records.
    assert read_by_librdkafka(servers, "case7", committed=False).total() > expected(FILES).total()


def test_below_version_2_of_transactions_a_timeout_is_told_and_the_rest_is_written(tmp_path: Path) -> None:
    # Case 12: the coordinator cannot tell how a transaction ended that it has aborted itself, but its marker does.
    rows = write_input(tmp_path / "input", FILES)
    names = ("same", "moved", "duplicate")
    first = {name: Query(name, rows, options=SHORT) for name in names}
    again = [
        first["same"], replace(first["moved"], tasks=1),
        replace(first["duplicate"], tasks=1, options=SHORT | DUPLICATE),
    ]  # fmt: skip
    rules: dict[str, list[Rule]] = {name: [(*PART, "hold")] for name in names}
    with KafkaCluster(brokers=1, config=SOON, features={"transaction.version": 0}) as old:
        servers = old.bootstrap_servers
        for name in names:
            old.create_topic(name, 3)
        with driver(tmp_path / "run", servers, [list(first.values()), again], home=tmp_path, rules=rules) as running:
            running.go(0)
            running.wait_held(*names)
            for name in names:
                wait_timed_out(servers, name)
                running.release(name)
            running.wait_ended(*names)
            told = running.results
            assert all(UNFINISHED in (told[name]["error"] or "") for name in names), told
            part = {name: read_by_librdkafka(servers, name) - expected(FILES // 2) for name in names}
            running.forget_results()
            running.go(1)
            running.wait_ended(*names)
            errors = {name: result["error"] for name, result in running.results.items()}
        assert open_transactions(servers, "") == []
        assert (errors["same"], errors["duplicate"]) == (None, None)
        assert "ReplayMismatchError" in (errors["moved"] or "")
        assert all(part.values())
        assert read_by_librdkafka(servers, "same") == expected(FILES)
        assert read_by_librdkafka(servers, "moved") == expected(FILES // 2) + part["moved"]
        assert read_by_librdkafka(servers, "duplicate") == expected(FILES) + part["duplicate"]


def wait_timed_out(servers: str, prefix: str) -> None:
    """Wait until the coordinator has aborted what is open, and readers of committed records are behind it."""

    async def wait() -> None:
        async with TransactionAdmin(servers) as admin:
            while await admin.transactional_ids(prefix, states=["Ongoing", "PrepareAbort"]):
                await asyncio.sleep(0.5)

    asyncio.run(asyncio.wait_for(wait(), 120))


def forget_groups(servers: str, sink: str) -> None:
    """Delete the facts of a sink id, as they expire behind offsets.retention.minutes."""
    admin = AdminClient({"bootstrap.servers": servers})
    listed = admin.list_consumer_groups(request_timeout=30).result()
    found = [each.group_id for each in listed.valid if each.group_id.startswith(f"{sink}.")]
    assert f"{sink}.0" in found
    for deleted in admin.delete_consumer_groups(found, request_timeout=30).values():
        deleted.result()


def recorded(servers: str, group: str) -> tuple[int, str]:
    """Return the offset and the metadata of the one fact in a group."""
    admin = AdminClient({"bootstrap.servers": servers})
    until = time.monotonic() + 60
    while True:
        try:
            asked = ConsumerGroupTopicPartitions(group)
            found = next(iter(admin.list_consumer_group_offsets([asked], request_timeout=30).values())).result()
            ((offset, metadata),) = ((each.offset, each.metadata) for each in found.topic_partitions if each.metadata)
            return offset, metadata
        except (KafkaException, ValueError):  # the coordinator of a busy cluster does not answer at once
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def recorded_rows(servers: str, sink: str) -> int:
    """Return the number of rows that the decision of the last batch has on record."""
    _, decision = recorded(servers, f"{sink}.0")
    assert decision.startswith("d4 ")
    return int(decision.split(" ")[9])


def test_checkpoints_that_come_back_or_are_lost(cluster: KafkaCluster, tmp_path: Path) -> None:
    servers = cluster.bootstrap_servers
    rows = write_input(tmp_path / "input", FILES)
    growing = write_input(tmp_path / "growing", FILES)
    for name in ("case15", "old", "back", "idle", "facts", "turns"):
        cluster.create_topic(name, 3)
    checkpoints = tmp_path / "checkpoints"
    # One batch each; the rows of the second query are those of the second run.
    first, second = (Query("turns", rows, files=FILES, checkpoint=f"turns-{each}") for each in ("first", "second"))
    again = {"onMissingFacts": "write"}
    every = [
        Query("case15", rows),
        Query("old", rows),
        Query("back", growing),
        Query("idle", rows),
        Query("facts", rows),
    ]
    phases = [
        [*every, first],
        [*every, second],
        [Query("facts", rows, options=again), first, Query("back", growing, options={"onReplayMismatch": "skip"})],
        [Query("back", growing)],
    ]
    with driver(tmp_path / "run", servers, phases, home=tmp_path) as running:
        running.go(0)
        running.wait_ended("case15", "old", "back", "idle", "facts", "turns")
        assert {result["error"] for result in running.results.values()} == {None}
        shutil.rmtree(checkpoints / "case15")  # case 15: a new stream
        for log in ("offsets", "commits"):  # case 16: a copy of an earlier day
            for each in (*(checkpoints / "old" / log).glob("*0*"), *(checkpoints / "old" / log).glob("*1*")):
                each.unlink()
        for name in ("back", "idle"):  # case 16: a copy from one batch before
            assert recorded_rows(servers, name) == expected(FILES // 2).total()
            for log in ("offsets", "commits"):
                for each in (checkpoints / name / log).glob("*1*"):
                    each.unlink()
        write_input(tmp_path / "growing", FILES + 2)  # and the source has more by now
        for each in (checkpoints / "facts" / "commits").glob("*1*"):  # case 17: batch 1 runs again, without facts
            each.unlink()
        forget_groups(servers, "facts")
        for each in (checkpoints / "turns-first" / "commits").glob("*0*"):  # case 14: dies between its end and this log
            each.unlink()
        running.forget_results()
        running.go(1)
        running.wait_ended("case15", "old", "back", "idle", "facts", "turns")
        errors = {name: result["error"] for name, result in running.results.items()}
        assert (errors["case15"], errors["idle"], errors["turns"]) == (None, None, None)
        assert "CheckpointRewoundError" in (errors["back"] or "")
        assert "batch 1 of this query is done with 60 rows, and has 100 now" in (errors["back"] or "")
        assert read_by_librdkafka(servers, "back") == expected(FILES)
        assert "CheckpointRewoundError" in (errors["old"] or "")
        assert "nothing is recorded about this query" in (errors["facts"] or "")
        write_input(tmp_path / "growing", FILES + 4)  # for batch 2
        running.forget_results()
        running.go(2)
        running.wait_ended("facts", "turns", "back")
        assert (running.results["facts"]["error"], running.results["back"]["error"]) == (None, None)
        assert "another query has used the sinkId since" in (
            running.results["turns"]["error"] or ""
        )  # case 14: in turn
        write_input(tmp_path / "growing", FILES + 5)
        running.forget_results()
        running.go(3)  # skip is for one run
        running.wait_ended("back")
        assert running.results["back"]["error"] is None
    once = expected(FILES)
    # Nothing more of batch 1 was written: the rows that had come since are in no batch. Those behind them are.
    later = Counter({row: 1 for row in expected(FILES + 5) if int(row[:5]) >= FILES + 2})
    assert read_by_librdkafka(servers, "back") == once + later
    assert (
        read_by_librdkafka(servers, "back", committed=False) == once + later
    )  # nothing was sent for the refused batch
    assert read_by_librdkafka(servers, "idle") == once
    assert read_by_librdkafka(servers, "turns") == once + once
    assert read_by_librdkafka(servers, "case15") == once + once
    assert read_by_librdkafka(servers, "old") == once
    last = Counter({row: 1 for row in once if int(row[:5]) >= TASKS})
    assert read_by_librdkafka(servers, "facts") == once + last  # as it was asked for


def test_two_queries_that_share_a_sink_id_double_nothing_and_each_alone_writes_the_rest(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    # Case 14. Of each sink id a query is held in its batch 1, and another one begins and ends; of "race" none is held.
    servers = cluster.bootstrap_servers
    rows = write_input(tmp_path / "input", 3 * BATCH)
    rules: dict[str, list[Rule]] = {
        "open": [("before WriteDecision", 2, "hold")],
        "half": [("inside WriteDecision", 2, "hold")],
        "part": [(*PART, "hold")],
        "same": [("after WriteDecision", 2, "hold")],  # of one topic, so the other query knows what it has decided
    }

    def query(sink: str, each: str, **options: str) -> Query:
        topic = "same" if sink == "same" else f"{sink}-{each}"
        return Query(f"{sink}-{each}", rows, TASKS, BATCH, topic, options={"sinkId": sink} | options)

    held = [query(sink, "held") for sink in rules]
    others = [query(sink, "other") for sink in rules]
    race = [query("race", "one"), query("race", "two")]
    topics = {each.topic or each.name for each in (*held, *others, *race)}
    for topic in topics:
        cluster.create_topic(topic, 3)
    alone = [*held[:3], query("same", "held", onMissingFacts="write"), race[0]]
    phases = [held, [*others, *race], alone, race[1:]]
    one_batch, two_batches, once = (expected(number * BATCH) for number in (1, 2, 3))
    with driver(tmp_path / "run", servers, phases, home=tmp_path, rules=rules) as running:
        running.go(0)
        running.wait_held(*rules)
        running.go(1)
        running.wait_ended(*(each.name for each in (*others, *race)))
        assert {running.results[each.name]["error"] for each in others} == {None}
        for sink in rules:
            running.release(sink)
        running.wait_ended(*(each.name for each in held))
        errors = {name: result["error"] for name, result in running.results.items()}
        for sink in ("open", "half"):
            assert "NewerDriverError" in errors[f"{sink}-held"]
            assert read_by_librdkafka(servers, f"{sink}-held") == one_batch
        # The other query aborts what it does not know to be decided.
        assert UNFINISHED in errors["part-held"]
        assert "another query has used the sinkId since" in errors["same-held"]
        for each in race:
            error = errors[each.name] or "NewerDriverError"
            assert "NewerDriverError" in error or "BatchUnfinishedError" in error, error
            assert read_by_librdkafka(servers, each.name) <= once
        assert one_batch < read_by_librdkafka(servers, "part-held") < two_batches
        assert read_by_librdkafka(servers, "same") == two_batches + once
        for sink in ("open", "half", "part"):
            assert read_by_librdkafka(servers, f"{sink}-other") == once
        for phase in (2, 3):
            running.forget_results()
            running.go(phase)
            running.wait_ended(*(each.name for each in phases[phase]))
            assert {result["error"] for result in running.results.values()} == {None}, running.results
    for topic in topics - {"same"}:
        assert read_by_librdkafka(servers, topic) == once, topic
    assert read_by_librdkafka(servers, "same") == once + once
    assert open_transactions(servers, "") == []
