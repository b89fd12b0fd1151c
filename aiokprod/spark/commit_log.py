"""The records of a commit: one JSON line per batch in the log, and with `claims.path` one Parquet file.

Both only report: the rows are in Kafka before them, and a commit never fails because of them. So the folder is tested before
a task runs (`check_claims_path`), and a later failure is an ERROR in the log. The line goes to logger `aiokprod.spark` at
INFO. A driver-side worker of Spark has no logging configured: without a handler the line goes to standard error, which is
the driver's.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

from aiokprod.errors import ConfigError
from aiokprod.logs import GuardedLogger
from aiokprod.spark.messages import PartitionRange, TaskMessage

_log = logging.getLogger("aiokprod.spark")
_lines = GuardedLogger("aiokprod.spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A batch whose tasks have all written their rows.

    Args:
        query_id: the id of the stream; in a batch job a generated name.
        batch_id: None in a batch job.
        messages: of its tasks.
        commit_s: how long the commit of its transactions took; None if it has none.
    """

    query_id: str
    batch_id: int | None
    messages: tuple[TaskMessage, ...]
    commit_s: float | None = None

    def summary(self) -> dict[str, Any]:
        """Make the log line: count, offsets and fingerprint of each topic partition."""
        ranges: dict[tuple[str, int], PartitionRange] = {}
        for message in self.messages:
            for each in message.partitions:
                place = (each.topic, each.partition)
                ranges[place] = ranges[place].joined(each) if place in ranges else each
        rows = sum(message.rows for message in self.messages)
        slowest = max((message.seconds for message in self.messages), default=0.0)
        return {
            "event": "committed",
            "query_id": self.query_id,
            "batch_id": self.batch_id,
            "tasks": len(self.messages),
            "retried": sum(message.task.attempt > 0 for message in self.messages),
            "rows": rows,
            "bytes": sum(message.bytes for message in self.messages),
            "slowest_task_s": round(slowest, 3),
            "rows_per_s": round(rows / self.seconds) if self.seconds else 0,
            **({} if self.commit_s is None else {"commit_s": round(self.commit_s, 4)}),
            "partitions": [
                asdict(each) | {"fingerprint": f"{each.fingerprint:016x}"} for _, each in sorted(ranges.items())
            ],
        }

    @property
    def seconds(self) -> float:
        """The time from the first task's start to the last one's end, by the clocks of their workers."""
        wrote = [message for message in self.messages if message.rows]
        began_s = min((message.began_s for message in wrote), default=0.0)
        return max((message.began_s + message.seconds for message in wrote), default=0.0) - began_s

    def rows(self) -> list[dict[str, Any]]:
        """Make the claims: one per task and topic partition. Fingerprints are signed there, as Parquet's int64 is."""
        return [
            {
                "query_id": self.query_id,
                "batch_id": self.batch_id,
                "stage_id": message.task.stage_id,
                "task_partition": message.task.partition_id,
                "attempt": message.task.attempt,
                **asdict(each),
                "fingerprint": _signed(each.fingerprint),
                "seconds": message.seconds,
            }
            for message in self.messages
            for each in message.partitions
        ]


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def tell(batch: Committed) -> None:
    """Write the log line."""
    if all(isinstance(each, logging.NullHandler) for each in _heard_by(_log)):
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        _log.addHandler(handler)
    if _log.level == logging.NOTSET:
        _log.setLevel(logging.INFO)
    _lines.info("%s", json.dumps(batch.summary(), separators=(",", ":")))


def _heard_by(logger: logging.Logger | None) -> list[logging.Handler]:
    handlers: list[logging.Handler] = []
    while logger is not None:
        handlers += logger.handlers
        logger = logger.parent if logger.propagate else None
    return handlers


def tell_claims(batch: Committed, path: str) -> None:
    """Write the claims, or log why not: their rows are in Kafka, so the job must not fail and run again."""
    try:
        write_claims(batch, path)
    except Exception as error:  # of any file system
        batch_name = "the job" if batch.batch_id is None else f"batch {batch.batch_id}"
        _lines.error(
            "the claims of %s (query %s) were not written to %s: %s: %s",
            batch_name, batch.query_id, path, type(error).__name__, error,
        )  # fmt: skip


def check_claims_path(path: str, *, is_stream: bool) -> None:
    """Check that claims can be written there, before any task runs; create the folder if it does not exist.

    The existing folder of a stream was tested by an earlier batch: if the disk is full now, the stream goes on, as its
    rows are not affected.

    Raises:
        ConfigError: claims cannot be written there.
    """
    from pyarrow import fs

    try:
        filesystem, folder = _place(path)
        if is_stream and filesystem.get_file_info(folder).type is fs.FileType.Directory:
            return
        filesystem.create_dir(folder, recursive=True)
        probe = f"{folder}/.probe-{uuid4().hex}"
        filesystem.open_output_stream(probe).close()
        filesystem.delete_file(probe)
    except Exception as error:  # of any file system
        raise ConfigError(
            f"claims.path is {path!r}, but nothing can be written there ({type(error).__name__}: {error}): name a folder of"
            " the driver's machine, or a URI of pyarrow.fs"
        ) from None


def _place(path: str) -> tuple[Any, str]:
    """Return the file system of a path or URI, and the folder in it."""
    from pyarrow import fs

    if re.match(r"file:/(?!/)", path):  # Hadoop's form of a URI of this machine
        path = f"file://{path[5:]}"
    return fs.FileSystem.from_uri(path) if "://" in path else (fs.LocalFileSystem(), path)


def write_claims(batch: Committed, path: str) -> None:
    """Write the claims of a batch as one Parquet file in the folder `path` (or a URI of `pyarrow.fs`).

    A batch that is committed again replaces its file: the name consists of query and batch.

    Raises:
        Exception: any error of the file system.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    whole, text, long, double = pa.int32(), pa.string(), pa.int64(), pa.float64()
    schema = pa.schema([
        ("query_id", text), ("batch_id", long), ("stage_id", whole), ("task_partition", whole), ("attempt", whole),
        ("topic", text), ("partition", whole), ("count", long), ("bytes", long), ("first_offset", long),
        ("last_offset", long), ("fingerprint", long), ("seconds", double),
    ])  # fmt: skip
    filesystem, folder = _place(path)
    filesystem.create_dir(folder, recursive=True)
    name = f"{batch.query_id}-{'job' if batch.batch_id is None else batch.batch_id}.parquet"
    hidden = f"{folder}/.{name}.part"  # readers of the folder skip names that begin with a dot
    pq.write_table(pa.Table.from_pylist(batch.rows(), schema), hidden, filesystem=filesystem)
    filesystem.move(hidden, f"{folder}/{name}")
