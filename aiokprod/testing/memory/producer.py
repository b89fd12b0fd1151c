"""`MemoryProducer`: a Producer for unit tests. It keeps what is sent; no cluster, no sockets, no threads.

It is a `Producer`: same methods, checks, errors and states. Only what happens behind the partitioner is different: a
record is in the log on a later turn of the loop, or fails as the test has scripted it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from aiokprod.config import ProducerConfig, ProducerOptions
from aiokprod.errors import AiokprodError, ConfigError, SendColumnsError
from aiokprod.model import ColumnsReport
from aiokprod.producer import Producer
from aiokprod.records.column_rows import table_of
from aiokprod.records.columns import BytesColumn, HeadersColumn
from aiokprod.testing.memory.columns import send_each
from aiokprod.testing.memory.log import MemoryLog, MemoryRecord
from aiokprod.testing.memory.pipeline import MemoryPipeline
from aiokprod.testing.memory.script import Script
from aiokprod.unclosed import weakly

NOWHERE = "memory:9092"  # bootstrap_servers, when none are given; nobody looks the name up


class MemoryProducer(Producer):
    """A `Producer` that keeps its records.

        async with MemoryProducer(topics={"orders": 6}) as producer:
            await place_order(producer, 42)
        assert [record.key for record in producer.records_of("orders")] == [b"42"]

    What differs from a cluster: a topic that does not exist is refused at once and not after `max_block_ms`; nothing is
    written before the outcome, so a record can be recalled until then, and one that times out is certainly not
    persisted. Records and topics outlive `close`; a script does too.

    Args:
        servers: as `Producer` takes them, and not needed.
        topics: name -> number of partitions.
        auto_create: a topic that is not there is made, with one partition, when somebody wants it; False: it is refused
            with `UnknownTopicError`.
        **options: the options of `ProducerConfig`; all are checked, those of network, batches and retries do nothing.

    Raises:
        ConfigError: as `Producer`; a number of partitions is wrong.
        InvalidTopicError: no topic can have this name.
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
            self._intake.checked_topic(name)
        self._records = MemoryLog(topics or {}, auto_create=auto_create)
        self._script = Script()

    def _check_files(self, config: ProducerConfig) -> None:
        """The files of a production config need not be where its unit tests run."""

    def _make_pipeline(self) -> MemoryPipeline:
        return MemoryPipeline(
            self.config,
            self._metrics,
            self._log,
            self._unwatched,
            self._intake.interceptors,
            weakly(self._failed),
            self._records,
            self._script,
        )

    async def send_columns(
        self,
        topic: str,
        values: BytesColumn,
        keys: BytesColumn | None = None,
        *,
        headers: HeadersColumn | None = None,
        partitions: object = None,
        timestamps_ms: object = None,
        placements: bool = False,
    ) -> ColumnsReport:
        """As `Producer.send_columns`; here each row is a `send`, and what a row is refused for is its failure."""
        if not self._intake.is_plain:
            raise ConfigError("send_columns passes by interceptors and serializers: use a producer without them")
        report = await send_each(self, topic, table_of(values, keys, headers, partitions, timestamps_ms), placements)
        if report.failed:
            raise SendColumnsError(report)
        return report

    # ------------------------------------------------------------------ what was sent
    @property
    def records(self) -> list[MemoryRecord]:
        """The records that were delivered, in the order of their delivery; from any thread.

        A record that was sent a moment ago is not there yet: await its delivery, `flush()` or `close()`.
        """
        return list(self._records)

    def records_of(self, topic: str, partition: int | None = None) -> list[MemoryRecord]:
        """Those of one topic, or of one partition of it."""
        return [
            record
            for record in self._records
            if record.topic == topic and (partition is None or record.partition == partition)
        ]

    def clear(self) -> None:
        """Forget the records and all that is scripted; a hold ends. Offsets go on."""
        self._records.clear()
        self._script.clear()
        self._pump()

    # ------------------------------------------------------------------ what shall happen
    def fail_next(self, error: AiokprodError | type[AiokprodError], topic: str | None = None, times: int = 1) -> None:
        """The next records sent fail and are not kept.

        Args:
            error: what their deliveries raise, each a fresh copy. Topic, partition, attempts and elapsed time are
                filled in where it does not say; so is `persistence`, with NOT_PERSISTED.
            topic: of the records; None is any.
            times: how many of them.

        Raises:
            ConfigError: no such thing can be.
        """
        self._script.fail_next(error, topic, times)

    def delay_next(self, seconds: float, topic: str | None = None, times: int = 1) -> None:
        """The next records sent have their outcome so many seconds after their send; those behind them wait too.

        Raises:
            ConfigError: no such thing can be.
        """
        self._script.delay_next(seconds, topic, times)

    def hold(self) -> None:
        """From now on no record has an outcome, but for its timeouts, until `release`. `flush` and `close` wait."""
        self._script.is_held = True

    def release(self) -> None:
        """End a `hold`: what was held goes on, in order, on the next turn of the loop. From any thread."""
        self._script.is_held = False
        self._pump()

    def _pump(self) -> None:
        pipeline, loop = self._pipeline, self._loop
        if isinstance(pipeline, MemoryPipeline) and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(pipeline.broker.pump)

    def __repr__(self) -> str:
        return f"<MemoryProducer {self.config.client_id} {self._state.value}, {len(self._records)} records>"
