"""`SendPath`: what `Producer.send` does with one record. One per start of a producer; the hottest file there is.

    topic, value, key, ...  ->  checks  ->  Entrance.accept  ->  Delivery

What nearly everybody gives (bytes, None, a list of header pairs) is checked here, in the compiled form; everything else
goes to `Intake`, which converts it or names what is wrong with it. Nothing is taken before everything is checked.
"""

from __future__ import annotations

import asyncio
from asyncio import get_running_loop
from collections.abc import Callable, Iterator
from typing import Any, Final

from aiokprod.errors import AiokprodError, ForkedError, ProducerNotStartedError, WrongLoopError
from aiokprod.model import Record
from aiokprod.pipeline.bulk import BulkSend
from aiokprod.pipeline.delivery import Delivery
from aiokprod.pipeline.dispatcher import TopicDispatcher
from aiokprod.pipeline.entrance import ALWAYS_WAITS, NEVER_WAITS, WAITS_IF_IT_MAY, Entrance
from aiokprod.pipeline.intake import Intake
from aiokprod.pipeline.wall_clock import wall_s
from aiokprod.records.batch import record_size_bound
from aiokprod.records.headers import encode_plain

LAST_TIMESTAMP_MS: Final = 2**63 - 1
CLOCK_READ_EVERY_S: Final = 0.001  # the loop's clock: a record may be taken for as much older than it is


class SendPath:
    """Takes records from callers."""

    def __init__(
        self,
        entrance: Entrance,
        intake: Intake,
        loop: asyncio.AbstractEventLoop,
        refusal: Callable[[], AiokprodError],
    ) -> None:
        """`refusal`: why nothing can be sent now."""
        self.entrance = entrance
        self._intake = intake
        self._is_plain = intake.is_plain
        self._largest_bytes = intake.largest_record_bytes
        self._loop = loop
        self._running: Callable[[], asyncio.AbstractEventLoop] = (
            get_running_loop  # a global name is looked up each time
        )
        self._clock: Callable[[], float] = loop.time
        self._refusal = refusal
        self._now = loop.time()
        self._read_at = wall_s()  # when the loop's clock said so

    def send(
        self,
        topic: object,
        value: object,
        key: object,
        partition: object,
        headers: object,
        timestamp_ms: object,
        timeout: object,
    ) -> Delivery:
        """As `Producer.send`."""
        try:
            running: object = self._running()
        except RuntimeError:
            running = None
        entrance = self.entrance
        if running is not self._loop or not entrance.is_open:
            raise self._refusal()
        dispatcher: TopicDispatcher | None = None
        if isinstance(topic, str):
            name = topic
            dispatcher = entrance.topics.get(name)
        if dispatcher is None:  # one that was sent to before is a valid one
            name = self._intake.checked_topic(topic)
        if not self._is_plain:
            return self._send_dressed(name, value, key, partition, headers, timestamp_ms, timeout)
        value_size = key_size = -1
        plain_value: bytes | None = None
        if value is not None:
            plain_value = value if type(value) is bytes else self._intake.to_bytes(value, "value", name)
            value_size = len(plain_value)
        plain_key: bytes | None = None
        if key is not None:
            plain_key = key if type(key) is bytes else self._intake.to_bytes(key, "key", name)
            key_size = len(plain_key)
        encoded: bytes | None = None
        header_size = 0
        if headers:
            encoded = encode_plain(headers)
            if encoded is None:
                patience, entrance.patience = entrance.patience, WAITS_IF_IT_MAY  # a generator of headers may send, too
                encoded = self._intake.encoded_headers(headers, name)
                entrance.patience = patience
                entrance.check_open()
            if encoded is not None:
                header_size = len(encoded)
        wall = wall_s()
        if timestamp_ms is None:
            sent_ms = int(wall * 1000)
        else:
            sent_ms = self._intake.checked_timestamp(timestamp_ms, name)
        number: int | None = None
        if partition is not None:
            number = self._intake.checked_partition(partition, name)
        timeout_s: float | None = None
        if timeout is not None:
            timeout_s = self._intake.checked_timeout(timeout, name)
        size_bytes = record_size_bound(key_size, value_size, header_size)
        if size_bytes > self._largest_bytes:
            raise self._intake.too_large(size_bytes, name)
        if not 0.0 <= wall - self._read_at < CLOCK_READ_EVERY_S:
            self._now = self._clock()
            self._read_at = wall
        return entrance.accept(
            name, dispatcher, plain_value, plain_key, encoded, number, sent_ms, size_bytes, timeout_s, self._now
        )

    def _send_dressed(
        self,
        topic: str,
        value: object,
        key: object,
        partition: Any,
        headers: Any,
        timestamp_ms: Any,
        timeout: Any,
    ) -> Delivery:
        """The way of a record that interceptors or serializers see."""
        record = Record(
            topic=topic,
            value=value,
            key=key,
            partition=partition,
            headers=headers,
            timestamp_ms=timestamp_ms,
            timeout=timeout,
        )
        interceptors = self._intake.interceptors
        entrance = self.entrance
        patience, entrance.patience = entrance.patience, WAITS_IF_IT_MAY  # an interceptor may call `send`, too
        record = interceptors.on_send(record)
        entrance.patience = patience
        entrance.check_open()
        try:
            self._intake.check_topic_of(record)
            delivery = entrance.accept_dressed(self._intake, record)
        except AiokprodError as refused:
            interceptors.refused(record, refused)
            raise
        holder, index = delivery.place()
        interceptors.accepted(record, holder, index)
        return delivery

    def try_send(
        self,
        topic: object,
        value: object,
        key: object,
        partition: object,
        headers: object,
        timestamp_ms: object,
        timeout: object,
    ) -> Delivery:
        """As `Producer.try_send`."""
        self.entrance.patience = NEVER_WAITS
        try:
            return self.send(topic, value, key, partition, headers, timestamp_ms, timeout)
        finally:
            self.entrance.patience = WAITS_IF_IT_MAY

    # ------------------------------------------------------------------ many
    def take(self, bulk: BulkSend, topic: str, values: Iterator[object], timeout: object, most: int) -> bool:
        """Take values (or `Record`s) while there is room, `most` at once; True when there are no more.

        Raises:
            ProducerClosedError, ProducerFailedError, WrongLoopError, ...: nothing can be sent any more. What is wrong with
                one of the records is told to `bulk`.
        """
        gate = self.entrance.gate
        dispatcher = self.entrance.topics.get(topic)
        is_fast = self._is_plain and timeout is None and dispatcher is not None and not dispatcher.partitioner.is_users
        try:
            running: object = self._running()
        except RuntimeError:
            running = None
        if running is not self._loop:
            raise bulk.end_by(self._refusal())
        overhead_bytes = self.entrance.overhead_bytes
        left = most
        for value in values:
            left -= 1
            if (
                is_fast
                and type(value) is bytes
                and self.entrance.is_open
                and dispatcher is not None
                and dispatcher.is_known
            ):
                size_bytes = record_size_bound(-1, len(value), 0)
                charge_bytes = size_bytes + overhead_bytes
                if (
                    size_bytes <= self._largest_bytes
                    and not gate.waiting_count
                    and gate.used_bytes + charge_bytes <= gate.open_bytes
                ):
                    wall = wall_s()
                    if not 0.0 <= wall - self._read_at < CLOCK_READ_EVERY_S:
                        self._now = self._clock()
                        self._read_at = wall
                    gate.used_bytes += charge_bytes
                    dispatcher.append_to(bulk, value, int(wall * 1000), size_bytes, self._now)
                else:
                    self._take_one(bulk, topic, value, timeout)
            else:
                self._take_one(bulk, topic, value, timeout)
            if left <= 0 or not gate.has_room_now():
                return False
        return True

    def _take_one(self, bulk: BulkSend, topic: str, value: object, timeout: object) -> None:
        entrance = self.entrance
        entrance.patience = ALWAYS_WAITS  # one record may; `Producer.send_many` waits for room before the next
        try:
            if isinstance(value, Record):
                own = timeout if value.timeout is None else value.timeout
                delivery = self.send(
                    topic if value.topic is None else value.topic,
                    value.value,
                    value.key,
                    value.partition,
                    value.headers,
                    value.timestamp_ms,
                    own,
                )
                bulk.add(delivery, has_timeout=own is not None)
            else:
                delivery = self.send(topic, value, None, None, None, None, timeout)
                bulk.add(delivery, has_timeout=timeout is not None)
        except AiokprodError as refused:
            if not entrance.is_open or isinstance(refused, (ProducerNotStartedError, WrongLoopError, ForkedError)):
                bulk.end_by(refused)  # closed, or failed: so would every record to come be refused
                raise
            bulk.refuse(refused)
        finally:
            entrance.patience = WAITS_IF_IT_MAY
