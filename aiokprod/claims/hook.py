"""`Claims`: the interceptor that keeps what a producer claims of each record. One for each producer; off if there is none.

    send -> on_send: seq, the header -> the record's way, as without -> on_outcome: one row -> ClaimsWriter

It sees what every interceptor sees, so the record path without interceptors is not touched. Its failures are never those
of a record: a header that cannot be put there or a row that has no room is counted and logged.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiokprod.claims.identity import HEADER, encode_identity, identity_of
from aiokprod.claims.rows import Status, hash_of_key, status_of
from aiokprod.claims.writer import ClaimsReport, ClaimsWriter
from aiokprod.config import ProducerConfig
from aiokprod.errors import AiokprodError
from aiokprod.hooks import ProducerInterceptor
from aiokprod.logs import StateLog
from aiokprod.model import Record
from aiokprod.record_metadata import RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Awaitable

ROWS_PER_FILE: Final = 250_000
MOST_ROWS: Final = 1_000_000
FLUSH_S: Final = 1.0
NOT_KNOWN: Final = -1
_WAIT_STEP_S: Final = 0.01


class Claims(ProducerInterceptor):
    """Writes what a producer claims as Parquet, for `aiokprod audit`.

        claims = Claims("claims/")
        async with Producer("localhost:9092", interceptors=[claims]) as producer: ...
        assert claims.report().is_closed

    Give it last: it claims what the interceptors before it made of the record.

    Args:
        folder: where the files go; made if it is not there.
        run: what is audited together; None: drawn at random. 64 bits, signed.
        stream: this producer among those of the run; no two of a run may have the same.
        rows_per_file: a file is written when so many claims wait, and every `flush_s` seconds.
        most_rows: kept in memory when the disk is slow or full (about 60 bytes each); what comes then is dropped and
            counted, and the audit says that it cannot judge all.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        run: int | None = None,
        stream: int = 0,
        rows_per_file: int = ROWS_PER_FILE,
        most_rows: int = MOST_ROWS,
        flush_s: float = FLUSH_S,
    ) -> None:
        self.run = random.SystemRandom().getrandbits(63) if run is None else run
        self.stream = stream
        self.folder = Path(folder)
        encode_identity(self.run, stream, 0)  # struct.error: they do not fit into 64 bits
        self._rows_per_file = rows_per_file
        self._most_rows = most_rows
        self._flush_s = flush_s
        self._log = StateLog(f"claims of run {self.run} stream {stream}")
        self._seq = 0
        self._sent_us: dict[int, int] = {}  # of records without an outcome
        self._acked = Status.ACKED
        self._idempotent = True
        self._writer: ClaimsWriter | None = None
        self._is_open = False

    # ------------------------------------------------------------------ what the producer calls
    def configure(self, config: object) -> None:
        """The producer starts.

        Raises:
            ImportError: there is no pyarrow.
            OSError: the folder cannot be written to.
            RuntimeError: another producer has this object, or the claims of the last start are still being written.
        """
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as missing:
            raise ImportError('claims are Parquet: pip install "aiokprod[columns]"') from missing
        if self._is_open or (self._writer is not None and not self._writer.wait(0)):
            raise RuntimeError(
                "a Claims object belongs to one producer, and is written to its end before the next start"
            )
        if isinstance(config, ProducerConfig):
            self._acked = _what_an_answer_means(config)
            self._idempotent = config.idempotent
        writer = ClaimsWriter(
            self.folder,
            self.run,
            self.stream,
            self._log,
            rows_per_file=self._rows_per_file,
            most_rows=self._most_rows,
            flush_s=self._flush_s,
        )
        writer.begin()
        self._writer = writer
        self._is_open = True

    def on_send(self, record: Record) -> Record:
        headers = record.headers
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
        seq = self._seq
        self._seq = seq + 1
        self._sent_us[seq] = time.time_ns() // 1000
        return replace(record, headers=[*pairs, (HEADER, encode_identity(self.run, self.stream, seq))])

    def on_outcome(self, record: Record, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        identity = identity_of(record.headers or ())
        if identity is None or identity[:2] != (self.run, self.stream) or self._writer is None:
            return  # `on_send` could not read its headers: the record was refused for them
        sent_us = self._sent_us.pop(identity[2], None)
        if sent_us is None:
            return
        topic, partition, offset = record.topic, record.partition, NOT_KNOWN
        status = Status.NOT_PERSISTED
        if metadata is not None:
            topic, partition = metadata.topic, metadata.partition
            offset = NOT_KNOWN if metadata.offset is None else metadata.offset
            status = self._acked
        elif error is not None:
            status = status_of(error, idempotent=self._idempotent)
            partition = error.partition if error.partition is not None else partition
        self._writer.add(
            identity[2],
            hash_of_key(record.key),
            topic if isinstance(topic, str) and topic.isascii() else "",
            partition if isinstance(partition, int) and 0 <= partition < 2**31 else NOT_KNOWN,
            offset,
            status,
            sent_us,
            time.time_ns() // 1000,
        )

    def close(self) -> Awaitable[None]:
        """The producer is closed: the rest is written. What is not written in half a second is written after `close`."""
        self._is_open = False
        if self._writer is not None:
            self._writer.end()
        return self._written()

    async def _written(self) -> None:
        writer = self._writer
        while writer is not None and not writer.wait(0):  # noqa: ASYNC110 - of a thread, once per producer
            await asyncio.sleep(_WAIT_STEP_S)

    # ------------------------------------------------------------------ asking
    def report(self) -> ClaimsReport:
        """How many claims are in files, in memory, and dropped; from any thread."""
        if self._writer is None:
            return ClaimsReport(rows=0, dropped=0, waiting=0, files=0, is_closed=False)
        return self._writer.report()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait, after the producer's `close`, until everything is written; blocks. False: it is not, in that time."""
        return self._writer is None or self._writer.wait(timeout_s)

    def __repr__(self) -> str:
        return f"<Claims run {self.run} stream {self.stream} in {self.folder}: {self._seq} sent>"


def _what_an_answer_means(config: ProducerConfig) -> Status:
    """What an acknowledged record's claim is."""
    if config.required_acks == 0:
        return Status.POSSIBLY_PERSISTED
    return Status.ACKED if config.idempotent else Status.ACKED_AT_LEAST_ONCE
