"""`ProducerLife`: the part of `AIOKafkaProducer` that starts, stops and asks; the options are its subclass's."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from aiokprod.compat.aiokafka.errors import theirs_too
from aiokprod.compat.aiokafka.lazy_client import LazyClient
from aiokprod.compat.aiokafka.options import Given, producer_options
from aiokprod.compat.aiokafka.starting import start_or_fail
from aiokprod.compat.aiokafka.theirs import RealProducer
from aiokprod.producer import Producer, snapshot_of

MOST_TOPICS: Final = 10_000  # whose number of partitions is remembered


class ProducerLife(RealProducer):
    """The life of a producer: it is aiokafka's class, so that `isinstance` holds whichever of the two a program names."""

    def __init__(self, given: Given) -> None:
        with theirs_too():
            self._producer = Producer(None, **producer_options(given))
        self._given = given
        self._timeout_s = given.request_timeout_ms / 1000
        self._client: LazyClient | None = None
        self._counts: dict[str, int] = {}  # topic -> number of its partitions, when they were last asked for
        self._closed = False  # frameworks read it

    def __del__(self) -> None:
        """Leave the warning to the producer inside, which tells of itself if it is dropped without `stop`."""

    @property
    def aiokprod(self) -> Producer:
        """The producer inside: `health()`, `metrics()`, `explain()` and all else that aiokafka does not have."""
        return self._producer

    @property
    def client(self) -> LazyClient:
        """aiokafka's own client, connected when it is first asked for something; needs a running loop."""
        if self._client is None:
            given = self._given
            self._client = LazyClient(
                self.partitions_for,
                lambda: snapshot_of(self._producer).brokers,
                bootstrap_servers=given.bootstrap_servers,
                client_id=given.client_id,
                metadata_max_age_ms=given.metadata_max_age_ms,
                request_timeout_ms=given.request_timeout_ms,
                retry_backoff_ms=given.retry_backoff_ms,
                security_protocol=given.security_protocol,
                ssl_context=given.ssl_context,
                connections_max_idle_ms=given.connections_max_idle_ms,
                sasl_mechanism=given.sasl_mechanism,
                sasl_plain_username=given.sasl_plain_username,
                sasl_plain_password=given.sasl_plain_password,
                sasl_oauth_token_provider=given.sasl_oauth_token_provider,
            )
        return self._client

    async def start(self) -> None:
        """Connect to the cluster, within `request_timeout_ms`.

        Raises:
            BootstrapError: no server can be reached, told at once if all refuse; or none answered in time. It is a
                `KafkaConnectionError`.
            AiokprodError: as of `aiokprod.Producer.start`.

        Cancellation: undoes the start.
        """
        with theirs_too():
            await start_or_fail(self._producer, self._timeout_s)
        self._closed = False

    async def stop(self) -> None:
        """Deliver what was sent, and end all connections. Called again, or before `start`, it does nothing.

        The deadlines of the records bound it. Records that were not delivered are a WARNING in the log.

        Raises:
            WrongLoopError: another event loop has started the producer.

        Cancellation: stops waiting; the end goes on.
        """
        if self._closed:
            return
        self._closed = True
        with theirs_too():
            await self._producer.__aexit__(None, None, None)
        if self._client is not None:
            await self._client.close()

    async def flush(self) -> None:
        """Wait until each record sent before this call has its outcome.

        Raises:
            ProducerClosedError: the producer is closed; it is aiokafka's `ProducerClosed`.
            AiokprodError: as of `aiokprod.Producer.flush`.

        Cancellation: stops waiting; the records go on.
        """
        with theirs_too():
            await self._producer.flush()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the partitions of a topic.

        Args:
            topic: topic name.

        Returns:
            Their numbers.

        Raises:
            UnknownTopicError: it was not found within `request_timeout_ms`; it is an `UnknownTopicOrPartitionError`.
            AiokprodError: as of `aiokprod.Producer.partitions_for`.

        Cancellation: stops waiting.
        """
        with theirs_too():
            partitions = await self._producer.partitions_for(topic)
        if len(self._counts) >= MOST_TOPICS:
            self._counts.clear()
        self._counts[topic] = len(partitions)
        return set(partitions)
