"""`ConfluentSource`: confluent-kafka's `Consumer`, or its `AIOConsumer`, as a `Source`.

Its calls block, so they run in a thread of this consumer, which ends with the loop (`AIOConsumer` has threads itself): one at a
time, and each to its end, even if the task that waits is cancelled. A `consume` that went on beside a `seek` would move the
position again. So that its end comes soon, a wait for records is made of short ones. Partitions are taken away only within
`consume`. The generation changes in the background, so it is compared after each `consume` with the one from before.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from math import ceil
from typing import Any, Final, TypeVar

from aiokprod.consuming.source import Place, Reading, Source
from aiokprod.errors import ClusterError, ConfigError, RecordTypeError, UsageError
from aiokprod.transactions.machine_actions import Partition
from aiokprod.transactions.offsets import GroupMetadata, Offset

T = TypeVar("T")

NEEDED: Final = ("consume", "consumer_group_metadata", "assignment", "seek", "store_offsets")
LONGEST_WAIT_S: Final = 0.2
"""The longest wait of one `consume`: after that it is seen that the task which waits for records was cancelled."""
MOST_MESSAGES: Final = 1_000_000
"""The most messages that `consume` can be asked for."""
INVALID_ARGUMENT: Final = -186
"""librdkafka's code for `store_offsets` of a consumer that stores them by itself."""
END_OF_PARTITION: Final = -191
PASSES: Final = frozenset({END_OF_PARTITION, -195, -187, -193, -185, -147})
"""librdkafka's codes of events after which it goes on by itself: the end of a partition; a lost connection, all brokers down, a
name not resolved, a timeout; a poll that came too late, after which it joins the group again."""
MOST_LOOKS: Final = 10
LOOK_S: Final = 0.1
"""A consumer with partitions and no generation is polled so often, with this pause, before they are taken for those of
assign()."""
NOT_FETCHED: Final = frozenset({-172, -190, -177})
"""librdkafka's codes for a `seek` of a partition that is not fetched yet, or not any more, or is being stopped."""
TIMED_OUT: Final = -185


def is_confluent(consumer: object) -> bool:
    """Return whether this is a consumer of confluent-kafka's shape."""
    return all(callable(getattr(consumer, name, None)) for name in NEEDED)


class ConfluentSource(Source):
    """A `Consumer` or an `AIOConsumer` that has subscribed.

    Args:
        consumer: with `enable.auto.offset.store` false.
    """

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._is_async = inspect.iscoroutinefunction(consumer.consume)
        self._running: asyncio.Task[Any] | None = None  # the last call; the next one waits for its end
        self._is_waited_for = False  # a task waits for records
        self._thread: ThreadPoolExecutor | None = None  # from the first call to `close`

    async def check(self) -> None:
        """Check that it does not commit by itself, and has subscribed."""
        await self._alone(self._check)

    async def _check(self) -> None:
        try:
            await self._ask("store_offsets", offsets=[])
        except Exception as error:
            if code_of(error) != INVALID_ARGUMENT:
                raise
            raise ConfigError(
                'the consumer may commit by itself, also what is aborted later: give it "enable.auto.commit": False and'
                ' "enable.auto.offset.store": False (confluent-kafka shows only the second one, and without it the first one'
                " commits nothing)"
            ) from error
        self.group_id = GroupMetadata.of(await self._ask("consumer_group_metadata")).group_id
        if await self._is_assigned_by_hand():
            raise UsageError(
                "the consumer has partitions by assign(), so no coordinator could check that they are still its own: use"
                " subscribe()"
            )

    async def _is_assigned_by_hand(self) -> bool:
        """Return whether the partitions are those of assign().

        A member that was thrown out of its group, or whose last poll is too long ago, looks the same: it keeps its partitions
        until the next poll. So the consumer is polled here; paused, as nothing is to be read.
        """
        if not await self._has_only_partitions():
            return False
        partitions = await self._ask("assignment")
        await self._ask("pause", partitions)
        try:
            for _ in range(MOST_LOOKS):
                # Without a wait, in which it could join again and read: partitions of a new assignment are not paused.
                for message in await self._ask("consume", 1, 0):
                    _check_event(message)
                if not await self._has_only_partitions():
                    return False
                await asyncio.sleep(LOOK_S)
            return True
        finally:
            await self._ask(
                "resume", partitions
            )  # also those that it lost meanwhile: it would come back to them paused

    async def _has_only_partitions(self) -> bool:
        """Return whether there are partitions, and no generation."""
        return bool(await self._ask("assignment")) and await self._look() is None

    async def place(self) -> Place | None:
        """Return the place, once the call before is over."""
        return await self._alone(self._look)

    async def _look(self) -> Place | None:
        member = GroupMetadata.of(await self._ask("consumer_group_metadata"))
        partitions = frozenset((tp.topic, tp.partition) for tp in await self._ask("assignment"))
        # Without a generation it was thrown out, and a commit would not be checked.
        if not partitions or member.generation_id <= 0 or not member.member_id:
            return None
        return Place(member, partitions)

    async def read(self, max_records: int, timeout_s: float) -> Reading:
        """Wait for one record, then take what is there; also serve rebalances."""
        self._is_waited_for = True
        reading = self._begin(lambda: self._read(max_records, timeout_s))
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            self._is_waited_for = False
            self._begin(lambda: self._put_back(reading))  # before any other call
            raise

    async def _put_back(self, reading: asyncio.Task[Reading]) -> None:
        """Move the consumer to the records that it has read when nothing waited for them any more."""
        if reading.cancelled() or reading.exception() is not None:
            return
        first: dict[Partition, int] = {}
        for record in reading.result().records:
            first.setdefault((record.topic(), record.partition()), record.offset())
        await self._seek_all(first, fetched_only=True)

    async def _read(self, max_records: int, timeout_s: float) -> Reading:
        messages: list[Any] = []
        waits = ceil(timeout_s / LONGEST_WAIT_S)
        try:
            for _ in range(waits):
                messages += await self._ask("consume", 1, timeout_s / waits)
                if messages or not self._is_waited_for:
                    break
        except NotImplementedError as error:
            raise RecordTypeError(
                f"{type(self._consumer).__name__} has no consume(): pass a Consumer, and deserialize in the loop"
            ) from error
        if messages and max_records > 1:
            messages += await self._ask("consume", min(max_records - 1, MOST_MESSAGES), 0)
        records: list[Any] = []
        for message in messages:
            if _check_event(message):
                records.append(message)
        return Reading(records, await self._look())

    async def seek(self, place: Place, positions: Mapping[Partition, int], *, fetched_only: bool = False) -> bool:
        """Read on from these offsets; a partition that is not fetched yet cannot be moved."""
        return await self._alone(lambda: self._seek(place, positions, fetched_only))

    async def _seek(self, place: Place, positions: Mapping[Partition, int], fetched_only: bool) -> bool:
        return await self._seek_all(positions, fetched_only) and await self._look() == place

    async def _seek_all(self, positions: Mapping[Partition, int], fetched_only: bool) -> bool:
        for tp in await self._ask("assignment"):
            offset = positions.get((tp.topic, tp.partition))
            if offset is None:
                continue
            try:
                await self._ask("seek", type(tp)(tp.topic, tp.partition, offset))
            except Exception as error:
                code = code_of(error)
                if code not in NOT_FETCHED and code != TIMED_OUT:
                    raise
                if code == TIMED_OUT or not fetched_only:
                    return False
        return True

    def position_of(self, record: Any) -> tuple[Partition, Offset]:
        """Return the partition of a record, and the next offset."""
        epoch = record.leader_epoch()
        offset = Offset(record.offset() + 1, leader_epoch=-1 if epoch is None else epoch)
        return (record.topic(), record.partition()), offset

    async def _ask(self, name: str, *arguments: Any, **named: Any) -> Any:
        call = getattr(self._consumer, name)
        if self._is_async:
            return await call(*arguments, **named)
        if self._thread is None:
            # Not the loop's executor, which has few threads: with more consumers than threads each would wait for the others,
            # and the application for them.
            self._thread = ThreadPoolExecutor(1, "aiokprod-confluent-consumer")
        call = partial(copy_context().run, call, *arguments, **named)  # callbacks of the user run in it
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def _alone(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run the work after the one before it, and to its end."""
        return await asyncio.shield(self._begin(work))

    def _begin(self, work: Callable[[], Awaitable[T]]) -> asyncio.Task[T]:
        """Let the work run after the one before it."""
        before = self._running

        async def run() -> T:
            if before is not None:
                await asyncio.wait([before])
            return await work()

        task = self._running = asyncio.create_task(run(), name="aiokprod-confluent-consumer")
        task.add_done_callback(_retrieve)
        return task

    def close(self) -> None:
        """Let the thread end; after the calls that still run, if there are any."""
        if self._running is None or self._running.done():
            self._end_thread()
        else:
            self._running.add_done_callback(self._end_thread)

    def _end_thread(self, _: object = None) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=False)


def code_of(error: BaseException) -> int | None:
    """Return the code in an exception of confluent-kafka; None: it has none."""
    code = getattr(error.args[0] if error.args else None, "code", None)
    found = code() if callable(code) else None
    return found if isinstance(found, int) else None


def _check_event(message: Any) -> bool:
    """Return whether the message is a record; False: an event that passes.

    Raises:
        ClusterError: an event that does not.
    """
    event = message.error()
    if event is None:
        return True
    if event.code() not in PASSES:
        raise ClusterError(f"the consumer cannot read: {event.name()}: {event.str()}")
    return False


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Mark the exception of a call as seen: perhaps its task was cancelled."""
    if not task.cancelled():
        task.exception()
