"""Calls of Spark on the driver: the source, the writers, what a commit leaves behind."""

from __future__ import annotations

import json
import logging
import pickle
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from aiokprod.errors import ConfigError
from aiokprod.spark import write_each_batch
from aiokprod.spark.commit_log import Committed, write_claims
from aiokprod.spark.errors import SinkUsageError
from aiokprod.spark.messages import PartitionRange, TaskIdentity, TaskMessage
from aiokprod.spark.source import AiokprodSource

CANARY = "canary-7d1f"
OPTIONS = {
    "kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "t", "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "user", "kafka.sasl.password": CANARY,
}  # fmt: skip


@dataclass(frozen=True)
class Named:
    name: str

    @property
    def dataType(self) -> Named:
        return Named("string")

    def simpleString(self) -> str:
        return self.name


@dataclass(frozen=True)
class Schema:
    fields: Sequence[Named]


VALUE = Schema([Named("value")])


def told(partition: int, count: int, first: int) -> TaskMessage:
    place = PartitionRange(
        topic="t",
        partition=partition,
        count=count,
        bytes=count * 10,
        first_offset=first,
        last_offset=first + count - 1,
        fingerprint=2**63 + count,
    )
    task = TaskIdentity(stage_id=3, partition_id=partition, attempt=1, task_attempt_id=9, query_id="q", batch_id=4)
    return TaskMessage(task=task, rows=count, bytes=count * 10, seconds=2.0, partitions=(place,))


def test_a_mode_that_would_take_records_away_is_refused() -> None:
    source = AiokprodSource(OPTIONS)
    with pytest.raises(SinkUsageError, match=r"mode 'overwrite' is not supported.*\.mode\('append'\)"):
        source.writer(VALUE, True)
    with pytest.raises(SinkUsageError, match=r"output mode 'complete' is not supported.*foreachBatch"):
        source.streamWriter(VALUE, True)


def test_reading_is_refused() -> None:
    with pytest.raises(SinkUsageError, match="Spark's own format 'kafka'"):
        AiokprodSource(OPTIONS).schema()


def test_options_and_columns_are_checked_before_any_task() -> None:
    with pytest.raises(ConfigError, match="did you mean 'topic'"):
        AiokprodSource(OPTIONS | {"topics": "x"}).writer(VALUE, False)
    with pytest.raises(SinkUsageError, match="column 'value' is missing"):
        AiokprodSource(OPTIONS).streamWriter(Schema([Named("key")]), False)


@pytest.mark.parametrize("package", ["numpy", "pyarrow"])
def test_a_missing_package_is_told_with_its_extra_before_any_task_and_in_one(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = AiokprodSource(OPTIONS)
    writers = [source.writer(VALUE, False), source.streamWriter(VALUE, False)]
    monkeypatch.setitem(sys.modules, package, None)
    needed = rf"writing needs {package} .*pip install 'aiokprod\[spark\]'"
    for make in (source.writer, source.streamWriter):
        with pytest.raises(SinkUsageError, match=needed):
            make(VALUE, False)
    for writer in writers:
        with pytest.raises(SinkUsageError, match=needed):
            writer.write(iter(()))


def test_a_writer_travels_with_its_secrets_and_shows_none() -> None:
    source = AiokprodSource(OPTIONS)
    things = [source, source.writer(VALUE, False), source.streamWriter(VALUE, False), write_each_batch(OPTIONS)]
    for thing in things:
        again = pickle.loads(pickle.dumps(thing))
        assert CANARY not in f"{thing!r} {thing} {again!r}"
    writer = pickle.loads(pickle.dumps(things[1]))
    assert writer.options.config.sasl_password.reveal() == CANARY
    assert CANARY not in repr(vars(writer))


def test_a_commit_is_one_line_of_json(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aiokprod.spark")
    writer = AiokprodSource(OPTIONS).streamWriter(VALUE, False)
    writer.commit([told(0, 5, 100), told(1, 7, 0), told(0, 3, 200)], 4)
    (record,) = caplog.records
    assert (record.levelno, record.name) == (logging.INFO, "aiokprod.spark")
    assert "\n" not in record.getMessage()
    line = json.loads(record.getMessage())
    assert (line["query_id"], line["batch_id"], line["tasks"], line["rows"], line["retried"]) == ("q", 4, 3, 15, 3)
    assert [each["fingerprint"] for each in line["partitions"]] == [f"{8:016x}", f"{2**63 + 7:016x}"]
    assert line["rows_per_s"] == round(15 / 2)  # all at once, two seconds long
    assert [(each["partition"], each["count"], each["first_offset"], each["last_offset"]) for each in line["partitions"]] == [
        (0, 8, 100, 202), (1, 7, 0, 6),
    ]  # fmt: skip


def test_the_rate_of_a_batch_is_over_the_time_it_took(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aiokprod.spark")
    one_after_the_other = [replace(told(0, 500, 500 * n), began_s=1_000.0 + 2 * n) for n in range(10)]
    idle = replace(told(0, 0, 0), rows=0, began_s=5.0, partitions=())  # a task without rows says nothing of the rate
    writer = AiokprodSource(OPTIONS).streamWriter(VALUE, False)
    writer.commit([*one_after_the_other, idle], 4)
    writer.commit([replace(each, began_s=1_000.0) for each in one_after_the_other], 5)
    writer.commit([idle], 6)
    rates = [json.loads(record.getMessage())["rows_per_s"] for record in caplog.records]
    assert rates == [5_000 / 20, 5_000 / 2, 0]


def test_a_batch_job_has_a_name_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aiokprod.spark")
    for _ in range(2):
        writer = pickle.loads(pickle.dumps(AiokprodSource(OPTIONS).writer(VALUE, False)))
        writer.commit([told(0, 5, 100)])
    first, second = (json.loads(record.getMessage()) for record in caplog.records)
    assert first["query_id"] != second["query_id"]
    assert first["batch_id"] is None


def test_a_commit_without_messages_is_told_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aiokprod.spark")
    AiokprodSource(OPTIONS).streamWriter(VALUE, False).commit([], 0)
    assert json.loads(caplog.records[0].getMessage())["rows"] == 0


def test_a_task_without_a_message_is_no_commit() -> None:
    with pytest.raises(SinkUsageError, match=r"trigger\(continuous=\.\.\.\), which is not supported: .*processingTime"):
        AiokprodSource(OPTIONS).streamWriter(VALUE, False).commit([None, told(0, 1, 0)], 1)


def test_abort_never_raises() -> None:
    AiokprodSource(OPTIONS).streamWriter(VALUE, False).abort([None, told(0, 1, 0)], 1)
    AiokprodSource(OPTIONS).writer(VALUE, False).abort([])


def test_claims_are_one_file_per_batch_and_a_replay_replaces_it(tmp_path: Path) -> None:
    batch = Committed(query_id="q", batch_id=4, messages=(told(0, 5, 100), told(1, 7, 0)))
    write_claims(replace(batch, messages=()), str(tmp_path / "claims"))
    write_claims(batch, (tmp_path / "claims").as_uri())
    (file,) = (tmp_path / "claims").iterdir()
    assert file.name == "q-4.parquet"
    rows = pq.read_table(file).to_pylist()
    assert rows[0] == {
        "query_id": "q", "batch_id": 4, "stage_id": 3, "task_partition": 0, "attempt": 1, "topic": "t", "partition": 0,
        "count": 5, "bytes": 50, "first_offset": 100, "last_offset": 104, "fingerprint": -(2**63) + 5, "seconds": 2.0,
    }  # fmt: skip
    assert [row["fingerprint"] % 2**64 for row in rows] == [2**63 + 5, 2**63 + 7]


@pytest.mark.parametrize(
    "path", ["/proc/nope", "{folder}/file", "{folder}/file/below", "nosuch://x/y", "file:/proc/nope"]
)
def test_a_claims_path_that_cannot_be_written_to_is_refused_before_any_task(path: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    source = AiokprodSource(OPTIONS | {"claims.path": path.format(folder=tmp_path)})
    for make in (source.writer, source.streamWriter):
        with pytest.raises(ConfigError, match=r"^claims\.path is .* nothing can be written there"):
            make(VALUE, False)


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_claims_path_is_tried_out_and_left_empty(scheme: str, tmp_path: Path) -> None:
    source = AiokprodSource(OPTIONS | {"claims.path": f"{scheme}{tmp_path}/a/b"})
    for make in (source.writer, source.streamWriter, source.writer):
        make(VALUE, False)
        assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize("is_stream", [False, True])
def test_claims_that_cannot_be_written_at_the_commit_fail_nothing_and_are_told(
    is_stream: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "claims"
    source = AiokprodSource(OPTIONS | {"claims.path": str(folder)})
    if is_stream:
        stream = source.streamWriter(VALUE, False)
    else:
        batch = source.writer(VALUE, False)
    folder.rmdir()
    folder.touch()
    if is_stream:
        stream.commit([told(0, 5, 100)], 4)
    else:
        batch.commit([told(0, 5, 100)])
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.name == "aiokprod.spark"
    assert f"were not written to {folder}: " in record.getMessage()
    assert ("batch 4 (query q)" if is_stream else "the claims of the job") in record.getMessage()


def test_a_stream_whose_claims_were_there_goes_on_when_the_disk_takes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = AiokprodSource(OPTIONS | {"claims.path": str(tmp_path)})
    monkeypatch.setattr("aiokprod.spark.commit_log._place", lambda path: (FullDisk(), path))
    source.streamWriter(VALUE, False)
    with pytest.raises(ConfigError, match="No space left"):
        source.writer(VALUE, False)


class FullDisk:
    """A file system of pyarrow's on which every folder is there and no file can be opened."""

    def get_file_info(self, path: str) -> fs.FileInfo:
        return fs.FileInfo(path, fs.FileType.Directory)

    def create_dir(self, path: str, *, recursive: bool) -> None:
        assert recursive

    def open_output_stream(self, path: str) -> NoReturn:
        raise OSError(28, "No space left on device", path)


def test_each_batch_is_written_with_its_number() -> None:
    class Frame:
        """A DataFrame's stand-in that notes its calls."""

        def __init__(self) -> None:
            self.told: list[object] = []

        def __getattr__(self, name: str) -> object:
            if name == "write":
                return self
            return lambda *arguments, **options: self.told.append((name, *arguments, options)) or self

    frame = Frame()
    write_each_batch({"topic": "t"}, prepare=lambda given: given)(frame, 7)
    assert frame.told == [
        ("format", "aiokprod", {}), ("options", {"topic": "t"}), ("option", "batchId", "7", {}), ("mode", "append", {}),
        ("save", {}),
    ]  # fmt: skip
