"""Metrics of records that wait: for room, for their topic; and of what is refused."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from column_rig import column
from virtual_rig import kinds, outcomes, room, run, started

from aiokprod import Producer
from aiokprod.errors import BufferFullError
from aiokprod.metrics import HistogramSnapshot, Metrics
from aiokprod.testing.virtual import VirtualNetwork

PAGE = Path(__file__).resolve().parents[4] / "docs" / "metrics.md"
FULL: dict[str, Any] = room(10_000, linger_ms=0)


def waits(producer: Producer, name: str = "buffer_wait_seconds") -> tuple[int, float]:
    """Return the number of waits, and their total length."""
    histogram = producer.metrics()[name]
    assert isinstance(histogram, HistogramSnapshot)
    return histogram.count, round(histogram.total, 1)


def test_waits_of_records_for_room_are_measured() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, **FULL) as (cluster, producer):
            held = cluster.hold("Produce")
            sent = [producer.send("t", b"x" * 4_000) for _ in range(4)]
            assert producer.metrics()["buffer_waiting_records"] == 2
            assert waits(producer) == (0, 0.0)
            await asyncio.sleep(3)
            cluster.release(held)
            await outcomes(sent)
            assert waits(producer) == (2, 6.0)
            assert producer.metrics()["buffer_waiting_records"] == 0

    run(scenario)


def test_records_that_find_no_room_are_counted_with_their_errors() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        options = FULL | {"max_block_ms": 2_000, "max_waiting_bytes": 5_000}
        async with started(network, **options) as (cluster, producer):
            held = cluster.hold("Produce")
            sent = [producer.send("t", b"x" * 4_000) for _ in range(3)]
            with pytest.raises(BufferFullError):
                producer.send("t", b"x" * 4_000)
            with pytest.raises(BufferFullError):
                producer.try_send("t", b"x")
            assert producer.metrics()["buffer_full_errors"] == 2
            await asyncio.sleep(3)
            assert producer.metrics()["buffer_full_errors"] == 3
            assert waits(producer) == (1, 2.0)
            cluster.release(held)
            assert sorted(kinds(await outcomes(sent))) == ["BufferFullError", "RecordMetadata", "RecordMetadata"]

    run(scenario)


@pytest.mark.parametrize("way", ["ready", "send_many", "send_columns"])
def test_waits_of_tasks_for_room_are_measured(way: str) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, **FULL) as (cluster, producer):
            await producer.ready()
            held = cluster.hold("Produce")
            sent = [producer.send("t", b"x" * 4_900) for _ in range(2)]
            work = {
                "ready": lambda: producer.ready(),
                "send_many": lambda: producer.send_many("t", [b"y" * 1_000]),
                "send_columns": lambda: producer.send_columns("t", column([b"y" * 1_000])),
            }[way]
            waiting = asyncio.ensure_future(work())
            await asyncio.sleep(3)
            cluster.release(held)
            await waiting
            await outcomes(sent)
            assert waits(producer) == (2, 6.0)  # of the task, and of the record before it

    run(scenario)


def test_records_that_wait_for_a_topic_or_a_partition_are_counted_and_their_waits_measured() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, max_block_ms=5_000) as (cluster, producer):
            sent = [producer.send("later", b"v") for _ in range(3)]
            never = producer.send("never", b"v")
            recalled = producer.send("never", b"v")
            assert producer.metrics()["parked_records"] == 5
            assert recalled.recall()
            assert producer.metrics()["parked_records"] == 4
            assert producer.metrics()["buffer_used_bytes"] > 0
            await asyncio.sleep(2)
            cluster.create_topic("later")
            await outcomes(sent)
            assert producer.metrics()["parked_records"] == 1
            (count, total_s) = waits(producer, "parked_seconds")
            assert (count, 6 <= total_s <= 9) == (4, True)
            await outcomes([never, recalled])
            assert producer.metrics()["parked_records"] == 0
            beyond = producer.send("t", b"v", partition=7)
            assert producer.metrics()["parked_records"] == 1
            assert kinds(await outcomes([beyond])) == ["PartitionOutOfRangeError"]
            assert producer.metrics()["parked_records"] == 0
            left = producer.send("never", b"v")
            left.add_done_callback(lambda _: None)
            assert producer.metrics()["parked_records"] == 1
            await producer.close(0)
            assert producer.metrics()["parked_records"] == 0
            await producer.start()

    run(scenario)


def test_what_does_not_wait_is_not_measured() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (_, producer):
            await producer.send_many("t", [b"v"] * 2_000)
            await producer.ready()
            assert (waits(producer), waits(producer, "parked_seconds")) == ((0, 0.0), (0, 0.0))
            assert producer.metrics()["buffer_full_errors"] == 0

    run(scenario)


def test_answers_of_metadata_and_the_setup_of_connections_are_measured() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (cluster, producer):
            await producer.send("t", b"v")
            metrics = producer.metrics()
            assert metrics["connection_setup_seconds"].count == metrics["connections_opened"] == 2
            assert metrics["metadata_seconds"].count == metrics["metadata_refreshes"] >= 2
            before_s = metrics["metadata_seconds"].total
            cluster.delay_next("Metadata", 2.0)
            await asyncio.gather(producer.partitions_for("u", 3.0), return_exceptions=True)
            assert producer.metrics()["metadata_seconds"].total - before_s > 1.9

    run(scenario)


SEGMENTS = ("room", "linger", "queue", "retry", "request")


def test_the_segments_of_a_delivery_time_add_up_to_it() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        options = FULL | {"linger_ms": 1_000, "retry_backoff_ms": 3_000, "retry_backoff_max_ms": 3_000}
        async with started(network, **options) as (cluster, producer):
            held = cluster.hold("Produce")
            sent = [producer.send("t", b"x" * 4_000) for _ in range(4)]
            await asyncio.sleep(5)
            cluster.release(held)
            await outcomes(sent)
            cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
            cluster.delay_next("Produce", 2.0)
            await outcomes([producer.send("t", b"x")])
            found = {name: waits(producer, f"segment_{name}_seconds") for name in SEGMENTS}
            whole = producer.metrics()["delivery_seconds"]
            assert sum(total for _, total in found.values()) == pytest.approx(whole.total, abs=0.5)
            assert found["room"] == (1, 5.0)
            assert found["linger"][0] == found["queue"][0] == found["request"][0] == whole.count
            assert found["retry"][0] == 1 and found["retry"][1] >= 2.4
            assert found["request"][1] >= 5.0

    run(scenario)


@pytest.mark.parametrize("way", ["a record between others is recalled", "split", "refused, then split"])
def test_the_segments_of_a_batch_in_parts_add_up_to_its_delivery_times(way: str) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=200, retry_backoff_ms=500) as (cluster, producer):
            sent = [producer.send("t", b"v" * 500) for _ in range(8)]
            if way == "a record between others is recalled":
                assert sent[3].recall()
            else:
                if way == "refused, then split":
                    cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
                cluster.fail_next("Produce", "MESSAGE_TOO_LARGE")
            await outcomes(sent)
            metrics = producer.metrics()
            found = {name: metrics[f"segment_{name}_seconds"] for name in SEGMENTS}
            whole = metrics["delivery_seconds"]
            assert whole.count == 1 if way == "a record between others is recalled" else whole.count > 1
            assert sum([each.total for each in found.values()]) == pytest.approx(whole.total)
            assert found["linger"].count == found["queue"].count == found["request"].count == whole.count

    run(scenario)


def test_a_batch_that_fails_is_in_no_segment() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (cluster, producer):
            cluster.fail_next("Produce", "INVALID_TIMESTAMP")
            await outcomes([producer.send("t", b"v")])
            assert [waits(producer, f"segment_{name}_seconds")[0] for name in SEGMENTS] == [0] * len(SEGMENTS)

    run(scenario)


def test_records_of_each_topic_are_counted() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, max_block_ms=1_000) as (cluster, producer):
            cluster.create_topic("u")
            await producer.send_many("t", [b"v"] * 3)
            await producer.send("u", b"v")
            cluster.fail_next("Produce", "INVALID_RECORD")
            await outcomes([producer.send("u", b"v"), producer.send("missing", b"v")])
            topics = producer.topic_metrics()
            assert (topics["t"]["records_delivered"], topics["u"]["records_delivered"]) == (3, 1)
            assert (topics["u"]["records_failed"], topics["missing"]["records_failed"]) == (1, 1)
            assert topics["u"]["batches_sent"] == 2
            metrics = producer.metrics()
            for name in ("records_delivered", "records_failed", "batches_sent"):
                assert sum(counters[name] for counters in topics.values()) == metrics[name]
            assert sum(counters["sent_bytes"] for counters in topics.values()) == metrics["batch_bytes"].total

    run(scenario)


def test_the_page_has_every_metric_and_its_kind_and_nothing_else() -> None:
    rows = re.findall(r"^\| (`.*?) \| (counter|gauge|histogram) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    told = {name: kind for names, kind in rows for name in re.findall(r"`(\w+)`", names)}
    assert told == {name: type(metric).__name__.lower() for name, metric in Metrics()._all()} | dict.fromkeys(
        Metrics().topic("t").snapshot(), "counter"
    )
