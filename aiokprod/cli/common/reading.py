"""Reading several partitions in the order of their timestamps, up to an end or on and on. On the library's `Reader`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from heapq import heapify, heappop, heapreplace
from typing import Final, cast

from aiokprod.cli.common.moments import Kind, Place
from aiokprod.reader import Reader
from aiokprod.records.decoder import DecodedRecord

POLL_S: Final = 0.2
"""how often the ends of the partitions are asked for while nothing comes"""
LOOKS: Final = 25
"""how often a partition may look shorter than what was read of it"""
MEMORY_BYTES: Final = 64 * 1024 * 1024
"""what the partitions that are read side by side may fetch together"""
LEAST_BYTES: Final = 64 * 1024
Found = tuple[str, int, DecodedRecord]
"""topic, partition, record"""
Key = tuple[str, int]


async def offset_of(reader: Reader, key: Key, place: Place, *, read_committed: bool) -> int:
    """Return the offset of a place in a partition, within what the partition holds."""
    first = await reader.earliest(*key)
    if place.kind is Kind.BEGINNING:
        return first
    end = await reader.latest(*key, read_committed=read_committed)
    if place.kind is Kind.TIME:
        found = await reader.offset_at(*key, place.number)
        return end if found is None else min(found, end)
    number = {Kind.END: end, Kind.OFFSET: place.number, Kind.LAST: end - place.number}[place.kind]
    return min(max(number, first), max(end, first))


async def ranges_of(
    reader: Reader, keys: Sequence[Key], begin: Place, end: Place, *, read_committed: bool
) -> dict[Key, tuple[int, int]]:
    """Return what to read of each partition: from one offset up to another, as the partitions are now."""
    ranges: dict[Key, tuple[int, int]] = {}
    for key in keys:
        start = await offset_of(reader, key, begin, read_committed=read_committed)
        ranges[key] = start, await offset_of(reader, key, end, read_committed=read_committed)
    return ranges


async def records_in(
    reader: Reader, ranges: Mapping[Key, tuple[int, int]], *, read_committed: bool
) -> AsyncGenerator[Found]:
    """Yield the records of these ranges in the order of their timestamps; in a partition in the order of the log."""
    wanted = {key: range_ for key, range_ in ranges.items() if range_[0] < range_[1]}
    max_bytes = max(LEAST_BYTES, min(1024 * 1024, MEMORY_BYTES // max(1, len(wanted))))
    async with AsyncExitStack() as stack:
        streams: dict[Key, AsyncGenerator[DecodedRecord]] = {}
        for key, (start, stop) in wanted.items():
            stream = cast(
                "AsyncGenerator[DecodedRecord]",
                reader.read(*key, start, stop, read_committed=read_committed, max_bytes=max_bytes),
            )
            streams[key] = await stack.enter_async_context(aclosing(stream))
        heads: list[tuple[int, Key, int, DecodedRecord]] = []
        for key, stream in streams.items():
            record = await anext(stream, None)
            if record is not None:
                heads.append((record.timestamp_ms, key, record.offset, record))
        heapify(heads)
        while heads:
            _, key, _, record = heads[0]
            yield (*key, record)
            following = await anext(streams[key], None)
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (following.timestamp_ms, key, following.offset, following))


async def records_following(
    reader: Reader,
    starts: Mapping[Key, int],
    waiting: Callable[[], None],
    cut: Callable[[Key], None],
    *,
    read_committed: bool,
) -> AsyncGenerator[Found]:
    """Yield the records from these offsets on, and what comes later, without end.

    Args:
        reader: started.
        starts: offset of the first record, by topic and partition.
        waiting: called before each wait, so that what was printed can be flushed.
        cut: called with a partition that is shorter than what was read of it, and is read again from its beginning.
        read_committed: True leaves out records of aborted and open transactions.
    """
    at = dict(starts)
    short: dict[Key, int] = {}
    while True:
        ranges: dict[Key, tuple[int, int]] = {}
        for key, start in at.items():
            end = await reader.latest(*key, read_committed=read_committed)
            # A new leader may lag behind for a moment. If the end stays below, the log was cut, or the topic made again.
            short[key] = short.get(key, 0) + 1 if end < start else 0
            if short[key] > LOOKS:
                start = await reader.earliest(*key)
                cut(key)
            ranges[key] = start, end
        async with aclosing(records_in(reader, ranges, read_committed=read_committed)) as found:
            async for each in found:
                yield each
        is_idle = all(start >= end for start, end in ranges.values())
        at = {key: max(range_) for key, range_ in ranges.items()}
        waiting()
        if is_idle:
            await asyncio.sleep(POLL_S)
