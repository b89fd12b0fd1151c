"""Limits of the size of an answer, derived from its request. Pure functions.

A larger answer is refused by its length, before a byte of it is kept, or by a count in it, before an element is made:
decoding ninety megabytes of Metadata takes seconds of a core and gigabytes of objects (`# faults: H25`).
`max_frame_bytes` limits every answer, and is the only limit of those not named here. The limits of answers to Produce
are in `wire.produce`.
"""

from __future__ import annotations

import sys
from typing import Final

from aiokprod.wire.exchange import ANY_SIZE
from aiokprod.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from aiokprod.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from aiokprod.wire.messages.api_versions import ApiVersionsRequest
from aiokprod.wire.messages.describe_producers import DescribeProducersRequest
from aiokprod.wire.messages.describe_transactions import DescribeTransactionsRequest
from aiokprod.wire.messages.end_txn import EndTxnRequest
from aiokprod.wire.messages.fetch import FetchRequest, FetchResponse
from aiokprod.wire.messages.find_coordinator import FindCoordinatorRequest
from aiokprod.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest
from aiokprod.wire.messages.list_offsets import ListOffsetsRequest
from aiokprod.wire.messages.list_transactions import ListTransactionsRequest
from aiokprod.wire.messages.metadata import MetadataRequest
from aiokprod.wire.messages.offset_fetch import OffsetFetchRequest
from aiokprod.wire.messages.push_telemetry import PushTelemetryRequest
from aiokprod.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from aiokprod.wire.messages.sasl_handshake import SaslHandshakeRequest
from aiokprod.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from aiokprod.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from aiokprod.wire.reader import Budget, Reader

SMALL_BYTES: Final = 64 * 1024
"""Fifty times the size of such an answer of Kafka 4.3."""

SMALL_ELEMENTS: Final = 10_000

SMALL: Final[tuple[type, ...]] = (
    AddOffsetsToTxnRequest,
    ApiVersionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    GetTelemetrySubscriptionsRequest,
    InitProducerIdRequest,
    PushTelemetryRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    WriteTxnMarkersRequest,
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
    if isinstance(message, SMALL):
        return SMALL_BYTES
    if isinstance(message, MetadataRequest) and message.topics is not None:
        return metadata_bytes(len(message.topics))
    if isinstance(message, ListOffsetsRequest):
        asked = sum(len(topic.partitions) for topic in message.topics)
        return SMALL_BYTES + asked * LIST_OFFSETS_BYTES_PER_PARTITION
    asked_in_transaction = _partitions_of_transaction(message)
    if asked_in_transaction is not None:
        return SMALL_BYTES + asked_in_transaction * TRANSACTION_BYTES_PER_PARTITION
    if isinstance(message, FetchRequest):
        return SMALL_BYTES + max(FETCH_BYTES, 2 * message.max_bytes)
    if isinstance(message, OffsetFetchRequest) and message.topics is not None:
        return SMALL_BYTES + _partitions_of(message) * OFFSET_FETCH_BYTES_PER_PARTITION
    if isinstance(message, DescribeTransactionsRequest):
        return SMALL_BYTES + len(message.transactional_ids) * TRANSACTION_BYTES
    return ANY_SIZE


def answer_elements(message: object) -> int:
    """Return how many elements all arrays, and how many tagged fields all structs, of the answer may have in total."""
    if isinstance(message, SMALL):
        return SMALL_ELEMENTS
    if isinstance(message, MetadataRequest) and message.topics is not None:
        return SMALL_ELEMENTS + len(message.topics) * METADATA_PARTITIONS_PER_TOPIC
    if isinstance(message, ListOffsetsRequest):
        return SMALL_ELEMENTS + 2 * sum(len(topic.partitions) for topic in message.topics)
    asked_in_transaction = _partitions_of_transaction(message)
    if asked_in_transaction is not None:
        return SMALL_ELEMENTS + 2 * asked_in_transaction
    if isinstance(message, FetchRequest):
        return SMALL_ELEMENTS + 2 * sum(len(topic.partitions) for topic in message.topics)
    if isinstance(message, OffsetFetchRequest) and message.topics is not None:
        return SMALL_ELEMENTS + 2 * _partitions_of(message)
    if isinstance(message, DescribeTransactionsRequest):
        return SMALL_ELEMENTS + len(message.transactional_ids) * TRANSACTION_ELEMENTS
    if isinstance(message, ListTransactionsRequest | DescribeProducersRequest):
        return LISTED_ELEMENTS
    return sys.maxsize


def _partitions_of(message: OffsetFetchRequest) -> int:
    return sum(len(topic.partition_indexes) for topic in message.topics or ())


def _partitions_of_transaction(message: object) -> int | None:
    """Return how many partitions a request of a transaction names; None: it is another one."""
    if isinstance(message, AddPartitionsToTxnRequest):
        return sum(len(topic.partitions) for topic in message.v3_and_below_topics)
    if isinstance(message, TxnOffsetCommitRequest):
        return sum(len(topic.partitions) for topic in message.topics)
    return None


def check_counts(message: object, body: bytes | memoryview, version: int) -> None:
    """Refuse a Fetch answer with far more partitions than were asked for, before any of them is read.

    Decoding a partition takes longer than decoding an aborted transaction, and `answer_elements` must allow thousands of
    those, because an honest broker may name as many.

    Raises:
        ProtocolError: too many topics or partitions, or the bytes are not an answer.
    """
    if not isinstance(message, FetchRequest) or len(message.topics) != 1:
        return
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
        Budget(FETCH_EXCESS + len(message.topics[0].partitions)).take(reader.count(flexible))
