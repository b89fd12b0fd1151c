"""Topics read back into Parquet: all of them, nothing else, or an error that says why not."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from aiokprod import Producer
from aiokprod.claims import readback
from aiokprod.claims.readback import log_table, read_back
from aiokprod.records.decoder import DecodedRecord
from aiokprod.testing import MockCluster


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def seen_by_spark(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith((".", "_"))]


@pytest.mark.parametrize("topic", ["orders", "_orders", ".orders"])
def test_every_topic_is_read_back_under_names_that_spark_reads(topic: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with MockCluster() as cluster, Producer(cluster.bootstrap_servers) as producer:
            cluster.create_topic(topic, partitions=2)
            for partition in (0, 1, 1):
                await producer.send(topic, b"v", partition=partition)
            assert await read_back(cluster.bootstrap_servers, [topic], tmp_path) == 3

    run(scenario())
    assert sorted(pq.read_table(path).num_rows for path in seen_by_spark(tmp_path)) == [1, 2]


def test_a_folder_with_files_is_refused_and_one_with_hidden_files_is_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with MockCluster() as cluster:
            for topic in ("a", "b"):
                cluster.create_topic(topic)
            (tmp_path / "_SUCCESS").touch()
            await read_back(cluster.bootstrap_servers, ["a"], tmp_path)
            (file,) = seen_by_spark(tmp_path)
            with pytest.raises(FileExistsError, match=r"is not empty \(log-a-0-000000.parquet\).*another folder"):
                await read_back(cluster.bootstrap_servers, ["b"], tmp_path)
            assert seen_by_spark(tmp_path) == [file]

    run(scenario())


def test_what_fails_is_told_as_one_error_however_many_partitions_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*arguments: object) -> int:
        raise PermissionError("the disk says no")

    monkeypatch.setattr(readback, "_read_partition", broken)

    async def scenario() -> None:
        async with MockCluster() as cluster:
            cluster.create_topic("t", partitions=3)
            with pytest.raises(PermissionError, match="the disk says no"):
                await read_back(cluster.bootstrap_servers, ["t"], tmp_path)

    run(scenario())


@pytest.mark.parametrize(
    ("timestamp_ms", "us"), [(5, 5_000), (2**63 - 1, 2**63 - 1), (-(2**63), -(2**63)), (-1, -1000)]
)
def test_any_timestamp_that_a_producer_can_send_is_kept_as_far_as_it_goes(timestamp_ms: int, us: int) -> None:
    record = DecodedRecord(offset=0, timestamp_ms=timestamp_ms, key=None, value=b"v", headers=())
    table = log_table("t", 0, [record])
    assert table.column("timestamp").cast("int64").to_pylist() == [us]
