"""How large the answer to a request may be, by what was asked. Pure.

A peer that answers more than that is refused by the length of its answer, before a byte of it is kept, or by a count in
it, before an element is made: ninety megabytes of Metadata are seconds of a core and gigabytes of objects
(`# faults: H25`). `max_frame_bytes` is the limit of everything, and the only one of what is not named here. The answers to
Produce have theirs in `wire.produce`.
"""

from __future__ import annotations

import sys
from typing import Final

from aiokprod.wire.exchange import ANY_SIZE
from aiokprod.wire.messages.api_versions import ApiVersionsRequest
from aiokprod.wire.messages.fetch import FetchRequest, FetchResponse
from aiokprod.wire.messages.find_coordinator import FindCoordinatorRequest
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest
from aiokprod.wire.messages.list_offsets import ListOffsetsRequest
from aiokprod.wire.messages.metadata import MetadataRequest
from aiokprod.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from aiokprod.wire.messages.sasl_handshake import SaslHandshakeRequest
from aiokprod.wire.reader import Budget, Reader

SMALL_BYTES: Final = 64 * 1024
"""Fifty times what such an answer of Kafka 4.3 takes."""

SMALL_ELEMENTS: Final = 10_000

SMALL: Final[tuple[type, ...]] = (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

METADATA_BYTES: Final = 2 * 1024 * 1024
"""Brokers (about 70 bytes each), and one topic of 48,000 partitions with three replicas each."""

METADATA_BYTES_PER_TOPIC: Final = 64 * 1024
"""Of each topic asked for: 1,500 partitions on an average."""

METADATA_PARTITIONS: Final = 50_000
METADATA_PARTITIONS_PER_TOPIC: Final = 1_500

LIST_OFFSETS_BYTES_PER_PARTITION: Final = 1024

FETCH_EXCESS: Final = 16
"""Partitions that were not asked for, so that the `Reader` can name the first of them in its error."""

FETCH_BYTES: Final = 8 * 1024 * 1024
"""A broker gives at least one batch, however large it is (KIP-74), and a fetch that asks for less must take it."""


def metadata_bytes(topics: int) -> int:
    """Of an answer about so many topics."""
    return METADATA_BYTES + topics * METADATA_BYTES_PER_TOPIC


def metadata_partitions(topics: int) -> int:
    """In an answer about so many topics."""
    return METADATA_PARTITIONS + topics * METADATA_PARTITIONS_PER_TOPIC


def answer_bytes(message: object) -> int:
    """How long the answer to a request may be."""
    if isinstance(message, SMALL):
        return SMALL_BYTES
    if isinstance(message, MetadataRequest) and message.topics is not None:
        return metadata_bytes(len(message.topics))
    if isinstance(message, ListOffsetsRequest):
        asked = sum(len(topic.partitions) for topic in message.topics)
        return SMALL_BYTES + asked * LIST_OFFSETS_BYTES_PER_PARTITION
    if isinstance(message, FetchRequest):
        return SMALL_BYTES + max(FETCH_BYTES, 2 * message.max_bytes)
    return ANY_SIZE


def answer_elements(message: object) -> int:
    """How many elements the arrays and how many tagged fields the structs of the answer may have in all."""
    if isinstance(message, SMALL):
        return SMALL_ELEMENTS
    if isinstance(message, MetadataRequest) and message.topics is not None:
        return SMALL_ELEMENTS + len(message.topics) * METADATA_PARTITIONS_PER_TOPIC
    if isinstance(message, ListOffsetsRequest):
        return SMALL_ELEMENTS + 2 * sum(len(topic.partitions) for topic in message.topics)
    if isinstance(message, FetchRequest):
        return SMALL_ELEMENTS + 2 * sum(len(topic.partitions) for topic in message.topics)
    return sys.maxsize


def check_counts(message: object, body: bytes | memoryview, version: int) -> None:
    """Refuse a Fetch answer with more partitions than the one asked for and a few, before one of them is read: each
    takes longer than an aborted transaction, of which `answer_elements` lets an honest broker name thousands.

    Raises:
        ProtocolError: too many, or no answer.
    """
    if not isinstance(message, FetchRequest) or len(message.topics) != 1:
        return
    flexible = version >= FetchResponse.FLEXIBLE_FROM
    reader = Reader(body[:SMALL_BYTES])  # not a copy of all of it
    reader.skip(10 if version >= 7 else 4)  # throttle time; error code and session
    topics = reader.count(flexible)
    Budget(1).take(topics)
    if topics:
        if version >= 13:
            reader.skip(16)
        else:
            reader.string(flexible)
        Budget(FETCH_EXCESS + len(message.topics[0].partitions)).take(reader.count(flexible))
