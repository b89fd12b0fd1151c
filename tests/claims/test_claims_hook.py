"""`Claims` in a producer: one claim for each record, whatever became of it; nothing of the producer changes."""

from __future__ import annotations

import asyncio
import threading
import time
import zlib
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aiokprod import Producer, Record
from aiokprod.claims import HEADER, Claims, Status, decode_identity, encode_identity
from aiokprod.errors import AiokprodError, ConfigError, RecordTypeError, TransactionOutcomeUnknownError
from aiokprod.serializers import JsonSerializer
from aiokprod.testing import MemoryProducer, MockCluster


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def rows(claims: Claims) -> list[dict[str, Any]]:
    """Return all claims in the files, sorted by seq."""
    assert claims.wait(30)
    tables = [pq.read_table(path) for path in claims.folder.glob("*.parquet")]
    found: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist() if tables else []
    return sorted(found, key=lambda row: row["seq"])


def test_every_record_of_a_producer_is_claimed_where_it_is(tmp_path: Path) -> None:
    claims = Claims(tmp_path, run=11, stream=4)

    async def scenario() -> None:
        async with MockCluster(auto_create_topics=False) as cluster:
            cluster.create_topic("t", partitions=3)
            before_us = time.time_ns() // 1000
            async with Producer(cluster.bootstrap_servers, interceptors=[claims]) as producer:
                for number in range(200):
                    producer.send("t", b"%d" % number, key=b"k%d" % (number % 7), headers=[("a", b"b")])
                await producer.send_many("t", [b"x", Record(value=b"y", key=b"k")])
                await producer.send("t", None, headers={"c": b"d"})
            after_us = time.time_ns() // 1000
            claimed = rows(claims)
            assert [row["seq"] for row in claimed] == list(range(203))
            log = {
                (partition, record.offset): record
                for partition in range(3)
                for record in cluster.records("t", partition)
            }
            assert len(log) == 203
            for row in claimed:
                record = log.pop((row["partition"], row["offset"]))
                headers = dict(record.headers)
                assert decode_identity(headers[HEADER] or b"") == (11, 4, row["seq"])
                assert len(record.headers) == (2 if row["seq"] not in (200, 201) else 1)
                assert row["key_hash"] == (-1 if record.key is None else zlib.crc32(record.key))
                assert (row["status"], row["topic"]) == (Status.ACKED, "t")
                assert before_us <= row["send_us"] <= row["ack_us"] <= after_us

    run(scenario())
    assert claims.report().rows == 203
    assert claims.report().is_closed


def test_records_of_transactions_are_claimed_as_readers_of_committed_records_see_them(tmp_path: Path) -> None:
    claims = Claims(tmp_path, run=11)

    async def scenario() -> None:
        async with MockCluster(auto_create_topics=False) as cluster:
            cluster.create_topic("t")
            async with Producer(
                cluster.bootstrap_servers, interceptors=[claims], transactional_id="tx", request_timeout_ms=200
            ) as producer:
                async with producer.transaction():
                    await producer.send("t", b"committed")
                with pytest.raises(KeyError):
                    async with producer.transaction():
                        await producer.send("t", b"aborted")
                        producer.send("t", b"queued")
                        raise KeyError
                producer.begin_transaction()
                await producer.send("t", b"found out")
                silence = cluster.swallow_next("EndTxn", before_serving=False, times=None)
                with pytest.raises(TransactionOutcomeUnknownError):
                    await producer.commit_transaction(timeout=0.3)
                assert silence.hits
                cluster.clear_faults()
                await producer.commit_transaction()
                producer.begin_transaction()
                await producer.send("t", b"prepared")
                await producer.prepare_transaction()
            assert [(row["status"], row["offset"] >= 0) for row in rows(claims)] == [
                (Status.ACKED, True),
                (Status.NOT_PERSISTED, True),
                (Status.NOT_PERSISTED, False),
                (Status.ACKED, True),
                (Status.POSSIBLY_PERSISTED, True),
            ]
            assert [record.value for record in cluster.records("t", committed=True)] == [b"committed", b"found out"]

    run(scenario())


def test_failures_are_claimed_with_their_persistence(tmp_path: Path) -> None:
    claims = Claims(tmp_path, run=11)

    async def scenario() -> None:
        async with MockCluster(auto_create_topics=False) as cluster:
            cluster.create_topic("t")
            async with Producer(
                cluster.bootstrap_servers, interceptors=[claims], max_block_ms=1_000, value_serializer=JsonSerializer()
            ) as producer:
                with pytest.raises(AiokprodError):
                    await producer.send("no-such-topic", "1", partition=5)  # fails while it is parked
                with pytest.raises(AiokprodError):
                    producer.send("t", {1, 2})  # is refused at once
                with pytest.raises(RecordTypeError):
                    producer.send("t", "1", headers=[("a",)])  # type: ignore[list-item]
                done = await producer.send("t", "4")  # was parked: its topic was not known
                assert done.offset == 0

    run(scenario())
    found = [(row["seq"], row["topic"], row["partition"], row["offset"], row["status"]) for row in rows(claims)]
    refused = Status.NOT_PERSISTED
    assert found == [
        (0, "no-such-topic", 5, -1, refused), (1, "t", -1, -1, refused), (2, "t", -1, -1, refused),
        (3, "t", 0, 0, Status.ACKED),
    ]  # fmt: skip


@pytest.mark.parametrize("partition", [2**31, 2**70, -(2**31) - 1, -1])
def test_a_record_that_is_refused_for_its_partition_is_claimed_and_so_are_all_others(
    tmp_path: Path, partition: int
) -> None:
    claims = Claims(tmp_path)

    async def scenario() -> None:
        async with MockCluster(auto_create_topics=False) as cluster:
            cluster.create_topic("t")
            async with Producer(cluster.bootstrap_servers, interceptors=[claims]) as producer:
                await producer.send("t", b"1")
                with pytest.raises(AiokprodError):
                    await producer.send("t", b"2", partition=partition)
                await producer.send("t", b"3")

    run(scenario())
    assert [(row["seq"], row["partition"], row["status"]) for row in rows(claims)] == [
        (0, 0, Status.ACKED), (1, -1, Status.NOT_PERSISTED), (2, 0, Status.ACKED),
    ]  # fmt: skip
    assert claims.report().dropped == 0


@pytest.mark.parametrize("from_run", [10, 11])
def test_a_record_that_is_sent_on_with_its_headers_is_claimed_like_any_other(tmp_path: Path, from_run: int) -> None:
    claims = Claims(tmp_path, run=11)

    async def scenario() -> None:
        async with MemoryProducer(topics={"t": 1}, interceptors=[claims]) as producer:
            for seq in (3, 2, 0, 0):  # identities of another run, or of records of our own that are on their way
                relayed = [("a", b"b"), (HEADER, encode_identity(from_run, 0, seq))]
                producer.send("t", b"sent on", headers=relayed if seq else dict(relayed))
                producer.send("t", b"new")

    run(scenario())
    found = rows(claims)
    assert [(row["seq"], row["status"]) for row in found] == [(seq, Status.ACKED) for seq in range(8)]
    assert sorted(row["offset"] for row in found) == list(range(8))
    assert claims._sent_us == {}


def test_an_ambiguous_failure_is_claimed_as_one(tmp_path: Path) -> None:
    claims = Claims(tmp_path)

    async def scenario() -> None:
        async with MemoryProducer(topics={"t": 1}, interceptors=[claims]) as producer:
            error = AiokprodError("not known")
            from aiokprod.model import Persistence

            error.persistence = Persistence.POSSIBLY_PERSISTED
            producer.fail_next(error)
            with pytest.raises(AiokprodError):
                await producer.send("t", b"1")
            await producer.send("t", b"2")

    run(scenario())
    assert [row["status"] for row in rows(claims)] == [Status.POSSIBLY_PERSISTED, Status.ACKED]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"acks": 1}, Status.ACKED_AT_LEAST_ONCE),
        ({"enable_idempotence": False}, Status.ACKED_AT_LEAST_ONCE),
        ({"acks": 0}, Status.POSSIBLY_PERSISTED),
        ({}, Status.ACKED),
    ],
)
def test_what_an_acknowledgement_is_worth_depends_on_the_producer(
    tmp_path: Path, options: dict[str, Any], status: Status
) -> None:
    claims = Claims(tmp_path)

    async def scenario() -> None:
        async with MockCluster(auto_create_topics=False) as cluster:
            cluster.create_topic("t")
            async with Producer(cluster.bootstrap_servers, interceptors=[claims], **options) as producer:
                await producer.send("t", b"1")

    run(scenario())
    assert [row["status"] for row in rows(claims)] == [status]


def test_claims_leave_linger_and_unwatched_failures_alone(tmp_path: Path) -> None:
    unwatched: list[object] = []

    async def scenario() -> None:
        async with MemoryProducer(
            topics={"t": 1},
            interceptors=[Claims(tmp_path)],
            on_delivery_error=lambda *told: unwatched.append(told),
        ) as producer:
            producer.fail_next(AiokprodError("lost"))
            delivery = producer.send("t", b"1")
            assert not delivery._is_watched

    run(scenario())
    assert len(unwatched) == 1


def test_a_producer_can_be_started_again_and_seq_goes_on(tmp_path: Path) -> None:
    claims = Claims(tmp_path)

    async def scenario() -> None:
        producer = MemoryProducer(topics={"t": 1}, interceptors=[claims])
        for _ in range(2):
            async with producer:
                await producer.send("t", b"1")
            assert claims.wait(30)

    run(scenario())
    assert [row["seq"] for row in rows(claims)] == [0, 1]


def test_two_producers_cannot_share_one(tmp_path: Path) -> None:
    claims = Claims(tmp_path)

    async def scenario() -> None:
        async with MemoryProducer(interceptors=[claims]):
            with pytest.raises(ConfigError, match="belongs to one producer"):
                await MemoryProducer(interceptors=[claims]).start()

    run(scenario())


def test_a_folder_that_cannot_be_made_fails_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    async def scenario() -> None:
        with pytest.raises(ConfigError, match="configure raised"):
            await MemoryProducer(interceptors=[Claims(tmp_path / "file")]).start()

    run(scenario())


def test_close_does_not_wait_for_a_disk_that_does_not_answer(tmp_path: Path) -> None:
    folder = tmp_path / "claims"
    claims = Claims(folder)

    async def scenario() -> None:
        async with MemoryProducer(topics={"t": 1}, interceptors=[claims]) as producer:
            await producer.send("t", b"1")
            folder.rename(tmp_path / "away")

    run(scenario())
    assert claims.wait(30)
    assert claims.report().dropped == 1


def test_claims_that_close_does_not_wait_for_are_told_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write = threading.Event()
    write_table = pq.write_table

    def slow(*arguments: Any, **options: Any) -> None:
        may_write.wait(30)
        write_table(*arguments, **options)

    monkeypatch.setattr(pq, "write_table", slow)
    claims = Claims(tmp_path, run=1)

    async def scenario() -> None:
        async with MemoryProducer(topics={"t": 1}, interceptors=[claims]) as producer:
            await producer.send("t", b"1")

    run(scenario())
    expected = "claims of run 1 stream 0: 1 claims are still being written: claims.wait() waits for them"
    assert expected in [line.getMessage() for line in caplog.records]
    assert not any(line.exc_info for line in caplog.records)
    may_write.set()
    assert claims.wait(30)
    assert claims.report().rows == 1
