"""`MemoryProducer`: a Producer for unit tests. It keeps what is sent; no cluster, no sockets, no threads.

It is a `Producer`: same methods, checks, errors and states. Only what happens behind the partitioner is different: a
record is in the log on a later turn of the loop, or fails as the test has scripted it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from aiokprod.config import ProducerConfig, ProducerOptions
from aiokprod.errors import AiokprodError, UsageError
from aiokprod.pipeline.backend import Backend
from aiokprod.pipeline.columns.send_columns import ColumnsSend
from aiokprod.pipeline.partition.context import PipelineContext
from aiokprod.pipeline.pipeline import Pipeline
from aiokprod.producer import Producer
from aiokprod.records.column_rows import ColumnTable
from aiokprod.testing.memory.backend import MemoryBackend
from aiokprod.testing.memory.columns import MemoryColumnsSend
from aiokprod.testing.memory.log import MemoryLog, MemoryRecord
from aiokprod.testing.memory.script import Script
from aiokprod.transactions.prepared import PreparedTransaction

NOWHERE = "memory:9092"  # bootstrap_servers, when none are given; the name is never resolved


class MemoryProducer(Producer):
    """A `Producer` for unit tests that keeps its records in memory.

        async with MemoryProducer(topics={"orders": 6}) as producer:
            await place_order(producer, 42)
        assert [record.key for record in producer.records_of("orders")] == [b"42"]

    Differences from a cluster: a topic that does not exist is refused at once, not after `max_block_ms`. Nothing is written
    before the outcome, so a record can be recalled until then, and one that times out is certainly not persisted. Records,
    topics and the script outlive `close`.

    Args:
        servers: see `Producer`; not needed.
        topics: topic names with their numbers of partitions.
        auto_create: True makes a missing topic with one partition when a record is sent to it; False refuses it with
            `UnknownTopicError`.
        **options: the options of `ProducerConfig`; all are checked, those of network, batches and retries do nothing.

    Raises:
        ConfigError: see `Producer`; a number of partitions is wrong.
        InvalidTopicError: a topic name is not valid.
    """

    def __init__(
        self,
        servers: str | Sequence[str] | Mapping[str, Any] | ProducerConfig | None = None,
        /,
        *,
        topics: Mapping[str, int] | None = None,
        auto_create: bool = True,
        **options: Unpack[ProducerOptions],
    ) -> None:
        if servers is None and options.get("bootstrap_servers") is None:
            servers = NOWHERE
        super().__init__(servers, **options)
        for name in topics or ():
            self._checks.checked_topic(name)
        self._records = MemoryLog(topics or {}, auto_create=auto_create)
        self._script = Script()

    def _check_files(self, config: ProducerConfig) -> None:
        """Check nothing: the files of a production config need not exist where its unit tests run."""

    def _make_backend(self, context: PipelineContext) -> Backend:
        return MemoryBackend(context, self._records, self._script)

    async def prepare_transaction(self, timeout: float | None = None) -> PreparedTransaction:
        """Refuse the call: the records are in the memory of this process, where no other one could end their transaction.

        Args:
            timeout: seconds; not looked at.

        Returns:
            Nothing: it always raises.

        Raises:
            UsageError: always; commit or abort instead, or test with a `MockCluster`.

        Cancellation: does nothing, as nothing is waited for.
        """
        raise UsageError(
            "a MemoryProducer prepares no transaction, as there is no cluster at which another process could end it: use"
            " aiokprod.testing.MockCluster in this test"
        )

    def _make_columns_send(self, pipeline: Pipeline, topic: str, table: ColumnTable, placements: bool) -> ColumnsSend:
        return MemoryColumnsSend(
            pipeline.context,
            pipeline.parking,
            self._checks,
            pipeline.column_tickets,
            topic,
            table,
            pipeline.closed_error,
            placements,
            self.send,
        )

    # ------------------------------------------------------------------ what was sent
    @property
    def records(self) -> list[MemoryRecord]:
        """The delivered records, in the order of their delivery; readable from any thread.

        A record is delivered on a later turn of the loop: await its delivery, `flush()` or `close()`.
        """
        return list(self._records)

    def records_of(self, topic: str, partition: int | None = None) -> list[MemoryRecord]:
        """Return the records of one topic, or of one of its partitions, in the order of their delivery.

        Args:
            topic: topic name.
            partition: partition number; None is all partitions.
        """
        return [
            record
            for record in self._records
            if record.topic == topic and (partition is None or record.partition == partition)
        ]

    def clear(self) -> None:
        """Forget the records and all scripted errors and delays; a hold ends. Offsets go on."""
        self._records.clear()
        self._script.clear()
        self._pump()

    # ------------------------------------------------------------------ scripted outcomes
    def fail_next(self, error: AiokprodError | type[AiokprodError], topic: str | None = None, times: int = 1) -> None:
        """Let the next records fail; they are not kept.

        Args:
            error: error of their deliveries, a copy for each. Topic, partition, attempts, elapsed time and `persistence`
                (NOT_PERSISTED) are filled in where they are None.
            topic: topic of the records; None is any.
            times: number of records.

        Raises:
            ConfigError: an argument is wrong.
        """
        self._script.fail_next(error, topic, times)

    def delay_next(self, seconds: float, topic: str | None = None, times: int = 1) -> None:
        """Delay the outcome of the next records; records behind them in their partition wait too.

        Args:
            seconds: time from the send to the outcome.
            topic: topic of the records; None is any.
            times: number of records.

        Raises:
            ConfigError: an argument is wrong.
        """
        self._script.delay_next(seconds, topic, times)

    def hold(self) -> None:
        """Hold the outcome of all records until `release`, except for timeouts. `flush` and `close` wait."""
        self._script.is_held = True

    def release(self) -> None:
        """End a `hold`: held records go on, in order, on the next turn of the loop. Callable from any thread."""
        self._script.is_held = False
        self._pump()

    def _pump(self) -> None:
        pipeline, loop = self._pipeline, self._life.loop
        backend = None if pipeline is None else pipeline.backend
        if isinstance(backend, MemoryBackend) and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(backend.broker.pump)

    def __repr__(self) -> str:
        return f"<MemoryProducer {self.config.client_id} {self._life.state.value}, {len(self._records)} records>"
