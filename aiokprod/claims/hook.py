"""`Claims`: the interceptor that records a producer's claim about each record. One per producer; off if there is none.

    send -> on_send: seq, the header -> the record's way, as without -> on_outcome: one row -> ClaimsWriter

It is an ordinary interceptor, so the record path without interceptors is unchanged. Its failures are never those of a
record: a header that cannot be added or a row without room is counted and logged.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokprod.claims.identity import HEADER, encode_identity, identity_of
from aiokprod.claims.rows import Status, hash_of_key, status_of
from aiokprod.claims.writer import ClaimsReport, ClaimsWriter
from aiokprod.config import ProducerConfig
from aiokprod.errors import AiokprodError
from aiokprod.hooks import ProducerInterceptor
from aiokprod.logs import StateLog
from aiokprod.model import Record, TransactionOutcome
from aiokprod.record_metadata import RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Awaitable

ROWS_PER_FILE: Final = 250_000
MOST_ROWS: Final = 1_000_000
FLUSH_S: Final = 1.0
NOT_KNOWN: Final = -1
_WAIT_STEP_S: Final = 0.01


class Claim(NamedTuple):
    """The arguments of `ClaimsWriter.add`."""

    seq: int
    key_hash: int
    topic: str
    partition: int
    offset: int
    status: int
    send_us: int
    ack_us: int


class Claims(ProducerInterceptor):
    """An interceptor that writes what a producer claims as Parquet, for `aiokprod audit`.

        claims = Claims("claims/")
        async with Producer("localhost:9092", interceptors=[claims]) as producer: ...
        assert claims.report().is_closed

    Make it the last interceptor: it claims the record as the interceptors before it made it.

    Args:
        folder: where the files go; created if it does not exist.
        run: identifies what is audited together, 64 bits, signed; None draws it at random.
        stream: identifies this producer within the run; no two producers of a run may have the same.
        rows_per_file: a file is written when this many claims wait.
        flush_s: a file is written after this many seconds, too, if any claim waits.
        most_rows: claims kept in memory while the disk is slow or full (about 60 bytes each); further ones are dropped and
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
        encode_identity(self.run, stream, 0)  # raises struct.error if they do not fit into 64 bits
        self._rows_per_file = rows_per_file
        self._most_rows = most_rows
        self._flush_s = flush_s
        self._log = StateLog(f"claims of run {self.run} stream {stream}")
        self._seq = 0
        self._sent_us: dict[int, int] = {}  # seq -> time of the send, of records without an outcome
        self._acked = Status.ACKED
        self._idempotent = True
        self._is_transactional = False
        self._held: list[Claim] = []  # of acknowledged records of the transaction at hand: readers may see them, or not
        self._writer: ClaimsWriter | None = None
        self._is_open = False

    # ------------------------------------------------------------------ what the producer calls
    def configure(self, config: object) -> None:
        """Prepare for a start of the producer: make the folder and the marker.

        Args:
            config: the `ProducerConfig` of the producer.

        Raises:
            ImportError: pyarrow is not installed.
            OSError: the folder cannot be written to.
            RuntimeError: another producer uses this object, or the claims of the last start are still being written.
        """
        try:
            import_module("pyarrow.parquet")
        except ImportError as missing:
            raise ImportError('claims are Parquet: pip install "aiokprod[columns]"') from missing
        if self._is_open or (self._writer is not None and not self._writer.wait(0)):
            raise RuntimeError(
                "a Claims object belongs to one producer, and all its claims are written before the next start"
            )
        if isinstance(config, ProducerConfig):
            self._acked = _status_of_acknowledged(config)
            self._idempotent = config.idempotent
            self._is_transactional = config.transactional_id is not None
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
        """Return the record with one more header, its identity.

        Args:
            record: the record as the interceptors before this one made it.
        """
        headers = record.headers
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
        seq = self._seq
        self._seq = seq + 1
        self._sent_us[seq] = time.time_ns() // 1000
        return replace(record, headers=[*pairs, (HEADER, encode_identity(self.run, self.stream, seq))])

    def on_outcome(self, record: Record, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        """Keep the outcome of a record as a row.

        Args:
            record: the record with the header of `on_send`.
            metadata: the place of the record in the log; None if it failed.
            error: the reason for the failure; None if the record was delivered.
        """
        identity = identity_of(record.headers or ())
        if identity is None or identity[:2] != (self.run, self.stream) or self._writer is None:
            return  # `on_send` could not read its headers: the record was refused because of them
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
        claim = Claim(
            identity[2],
            hash_of_key(record.key),
            topic if isinstance(topic, str) and topic.isascii() else "",
            partition if isinstance(partition, int) and 0 <= partition < 2**31 else NOT_KNOWN,
            offset,
            status,
            sent_us,
            time.time_ns() // 1000,
        )
        if metadata is None or not self._is_transactional:
            self._writer.add(*claim)
        elif len(self._held) < self._most_rows:
            self._held.append(claim)
        else:
            self._writer.add(*claim._replace(status=Status.POSSIBLY_PERSISTED))

    def on_transaction_end(self, outcome: TransactionOutcome) -> None:
        """Claim the acknowledged records of a transaction as readers of committed records see them.

        Args:
            outcome: how it ended. While that is not known they are kept.
        """
        if outcome is TransactionOutcome.COMMITTED:
            self._let_go(self._acked)
        elif outcome is TransactionOutcome.ABORTED:
            self._let_go(Status.NOT_PERSISTED)

    def _let_go(self, status: Status) -> None:
        held, self._held = self._held, []
        if self._writer is not None:
            for claim in held:
                self._writer.add(*claim._replace(status=status))

    def close(self) -> Awaitable[None]:
        """Begin to write the remaining claims.

        Returns:
            An awaitable that ends once they are written. The producer's `close` waits half a second for it; the rest is
            written after that.
        """
        self._is_open = False
        self._let_go(Status.POSSIBLY_PERSISTED)  # of a transaction that others end, or whose end is not known
        if self._writer is not None:
            self._writer.end()
        return self._written()

    async def _written(self) -> None:
        writer = self._writer
        try:
            while writer is not None and not writer.wait(0):  # noqa: ASYNC110 - of a thread, once per producer
                await asyncio.sleep(_WAIT_STEP_S)
        except asyncio.CancelledError:
            waiting = self.report().waiting
            self._log.warned("claims wait", f"{waiting} claims are still being written: claims.wait() waits for them")
            raise

    # ------------------------------------------------------------------ asking
    def report(self) -> ClaimsReport:
        """Return how many claims are in files, in memory, and dropped; callable from any thread."""
        if self._writer is None:
            return ClaimsReport(rows=0, dropped=0, waiting=0, files=0, is_closed=False)
        return self._writer.report()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block, after the producer's `close`, until everything is written.

        Args:
            timeout_s: seconds to wait at most; None waits without bound.

        Returns:
            False if claims are still waiting.
        """
        return self._writer is None or self._writer.wait(timeout_s)

    def __repr__(self) -> str:
        return f"<Claims run {self.run} stream {self.stream} in {self.folder}: {self._seq} sent>"


def _status_of_acknowledged(config: ProducerConfig) -> Status:
    """Return the status of an acknowledged record under this config."""
    if config.required_acks == 0:
        return Status.POSSIBLY_PERSISTED
    return Status.ACKED if config.idempotent else Status.ACKED_AT_LEAST_ONCE
