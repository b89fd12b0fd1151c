"""The meaning of a Produce answer and of its error codes for a batch. The only place that knows error codes of batches.

One table, total over what Kafka has: whether an attempt that ended so may be in the log (AMBIGUOUS) or certainly is not
(CLEAN), and what the code says when it stands at the head of a partition. An unknown code is fatal and ambiguous.
(ledger: R1, "Codes"; faults: P1 to P27)
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum

from aiokprod.logs import printable
from aiokprod.wire.codes import name_of

OK = 0
NO_ANSWER = -2
"""Not a code of Kafka: the answer left the partition out."""
TEXT_LIMIT = 500  # characters of a broker's text that we repeat


class Kind(IntEnum):
    """The ways to go on with the head of a partition after an answer."""

    DONE = 0
    RETRY = 1
    TOO_LARGE = 2
    """Split; one record alone is refused."""
    REFUSED = 3
    """For good: close up the numbers."""
    INVALID = 4
    """Refused; the answer may name the records (KIP-467)."""
    OUT_OF_ORDER = 5
    OLD_IDENTITY = 6
    """Only a fresh producer id helps."""
    UNKNOWN = 7
    """Fatal for the batch, which may have been appended or not."""


class ErrorKind(Enum):
    """The error that the caller gets."""

    TOO_LARGE = "RecordTooLargeError"
    TOPIC_AUTHORIZATION = "TopicAuthorizationError"
    CLUSTER_AUTHORIZATION = "ClusterAuthorizationError"
    INVALID_RECORD = "InvalidRecordError"
    TRANSACTION = "TransactionAbortedError"
    """The fault is none of the records: the transaction can only be aborted."""
    REJECTED = "BrokerRejectedError"


class Verdict:
    """The meaning of one code."""

    __slots__ = ("is_ambiguous", "kind", "wants_metadata")

    def __init__(self, kind: Kind, *, is_ambiguous: bool = False, wants_metadata: bool = False) -> None:
        self.kind = kind
        self.is_ambiguous = is_ambiguous  # whatever the base offset says
        self.wants_metadata = wants_metadata

    def __repr__(self) -> str:
        return f"<Verdict {self.kind.name}{' ambiguous' if self.is_ambiguous else ''}>"


_RETRY = Verdict(Kind.RETRY)
_MOVED = Verdict(Kind.RETRY, wants_metadata=True)
_OPEN = Verdict(Kind.RETRY, is_ambiguous=True)
_REFUSED = Verdict(Kind.REFUSED)
UNKNOWN_CODE = Verdict(Kind.UNKNOWN, is_ambiguous=True)

TABLE: dict[int, Verdict] = {
    OK: Verdict(Kind.DONE),
    46: Verdict(Kind.DONE),  # DUPLICATE_SEQUENCE_NUMBER
    NO_ANSWER: _OPEN,
    2: _RETRY,  # CORRUPT_MESSAGE
    3: _MOVED,  # UNKNOWN_TOPIC_OR_PARTITION
    5: _MOVED,  # LEADER_NOT_AVAILABLE
    6: _MOVED,  # NOT_LEADER_OR_FOLLOWER; with a base offset it was appended (broker: 6.4)
    7: _OPEN,  # REQUEST_TIMED_OUT (broker: 6.1)
    8: _MOVED,  # BROKER_NOT_AVAILABLE
    9: _MOVED,  # REPLICA_NOT_AVAILABLE
    10: Verdict(Kind.TOO_LARGE),  # MESSAGE_TOO_LARGE
    13: Verdict(Kind.RETRY, wants_metadata=True),  # NETWORK_EXCEPTION
    14: _RETRY,  # COORDINATOR_LOAD_IN_PROGRESS
    15: _RETRY,  # COORDINATOR_NOT_AVAILABLE
    16: _RETRY,  # NOT_COORDINATOR
    17: _REFUSED,  # INVALID_TOPIC_EXCEPTION
    18: _REFUSED,  # RECORD_LIST_TOO_LARGE
    19: _RETRY,  # NOT_ENOUGH_REPLICAS
    20: _OPEN,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    21: _REFUSED,  # INVALID_REQUIRED_ACKS
    29: _REFUSED,  # TOPIC_AUTHORIZATION_FAILED
    31: _REFUSED,  # CLUSTER_AUTHORIZATION_FAILED
    32: Verdict(Kind.INVALID),  # INVALID_TIMESTAMP; names every bad record (broker: 4.10)
    35: _REFUSED,  # UNSUPPORTED_VERSION
    41: _MOVED,  # NOT_CONTROLLER
    42: _REFUSED,  # INVALID_REQUEST
    43: _REFUSED,  # UNSUPPORTED_FOR_MESSAGE_FORMAT
    44: _REFUSED,  # POLICY_VIOLATION
    45: Verdict(Kind.OUT_OF_ORDER),  # OUT_OF_ORDER_SEQUENCE_NUMBER
    47: Verdict(Kind.OLD_IDENTITY),  # INVALID_PRODUCER_EPOCH
    48: _REFUSED,  # INVALID_TXN_STATE
    49: Verdict(Kind.OLD_IDENTITY),  # INVALID_PRODUCER_ID_MAPPING
    51: _RETRY,  # CONCURRENT_TRANSACTIONS
    53: _REFUSED,  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    54: _REFUSED,  # SECURITY_DISABLED
    56: _MOVED,  # KAFKA_STORAGE_ERROR
    58: _REFUSED,  # SASL_AUTHENTICATION_FAILED
    59: Verdict(Kind.OLD_IDENTITY),  # UNKNOWN_PRODUCER_ID
    72: _MOVED,  # LISTENER_NOT_FOUND
    74: _MOVED,  # FENCED_LEADER_EPOCH
    75: _MOVED,  # UNKNOWN_LEADER_EPOCH
    76: _REFUSED,  # UNSUPPORTED_COMPRESSION_TYPE
    87: Verdict(Kind.INVALID),  # INVALID_RECORD
    89: _RETRY,  # THROTTLING_QUOTA_EXCEEDED
    90: _REFUSED,  # PRODUCER_FENCED
    100: _MOVED,  # UNKNOWN_TOPIC_ID
    103: _MOVED,  # INCONSISTENT_TOPIC_ID
    120: _REFUSED,  # TRANSACTION_ABORTABLE
}

_ERRORS = {
    10: ErrorKind.TOO_LARGE, 18: ErrorKind.TOO_LARGE, 29: ErrorKind.TOPIC_AUTHORIZATION,
    31: ErrorKind.CLUSTER_AUTHORIZATION, 32: ErrorKind.INVALID_RECORD, 87: ErrorKind.INVALID_RECORD,
    48: ErrorKind.TRANSACTION, 90: ErrorKind.TRANSACTION, 120: ErrorKind.TRANSACTION,
}  # fmt: skip


def is_topic_refused(code: int) -> bool:
    """Return whether this code in Metadata refuses a topic for good, so that waiting is no use.

    These are INVALID_TOPIC (17) and TOPIC_AUTHORIZATION_FAILED (29).
    """
    return code in (17, 29)


def is_producer_fatal(code: int) -> bool:
    """Return whether this producer may write nothing at all.

    That is CLUSTER_AUTHORIZATION_FAILED (31): no idempotent writes (faults: P16).
    """
    return code == 31


def judge(code: int) -> Verdict:
    """Return the meaning of the code; total: an unknown one is fatal and ambiguous."""
    return TABLE.get(code, UNKNOWN_CODE)


def is_sent_again(code: int) -> bool:
    """Return whether a batch with this answer is sent again as it is; one in doubt may be."""
    return judge(code).kind in (Kind.RETRY, Kind.OUT_OF_ORDER, Kind.OLD_IDENTITY)


def is_ambiguous(code: int, base_offset: int) -> bool:
    """Return whether an attempt with this answer may be in the log.

    A batch whose error has a base offset was appended (broker: 6.4).
    """
    return base_offset >= 0 or judge(code).is_ambiguous


def error_kind(code: int) -> ErrorKind:
    """Return the kind of error that the caller gets for a batch refused with this code."""
    return _ERRORS.get(code, ErrorKind.REJECTED)


class Refusal:
    """The words of a broker about one attempt of one batch (KIP-467). It stays with the ledger's entry until the verdict.

    A code, a text about the batch, and texts about records of it, by their position among those that were sent.
    A record that is named twice has the first text there is. A position outside the batch names no record.
    """

    __slots__ = ("_message", "_texts", "code", "named")

    def __init__(
        self, code: int, message: str | None, record_errors: Sequence[tuple[int, str | None]], count: int
    ) -> None:
        texts: dict[int, str] = {}
        for position, text in record_errors:
            if 0 <= position < count and not texts.get(position):
                texts[position] = text or ""
        self.code = code
        self.named: tuple[int, ...] = tuple(sorted(texts))
        self._texts = texts
        self._message = message or ""

    def text(self) -> str:
        """Return the text about the batch: the name of the code, and the broker's words."""
        return self._with_name(self._message)

    def text_of(self, position: int) -> str:
        """Return the text about one record. Where the broker has no words for it, those about the batch stand."""
        return self._with_name(self._texts.get(position) or self._message)

    def _with_name(self, words: str) -> str:
        name = name_of(self.code)
        return f"{name}: {printable(words, TEXT_LIMIT)}" if words else name

    def __repr__(self) -> str:
        return f"<Refusal {self.text()} of {len(self.named)} records by name>"
