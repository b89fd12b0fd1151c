"""What the stages ask of their neighbours. The assembly wires them; no stage imports another.

Plain base classes, not Protocols: a call through a Protocol costs thirty times as much once compiled. Batches and wakes
pass here, never records, but for those that failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from aiokprod.errors import AiokprodError
from aiokprod.model import Persistence, Record
from aiokprod.pipeline.batch import ProducerBatch, Segment
from aiokprod.pipeline.batch_owner import BatchOwner
from aiokprod.pipeline.bulk import BulkSend
from aiokprod.pipeline.column_batch import BatchListener
from aiokprod.pipeline.delivery import Delivery
from aiokprod.pipeline.effects import Effects
from aiokprod.pipeline.encoded import Encoded
from aiokprod.pipeline.failures import Failures
from aiokprod.pipeline.flushes import Flushes
from aiokprod.pipeline.ledger import Entry, Ledger
from aiokprod.pipeline.parked import ParkedRecord
from aiokprod.pipeline.settings import PipelineSettings
from aiokprod.records.column_rows import Section
from aiokprod.wire.produce import ProduceOutcome


class Queue(BatchOwner):
    """A PartitionQueue as the later stages see it."""

    ledger: Ledger
    texts: Failures
    node: int  # where it is registered; -1: no leader
    looks_at: float  # when the alarm of the house rings for it (loop time); inf: it is not set

    def candidate(self, now: float, now_ms: int, urgent: bool) -> Entry | None:
        """The batch that may go now. `urgent`: nothing is in flight to that broker, or an answer just came."""
        raise AssertionError("abstract")

    def prepare(self, entry: Entry) -> Encoded | None:
        """Its encoded records; None while a worker thread compresses them."""
        raise AssertionError("abstract")

    def take(self, now: float, now_ms: int) -> Entry | None:
        """The candidate, stamped; the caller writes it in the same synchronous step."""
        raise AssertionError("abstract")

    def compressed(self, entry: Entry, ranges: list[tuple[int, int]], section: bytes) -> None:
        """A worker thread compressed these records."""
        raise AssertionError("abstract")

    def answer(
        self,
        entry: Entry,
        attempt: int,
        code: int,
        base_offset: int,
        timestamp_ms: int,
        named: tuple[int, ...],
        now: float,
        now_ms: int,
    ) -> None:
        """The answer to one attempt, and when it came (loop time, wall clock)."""
        raise AssertionError("abstract")

    def lost(self, fates: list[tuple[Entry, int, bool]]) -> None:
        """The connection ended without an answer to these."""
        raise AssertionError("abstract")

    def expire(self) -> None:
        """The deadline of the oldest record has come."""
        raise AssertionError("abstract")

    def pending_bytes(self) -> int:
        """Bytes of records without an outcome."""
        raise AssertionError("abstract")

    def oldest_opened_at(self) -> float | None:
        """When its oldest batch without an outcome was opened (loop time, seconds); None: there is none."""
        raise AssertionError("abstract")

    def returned(self) -> None:
        """The chaser is back."""
        raise AssertionError("abstract")

    def granted(self, identity: tuple[int, int]) -> None:
        """A producer id and epoch."""
        raise AssertionError("abstract")


class IntakeQueue(Queue):
    """A PartitionQueue as the TopicDispatcher sees it."""

    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: bytes | None,
        timestamp_ms: int,
        size_bytes: int,
        now: float,
    ) -> Delivery:
        """Take a record that has its room and its partition."""
        raise AssertionError("abstract")

    def append_to(self, bulk: BulkSend, value: bytes, timestamp_ms: int, size_bytes: int, now: float) -> None:
        """`append` for a record of `send_many`: no Delivery is needed."""
        bulk.add(self.append(value, None, None, timestamp_ms, size_bytes, now), has_timeout=False)

    def append_parked(self, record: ParkedRecord) -> None:
        """Take a record that was parked."""
        raise AssertionError("abstract")

    def append_columns(self, section: Section, rows: Sequence[int], charge_bytes: int, listener: BatchListener) -> None:
        """Take a batch of `send_columns`, which is encoded and charged for."""
        raise AssertionError("abstract")


class ReadySet:
    """A BrokerAggregator as the other stages see it."""

    def has_work(self) -> bool:
        """Is there anything to look at?"""
        raise AssertionError("abstract")

    def ready(self, queue: Queue) -> None:
        """Something changed there."""
        raise AssertionError("abstract")

    def urged(self, queue: Queue) -> None:
        """Somebody waits for its open batch."""
        raise AssertionError("abstract")

    def remove(self, queue: Queue) -> None:
        """The partition moved to another leader."""
        raise AssertionError("abstract")

    def collect(self, now: float, now_ms: int, urgent: bool, limit_bytes: int) -> list[tuple[Queue, Entry]]:
        """Stamped batches for one request; the caller writes them in the same synchronous step."""
        raise AssertionError("abstract")


class Route:
    """A BrokerFlusher as the RetryHandler sees it."""

    aggregator: ReadySet

    def chase(self, queue: Queue) -> bool:
        """Put a chaser behind what is in flight there; False if nothing of the partition is."""
        raise AssertionError("abstract")


class House:
    """What stages ask of the pipeline as a whole."""

    settings: PipelineSettings
    loop: asyncio.AbstractEventLoop
    effects: Effects  # what state changes lead to
    flushes: Flushes  # batches of an older generation are ready
    record_overhead_bytes: int

    # ------------------------------------------------------------------ asked by all
    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Begin a task that the supervisor owns; what it dies of fails the producer."""
        raise AssertionError("abstract")

    # ------------------------------------------------------------------ asked by PartitionQueue
    def ready(self, queue: Queue) -> None:
        """It may have a batch to send: look at it on the next turn of the loop."""
        raise AssertionError("abstract")

    def urged(self, queue: Queue) -> None:
        """Somebody waits for its open batch."""
        raise AssertionError("abstract")

    def opened(self, queue: Queue, since: float) -> None:
        """A batch was opened for a record that was sent then (loop time): note it for expiry and linger."""
        raise AssertionError("abstract")

    def undelivered(self, topic: str, partition: int | None, persistence: Persistence | None, count: int) -> None:
        """So many records failed: close() reports them."""
        raise AssertionError("abstract")

    def acknowledged(self, batch: ProducerBatch, segment: Segment) -> None:
        """These records have their outcome: the interceptors hear of it."""
        raise AssertionError("abstract")

    def free(self, charge_bytes: int) -> None:
        """These bytes are free: they are granted after the state change under way."""
        raise AssertionError("abstract")

    def failed(self, error: AiokprodError, count: int, kept: Iterable[Record] | None = None) -> None:
        """So many records failed that no task and no callback waits for: reported after the state change under way.

        `kept`: the records, one for each, where the user wants them (`keep_failed_records`) and they are at hand.
        """
        raise AssertionError("abstract")

    def is_short_of_memory(self) -> bool:
        """Do records wait for room? Then nothing lingers."""
        raise AssertionError("abstract")

    def compress_elsewhere(
        self, queue: Queue, entry: Entry, ranges: list[tuple[int, int]], section: bytes | bytearray
    ) -> None:
        """Compress in a worker thread; answer with `queue.compressed`. `ranges`: the records that the section holds."""
        raise AssertionError("abstract")

    def chase(self, queue: Queue, node: int) -> None:
        """Put a chaser behind what is in flight there; answer with `queue.returned`."""
        raise AssertionError("abstract")

    def need_identity(self, queue: Queue, used: tuple[int, int] | None, fresh: bool) -> None:
        """Answer with `queue.granted`."""
        raise AssertionError("abstract")

    def rerouted(self, queue: Queue) -> None:
        """The ledger has another leader (or none) than the queue is registered with."""
        raise AssertionError("abstract")

    # ------------------------------------------------------------------ asked by BrokerFlusher
    def dial(self, node_id: int) -> None:
        """There is work for this broker and no connection."""
        raise AssertionError("abstract")

    def leader_hints(
        self, hints: list[tuple[Queue, ProduceOutcome]], endpoints: Sequence[tuple[int, str, int, str | None]]
    ) -> None:
        """The broker said in one answer who leads these (KIP-951)."""
        raise AssertionError("abstract")

    def want_metadata(self, why: str) -> None:
        """What we know of the cluster is out of date."""
        raise AssertionError("abstract")

    def crashed(self, cause: BaseException) -> None:
        """A bug of ours: fail everything, hang nothing."""
        raise AssertionError("abstract")
