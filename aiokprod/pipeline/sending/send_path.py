"""`SendPath`: what `Producer.send` does with one record. One per start of a producer; the hottest file there is.

    topic, value, key, ...  ->  checks  ->  Parking.accept  ->  Delivery

The usual arguments (bytes, None, a list of header pairs) are checked here, in the compiled form; everything else
goes to `RecordChecks`, which converts it or names what is wrong with it. Nothing is taken before everything is checked.
"""

from __future__ import annotations

import asyncio
import math
import sys
from asyncio import get_running_loop
from collections.abc import Callable, Iterator, Sequence
from threading import get_ident
from typing import Any, Final

from aiokprod.errors import AiokprodError, ForkedError, ProducerNotStartedError, WrongLoopError
from aiokprod.interceptor_chain import ASKED_AGAIN_S
from aiokprod.model import Record
from aiokprod.pipeline import wall_clock
from aiokprod.pipeline.delivery.delivery import Delivery
from aiokprod.pipeline.partition.send_many import SendMany
from aiokprod.pipeline.partition.value_run import ValueRun
from aiokprod.pipeline.sending.parking import ALWAYS_WAITS, NEVER_WAITS, WAITS_IF_IT_MAY, Parking
from aiokprod.pipeline.sending.record_checks import RecordChecks
from aiokprod.records.batch import SMALL_FIXED_BOUND, SMALL_VALUE_BYTES, record_size_bound
from aiokprod.records.headers import encode_plain

# The loops that are running a task now, in any thread. On Python 3.11 `get_running_loop` makes a system call each time
# (getpid), which is a tenth of the cost of a record; later versions need none.
LOOPS_IN_TASKS: Final[dict[Any, Any]] = (
    {} if sys.version_info >= (3, 12) else vars(asyncio.tasks).get("_current_tasks", {})
)
CLOCK_READ_EVERY_S: Final = 0.001  # the loop's clock: a record may be taken for as much older than it is


class SendPath:
    """The way of records from callers to `Parking`."""

    def __init__(
        self,
        parking: Parking,
        checks: RecordChecks,
        loop: asyncio.AbstractEventLoop,
        refusal: Callable[[], AiokprodError],
    ) -> None:
        """Make the path; `refusal`: why nothing can be sent now."""
        self.parking = parking
        self._effects = parking.effects
        self._checks = checks
        self._is_plain = checks.is_plain  # or for a while: nothing is counted then
        # Of a producer whose interceptor takes samples: so many records go the plain way until the next one that it sees.
        self._unseen = 0
        self._sees_next_at = math.inf  # of one whose interceptor wants nothing for a while: the end of it
        self._largest_bytes = checks.largest_record_bytes
        self._loop = loop
        # Names of a module are looked up each time, in the compiled form too.
        self._running: Callable[[], asyncio.AbstractEventLoop] = get_running_loop
        self._get_thread: Callable[[], int] = get_ident
        self._in_tasks = LOOPS_IN_TASKS
        # Where a record was sent last with the loop running. Not where the path was made: the loop may run elsewhere since,
        # and a task of it there must not let this thread send.
        self._sent_in = 0  # no thread
        self._clock: Callable[[], float] = loop.time
        self._refusal = refusal
        self._now = loop.time()
        self._wall = wall_clock.CLOCK
        self._read_at = self._wall.seconds()  # when the loop's clock said so
        self._ask_interceptor()

    def send(
        self,
        topic: object,
        value: object,
        key: object,
        partition: object,
        headers: Any,
        timestamp_ms: object,
        timeout: object,
    ) -> Delivery:
        """Send one record, as `Producer.send` says."""
        parking = self.parking
        get_thread = self._get_thread  # called as a local name: as a method Python looks each time for one of the class
        if self._loop not in self._in_tasks or get_thread() != self._sent_in:
            self._check_loop()
        if not parking.is_open:
            raise self._refusal()
        name = parking.last_topic
        dispatcher = parking.last_dispatcher  # None: there is no last one
        if dispatcher is None or topic is not name:
            dispatcher = None
            if isinstance(topic, str):
                name = topic
                dispatcher = parking.topics.get(name)
            if dispatcher is None:  # one that was sent to before is a valid one
                name = self._checks.checked_topic(topic)
            else:
                parking.last_topic, parking.last_dispatcher = name, dispatcher
        if not self._is_plain:
            if self._unseen <= 0:
                return self._send_dressed(name, value, key, partition, headers, timestamp_ms, timeout)
            self._unseen -= 1
        wall_s = self._wall.seconds
        wall = wall_s()
        if not 0.0 <= wall - self._read_at < CLOCK_READ_EVERY_S:
            self._check_loop()  # the loop may run in another thread by now, in a task that has sent nothing yet
            self._read_clock(wall)
        if (
            type(value) is bytes
            and len(value) < SMALL_VALUE_BYTES
            and key is None
            and partition is None
            and not headers
            and timestamp_ms is None
            and timeout is None
            and dispatcher is not None
            and dispatcher.is_known
            and not dispatcher.partitioner.is_users
        ):
            # A value alone, which need not wait: the same as below and in `Parking.accept`, without what it has no use for.
            size_bytes = SMALL_FIXED_BOUND + len(value)  # as `record_size_bound` says
            charge_bytes = size_bytes + parking.overhead_bytes
            gate = parking.gate
            if (
                size_bytes <= self._largest_bytes
                and gate.waiting_count == 0
                and gate.used_bytes + charge_bytes <= gate.open_bytes
                and not self._effects.depth
            ):
                return dispatcher.append(value, None, None, None, int(wall * 1000), size_bytes, self._now)
        value_size = key_size = -1
        plain_value: bytes | None = None
        if value is not None:
            plain_value = value if type(value) is bytes else self._checks.to_bytes(value, "value", name)
            value_size = len(plain_value)
        plain_key: bytes | None = None
        if key is not None:
            plain_key = key if type(key) is bytes else self._checks.to_bytes(key, "key", name)
            key_size = len(plain_key)
        encoded: bytes | None = None
        header_size = 0
        if headers:
            encoded = encode_plain(headers)
            if encoded is None:
                patience, parking.patience = parking.patience, WAITS_IF_IT_MAY  # a generator of headers may send, too
                encoded = self._checks.encoded_headers(headers, name)
                parking.patience = patience
                parking.check_open()
            if encoded is not None:
                header_size = len(encoded)
        if timestamp_ms is None:
            sent_ms = int(wall * 1000)
        else:
            sent_ms = self._checks.checked_timestamp(timestamp_ms, name)
        number: int | None = None
        if partition is not None:
            number = self._checks.checked_partition(partition, name)
        timeout_s: float | None = None
        if timeout is not None:
            timeout_s = self._checks.checked_timeout(timeout, name)
        size_bytes = record_size_bound(key_size, value_size, header_size)
        if size_bytes > self._largest_bytes:
            raise self._checks.too_large(size_bytes, name)
        return parking.accept(
            name, dispatcher, plain_value, plain_key, encoded, number, sent_ms, size_bytes, timeout_s, self._now
        )

    def _read_clock(self, wall: float) -> None:
        self._now = self._clock()
        self._read_at = wall
        if self._now >= self._sees_next_at:  # no hook is called here: the next record is one that the interceptor sees
            self._is_plain, self._unseen, self._sees_next_at = False, 0, math.inf

    def _ask_interceptor(self) -> None:
        """Ask how many records may pass by; at the start, and after a record that an interceptor has seen."""
        unseen = self._checks.skip()
        if unseen is None:
            # Records that are seen do not read the clock, so `_now` may be old.
            self._is_plain, self._sees_next_at = True, self._clock() + ASKED_AGAIN_S
        else:
            self._is_plain, self._unseen = self._checks.is_plain, unseen

    def _check_loop(self) -> None:
        """Check that this is the thread of the loop, which is running; remember the thread.

        Raises:
            AiokprodError: the reason, as the caller of `send` is told.
        """
        try:
            running: object = self._running()
        except RuntimeError:
            running = None
        if running is not self._loop:
            raise self._refusal()
        self._sent_in = self._get_thread()

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
        """Send a record that interceptors or serializers see."""
        record = Record(
            topic=topic,
            value=value,
            key=key,
            partition=partition,
            headers=headers,
            timestamp_ms=timestamp_ms,
            timeout=timeout,
        )
        interceptors = self._checks.interceptors
        parking = self.parking
        patience, parking.patience = parking.patience, WAITS_IF_IT_MAY  # an interceptor may call `send`, too
        # Of a generator only the first reader would see them. (To ask `Iterator` costs more than to ask for the usual types.)
        if headers and not isinstance(headers, (list, tuple, dict)) and _is_read_once(headers):
            record.headers = list(headers)
        record = interceptors.on_send(record)
        parking.patience = patience
        try:
            parking.check_open()
            self._checks.check_topic_of(record)
            delivery = parking.accept_dressed(self._checks, record)
        except AiokprodError as refused:
            interceptors.refused(record, refused)
            self._ask_interceptor()
            raise
        holder, index = delivery._position()  # pyright: ignore[reportPrivateUsage] - users are not shown it
        interceptors.accepted(record, holder, index)
        self._ask_interceptor()
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
        """Send one record if there is room, as `Producer.try_send` says."""
        try:
            self.parking.patience = NEVER_WAITS
            return self.send(topic, value, key, partition, headers, timestamp_ms, timeout)
        finally:
            self.parking.patience = WAITS_IF_IT_MAY

    def check_caller(self) -> None:
        """Check that the task which runs may send; any may here."""

    # ------------------------------------------------------------------ many
    def take(self, bulk: SendMany, topic: str, values: Iterator[object], timeout: object, most: int) -> bool:
        """Take values (or `Record`s) while there is room, `most` at once; True when there are no more.

        Raises:
            ProducerClosedError, ProducerFailedError, WrongLoopError, ...: nothing can be sent any more. What is wrong with
                one of the records is told to `bulk`.
        """
        gate = self.parking.gate
        dispatcher = self.parking.topics.get(topic)
        is_fast = timeout is None and dispatcher is not None and not dispatcher.partitioner.is_users
        effects = self._effects
        try:
            running: object = self._running()
        except RuntimeError:
            running = None
        if running is not self._loop:
            raise bulk.end_by(self._refusal())
        overhead_bytes = self.parking.overhead_bytes
        left = most
        for value in values:
            left -= 1
            if (
                is_fast
                and (self._is_plain or self._unseen > 0)
                and type(value) is bytes
                and self.parking.is_open
                and dispatcher is not None
                and dispatcher.is_known
            ):
                size_bytes = record_size_bound(-1, len(value), 0)
                charge_bytes = size_bytes + overhead_bytes
                if (
                    size_bytes <= self._largest_bytes
                    and not gate.waiting_count
                    and gate.used_bytes + charge_bytes <= gate.open_bytes
                    and not effects.depth
                ):
                    wall = self._wall.seconds()
                    if not 0.0 <= wall - self._read_at < CLOCK_READ_EVERY_S:
                        self._read_clock(wall)
                    if not self._is_plain:
                        self._unseen -= 1
                    dispatcher.append_to(bulk, value, int(wall * 1000), size_bytes, self._now)
                else:
                    self._take_one(bulk, topic, value, timeout)
            else:
                self._take_one(bulk, topic, value, timeout)
            if left <= 0 or not gate.has_room_now():
                return False
        return True

    def take_list(self, bulk: SendMany, topic: str, values: Sequence[Any], at: int, timeout: object, most: int) -> int:
        """Take values as `take` does, from number `at` of a list or a tuple on; the number of the next one to take.

        Raises:
            as `take` does.
        """
        first, end = at, min(len(values), at + most)
        parking = self.parking
        gate = parking.gate
        dispatcher = parking.topics.get(topic)
        try:
            running: object = self._running()
        except RuntimeError:
            running = None
        is_plain = self._is_plain
        if (
            dispatcher is not None
            and dispatcher.partitioner.has_runs
            and (is_plain or self._unseen > 0)
            and timeout is None
            and running is self._loop
            and not self._effects.depth
        ):
            run_end = end if is_plain else min(end, at + self._unseen)
            run = ValueRun(values, at, run_end, parking.overhead_bytes, self._largest_bytes)
            # No code of the user runs here, so nothing but the room changes from one run to the next.
            if parking.is_open and dispatcher.is_known:
                # It is over where the clock says that an interceptor sees the next record.
                while run.at < run_end and gate.has_room_now() and self._is_plain is is_plain:
                    run.room_bytes = gate.open_bytes - gate.used_bytes
                    if not run.first_bytes():
                        break
                    wall = self._wall.seconds()
                    if not 0.0 <= wall - self._read_at < CLOCK_READ_EVERY_S:
                        self._read_clock(wall)
                    dispatcher.append_run(bulk, run, int(wall * 1000), self._now)
            if not is_plain:
                self._unseen -= run.at - at
            at = run.at
        if at < end and (at == first or gate.has_room_now()):
            before = bulk.count
            self.take(bulk, topic, iter(values[at:end]), timeout, end - at)
            at += bulk.count - before
        return at

    def _take_one(self, bulk: SendMany, topic: str, value: object, timeout: object) -> None:
        parking = self.parking
        try:
            parking.patience = ALWAYS_WAITS  # one record may; `Producer.send_many` waits for room before the next
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
            if not parking.is_open or isinstance(refused, (ProducerNotStartedError, WrongLoopError, ForkedError)):
                bulk.end_by(refused)  # closed, or failed: so would every record to come be refused
                raise
            bulk.refuse(refused)
        finally:
            parking.patience = WAITS_IF_IT_MAY


def _is_read_once(headers: object) -> bool:
    """Return whether the first reader of these headers is the only one."""
    return isinstance(headers, Iterator)
