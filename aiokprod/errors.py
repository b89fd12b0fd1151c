"""Every error of aiokprod, as a tree by what the caller does next; and the reports of a call with many records.

AiokprodError
+- ConfigError (ValueError)                  fix the options
+- UsageError                                fix the code; nothing was sent, nothing changed
|  +- ProducerNotStartedError, WrongLoopError, ForkedError
|  +- ProducerClosedError                    the producer is closed, or closed before the record was delivered
|  +- RecordTypeError (TypeError), InvalidTopicError, InvalidPartitionError, InvalidTimestampError, InvalidColumnError
+- BufferFullError                           slow down: await ready(), or use send_many
+- DeliveryError                             one record was not delivered; `persistence` says whether it may be in the log
|  +- DeliveryTimeoutError, SendTimeoutError, RetriesExhaustedError, RecordTooLargeError
|  +- RecordRecalledError > RecordPurgedError
|  +- UnknownTopicError, PartitionOutOfRangeError, TopicAuthorizationError
|  +- BrokerRejectedError > InvalidRecordError
|  +- IdentityLostError, RecordOvertakenError, UndeliveredAtCloseError
|  +- SerializationError, PartitionerError
|  +- TransactionAbortedError                the transaction was aborted, or can only be aborted: run it again
|  +- ProducerFailedError                    the producer crashed: close it and start it again
|     +- ProducerFencedError                 another instance has taken the transactional id
+- TransactionTimeoutError                   the transaction was aborted, or not committed, as its time was over
+- TransactionOutcomeUnknownError            committed or aborted: call commit or abort again, which go on asking
+- OffsetCommitRefusedError                  the group does not take the offsets of the transaction: abort
+- SendManyError                             some records of a send_many failed; `report` says which
+- SendColumnsError                          some records of a send_columns failed; `report` says how many, where and why
+- ClusterError                              the environment: brokers, network, permissions
|  +- BootstrapError, ConnectionLostError, ConnectionSetupTimeoutError, RequestTimeoutError
|  +- AuthenticationError, TlsError, ClusterAuthorizationError
|  +- UnsupportedVersionError, ClusterIdMismatchError, BrokerAnswerError, AcknowledgedRecordsLostError
+- ProtocolError                             bytes that no broker should send; the connection is closed
+- CodecUnavailableError                     install the extra that the message names
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from aiokprod.model import InTransaction, Persistence, Record
from aiokprod.values import FrozenValue, Value

TRY_LATER = "Try again in some seconds; if it stays so, the brokers' logs say why."
"""what to do about a topic that is there and cannot be used now, as LEADER_NOT_AVAILABLE says"""
FACTS = ("topic", "partition", "attempts", "elapsed_s", "persistence", "code", "broker", "row")


class AiokprodError(Exception):
    """Base class of all errors. Attributes that do not apply are None; a note says what to do."""

    advice: str = ""
    default_persistence: Persistence | None = None
    in_transaction: InTransaction = InTransaction.CONTINUE
    """The next step with the transaction in which it came; of a producer with a `transactional_id`."""
    record: Record | None = None
    """The record, set only in calls of `on_delivery_error`, with the option `keep_failed_records`, if it is still in memory."""
    reported: bool = False
    """True if `on_delivery_error` or the log has had this failure: its `Delivery` was asked too late, see docs/sending.md."""

    def __init__(
        self,
        message: str = "",
        *,
        topic: str | None = None,
        partition: int | None = None,
        attempts: int | None = None,
        elapsed_s: float | None = None,
        persistence: Persistence | None = None,
        code: int | None = None,
        broker: int | str | None = None,
        row: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.topic = topic
        self.partition = partition
        self.attempts = attempts
        self.elapsed_s = elapsed_s
        self.persistence = persistence if persistence is not None else self.default_persistence
        self.code = code
        self.broker = broker
        self.row = row  # the row of a column
        if self.advice:
            self.add_note(self.advice)

    @property
    def elapsed(self) -> float | None:
        """Seconds from `send` to the failure: `elapsed_s`."""
        return self.elapsed_s

    @property
    def retriable(self) -> bool:
        """True if sending the same record again is safe and can help."""
        return False

    def clone(self) -> Self:
        """Return the same error without a traceback, so that each Delivery raises an exception of its own."""
        copy = type(self).__new__(type(self), *self.args)
        copy.args = self.args
        copy.__dict__.update(self.__dict__)
        notes = self.__dict__.get("__notes__")
        if notes is not None:
            copy.__dict__["__notes__"] = list(notes)
        copy.__cause__ = self.__cause__
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        # The state is the third item, not an argument: pickle resolves a circle of causes only in the state.
        state = self._state()
        if self.__cause__ is not None:
            state["__cause__"] = _portable(self.__cause__)
        return _rebuild, (type(self), self.args), state

    def _state(self) -> dict[str, Any]:
        """Return the attributes to pickle."""
        return dict(self.__dict__)

    def __str__(self) -> str:
        facts = [f"{name}={_shown(getattr(self, name))}" for name in FACTS if getattr(self, name, None) is not None]
        return f"{self.message} ({', '.join(facts)})" if facts else self.message


def advise(error: AiokprodError, advice: str) -> None:
    """Replace what to do, in general, by an advice that fits this one error."""
    error.advice = advice
    error.__notes__ = [advice]


def _shown(value: object) -> str:
    if isinstance(value, Persistence):
        return value.name
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _rebuild(kind: type[AiokprodError], args: tuple[Any, ...]) -> AiokprodError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error


def _portable(error: BaseException) -> BaseException:
    """Return the exception if it survives pickling, else an error of ours with its name and text."""
    if isinstance(error, AiokprodError):
        return error
    import pickle  # most programs send no error to another process

    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:  # raised by its __reduce__ or constructor: an error must reach the other process in any case
        return AiokprodError(f"{type(error).__name__}: {error}")
    return error


class ConfigError(AiokprodError, ValueError):
    """An option is unknown, has a wrong type or value, or conflicts with another."""


# ---------------------------------------------------------------------- usage
class UsageError(AiokprodError):
    """The call is not valid in the producer's current state, or its arguments are wrong. Nothing was taken."""

    advice = "Correct the call; nothing was sent."
    default_persistence = Persistence.NOT_PERSISTED


class ProducerNotStartedError(UsageError):
    """The producer was used before `start()`."""

    advice = "Use `async with Producer(...)`, or await start() first."


class ProducerClosedError(UsageError):
    """The producer is closing or closed."""

    in_transaction = InTransaction.CLOSE
    advice = "Send before close(), or open the producer again with `await start()`."


class WrongLoopError(UsageError):
    """The producer was called from another event loop or thread than the one that started it."""

    advice = (
        "A producer belongs to the loop that started it: use send_threadsafe() from threads, and one producer per loop."
    )


class ForkedError(UsageError):
    """The producer was used in a forked child of the process that started it."""

    advice = "Start a producer of its own in each child process, after the fork."


class RecordTypeError(UsageError, TypeError):
    """An argument has the wrong type."""

    advice = "Nothing was sent. Pass what the message asks for."


class InvalidTopicError(UsageError, ValueError):
    """The topic name is not valid."""

    advice = "Nothing was sent. Correct the topic name."


class InvalidPartitionError(UsageError, ValueError):
    """The partition number is not valid."""

    advice = "Nothing was sent. Leave the partition out, or pass one of partitions_for(topic)."


class InvalidTimestampError(UsageError, ValueError):
    """The timestamp is not a number of milliseconds since 1970."""

    advice = "Nothing was sent. Pass milliseconds since 1970, or leave it out."


class InvalidColumnError(UsageError, ValueError):
    """A column for `send_columns` is malformed, or does not fit the others."""

    advice = "Offsets must ascend and lie inside the data, and all columns must have the same number of rows: docs/columns.md."


class BufferFullError(AiokprodError):
    """buffer_memory is full and no more records may wait for room, or the record waited longer than max_block_ms."""

    default_persistence = Persistence.NOT_PERSISTED
    advice = "Await the deliveries or ready() before sending more, use send_many, or raise buffer_memory."

    @property
    def retriable(self) -> bool:
        """True: nothing is wrong with the call, which can be repeated."""
        return True


# ---------------------------------------------------------------------- deliveries
class DeliveryError(AiokprodError):
    """A record was accepted and could not be delivered."""

    in_transaction = InTransaction.ABORT
    advice = "Send it again if persistence is NOT_PERSISTED; else it may be in the log already."

    @property
    def retriable(self) -> bool:
        """True if the record is certainly not in the log."""
        return self.persistence is Persistence.NOT_PERSISTED


class DeliveryTimeoutError(DeliveryError, TimeoutError):
    """The record was not delivered within delivery_timeout_ms; the cause is the last failure."""

    advice = "Resend if persistence is NOT_PERSISTED; else read the log, or accept a possible duplicate."


class SendTimeoutError(DeliveryError, TimeoutError):
    """The record was not delivered within the timeout given to its send."""

    advice = "Resend if persistence is NOT_PERSISTED; else the record may still arrive."


class RetriesExhaustedError(DeliveryError):
    """The record was retried as often as `retries` allows; the cause is the last failure."""

    advice = "Leave retries out and let delivery_timeout_ms bound the time; resend if persistence is NOT_PERSISTED."


class RecordRecalledError(DeliveryError):
    """`recall()` took the record back before it was sent."""

    in_transaction = InTransaction.CONTINUE
    advice = "Nothing is wrong: the record was not sent. Send it again if it is wanted after all."
    default_persistence = Persistence.NOT_PERSISTED


class RecordPurgedError(RecordRecalledError):
    """`purge()` let go of the record before it was sent."""

    advice = "Nothing is wrong: the program asked for it, and the record was not sent. Send it again if it is wanted after all."


class RecordTooLargeError(DeliveryError, ValueError):
    """The record is larger than a limit of the producer or of the topic."""

    default_persistence = Persistence.NOT_PERSISTED
    advice = "Make the record smaller, or raise the limit that the message names."

    @property
    def retriable(self) -> bool:
        """False: the same record would fail again."""
        return False


class UnknownTopicError(DeliveryError):
    """The topic was not found or could not be used within max_block_ms, or no broker answered; then the cause says why."""

    default_persistence = Persistence.NOT_PERSISTED
    advice = (
        "Create the topic, or correct its name. Brokers create it themselves only if their auto.create.topics.enable is on, and"
        " the producer's allow_auto_create_topics too."
    )


class PartitionOutOfRangeError(DeliveryError, ValueError):
    """The partition does not exist, even after a refresh of the metadata."""

    default_persistence = Persistence.NOT_PERSISTED
    advice = "Leave the partition out, or pass one of partitions_for(topic)."

    @property
    def retriable(self) -> bool:
        """False: the same record would fail again."""
        return False


class TopicAuthorizationError(DeliveryError):
    """The principal may not write to the topic."""

    default_persistence = Persistence.NOT_PERSISTED
    advice = "Grant this principal WRITE and DESCRIBE on the topic."


class BrokerRejectedError(DeliveryError):
    """The broker rejected the batch, and a retry cannot help; `code` and the message say why."""

    advice = (
        "Correct what the broker names (the record, or the topic's settings): the same record would be refused again."
    )


class InvalidRecordError(BrokerRejectedError):
    """The broker reported this record as invalid (KIP-467), or rejected a batch that held only this record.

    If the broker refuses a batch of several records and names none, its records fail with `BrokerRejectedError`.
    """

    advice = "Correct the record; the others of its batch were not affected."


class IdentityLostError(DeliveryError):
    """The broker lost its state of this producer before the outcome of the record was known."""

    advice = "Read the log to learn whether the record arrived."


class RecordOvertakenError(DeliveryError):
    """The cluster lost this record and kept a later one: sending it again would break the order."""

    advice = "Send it again if order matters less than the record."


class UndeliveredAtCloseError(DeliveryError):
    """`close()` ended before the record was delivered."""

    in_transaction = InTransaction.CLOSE
    advice = "Give close() more time, or keep the record for the next start."


class SerializationError(DeliveryError):
    """A serializer raised an exception, which is the cause, or returned something other than bytes or None."""

    advice = "Correct the serializer, or what it was given; nothing of this record was sent."
    default_persistence = Persistence.NOT_PERSISTED
    may_help_again: bool = False
    """True if what the serializer asks did not answer; a serializer that raises this error can set it."""

    @property
    def retriable(self) -> bool:
        """False as a rule: the same record would fail again. True if what the serializer asks did not answer."""
        return self.may_help_again


class PartitionerError(DeliveryError):
    """The partitioner raised an exception, or returned a partition that does not exist."""

    advice = "Correct the partitioner: it must return one of the partitions it is given. Nothing was sent."
    default_persistence = Persistence.NOT_PERSISTED

    @property
    def retriable(self) -> bool:
        """False: the same record would fail again."""
        return False


class TransactionAbortedError(DeliveryError):
    """The transaction was aborted, or can only be aborted; the cause says why, unless that was asked for."""

    default_persistence = Persistence.NOT_PERSISTED
    advice = "Run the whole transaction again; in the long form call abort_transaction() first."


class ProducerFailedError(DeliveryError):
    """The producer crashed and sends nothing more; the cause says why."""

    in_transaction = InTransaction.CLOSE
    advice = "close() it and start() it again; report the cause if it is a bug of aiokprod."


class ProducerFencedError(ProducerFailedError):
    """Another instance has taken over the transactional id; its start has ended the transaction of this one."""

    advice = "close() this producer: each running instance needs a transactional_id of its own."

    @property
    def retriable(self) -> bool:
        """False: this producer sends nothing more."""
        return False


# ---------------------------------------------------------------------- transactions
class TransactionTimeoutError(AiokprodError, TimeoutError):
    """The transaction took longer than `transaction_timeout_ms`, or its end or offsets took too long: it is not committed."""

    default_persistence = Persistence.NOT_PERSISTED
    in_transaction = InTransaction.ABORT
    advice = "Call abort_transaction(), then run the transaction again: smaller, or with a larger timeout."


class TransactionOutcomeUnknownError(AiokprodError):
    """The coordinator did not say in time how the transaction ended: it is committed as a whole, or aborted as a whole."""

    default_persistence = Persistence.POSSIBLY_PERSISTED
    in_transaction = InTransaction.ASK_AGAIN
    advice = "Call commit_transaction() or abort_transaction() again: both go on asking, and tell what happened."


class OffsetCommitRefusedError(AiokprodError):
    """The offsets were not taken: the group has moved on, or may not be written, or a partition does not exist. See `code`."""

    default_persistence = Persistence.NOT_PERSISTED
    in_transaction = InTransaction.ABORT
    advice = "Abort, and read the records again: another member of the group may have them."


# ---------------------------------------------------------------------- many records: reports, and errors with them
@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class SendReport(FrozenValue):
    """The outcome of one `send_many`."""

    delivered: int
    """number of delivered records"""
    failures: list[tuple[int, AiokprodError]] = field(default_factory=list[tuple[int, AiokprodError]])
    """(index of the record in the call, error), in ascending order"""
    offsets: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict[tuple[str, int], tuple[int, int]])
    """(topic, partition) -> first and last offset; records of other producers may lie between"""


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ColumnsPartition(Value):
    """The outcome of the records of one `send_columns` in one partition."""

    count: int = 0
    """number of delivered records"""
    bytes: int = 0
    """size of the delivered records in the record format, before compression"""
    first_offset: int | None = None
    """None if nothing was delivered, or if brokers do not answer (acks=0)"""
    last_offset: int | None = None
    """records of other producers may lie between the first and the last"""
    failed: int = 0
    """number of records that failed"""
    possibly_persisted: int = 0
    """of the failed records, those that may be in the log; the others are certainly not"""
    first_error: AiokprodError | None = None
    """the error of the failed record with the lowest row"""
    first_failed_row: int | None = None
    """the lowest row that failed; None if none failed"""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class ColumnsPlacement(FrozenValue):
    """The place in the log of some rows of one `send_columns`, which follow each other there."""

    topic: str
    """topic name"""
    partition: int
    """partition number"""
    base_offset: int | None
    """offset of the first of these rows; None if brokers do not answer (acks=0)"""
    rows: Sequence[int]
    """row numbers in ascending order; `rows[n]` has offset `base_offset + n`"""


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ColumnsReport(Value):
    """The outcome of one `send_columns`."""

    delivered: int = 0
    """number of delivered records"""
    failed: int = 0
    """number of records that were accepted and failed"""
    possibly_persisted: int = 0
    """of the failed records, those that may be in the log; the others are certainly not"""
    untaken: int = 0
    """number of records that were never accepted: certainly not in the log"""
    partitions: dict[tuple[str, int], ColumnsPartition] = field(default_factory=dict[tuple[str, int], ColumnsPartition])
    """(topic, partition) -> outcome of the records there"""
    untaken_error: AiokprodError | None = None
    """why the remaining records were not accepted"""
    placements: list[ColumnsPlacement] = field(default_factory=list[ColumnsPlacement])
    """placements of the delivered rows, in no order; empty unless requested"""

    @property
    def first_error(self) -> AiokprodError | None:
        """The error of the failed record with the lowest row; if none failed, `untaken_error`."""
        failed = [partition for partition in self.partitions.values() if partition.first_failed_row is not None]
        if not failed:
            return self.untaken_error
        return min(failed, key=lambda partition: partition.first_failed_row or 0).first_error


class SendManyError(AiokprodError):
    """Some records of a `send_many` failed."""

    in_transaction = InTransaction.ABORT
    advice = "Look at report.failures: (index of the record, its error); the other records are in the log."

    def __init__(self, report: SendReport) -> None:
        first = report.failures[0] if report.failures else None
        super().__init__(
            f"{len(report.failures)} of {report.delivered + len(report.failures)} records failed"
            + (f"; the first is number {first[0]}: {first[1]}" if first else "")
        )
        self.report = report
        self.args = (report,)


class SendColumnsError(AiokprodError):
    """Some records of a `send_columns` failed, or were not taken."""

    in_transaction = InTransaction.ABORT
    advice = (
        "Look at report.partitions: how many failed in each, how many of these may be in the log, the first one and why; the"
        " others are in the log."
    )

    def __init__(self, report: ColumnsReport) -> None:
        first = report.first_error
        super().__init__(
            f"{report.failed} of {report.delivered + report.failed + report.untaken} records failed"
            + (f" ({report.possibly_persisted} of them may be in the log)" if report.possibly_persisted else "")
            + (f", {report.untaken} more were not taken" if report.untaken else "")
            + (f"; first: {first}" if first is not None else "")
        )
        self.report = report
        self.args = (report,)
        self.__cause__ = first


# ---------------------------------------------------------------------- the cluster
class ClusterError(AiokprodError):
    """An error of brokers, network or permissions."""

    advice = "Check the brokers and the network; the message says what failed."


class BootstrapError(ClusterError):
    """No bootstrap server could be used; `tried` lists each with its failure."""

    advice = "Check bootstrap_servers, the network and the brokers' advertised.listeners."

    def __init__(
        self, message: str = "", *, tried: Sequence[tuple[str, int, BaseException]] = (), **facts: Any
    ) -> None:
        super().__init__(message, **facts)
        self.tried = list(tried)

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "tried": [(host, port, _portable(cause)) for host, port, cause in self.tried]}


class ConnectionLostError(ClusterError):
    """A connection to a broker ended, or could not be opened."""

    advice = "The producer connects again by itself; if this repeats, check the broker and the network."

    def __init__(
        self,
        message: str = "",
        *,
        host: str | None = None,
        port: int | None = None,
        written: bool = False,
        **facts: Any,
    ) -> None:
        super().__init__(message, **facts)
        self.host = host
        self.port = port
        self.written = written

    @property
    def retriable(self) -> bool:
        """True: nothing is wrong with the call, which can be repeated."""
        return True


class ConnectionSetupTimeoutError(ConnectionLostError, TimeoutError):
    """A connection was not ready within socket_connection_setup_timeout_ms."""

    advice = "Check that host and port are reachable (firewall, TLS on the right port), or allow more time."


class RequestTimeoutError(ConnectionLostError, TimeoutError):
    """A broker did not answer a request within request_timeout_ms; the connection is closed."""

    advice = "Check how busy the broker is, or raise request_timeout_ms (and delivery_timeout_ms with it)."


class AuthenticationError(ClusterError):
    """SASL failed: wrong credentials, no token, a listener without this mechanism, or a broker that does not prove itself."""

    advice = (
        "Check that the listener speaks SASL; then sasl_mechanism, sasl_username and sasl_password, or the provider of"
        " tokens."
    )


class TlsError(ClusterError):
    """The TLS handshake failed; the message says why."""

    advice = "Check security_protocol, the certificate authorities and the host name."


class ClusterAuthorizationError(ClusterError):
    """The principal lacks a permission on the cluster."""

    advice = (
        "Grant it WRITE on the topic (brokers before 2.8: also IDEMPOTENT_WRITE on the cluster), or set "
        "enable_idempotence=False."
    )


class UnsupportedVersionError(ClusterError):
    """The broker does not support an API version that the producer needs."""

    advice = "Kafka 2.1 or later is needed."


class ClusterIdMismatchError(ClusterError):
    """The brokers belong to a different cluster than at the start."""

    advice = "Check where the bootstrap names point; close and start the producer to use the other cluster."


class AcknowledgedRecordsLostError(ClusterError):
    """The cluster has lost records that it had acknowledged, and `fail_on_data_loss` is on."""

    advice = "Find out which records are lost, send them again from their source, and start the producer again."


class BrokerAnswerError(ClusterError):
    """A broker answered with an error code."""

    advice = "Look the code up in Kafka's list of error codes; the broker's log may say more."


class ProtocolError(AiokprodError):
    """A broker sent bytes that break the protocol. The connection is closed; its batches are sent again."""

    advice = "Check that host and port are a Kafka broker's; if they are, report it as a bug."


class CodecUnavailableError(ConfigError):
    """The compression codec needs a package that is not installed."""

    advice = "Install the extra that the message names."


if not TYPE_CHECKING:  # else type checkers would find any name here

    def __getattr__(name: str) -> Any:
        """Say what to write instead of a name that is misspelt, in another module, or of another client."""
        if name.startswith("_"):  # each import of a name asks for `__path__` first
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from aiokprod.elsewhere import refusal

        raise refusal(__name__, name)
