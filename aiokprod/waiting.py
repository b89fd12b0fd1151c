"""`WaitsFor` and `EventKind`: what records wait for, and what happens to them, for the modules that note it.

Apart from `explanation`, whose values are made when a program asks for them, and which a plain producer does not load.
"""

from __future__ import annotations

from enum import Enum


class WaitsFor(Enum):
    """The things that a record may wait for."""

    SERIALIZER = "its serializer"
    ROOM = "room in the buffer"
    METADATA = "the metadata of its topic"
    PARTITION = "its partition to exist"
    TRANSACTION = "its transaction to take the partition"
    LINGER = "the end of linger_ms, or a full batch"
    LEADER = "a leader of the partition"
    PRODUCER_ID = "a producer id"
    CONNECTION = "a connection to the broker"
    THROTTLE = "the end of a throttle"
    WINDOW = "an answer to an earlier request"
    SOCKET = "the socket to take bytes"
    EARLIER_BATCHES = "earlier batches of the partition"
    OUTCOMES = "the outcomes of records that expire, or are purged"
    COMPRESSION = "its compression"
    TURN = "its turn"
    """nothing stands in its way: it goes with the next request"""
    ANSWER = "the broker's answer"
    CHASER = "the answers to all that is in flight"
    """an attempt of the partition has failed; then everything is sent again in order"""
    BACKOFF = "the end of its backoff"
    RELEASE = "release()"
    """a `MemoryProducer` is held"""


class EventKind(Enum):
    """The kinds of events in the life of a record."""

    ACCEPTED = "accepted"
    WAITED = "waited"
    LINGERED = "lingered"
    SENT = "sent"
    ATTEMPT_FAILED = "attempt failed"
    UNREACHABLE = "unreachable"
    LEADER = "leader"
    CHASED = "chased"
    IDENTITY = "identity"
    DELIVERED = "delivered"
    FAILED = "failed"


def readable(size_bytes: int) -> str:
    """Return a number of bytes with a unit that people read."""
    if size_bytes < 1 << 20:
        return f"{size_bytes / (1 << 10):.1f} KiB"
    return f"{size_bytes / (1 << 20):.1f} MiB"
