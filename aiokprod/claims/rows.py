"""`Rows`: claims before they are written to a file, column by column. The columns are defined here; docs/audit.md repeats them.

A claim is one record and its outcome as the producer reports it. All columns but the topic are numbers, with -1 for "not
known", so that an audit can aggregate them as they are.
"""

from __future__ import annotations

import zlib
from array import array
from enum import IntEnum
from itertools import accumulate
from typing import TYPE_CHECKING

from aiokprod.errors import AiokprodError
from aiokprod.model import Persistence

if TYPE_CHECKING:
    import pyarrow

NO_KEY = -1
KEY_NOT_KNOWN = -2


class Status(IntEnum):
    """The claim about a record. The numbers are in files: they do not change."""

    ACKED = 0
    """The record is in the log, once."""
    NOT_PERSISTED = 1
    """The record failed, and is certainly not in the log."""
    POSSIBLY_PERSISTED = 2
    """The record may be in the log: it failed ambiguously, or brokers do not answer (acks=0)."""
    ACKED_AT_LEAST_ONCE = 3
    """The record is in the log, perhaps more than once: no idempotence, or a Spark task that may be run again."""
    POSSIBLY_REPEATED = 4
    """The record may be in the log, even more than once: an ambiguous failure of a producer without idempotence."""


def status_of(error: AiokprodError, *, idempotent: bool) -> Status:
    """Return the claim about a record that failed with this error."""
    if error.persistence is not Persistence.POSSIBLY_PERSISTED:
        return Status.NOT_PERSISTED
    return Status.POSSIBLY_PERSISTED if idempotent else Status.POSSIBLY_REPEATED


def hash_of_key(key: object) -> int:
    """Return the CRC-32 of a key's bytes, as Spark's `crc32`; -1 if there is no key; -2 if the key is not bytes any more."""
    if key is None:
        return NO_KEY
    return zlib.crc32(key) if isinstance(key, bytes) else KEY_NOT_KNOWN


class Rows:
    """Some claims of one stream."""

    def __init__(self) -> None:
        self.seqs = array("q")
        self.key_hashes = array("q")  # 32 bits, unsigned
        self.topics: list[str] = []
        self.partitions = array("i")
        self.offsets = array("q")
        self.statuses = array("b")
        self.send_us = array("q")  # since 1970, by this machine's clock
        self.ack_us = array("q")

    def __len__(self) -> int:
        return len(self.seqs)

    def add(
        self,
        seq: int,
        key_hash: int,
        topic: str,
        partition: int,
        offset: int,
        status: int,
        send_us: int,
        ack_us: int,
    ) -> None:
        """Add a claim.

        Raises:
            OverflowError, TypeError: a number does not fit into its column; no column has the claim then.
        """
        count = len(self.seqs)
        try:
            self.seqs.append(seq)
            self.key_hashes.append(key_hash)
            self.topics.append(topic)
            self.partitions.append(partition)
            self.offsets.append(offset)
            self.statuses.append(status)
            self.send_us.append(send_us)
            self.ack_us.append(ack_us)
        except BaseException:
            self._cut(count)  # columns of different lengths would be no table
            raise

    def _cut(self, count: int) -> None:
        numbers = (self.seqs, self.key_hashes, self.partitions, self.offsets, self.statuses, self.send_us, self.ack_us)
        for column in (*numbers, self.topics):
            del column[count:]

    def table(self, run: int, stream: int) -> pyarrow.Table:
        """Make a table for Parquet; the numbers are not copied.

        From buffers only: `pa.array` and `pa.scalar` import pandas where it is installed, which takes half a second.
        """
        import pyarrow as pa

        def column(cells: array[int], kind: pa.DataType) -> pa.Array:
            return pa.Array.from_buffers(kind, len(cells), [None, pa.py_buffer(cells)])

        def same(value: int) -> pa.Array:
            return column(array("q", [value]) * len(self), pa.int64())

        texts = [topic.encode() for topic in self.topics]
        ends = array("i", accumulate(map(len, texts), initial=0))
        return pa.table(
            {
                "run": same(run),
                "stream": same(stream),
                "seq": column(self.seqs, pa.int64()),
                "key_hash": column(self.key_hashes, pa.int64()),
                "topic": pa.Array.from_buffers(
                    pa.string(), len(texts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
                ),
                "partition": column(self.partitions, pa.int32()),
                "offset": column(self.offsets, pa.int64()),
                "status": column(self.statuses, pa.int8()),
                "send_us": column(self.send_us, pa.int64()),
                "ack_us": column(self.ack_us, pa.int64()),
            }
        )
