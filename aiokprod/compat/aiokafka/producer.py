"""`AIOKafkaProducer`: aiokafka's producer, on an `aiokprod.Producer`.

    send -> serializers -> Producer.send -> Delivery -> SentRecord

`send` is a coroutine function that does not wait where the topic is known and there is room: no switch to another task, no
Future, no callback. Else it waits as aiokafka's does: for the topic, for room, each for `request_timeout_ms` at most.
"""

from __future__ import annotations

import asyncio
import ssl
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from aiokprod.compat.aiokafka.batches import FilledBatch, outcome_of
from aiokprod.compat.aiokafka.errors import be_theirs_too, theirs_too
from aiokprod.compat.aiokafka.options import Given
from aiokprod.compat.aiokafka.sent_record import Callbacks, SentRecord, UnacknowledgedRecord
from aiokprod.compat.aiokafka.theirs import (
    LEFT_OUT,
    DefaultPartitioner,
    RealProducer,
    RecordMetadata,
)
from aiokprod.compat.aiokafka.transaction_calls import TransactionCalls
from aiokprod.delivery_type import Delivery
from aiokprod.errors import (
    AiokprodError,
    BufferFullError,
    InvalidPartitionError,
    PartitionerError,
    RecordTypeError,
)

Headers = Sequence[tuple[str, bytes | None]]
Sent = asyncio.Future[RecordMetadata]
DEFAULT_PARTITIONER: Final = DefaultPartitioner()


class AIOKafkaProducer(TransactionCalls):
    """A Kafka producer with the methods and options of `aiokafka.AIOKafkaProducer`, on aiokprod.

        async with AIOKafkaProducer(bootstrap_servers="localhost:9092") as producer:
            metadata = await producer.send_and_wait("orders", b"value", key=b"key")

    Errors are aiokafka's and aiokprod's at once: `except KafkaError` holds, and `error.persistence` says whether the record may
    be in the log. `aiokprod` is the `aiokprod.Producer` inside.

    Args:
        loop: deprecated, as in aiokafka; the loop that starts the producer is used.
        bootstrap_servers: `"host:port"`, several with commas, or a list of them.
        client_id: name in the brokers' logs; None: `aiokafka-producer-N`.
        metadata_max_age_ms: milliseconds after which metadata is asked for again.
        request_timeout_ms: milliseconds that a broker has to answer; bounds the start, the wait of `send` for metadata and
            for room, and the delivery of a record (with `enable_idempotence=True` or a transactional id that is 120 s, or this
            if it is more; aiokafka has no bound there).
        api_version: deprecated, as in aiokafka; versions are negotiated.
        acks: 0, 1, -1 or "all". Left out, it is "all" (in aiokafka: 1).
        key_serializer: makes bytes of a key; None takes bytes.
        value_serializer: makes bytes of a value; None takes bytes.
        compression_type: "gzip", "snappy", "lz4", "zstd" or None.
        max_batch_size: bytes of a batch.
        partitioner: `partitioner(key_bytes, all_partitions, available_partitions)`; by default murmur2 as in Java.
        max_request_size: bytes of a request, and of a record.
        linger_ms: milliseconds to wait for more records before a batch is sent.
        retry_backoff_ms: milliseconds before the first retry; doubled up to a second.
        security_protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        ssl_context: for SSL and SASL_SSL.
        connections_max_idle_ms: milliseconds after which an idle connection is closed; None: never.
        enable_idempotence: left out, it is True unless `acks` is 0 or 1 (in aiokafka: False).
        transactional_id: name for transactions, which go on under it after a restart.
        transaction_timeout_ms: milliseconds after which the coordinator aborts an open transaction.
        sasl_mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.
        sasl_plain_password: for PLAIN and SCRAM.
        sasl_plain_username: for PLAIN and SCRAM.
        sasl_kerberos_service_name: not used: there is no GSSAPI.
        sasl_kerberos_domain_name: not used: there is no GSSAPI.
        sasl_oauth_token_provider: an `aiokafka.abc.AbstractTokenProvider`.

    Raises:
        ConfigError: an option is wrong, or two conflict; it is a ValueError, as in aiokafka.
        CodecUnavailableError: the package of the codec is not installed; it is a RuntimeError, as in aiokafka.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | Sequence[str] = "localhost",
        client_id: str | None = None,
        metadata_max_age_ms: float = 300_000,
        request_timeout_ms: float = 40_000,
        api_version: str | None = None,
        acks: Any = LEFT_OUT,
        key_serializer: Callable[[Any], bytes | None] | None = None,
        value_serializer: Callable[[Any], bytes | None] | None = None,
        compression_type: str | None = None,
        max_batch_size: int = 16_384,
        partitioner: Callable[..., int] = DEFAULT_PARTITIONER,
        max_request_size: int = 1_048_576,
        linger_ms: float = 0,
        retry_backoff_ms: float = 100,
        security_protocol: str = "PLAINTEXT",
        ssl_context: ssl.SSLContext | None = None,
        connections_max_idle_ms: float | None = 540_000,
        enable_idempotence: Any = LEFT_OUT,
        transactional_id: str | None = None,
        transaction_timeout_ms: float = 60_000,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
    ) -> None:
        for name, value in {"loop": loop, "api_version": api_version}.items():
            if value is not None:
                warnings.warn(f"The `{name}` parameter is deprecated, and not used", DeprecationWarning, stacklevel=2)
        RealProducer._PRODUCER_CLIENT_ID_SEQUENCE += 1
        if client_id is None:
            client_id = f"aiokafka-producer-{RealProducer._PRODUCER_CLIENT_ID_SEQUENCE}"
        given = Given(
            bootstrap_servers=bootstrap_servers,
            client_id=client_id,
            metadata_max_age_ms=metadata_max_age_ms,
            request_timeout_ms=request_timeout_ms,
            acks=acks,
            compression_type=compression_type,
            max_batch_size=max_batch_size,
            partitioner=partitioner,
            max_request_size=max_request_size,
            linger_ms=linger_ms,
            retry_backoff_ms=retry_backoff_ms,
            security_protocol=security_protocol,
            ssl_context=ssl_context,
            connections_max_idle_ms=connections_max_idle_ms,
            enable_idempotence=enable_idempotence,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            sasl_mechanism=sasl_mechanism,
            sasl_plain_username=sasl_plain_username,
            sasl_plain_password=sasl_plain_password,
            sasl_oauth_token_provider=sasl_oauth_token_provider,
        )
        super().__init__(given)
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._max_batch_size = max_batch_size
        self._acks = self._producer.config.required_acks
        self._view = UnacknowledgedRecord if self._acks == 0 else SentRecord
        self._callbacks = Callbacks()

    # ------------------------------------------------------------------ sending
    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: float | None = None,
        headers: Headers | None = None,
    ) -> Sent:
        """Accept one record. Await what it returns for the outcome.

        Args:
            topic: topic name.
            value: bytes, or the argument of `value_serializer`; None is a tombstone, which needs a key.
            key: bytes, or the argument of `key_serializer`.
            partition: partition number; None lets the partitioner choose.
            timestamp_ms: milliseconds since 1970, without their fraction; None is the current time.
            headers: (str, bytes) pairs.

        Returns:
            An object that is an `asyncio.Future` to `isinstance` and to asyncio: of aiokafka's `RecordMetadata`, or None with
            acks=0. Its `delivery` is the `aiokprod.Delivery`.

        Raises:
            BufferFullError: there was no room within `request_timeout_ms`; it is a `KafkaTimeoutError`.
            UnknownTopicError: the topic was not found within `request_timeout_ms`; it is an `UnknownTopicOrPartitionError`.
            RecordTooLargeError: the record is larger than `max_request_size`; it is a `MessageSizeTooLargeError`.
            ProducerClosedError: the producer is closed; it is aiokafka's `ProducerClosed`.
            UsageError: no transaction is open; it is an `IllegalOperation`.
            AiokprodError: as of `aiokprod.Producer.send`. Also what a serializer or the partitioner raises.

        Cancellation: the record is not sent.
        """
        if value is None and key is None:
            raise be_theirs_too(RecordTypeError("Need at least one: key or value", topic=topic), AssertionError)
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        # aiokafka takes `time.time() * 1000`, too.
        sent_ms: Any = int(timestamp_ms) if type(timestamp_ms) is float else timestamp_ms
        count = self._counts.get(topic)
        if count is None or (partition is not None and not 0 <= partition < count):
            await self._learn(topic, partition)
        delivery = self._accept(topic, value, key, partition, headers or (), sent_ms)
        if delivery is None:
            delivery = await self._send_with_room(topic, value, key, partition, headers or (), sent_ms)
        return self._view(delivery, self._callbacks)  # type: ignore[return-value] # a view, which behaves as one

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: float | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Send one record, and wait for its outcome.

        Args:
            topic: topic name.
            value: as for `send`.
            key: as for `send`.
            partition: partition number; None lets the partitioner choose.
            timestamp_ms: milliseconds since 1970, without their fraction; None is the current time.
            headers: (str, bytes) pairs.

        Returns:
            The place of the record in the log; None with acks=0.

        Raises:
            AiokprodError: the record was not accepted, as for `send`, or was not delivered; `persistence` says whether it may
                be in the log. It is a `KafkaError`.

        Cancellation: stops waiting; an accepted record is still sent.
        """
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    async def _learn(self, topic: str, partition: int | None) -> None:
        """Wait until the topic is known, as aiokafka does; check the partition."""
        partitions = await self.partitions_for(topic)
        if partition is not None and partition not in partitions:
            raise be_theirs_too(
                InvalidPartitionError(f"Unrecognized partition: {topic!r} has {len(partitions)}", topic=topic)
            )

    def _accept(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Headers,
        timestamp_ms: Any,
    ) -> Delivery | None:
        """Send a record if there is room for it; else return None."""
        try:
            return self._producer.send(
                topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
            )
        except BufferFullError:
            return None
        except AiokprodError as error:
            raise _refusal(error)  # noqa: B904 - the same error, or the cause of it

    async def _send_with_room(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Headers,
        timestamp_ms: Any,
    ) -> Delivery:
        """Send a record once there is room for it, in `request_timeout_ms`."""
        scope = asyncio.timeout(self._timeout_s)
        try:
            async with scope:
                while True:
                    with theirs_too():
                        await self._producer.ready()
                    delivery = self._accept(topic, value, key, partition, headers, timestamp_ms)
                    if delivery is not None:
                        return delivery
                    await asyncio.sleep(0)  # what takes the room may need a turn of the loop
        except TimeoutError:
            if not scope.expired():
                raise
        waited = f"no room for a record of topic {topic!r} within request_timeout_ms"
        raise be_theirs_too(BufferFullError(waited, topic=topic, elapsed_s=self._timeout_s))

    def create_batch(self) -> FilledBatch:
        """Return an empty batch, to be filled with `append` and given to `send_batch`.

        Returns:
            A `BatchBuilder` of aiokafka; it is full after `max_batch_size` bytes.
        """
        return FilledBatch(self._max_batch_size, self._key_serializer, self._value_serializer)

    async def send_batch(self, batch: FilledBatch, topic: str, *, partition: int | None) -> Sent:
        """Send the records of a batch to a partition, as one batch.

        Args:
            batch: what `create_batch` has returned; it takes no more records afterwards.
            topic: topic name.
            partition: partition number; None lets the partitioner choose.

        Returns:
            A Future of the place of the first record; None with acks=0, or if the batch is empty.

        Raises:
            AiokprodError: as for `send`; none of the records is sent.

        Cancellation: none of the records is sent, if the call was waiting for room.
        """
        await self._learn(topic, partition)
        number = self._partition(topic, partition, None, None, None, None)
        batch.close()
        loop = asyncio.get_running_loop()
        if not batch.records:
            empty: asyncio.Future[Any] = loop.create_future()
            empty.set_result(None)
            return empty
        deliveries = await self._place(batch, topic, number)
        return cast("Sent", loop.create_task(outcome_of(deliveries, self._acks), name="aiokprod-compat-batch"))

    async def _place(self, batch: FilledBatch, topic: str, partition: int) -> list[Delivery]:
        """Send the records of a batch as one batch; one by one if they are too many for a request."""
        with theirs_too():
            ours = self._producer.create_batch(topic, partition, size=self._producer.config.max_request_size)
            fits = all(
                ours.append(value, key, headers=headers, timestamp_ms=timestamp_ms)
                for key, value, timestamp_ms, headers in batch.records
            )
        if not fits:
            return await self._send_singly(batch, topic, partition)
        scope = asyncio.timeout(self._timeout_s)
        try:
            async with scope:
                with theirs_too():
                    return await self._producer.send_batch(ours)
        except TimeoutError:
            if not scope.expired():
                raise
        waited = f"no room for a batch of topic {topic!r} within request_timeout_ms"
        raise be_theirs_too(BufferFullError(waited, topic=topic, elapsed_s=self._timeout_s))

    async def _send_singly(self, batch: FilledBatch, topic: str, partition: int) -> list[Delivery]:
        deliveries: list[Delivery] = []
        for key, value, timestamp_ms, headers in batch.records:
            delivery = self._accept(topic, value, key, partition, headers, timestamp_ms)
            if delivery is None:
                delivery = await self._send_with_room(topic, value, key, partition, headers, timestamp_ms)
            deliveries.append(delivery)
        return deliveries

    # ------------------------------------------------------------------ what instrumentation asks for
    def _serialize(self, key: Any, value: Any, headers: Headers | None = None) -> tuple[Any, Any]:
        """Return what the serializers make of a key and a value; OpenTelemetry's instrumentor asks for it."""
        key = key if self._key_serializer is None else self._key_serializer(key)
        value = value if self._value_serializer is None else self._value_serializer(value)
        return key, value

    def _partition(
        self, topic: str, partition: int | None, key: Any, value: Any, serialized_key: Any, serialized_value: Any
    ) -> int:
        """Return a partition as `send` chooses it; OpenTelemetry's instrumentor asks for it, after `_wait_on_metadata`."""
        every = self._known_partitions(topic)
        if partition is not None:
            assert partition in every, "Unrecognized partition"
            return partition
        chosen: int = self._given.partitioner(serialized_key, every, every)
        return chosen

    def _known_partitions(self, topic: str) -> list[int]:
        count = self._counts.get(topic)
        if count is not None:
            return list(range(count))
        return sorted(self.client.cluster.partitions_for_topic(topic) or ())  # Faust asks for topics of tables


def _refusal(error: AiokprodError) -> BaseException:
    """Return what `send` raises for an error of ours: it, as aiokafka's too; or what the user's partitioner has raised."""
    if isinstance(error, PartitionerError) and error.__cause__ is not None:
        return error.__cause__
    return be_theirs_too(error)
