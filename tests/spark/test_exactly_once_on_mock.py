"""Exactly-once writes on an in-process cluster, with Spark's calls made by hand: deaths at each step, replays, refusals."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from exactly_once_rig import (
    ROWS,
    TOPIC,
    DiedError,
    Spark,
    abort_by_id,
    dealt,
    die_at,
    forget_processes,
    in_another_process,
    rows_of,
    visible,
    wait_until,
)

from aiokprod import Producer, ProducerState
from aiokprod.errors import AiokprodError, ClusterAuthorizationError, ProducerFailedError, UnknownTopicError
from aiokprod.spark.engine import current_engine
from aiokprod.spark.errors import SinkUsageError
from aiokprod.spark.exactly_once import protocol, requests
from aiokprod.spark.exactly_once.errors import (
    BatchUnfinishedError,
    CheckpointRewoundError,
    FactsMissingError,
    NewerDriverError,
    ReplayMismatchError,
)
from aiokprod.spark.messages import TaskMessage
from aiokprod.testing.mock import MockCluster
from aiokprod.wire.codes import ErrorCode

ONCE = Counter(ROWS)
STEPS = (
    "before WriteDecision",
    "inside WriteDecision",
    "after WriteDecision",
    "before CommitAll",
    "after EndTxn",
    "after CommitAll",
    "before WriteDone",
    "after WriteDone",
)


@pytest.fixture(params=[2, 1], ids=["TV2", "TV1"])
def cluster(request: pytest.FixtureRequest) -> Iterator[MockCluster]:
    with MockCluster(2, transaction_version=request.param, transaction_completion_ms=2) as running:
        running.create_topic(TOPIC, partitions=3)
        yield running
        forget_processes()
        assert running.counters.crashes == []


@pytest.fixture
def newest() -> Iterator[MockCluster]:
    with MockCluster(2) as running:
        running.create_topic(TOPIC, partitions=3)
        yield running
        forget_processes()


def test_rows_become_visible_with_the_commit_of_their_batch(cluster: MockCluster) -> None:
    spark = Spark(cluster)
    writer = spark.writer()
    messages = [spark.task(writer, 0, partition, rows) for partition, rows in enumerate([*dealt(ROWS, 3), []])]
    assert visible(cluster) == Counter()
    assert [each.exactly_once is not None and each.exactly_once.report.attempt is not None for each in messages] == [
        True, True, True, False,
    ]  # fmt: skip
    spark.commit(writer, messages, 0)
    assert visible(cluster) == ONCE
    for number in range(1, 4):
        spark.batch(number, dealt(rows_of(number), 3))
    assert visible(cluster) == ONCE + Counter(rows_of(1) + rows_of(2) + rows_of(3))


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_dies_in_the_commit_is_followed_by_one_that_goes_on(
    cluster: MockCluster, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = Spark(cluster)
    spark.batch(0, dealt(rows_of(0), 3))
    with monkeypatch.context() as patch:
        writer = spark.writer()
        messages = [spark.task(writer, 1, partition, rows) for partition, rows in enumerate(dealt(ROWS, 3))]
        steps = die_at(patch, step)
        with pytest.raises(DiedError):
            spark.commit(writer, messages, 1)
        assert step in steps
    forget_processes()
    replay = spark.batch(1, dealt(list(reversed(ROWS)), 2))  # other rows in other tasks
    is_decided = step not in ("before WriteDecision", "inside WriteDecision")
    assert all((each.rows == 0) == is_decided for each in replay)
    spark.batch(2, dealt(rows_of(2), 3))
    assert visible(cluster) == ONCE + Counter(rows_of(0)) + Counter(rows_of(2))


@pytest.mark.parametrize("query", [None, "query"])
def test_a_second_attempt_leaves_nothing_of_the_first(cluster: MockCluster, query: str | None) -> None:
    spark = Spark(cluster, query=query)
    writer = spark.writer()
    spark.task(writer, 0, 0, ROWS)  # case 2: denied by Spark after it had sent all
    spark.commit(writer, [spark.task(writer, 0, 0, ROWS, attempt=1)], 0)
    assert visible(cluster) == ONCE  # readers do not wait for the next batch, which may come a day later
    spark.batch(1, [rows_of(1)])
    assert visible(cluster) == ONCE + Counter(rows_of(1))


def test_what_is_left_behind_a_commit_may_stay_there(cluster: MockCluster) -> None:
    spark = Spark(cluster)
    writer = spark.writer()
    spark.task(writer, 0, 0, ROWS)
    told = [spark.task(writer, 0, 0, ROWS, attempt=1)]
    refused = cluster.fail_next("ListTransactions", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    spark.commit(writer, told, 0)  # the batch is done, whatever comes of the rest
    assert refused.hits == 1
    spark.batch(1, [rows_of(1)])  # aborts it
    assert visible(cluster) == ONCE + Counter(rows_of(1))


def test_a_batch_is_finished_if_what_is_left_cannot_be_found_until_its_deadline(
    newest: MockCluster, caplog: pytest.LogCaptureFixture
) -> None:
    short = {"kafka.delivery.timeout.ms": "1500", "kafka.request.timeout.ms": "1000", "kafka.max.block.ms": "1000"}
    spark = Spark(newest, short)  # together less than SWEEP_S
    writer = spark.writer()
    told = [spark.task(writer, 0, 0, ROWS)]
    loading = newest.fail_next("ListTransactions", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=1_000_000)
    spark.commit(writer, told, 0)
    assert loading.hits > 1
    (told_left,) = [each.getMessage() for each in caplog.records if "part of no batch" in each.getMessage()]
    assert "COORDINATOR_LOAD_IN_PROGRESS" in told_left
    assert visible(newest) == ONCE


def test_a_job_whose_tasks_have_all_died_leaves_nothing(cluster: MockCluster) -> None:
    spark = Spark(cluster, query=None)
    writer = spark.writer()
    for attempt in range(4):
        spark.task(writer, 0, 0, ROWS, attempt=attempt)  # its worker dies before Spark has its message
    spark.abort(writer, [None], 0)
    assert visible(cluster) == Counter()
    Spark(cluster).batch(0, [rows_of(1)])  # of another sink
    assert visible(cluster) == Counter(rows_of(1))


def test_of_two_jobs_of_one_name_the_older_one_leaves_nothing(cluster: MockCluster) -> None:
    spark = Spark(cluster, {"txnAppId": "load", "txnVersion": "1"}, query=None)
    older, newer = spark.writer(), spark.writer()
    told = [
        spark.task(older, 0, at, rows) for at, rows in enumerate(dealt(ROWS, 3))
    ]  # behind the look of the newer one
    spark.commit(newer, [spark.task(newer, 0, at, rows) for at, rows in enumerate(dealt(ROWS, 2))], 0)
    with pytest.raises(NewerDriverError):
        spark.commit(older, told, 0)
    spark.abort(older, told, 0)
    assert visible(cluster) == ONCE


def test_a_task_that_fails_aborts_its_transaction(cluster: MockCluster) -> None:
    spark = Spark(cluster)
    writer = spark.writer()
    with pytest.raises(ValueError, match="the rows of this attempt end here"):
        spark.task(writer, 0, 0, ROWS, fails=True)
    spark.commit(writer, [spark.task(writer, 0, 0, ROWS, attempt=1)], 0)
    assert visible(cluster) == ONCE  # readers do not wait for the next batch


def test_the_older_of_two_drivers_cannot_commit(cluster: MockCluster) -> None:
    spark = Spark(cluster)
    older = spark.writer()
    messages = [spark.task(older, 0, partition, rows) for partition, rows in enumerate(dealt(ROWS, 2))]
    newer = spark.writer()
    with pytest.raises(NewerDriverError, match="another driver has taken over the sinkId 'sink'"):
        spark.commit(older, messages, 0)
    spark.abort(older, messages, 0)
    told = [spark.task(newer, 0, partition, rows) for partition, rows in enumerate(dealt(ROWS, 3))]
    spark.commit(newer, told, 0)
    assert visible(cluster) == ONCE


def test_a_task_of_an_older_driver_that_begins_late_aborts_nothing_of_newer_ones(cluster: MockCluster) -> None:
    spark = Spark(cluster)
    older = spark.writer()
    for number in range(3):
        newer = spark.writer()
        told = [spark.task(newer, number, at, rows) for at, rows in enumerate(dealt(rows_of(number), 2))]
        spark.task(older, 0, 1, ROWS)
        spark.commit(newer, told, number)
    assert visible(cluster) == Counter(row for number in range(3) for row in rows_of(number))


def test_an_abort_of_a_driver_that_was_long_forgotten_spares_what_has_its_ids_now(cluster: MockCluster) -> None:
    spark = Spark(cluster)
    older = spark.writer()
    told = [spark.task(older, 0, 0, ROWS)]
    number = 0
    while generation_of(newer := spark.writer()) != generation_of(older):
        spark.commit(newer, [spark.task(newer, number, 0, rows_of(number))], number)
        number += 1
    last = [spark.task(newer, number, 0, rows_of(number))]
    spark.abort(older, told, 0)
    spark.commit(newer, last, number)
    assert number > 3
    assert visible(cluster) == Counter(row for each in range(number + 1) for row in rows_of(each))


def test_an_abort_of_an_older_driver_leaves_the_decision_of_the_newest_one_alone(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = Spark(cluster)
    older = spark.writer()
    old = [spark.task(older, 0, 0, ROWS)]
    newer = spark.writer()
    told = [spark.task(newer, 0, at, rows) for at, rows in enumerate(dealt(ROWS, 2))]
    steps: list[str] = []

    def reached(step: str, _: str) -> None:
        steps.append(step)
        if step == "inside WriteDecision":
            in_another_process(lambda: spark.abort(older, old, 0))
        elif step == "before ReadFacts":
            raise DiedError(step)  # the older one would wait for the end of the decision

    monkeypatch.setattr(requests, "reached", reached)
    spark.commit(newer, told, 0)
    assert "after TakeToken" in steps
    assert visible(cluster) == ONCE


def test_an_abort_leaves_what_a_driver_that_opens_meanwhile_has_prepared(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = Spark(cluster)
    older = spark.writer()
    old = [spark.task(older, 0, 0, ROWS)]
    told: list[TaskMessage] = []
    newer: list[Any] = []

    def prepare() -> None:
        newer.append(spark.writer())
        told.extend(spark.task(newer[0], 0, at, rows) for at, rows in enumerate(dealt(ROWS, 2)))

    def reached(step: str, _: str) -> None:
        if step == "before ReadFacts" and not newer:  # behind the token, which was the newest one
            monkeypatch.setattr(requests, "reached", lambda step, sink: None)
            in_another_process(prepare)

    monkeypatch.setattr(requests, "reached", reached)
    spark.abort(older, old, 0)
    assert len(told) == 2
    spark.commit(newer[0], told, 0)
    assert visible(cluster) == ONCE


def generation_of(writer: Any) -> int:
    generation: int = writer.opened.opening.token.generation
    return generation


def test_an_abort_spares_what_is_decided(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Spark(cluster)
    writer = spark.writer()
    messages = [spark.task(writer, 0, partition, rows) for partition, rows in enumerate(dealt(ROWS, 3))]
    with monkeypatch.context() as patch:
        die_at(patch, "after WriteDecision")
        with pytest.raises(DiedError):
            spark.commit(writer, messages, 0)
    spark.abort(writer, messages, 0)
    spark.batch(0, dealt(list(reversed(ROWS)), 2))
    assert visible(cluster) == ONCE


def test_an_abort_before_the_decision_aborts(cluster: MockCluster) -> None:
    spark = Spark(cluster)
    writer = spark.writer()
    messages: list[Any] = [spark.task(writer, 0, partition, rows) for partition, rows in enumerate(dealt(ROWS, 2))]
    spark.abort(writer, [*messages, None], 0)
    with pytest.raises((NewerDriverError, BatchUnfinishedError)):  # a commit that was interrupted and goes on
        spark.commit(writer, messages, 0)
    spark.abort(writer, [], 0)
    assert visible(cluster) == Counter()
    spark.batch(0, [ROWS])
    assert visible(cluster) == ONCE


def lose_a_part(spark: Spark, batch: int, layout: list[list[str]], monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    """Leave a batch that is decided, of which one transaction has timed out."""
    writer = spark.writer()
    messages = [spark.task(writer, batch, partition, rows) for partition, rows in enumerate(layout)]
    report, settings = messages[lost].exactly_once, writer.options.exactly_once
    assert report is not None and report.report.attempt is not None and settings is not None
    generation = report.opened.opening.token.generation
    name = f"{settings.sink}.{generation}.{lost}.0"
    with monkeypatch.context() as patch:

        def time_out(step: str, _: str) -> None:
            if step == "after WriteDecision":
                abort_by_id(spark.cluster, name)

        patch.setattr(requests, "reached", time_out)
        with pytest.raises(BatchUnfinishedError, match="1 of the transactions of 3 tasks are not committed"):
            spark.commit(writer, messages, batch)
    spark.abort(writer, messages, batch)
    forget_processes()


def test_a_part_that_timed_out_is_written_by_the_replay(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Spark(cluster)
    layout = dealt(ROWS, 3)
    lose_a_part(spark, 0, layout, monkeypatch, lost=1)
    assert visible(cluster) == Counter(layout[0] + layout[2])
    replay = spark.batch(0, layout)
    assert [message.rows for message in replay] == [0, 4, 0]
    assert visible(cluster) == ONCE
    spark.batch(1, dealt(rows_of(1), 3))
    assert visible(cluster) == ONCE + Counter(rows_of(1))


def test_markers_are_found_where_they_are_when_their_topic_has_grown(
    newest: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest.create_topic("markers", partitions=1)
    spark = Spark(newest, {"markerTopic": "markers"})
    layout = dealt(ROWS, 3)
    lose_a_part(spark, 0, layout, monkeypatch, lost=1)
    newest.add_partitions("markers", 5)
    assert [message.rows for message in spark.batch(0, layout)] == [0, 4, 0]
    assert visible(newest) == ONCE


@pytest.mark.parametrize("version", [2, 1], ids=["TV2", "TV1"])
def test_markers_whose_transactions_are_being_ended_are_waited_for(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MockCluster(2, transaction_version=version, transaction_completion_ms=300) as slow:
        slow.create_topic(TOPIC, partitions=3)
        spark = Spark(slow)
        layout = dealt(ROWS, 3)
        writer = spark.writer()
        told = [spark.task(writer, 0, partition, rows) for partition, rows in enumerate(layout)]
        with monkeypatch.context() as patch:
            die_at(patch, "after WriteDecision")
            with pytest.raises(DiedError):
                spark.commit(writer, told, 0)
        abort_by_id(slow, name_of_task(told[0], 1))
        forget_processes()
        # The opening commits two of them, and asks for their markers at once.
        assert [message.rows for message in spark.batch(0, layout)] == [0, 4, 0]
        wait_until(lambda: visible(slow) == ONCE)
        forget_processes()


def test_a_second_attempt_of_a_stage_doubles_nothing_and_is_named_in_the_error(cluster: MockCluster) -> None:
    # Spark runs a stage again after a fetch failure: its task attempts count from 0 again, so they have the same ids.
    spark = Spark(cluster)
    layout = dealt(ROWS, 3)
    writer = spark.writer()
    told = [spark.task(writer, 0, partition, rows) for partition, rows in enumerate(layout)]
    forget_processes()
    spark.task(writer, 0, 1, layout[1])
    with pytest.raises(BatchUnfinishedError, match=r"1 of .* Spark ran their stage again \(a fetch failure\)"):
        spark.commit(writer, told, 0)
    spark.abort(writer, told, 0)
    assert visible(cluster) == Counter(layout[0] + layout[2])
    assert [message.rows for message in spark.batch(0, layout)] == [0, 4, 0]
    assert visible(cluster) == ONCE


@pytest.mark.parametrize("tasks", [2, 3, 4])
def test_where_its_rows_have_moved_the_batch_is_refused(
    newest: MockCluster, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = Spark(newest)
    lose_a_part(spark, 0, dealt(ROWS, 3), monkeypatch, lost=1)
    before = visible(newest)
    with pytest.raises(ReplayMismatchError, match="batch 0 is partly committed"):
        spark.batch(0, dealt(list(reversed(ROWS)), tasks))
    assert visible(newest) == before
    with pytest.raises(ReplayMismatchError):  # also where only the number of tasks is smaller
        spark.batch(0, dealt(ROWS, 3)[:1])
    assert visible(newest) == before


def test_where_its_rows_have_moved_they_may_be_written_again(
    newest: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = Spark(newest)
    lose_a_part(spark, 0, dealt(ROWS, 3), monkeypatch, lost=1)
    spark.options["onReplayMismatch"] = "duplicate"
    moved = dealt(ROWS, 3)
    moved[0], moved[1] = moved[1], moved[0]
    spark.batch(0, moved)
    found = visible(newest)
    assert set(found) == set(ROWS)
    assert found == ONCE + Counter(moved[1])  # the third task has the same rows as before


def test_an_old_checkpoint_is_refused(newest: MockCluster) -> None:
    spark = Spark(newest)
    for number in range(3):
        spark.batch(number, [rows_of(number)])
    with pytest.raises(CheckpointRewoundError, match="batch 1 was to be written, but batch 2 of this query is done"):
        spark.batch(1, [rows_of(1)])
    spark.batch(3, [rows_of(3)])
    assert visible(newest) == Counter([row for number in range(4) for row in rows_of(number)])


@pytest.mark.parametrize("is_foreach", [False, True], ids=["stream", "foreachBatch"])
def test_a_checkpoint_of_one_batch_before_is_refused_where_the_batch_has_more_rows_now(
    newest: MockCluster, is_foreach: bool
) -> None:
    # Case 16: the copy has no offsets/1, so Spark plans batch 1 afresh, and the source has more rows by now.
    spark = Spark(newest)
    if is_foreach:
        spark = Spark(newest, {"txnAppId": "counts", "txnVersion": "0"}, query=None, stream="a")
    for number in range(2):
        spark.options |= {"txnVersion": str(number)} if is_foreach else {}
        spark.batch(number, dealt(rows_of(number), 3))
    for layout in (dealt([*rows_of(1), "new"], 2), [rows_of(1)[1:]], [[]]):
        with pytest.raises(CheckpointRewoundError, match=r"batch 1 of this query is done with 12 rows, and has .* now"):
            spark.batch(1, layout)
    spark.batch(1, dealt(list(reversed(rows_of(1))), 2))  # a replay: its rows may move
    assert visible(newest) == Counter(rows_of(0) + rows_of(1))


def test_a_finished_batch_with_another_number_of_rows_may_be_skipped(newest: MockCluster) -> None:
    spark = Spark(newest, {"onReplayMismatch": "skip"})
    spark.batch(0, [ROWS])
    spark.batch(0, [[*ROWS, "new"]])
    spark.batch(1, [rows_of(1)])
    assert visible(newest) == ONCE + Counter(rows_of(1))


def test_the_rows_of_a_batch_that_its_replay_has_finished_are_those_of_both_runs(
    newest: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = Spark(newest)
    lose_a_part(spark, 0, dealt(ROWS, 3), monkeypatch, lost=1)
    for _ in range(2):
        spark.batch(0, dealt(ROWS, 3))
    with pytest.raises(CheckpointRewoundError, match="done with 12 rows, and has 4 now"):
        spark.batch(0, [ROWS[:4]])
    assert visible(newest) == ONCE


def test_a_new_checkpoint_is_a_new_query(newest: MockCluster) -> None:
    Spark(newest).batch(0, [ROWS])
    Spark(newest, query="another").batch(0, [ROWS])
    assert visible(newest) == ONCE + ONCE
    with pytest.raises(FactsMissingError, match="another query has used the sinkId"):
        Spark(newest).batch(1, [ROWS])


def test_a_query_that_another_one_has_followed_is_refused_unless_it_is_asked_for(
    newest: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Case 14, one query after the other: the first one dies between the end of its batch 0 and Spark's commit log.
    first, second = Spark(newest), Spark(newest, query="another")
    first.batch(0, dealt(ROWS, 3))
    second.batch(0, [rows_of(0)])
    forget_processes()
    told = "another query has used the sinkId since this one wrote with it"
    for query, number in ((first, 0), (first, 1)):
        with pytest.raises(FactsMissingError, match=told):
            query.batch(number, dealt(ROWS, 3))
    second.batch(1, [rows_of(1)])  # goes on: the other one has decided nothing
    first.options["onMissingFacts"] = "write"
    first.batch(1, [rows_of(2)])
    with pytest.raises(FactsMissingError, match=told):
        second.batch(2, [rows_of(3)])
    Spark(newest, query="a third").batch(0, [rows_of(4)])  # a new stream, as with a new checkpoint
    assert visible(newest) == ONCE + Counter([row for number in (0, 1, 2, 4) for row in rows_of(number)])


def test_a_batch_behind_a_gap_is_refused_unless_it_is_asked_for(newest: MockCluster) -> None:
    spark = Spark(newest)
    with pytest.raises(FactsMissingError, match="nothing is recorded about this query"):
        spark.batch(7, [ROWS])
    spark.options["onMissingFacts"] = "write"
    spark.batch(7, [ROWS])
    del spark.options["onMissingFacts"]
    spark.batch(8, [rows_of(8)])
    with pytest.raises(FactsMissingError, match="the last one on record is batch 8"):
        spark.batch(10, [rows_of(10)])
    assert visible(newest) == ONCE + Counter(rows_of(8))


def expire(spark: Spark) -> None:
    """Use a sink id about which nothing is recorded, as after `offsets.retention.minutes`."""
    spark.options["sinkId"] = "expired"


def test_a_batch_of_foreach_batch_whose_facts_have_expired_is_refused(newest: MockCluster) -> None:
    # Case 17. `write_each_batch` passes batchId, which counts from 0: batch 5 had one before it.
    spark = Spark(newest, {"txnAppId": "counts", "batchId": "5", "onMissingFacts": "write"}, query=None, stream="a")
    spark.batch(5, [ROWS])
    del spark.options["onMissingFacts"]
    expire(spark)
    with pytest.raises(FactsMissingError, match="nothing is recorded about this query"):
        spark.batch(5, [ROWS])
    assert visible(newest) == ONCE
    spark.options["onMissingFacts"] = "write"
    spark.batch(5, [ROWS])
    assert visible(newest) == ONCE + ONCE  # as it was asked for
    del spark.options["onMissingFacts"]
    for number in ("6", "9"):  # a function may leave empty batches out
        spark.options["batchId"] = number
        spark.batch(int(number), [rows_of(int(number))])
    assert visible(newest) == ONCE + ONCE + Counter(rows_of(6) + rows_of(9))


@pytest.mark.parametrize("are_expired", [True, False])
def test_a_query_that_comes_back_between_the_expiry_of_its_markers_and_of_its_decision_doubles_nothing(
    newest: MockCluster, monkeypatch: pytest.MonkeyPatch, are_expired: bool
) -> None:
    monkeypatch.setattr(protocol, "MARKERS_LAST_S", 0)  # it is late
    spark = Spark(newest)
    layout = dealt(ROWS, 3)
    writer = spark.writer()
    told = [spark.task(writer, 0, partition, rows) for partition, rows in enumerate(layout)]
    with monkeypatch.context() as patch:
        die_at(patch, "after EndTxn", times=3)
        with pytest.raises(DiedError):
            spark.commit(writer, told, 0)
    for partition in range(3):
        forget_id(newest, name_of_task(told[0], partition))
    if are_expired:
        delete_group(newest, "sink.m0")
    forget_processes()
    assert visible(newest) == ONCE
    if not are_expired:
        spark.batch(0, layout)
        spark.batch(1, [rows_of(1)])
        assert visible(newest) == ONCE + Counter(rows_of(1))
        return
    for number in (0, 1):
        with pytest.raises(
            FactsMissingError, match="batch 0 was decided days ago, and the records of its parts may have expired"
        ):
            spark.batch(number, layout)
    assert visible(newest) == ONCE
    spark.options["onMissingFacts"] = "write"
    spark.batch(0, layout)
    assert visible(newest) == ONCE + ONCE  # as it was asked for


def forget_id(cluster: MockCluster, transactional_id: str) -> None:
    """Use a transactional id, so that its coordinator cannot tell any more how the transaction before has ended."""

    async def use() -> None:
        producer = Producer(cluster.bootstrap_servers, transactional_id=transactional_id)
        async with producer, producer.transaction():
            await producer.send("others", b"1")

    thread = threading.Thread(target=lambda: asyncio.run(use()))
    thread.start()
    thread.join()


def delete_group(cluster: MockCluster, group: str) -> None:
    """Delete the offsets of a group, as behind `offsets.retention.minutes`."""
    assert cluster.committed_offsets(group)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.delete_consumer_groups([group], request_timeout=30)[group].result()


def test_a_job_whose_facts_have_expired_is_written_again_unless_it_has_asked_to_fail(newest: MockCluster) -> None:
    spark = Spark(newest, {"txnAppId": "loader", "txnVersion": "20260101"}, query=None)
    spark.batch(0, [ROWS])  # the first number may be any
    expire(spark)
    spark.options["onMissingFacts"] = "fail"
    with pytest.raises(FactsMissingError, match="nothing is recorded about this txnAppId"):
        spark.batch(0, [ROWS])
    assert visible(newest) == ONCE
    del spark.options["onMissingFacts"]
    spark.batch(0, [ROWS])
    assert visible(newest) == ONCE + ONCE


def test_a_batch_job_is_written_whole_or_not_at_all(cluster: MockCluster) -> None:
    spark = Spark(cluster, query=None)
    writer = spark.writer()
    messages: list[Any] = [spark.task(writer, 0, 0, ROWS[:6])]
    spark.abort(writer, [*messages, None], 0)
    assert visible(cluster) == Counter()
    spark.batch(0, dealt(ROWS, 2))
    assert visible(cluster) == ONCE
    spark.batch(0, dealt(ROWS, 2))  # another job
    assert visible(cluster) == ONCE + ONCE


def test_a_batch_job_that_is_run_again_under_its_name_writes_nothing(newest: MockCluster) -> None:
    spark = Spark(newest, {"txnAppId": "loader", "txnVersion": "20261125"}, query=None)
    spark.batch(0, dealt(ROWS, 2))
    spark.batch(0, dealt([*reversed(ROWS), "late"], 3))  # whatever its rows are: the number counts
    assert visible(newest) == ONCE
    Spark(newest, {"txnAppId": "other", "txnVersion": "20261125"}, query=None).batch(0, [ROWS])
    spark.options["txnVersion"] = "20261130"
    spark.batch(0, [rows_of(5)])
    assert visible(newest) == ONCE + ONCE + Counter(rows_of(5))
    spark.options["txnVersion"] = "20261126"
    with pytest.raises(CheckpointRewoundError, match="but txnVersion 20261130 of this txnAppId is done"):
        spark.batch(0, [rows_of(6)])


def test_a_batch_of_another_stream_is_no_replay(newest: MockCluster) -> None:
    # foreachBatch: the checkpoint was deleted, and the batches count from 0 again, under the old txnAppId.
    options = {"txnAppId": "counts", "txnVersion": "0"}
    first, second = Spark(newest, options, query=None, stream="a"), Spark(newest, options, query=None, stream="b")
    for _ in range(2):
        first.batch(0, [rows_of(0)])
    with pytest.raises(CheckpointRewoundError, match="another streaming query has written it under this txnAppId"):
        second.batch(0, [rows_of(1)])  # its rows would be skipped
    Spark(newest, options, query=None).batch(0, [rows_of(2)])  # not in a stream: the number alone counts
    assert visible(newest) == Counter(rows_of(0))
    second.options = {"txnAppId": "counts-2", "txnVersion": "0"}
    second.batch(0, [rows_of(1)])
    assert visible(newest) == Counter(rows_of(0) + rows_of(1))


def test_a_job_behind_one_that_is_partly_committed_is_refused(
    newest: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = Spark(newest, {"txnAppId": "loader", "txnVersion": "1"}, query=None)
    layout = dealt(ROWS, 3)
    lose_a_part(spark, 0, layout, monkeypatch, lost=1)
    spark.options["txnVersion"] = "2"
    with pytest.raises(BatchUnfinishedError, match="but txnVersion 1 is only partly committed"):
        spark.batch(0, [rows_of(2)])
    assert visible(newest) == Counter(layout[0] + layout[2])
    spark.options["txnVersion"] = "1"
    spark.batch(0, layout)
    spark.options["txnVersion"] = "2"
    spark.batch(0, [rows_of(2)])
    assert visible(newest) == ONCE + Counter(rows_of(2))


def test_the_job_behind_one_that_is_partly_committed_may_be_asked_for(
    newest: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = Spark(newest, {"txnAppId": "loader", "txnVersion": "1"}, query=None)
    layout = dealt(ROWS, 3)
    lose_a_part(spark, 0, layout, monkeypatch, lost=1)
    spark.options |= {"txnVersion": "2", "onMissingFacts": "write"}
    spark.batch(0, [rows_of(2)])
    assert visible(newest) == Counter(layout[0] + layout[2] + rows_of(2))


@pytest.mark.slow_after(1)
def test_a_decision_of_hundreds_of_tasks_is_kept_in_parts(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("markers", partitions=1)
    spark = Spark(cluster, {"markerTopic": "markers"})
    rows = [f"{number}" for number in range(220)]
    writer = spark.writer()
    # Long numbers, so that some 180 fit into one offset; the topic has one partition, so the other part is in a second group.
    messages = [spark.task(writer, 0, partition, [row], attempt=10**8) for partition, row in enumerate(rows)]
    with monkeypatch.context() as patch:
        die_at(patch, "after EndTxn", times=100)
        with pytest.raises(DiedError):
            spark.commit(writer, messages, 0)
    parts = [cluster.committed_offsets(f"sink.{number}") for number in range(3)]
    assert [len(each) for each in parts] == [1, 1, 0]
    forget_processes()
    spark.batch(0, [rows])
    assert visible(cluster) == Counter(rows)


def test_tasks_of_a_process_share_their_connections(newest: MockCluster) -> None:
    spark = Spark(newest)
    writer = spark.writer()
    spark.task(writer, 0, 0, ROWS)
    before = len(newest.requests("ApiVersions"))
    for partition in range(1, 20):
        spark.task(writer, 0, partition, ROWS)
    assert len(newest.requests("ApiVersions")) - before <= 2


def test_an_id_is_taken_over_while_the_first_rows_are_made(cluster: MockCluster) -> None:
    spark = Spark(cluster)
    writer = spark.writer()
    messages = [spark.task(writer, 0, 0, rows_of(0))]
    asked = len(cluster.requests("InitProducerId"))
    messages.append(spark.task(writer, 0, 1, rows_of(1), before_rows=lambda: wait_until_asked(cluster, asked)))
    # The third is taken over in vain, and its producer goes on with the fifth; the fourth is not taken over.
    messages += [spark.task(writer, 0, partition, []) for partition in (2, 3)]
    messages.append(spark.task(writer, 0, 4, rows_of(2)))
    with pytest.raises(ValueError, match="the rows of this attempt end here"):
        spark.task(writer, 0, 5, [], fails=True)
    messages += [spark.task(writer, 0, 5, rows_of(3), attempt=1), spark.task(writer, 0, 6, [])]
    spark.commit(writer, messages, 0)
    assert visible(cluster) == Counter(row for number in range(4) for row in rows_of(number))
    assert [each.rows for each in messages] == [len(ROWS), len(ROWS), 0, 0, len(ROWS), len(ROWS), 0]


def test_a_task_without_rows_fails_for_nothing_that_its_id_is_answered(newest: MockCluster) -> None:
    spark = Spark(newest)
    writer = spark.writer()
    told = [spark.task(writer, 0, 0, ROWS)]
    refused = newest.fail_next("InitProducerId", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    told.append(spark.task(writer, 0, 1, []))
    wait_until(lambda: refused.hits == 1)
    told.append(spark.task(writer, 0, 2, rows_of(0)))
    refused = newest.fail_next("InitProducerId", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, times=2)

    def has_failed() -> None:
        wait_until(lambda: refused.hits == 1 and not current_engine().early)

    with pytest.raises(AiokprodError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        spark.task(writer, 0, 3, rows_of(1), before_rows=has_failed)
    assert refused.hits == 2  # the second time for the rows
    spark.commit(writer, [*told, spark.task(writer, 0, 3, rows_of(1), attempt=1)], 0)
    assert visible(newest) == ONCE + Counter(rows_of(0) + rows_of(1))


def test_a_task_without_rows_does_not_take_its_id_over_when_it_is_used_again(newest: MockCluster) -> None:
    spark = Spark(newest)
    writer = spark.writer()
    told = [spark.task(writer, 0, 0, ROWS)]
    name = name_of_task(told[0], 1)
    newest.load_coordinator(name)
    asked = len(newest.requests("InitProducerId"))
    with pytest.raises(ValueError, match="the rows of this attempt end here"):
        spark.task(writer, 0, 1, [], fails=True, behind_rows=lambda: wait_until_asked(newest, asked))
    wait_until(lambda: not current_engine().early)
    newest.load_coordinator(name, False)
    told.append(spark.task(writer, 0, 1, rows_of(1)))
    spark.commit(writer, told, 0)
    assert visible(newest) == ONCE + Counter(rows_of(1))


def test_an_id_is_taken_over_again_where_that_has_failed_before_the_first_row(newest: MockCluster) -> None:
    spark = Spark(newest, {"kafka.max.block.ms": "500"})
    writer = spark.writer()
    told = [spark.task(writer, 0, 0, ROWS)]
    name = name_of_task(told[0], 1)
    newest.load_coordinator(name)
    asked = len(newest.requests("InitProducerId"))

    def is_well_again() -> None:
        wait_until_asked(newest, asked)
        wait_until(lambda: not current_engine().early)
        newest.load_coordinator(name, False)

    told.append(spark.task(writer, 0, 1, rows_of(1), before_rows=is_well_again))
    spark.commit(writer, told, 0)
    assert visible(newest) == ONCE + Counter(rows_of(1))


def test_a_producer_that_begins_no_transaction_is_closed(newest: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Spark(newest)
    writer = spark.writer()
    told = [spark.task(writer, 0, 0, ROWS)]
    refused: list[Producer] = []

    def refuse(producer: Producer) -> None:
        refused.append(producer)
        raise ProducerFailedError("it has failed while the first rows were made")

    with monkeypatch.context() as patch:
        patch.setattr(Producer, "begin_transaction", refuse)
        with pytest.raises(ProducerFailedError):
            spark.task(writer, 0, 1, rows_of(1))
    assert [producer.health().state for producer in refused] == [ProducerState.CLOSED]
    spark.commit(writer, [*told, spark.task(writer, 0, 1, rows_of(1), attempt=1)], 0)
    assert visible(newest) == ONCE + Counter(rows_of(1))


def wait_until_asked(cluster: MockCluster, before: int) -> None:
    """Wait until an id is taken over, or tried to be."""
    wait_until(lambda: len(cluster.requests("InitProducerId")) > before)


def name_of_task(told: TaskMessage, partition: int) -> str:
    """Return the transactional id of the first attempt of another task in the batch of this one."""
    assert told.exactly_once is not None
    return f"sink.{told.exactly_once.opened.opening.token.generation}.{partition}.0"


@pytest.mark.slow_after(1)
def test_the_answer_to_a_commit_may_be_lost(cluster: MockCluster) -> None:
    # Case 10. The request is carried out, and its connection ends instead of the answer.
    spark = Spark(cluster)
    for number in range(3):
        writer = spark.writer()
        messages = [spark.task(writer, number, at, rows) for at, rows in enumerate(dealt(rows_of(number), 3))]
        lost = cluster.drop_answer("EndTxn", times=2)
        spark.commit(writer, messages, number)
        assert lost.hits == 2
    assert visible(cluster) == sum((Counter(rows_of(number)) for number in range(3)), Counter())


def test_old_brokers_are_refused_before_any_task() -> None:  # case 19
    with MockCluster(1, kafka_version="2.8") as old:
        old.create_topic(TOPIC, partitions=1)
        with pytest.raises(SinkUsageError, match=r"the brokers are older than Kafka 3\.0"):
            Spark(old).writer()
        forget_processes()


def test_a_decision_of_a_feature_that_was_lowered_is_told_with_its_name(
    newest: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = Spark(newest)
    with monkeypatch.context() as patch:
        writer = spark.writer()
        messages = [spark.task(writer, 0, 0, ROWS)]
        die_at(patch, "before CommitAll")
        with pytest.raises(DiedError):
            spark.commit(writer, messages, 0)
    forget_processes()
    newest.set_transaction_version(0)
    with pytest.raises(SinkUsageError, match=r"or their feature transaction\.version was lowered to 0 while a batch"):
        spark.batch(0, [ROWS])


def test_a_topic_that_does_not_exist_is_told_before_any_task() -> None:
    with MockCluster(1, auto_create_topics=False) as cluster:
        spark = Spark(cluster, {"kafka.max.block.ms": "200", "kafka.retry.backoff.max.ms": "50"})
        with pytest.raises(UnknownTopicError, match="the topic 't' does not exist"):
            spark.writer()
        forget_processes()


IDS = r"Grant this principal WRITE and DESCRIBE on transactional ids that begin with 'sink\.'"
GROUPS = r"Grant this principal READ on groups that begin with 'sink\.'"
TOPIC_RIGHT = (
    r"Grant this principal READ on the marker topic 't', and WRITE and DESCRIBE on the topics that are written"
)


@pytest.mark.parametrize(
    ("api", "code", "right"),
    [
        ("FindCoordinator", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, IDS),
        ("InitProducerId", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, IDS),
        ("OffsetFetch", ErrorCode.GROUP_AUTHORIZATION_FAILED, GROUPS),
        ("OffsetFetch", ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC_RIGHT),
        ("Metadata", ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC_RIGHT),
    ],
)
def test_a_right_that_is_missing_is_named_before_any_task(
    newest: MockCluster, api: str, code: ErrorCode, right: str
) -> None:
    newest.fail_next(api, code, topic=TOPIC if api == "Metadata" else None)
    with pytest.raises(ClusterAuthorizationError, match=rf"(?s){code.name}.*{right}") as caught:
        Spark(newest).writer()
    assert "IDEMPOTENT_WRITE" not in "".join(caught.value.__notes__)


@pytest.mark.parametrize(
    ("api", "code", "right"),
    [
        ("TxnOffsetCommit", ErrorCode.GROUP_AUTHORIZATION_FAILED, GROUPS),
        ("TxnOffsetCommit", ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC_RIGHT),
        ("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC_RIGHT),
    ],
)
def test_a_right_that_a_task_finds_missing_is_named(newest: MockCluster, api: str, code: ErrorCode, right: str) -> None:
    spark = Spark(newest)
    writer = spark.writer()
    newest.fail_next(api, code)
    with pytest.raises(AiokprodError, match=rf"(?s){code.name}.*{right}"):
        spark.task(writer, 0, 0, ROWS)
    spark.abort(writer, [None], 0)
    assert visible(newest) == Counter()


def test_a_coordinator_that_moves_or_loads_is_asked_again(cluster: MockCluster) -> None:
    spark = Spark(cluster)
    for number, code in enumerate((15, 16, 14, 51, 7)):
        for api in ("InitProducerId", "EndTxn"):
            cluster.fail_next(api, code)
        cluster.fail_next("TxnOffsetCommit", 14)
        cluster.fail_next("OffsetFetch", 16 if code == 51 else code if code != 7 else 14)
        spark.batch(number, dealt(rows_of(number), 2))
    assert visible(cluster) == sum((Counter(rows_of(number)) for number in range(5)), Counter())


@pytest.mark.parametrize("is_new", [True, False], ids=["joined", "came back"])
def test_a_broker_that_the_kept_client_does_not_know_is_asked(cluster: MockCluster, is_new: bool) -> None:
    # A Metadata answer names it to the opening, which asks each broker for open transactions; the client's own is older.
    spark = Spark(cluster, {"kafka.delivery.timeout.ms": "30000", "kafka.max.block.ms": "5000"})
    spark.batch(0, dealt(rows_of(0), 2))
    if is_new:
        cluster.add_broker()
    else:
        cluster.kill_broker(2)
        spark.batch(1, dealt(rows_of(1), 2))  # learns that it is gone
        cluster.start_broker(2)
    batches = (0, 1) if is_new else (0, 1, 2)
    spark.batch(batches[-1], dealt(rows_of(batches[-1]), 2))
    assert visible(cluster) == Counter(row for number in batches for row in rows_of(number))


def test_a_longer_timeout_than_brokers_allow_is_refused_before_any_task(newest: MockCluster) -> None:
    with pytest.raises(SinkUsageError, match="larger than the brokers allow"):
        Spark(newest, {"kafka.transaction.timeout.ms": "900001"}).writer()
