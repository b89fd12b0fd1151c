"""Limits of the size of an answer, derived from its request. Pure functions.

A larger answer is refused by its length, before a byte of it is kept, or by a count in it, before an element is made:
decoding ninety megabytes of Metadata takes seconds of a core and gigabytes of objects (`# faults: H25`).
`max_frame_bytes` limits every answer, and is the only limit of those not named here. The limits of answers to Produce
are in `wire.produce`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, cast

from aiokprod.wire.exchange import ANY_SIZE
from aiokprod.wire.reader import Budget, Reader

if TYPE_CHECKING:  # a program loads the messages that it sends, and not all that have a limit here
    from aiokprod.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
    from aiokprod.wire.messages.describe_transactions import DescribeTransactionsRequest
    from aiokprod.wire.messages.fetch import FetchRequest
    from aiokprod.wire.messages.list_offsets import ListOffsetsRequest
    from aiokprod.wire.messages.metadata import MetadataRequest
    from aiokprod.wire.messages.offset_fetch import OffsetFetchRequest
    from aiokprod.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
WRITE_TXN_MARKERS: Final = 27
TXN_OFFSET_COMMIT: Final = 28
SASL_AUTHENTICATE: Final = 36
DESCRIBE_PRODUCERS: Final = 61
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66
GET_TELEMETRY_SUBSCRIPTIONS: Final = 71
PUSH_TELEMETRY: Final = 72
"""Keys of requests: `API_KEY` of the message."""

SMALL_BYTES: Final = 64 * 1024
"""Fifty times the size of such an answer of Kafka 4.3."""

SMALL_ELEMENTS: Final = 10_000

SMALL: Final = frozenset(
    {
        ADD_OFFSETS_TO_TXN,
        API_VERSIONS,
        END_TXN,
        FIND_COORDINATOR,
        GET_TELEMETRY_SUBSCRIPTIONS,
        INIT_PRODUCER_ID,
        PUSH_TELEMETRY,
        SASL_AUTHENTICATE,
        SASL_HANDSHAKE,
        WRITE_TXN_MARKERS,
    }
)

METADATA_BYTES: Final = 2 * 1024 * 1024
"""Brokers (about 70 bytes each), and one topic of 48,000 partitions with three replicas each."""

METADATA_BYTES_PER_TOPIC: Final = 64 * 1024
"""Bytes for each topic asked for: 1,500 partitions on average."""

METADATA_PARTITIONS: Final = 50_000
METADATA_PARTITIONS_PER_TOPIC: Final = 1_500

LIST_OFFSETS_BYTES_PER_PARTITION: Final = 1024

TRANSACTION_BYTES_PER_PARTITION: Final = 512
"""The name of a topic, at most 249 bytes, a number and a code."""

OFFSET_FETCH_BYTES_PER_PARTITION: Final = 16 * 1024
"""The name of a topic, an offset, and metadata: four times what brokers take by default (offset.metadata.max.bytes)."""

TRANSACTION_BYTES: Final = 2 * 1024 * 1024
TRANSACTION_ELEMENTS: Final = 200_000
"""Of one transaction in an answer to DescribeTransactions: its topics and partitions."""

LISTED_ELEMENTS: Final = 1_000_000
"""Transactional ids of a broker, or producers of 1,000 partitions: an honest broker may have many."""

FETCH_EXCESS: Final = 16
"""Partitions allowed beyond those asked for, so that the `Reader` can name the first of them in its error."""

FETCH_BYTES: Final = 8 * 1024 * 1024
"""A broker returns at least one batch, however large it is (KIP-74), also to a fetch that asks for fewer bytes."""


def metadata_bytes(topics: int) -> int:
    """Return the largest size of a Metadata answer about this many topics."""
    return METADATA_BYTES + topics * METADATA_BYTES_PER_TOPIC


def metadata_partitions(topics: int) -> int:
    """Return how many partitions a Metadata answer about this many topics may have."""
    return METADATA_PARTITIONS + topics * METADATA_PARTITIONS_PER_TOPIC


def answer_bytes(message: object) -> int:
    """Return the largest size, in bytes, of the answer to a request."""
    key = key_of(message)
    if key in SMALL:
        return SMALL_BYTES
    if key == METADATA and (topics := cast("MetadataRequest", message).topics) is not None:
        return metadata_bytes(len(topics))
    if key == LIST_OFFSETS:
        asked = sum(len(topic.partitions) for topic in cast("ListOffsetsRequest", message).topics)
        return SMALL_BYTES + asked * LIST_OFFSETS_BYTES_PER_PARTITION
    asked_in_transaction = _partitions_of_transaction(message)
    if asked_in_transaction is not None:
        return SMALL_BYTES + asked_in_transaction * TRANSACTION_BYTES_PER_PARTITION
    if key == FETCH:
        return SMALL_BYTES + max(FETCH_BYTES, 2 * cast("FetchRequest", message).max_bytes)
    if key == OFFSET_FETCH and (offsets := cast("OffsetFetchRequest", message)).topics is not None:
        return SMALL_BYTES + _partitions_of(offsets) * OFFSET_FETCH_BYTES_PER_PARTITION
    if key == DESCRIBE_TRANSACTIONS:
        return SMALL_BYTES + len(cast("DescribeTransactionsRequest", message).transactional_ids) * TRANSACTION_BYTES
    return ANY_SIZE


def answer_elements(message: object) -> int:
    """Return how many elements all arrays, and how many tagged fields all structs, of the answer may have in total."""
    key = key_of(message)
    if key in SMALL:
        return SMALL_ELEMENTS
    if key == METADATA and (topics := cast("MetadataRequest", message).topics) is not None:
        return SMALL_ELEMENTS + len(topics) * METADATA_PARTITIONS_PER_TOPIC
    if key == LIST_OFFSETS:
        return SMALL_ELEMENTS + 2 * sum(len(topic.partitions) for topic in cast("ListOffsetsRequest", message).topics)
    asked_in_transaction = _partitions_of_transaction(message)
    if asked_in_transaction is not None:
        return SMALL_ELEMENTS + 2 * asked_in_transaction
    if key == FETCH:
        return SMALL_ELEMENTS + 2 * sum(len(topic.partitions) for topic in cast("FetchRequest", message).topics)
    if key == OFFSET_FETCH and (offsets := cast("OffsetFetchRequest", message)).topics is not None:
        return SMALL_ELEMENTS + 2 * _partitions_of(offsets)
    if key == DESCRIBE_TRANSACTIONS:
        return (
            SMALL_ELEMENTS + len(cast("DescribeTransactionsRequest", message).transactional_ids) * TRANSACTION_ELEMENTS
        )
    if key in (LIST_TRANSACTIONS, DESCRIBE_PRODUCERS):
        return LISTED_ELEMENTS
    return sys.maxsize


def key_of(message: object) -> int:
    """Return the key of a request; -1 if it is none that goes to a broker."""
    key: int = getattr(message, "API_KEY", -1)
    return key


def _partitions_of(message: OffsetFetchRequest) -> int:
    return sum(len(topic.partition_indexes) for topic in message.topics or ())


def _partitions_of_transaction(message: object) -> int | None:
    """Return how many partitions a request of a transaction names; None: it is another one."""
    key = key_of(message)
    if key == ADD_PARTITIONS_TO_TXN:
        return sum(len(topic.partitions) for topic in cast("AddPartitionsToTxnRequest", message).v3_and_below_topics)
    if key == TXN_OFFSET_COMMIT:
        return sum(len(topic.partitions) for topic in cast("TxnOffsetCommitRequest", message).topics)
    return None


def check_counts(message: object, body: bytes | memoryview, version: int) -> None:
    """Refuse a Fetch answer with far more partitions than were asked for, before any of them is read.

    Decoding a partition takes longer than decoding an aborted transaction, and `answer_elements` must allow thousands of
    those, because an honest broker may name as many.

    Raises:
        ProtocolError: too many topics or partitions, or the bytes are not an answer.
    """
    if key_of(message) != FETCH or len(fetch_topics := cast("FetchRequest", message).topics) != 1:
        return
    from aiokprod.wire.messages.fetch import FetchResponse

    flexible = version >= FetchResponse.FLEXIBLE_FROM
    reader = Reader(body[:SMALL_BYTES])  # a `Reader` copies its input, and this needs only the beginning
    reader.skip(10 if version >= 7 else 4)  # throttle time; error code and session
    topics = reader.count(flexible)
    Budget(1).take(topics)
    if topics:
        if version >= 13:
            reader.skip(16)
        else:
            reader.string(flexible)
        Budget(FETCH_EXCESS + len(fetch_topics[0].partitions)).take(reader.count(flexible))
