"""Every error of ours, as a tree by what the caller does next.

AiokprodError
+- ConfigError (ValueError)                  fix the options
+- UsageError                                fix the code; nothing was taken, nothing changed
|  +- ProducerNotStartedError, WrongLoopError, ForkedError
|  +- ProducerClosedError                    the producer is closed, or closed before the record was delivered
|  +- RecordTypeError (TypeError), InvalidTopicError, InvalidPartitionError, InvalidTimestampError, InvalidColumnError
+- BufferFullError                           slow down: await ready(), or use send_many
+- DeliveryError                             one record was not delivered; `persistence` says whether it may be in the log
|  +- DeliveryTimeoutError, SendTimeoutError, RetriesExhaustedError, RecordRecalledError, RecordTooLargeError
|  +- UnknownTopicError, PartitionOutOfRangeError, TopicAuthorizationError
|  +- BrokerRejectedError > InvalidRecordError
|  +- IdentityLostError, RecordOvertakenError, UndeliveredAtCloseError
|  +- SerializationError, PartitionerError
|  +- ProducerFailedError                    the producer crashed: close it and start again
+- SendManyError                             some records of a send_many failed; `report` says which
+- SendColumnsError                          some records of a send_columns failed; `report` says how many, where and why
+- ClusterError                              the environment: brokers, network, rights
|  +- BootstrapError, ConnectionLostError, ConnectionSetupTimeoutError, RequestTimeoutError
|  +- AuthenticationError, TlsError, ClusterAuthorizationError
|  +- UnsupportedVersionError, ClusterIdMismatchError, BrokerAnswerError
+- ProtocolError                             bytes no broker should send; the connection is closed
+- CodecUnavailableError                     install the extra it names
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from aiokprod.model import Persistence

if TYPE_CHECKING:
    from aiokprod.model import ColumnsReport, Record, SendReport

FACTS = ("topic", "partition", "attempts", "elapsed_s", "persistence", "code", "broker", "row")


class AiokprodError(Exception):
    """Base of all. Facts are attributes, None when they do not apply; a note says what to do."""

    advice: str = ""
    default_persistence: Persistence | None = None
    record: Record | None = None
    """The record, for `on_delivery_error` alone, if the option `keep_failed_records` is on and the record was at hand."""

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
        self.row = row  # of a column
        if self.advice:
            self.add_note(self.advice)

    @property
    def elapsed(self) -> float | None:
        """Seconds from send to failure."""
        return self.elapsed_s

    @property
    def retriable(self) -> bool:
        """Is sending again safe and sensible?"""
        return False

    def clone(self) -> Self:
        """The same error without a traceback: one fresh exception per Delivery."""
        copy = type(self).__new__(type(self), *self.args)
        copy.args = self.args
        copy.__dict__.update(self.__dict__)
        notes = self.__dict__.get("__notes__")
        if notes is not None:
            copy.__dict__["__notes__"] = list(notes)
        copy.__cause__ = self.__cause__
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        # The state goes third, not into the arguments: causes may run in a circle, which pickle resolves only there.
        state = self._state()
        if self.__cause__ is not None:
            state["__cause__"] = _portable(self.__cause__)
        return _rebuild, (type(self), self.args), state

    def _state(self) -> dict[str, Any]:
        """The attributes to pickle."""
        return dict(self.__dict__)

    def __str__(self) -> str:
        facts = [f"{name}={_shown(getattr(self, name))}" for name in FACTS if getattr(self, name, None) is not None]
        return f"{self.message} ({', '.join(facts)})" if facts else self.message


def _shown(value: object) -> str:
    if isinstance(value, Persistence):
        return value.name
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _rebuild(kind: type[AiokprodError], args: tuple[Any, ...]) -> AiokprodError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error


def _portable(error: BaseException) -> BaseException:
    """An exception of others that does not survive pickling leaves its name and text; ours all survive."""
    if isinstance(error, AiokprodError):
        return error
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:  # whatever its __reduce__ or constructor raise: an error must reach the other process
        return AiokprodError(f"{type(error).__name__}: {error}")
    return error


class ConfigError(AiokprodError, ValueError):
    """An option is unknown, has a wrong type or value, or conflicts with another."""

    advice = "Correct the option that the message names."


# ---------------------------------------------------------------------- usage
class UsageError(AiokprodError):
    """The call cannot be right here and now; nothing was taken and nothing changed."""

    advice = "Correct the call; nothing was sent."
    default_persistence = Persistence.NOT_PERSISTED


class ProducerNotStartedError(UsageError):
    """send before start."""

    advice = "Use `async with Producer(...)`, or await start() first."


class ProducerClosedError(UsageError):
    """The producer is closing or closed."""

    advice = "await start() opens it again."


class WrongLoopError(UsageError):
    """Called from another event loop or thread than the one that started the producer."""

    advice = "A producer belongs to the loop that started it: use send_threadsafe() in threads, and one for each loop."


class ForkedError(UsageError):
    """Used in a forked child of the process that started it."""

    advice = "Start a producer of its own in each child process, after the fork."


class RecordTypeError(UsageError, TypeError):
    """An argument has the wrong type."""

    advice = "Nothing was sent. Pass what the message asks for."


class InvalidTopicError(UsageError, ValueError):
    """No topic can have this name."""

    advice = "Nothing was sent. Correct the topic name."


class InvalidPartitionError(UsageError, ValueError):
    """No partition can have this number."""

    advice = "Nothing was sent. Leave the partition out, or pass one of partitions_for(topic)."


class InvalidTimestampError(UsageError, ValueError):
    """Not a timestamp in milliseconds."""

    advice = "Nothing was sent. Pass milliseconds since 1970, or leave it out."


class InvalidColumnError(UsageError, ValueError):
    """A column for `send_columns` is no column, or does not fit the others."""

    advice = "Offsets ascend and lie inside the data, all columns have as many rows; docs/columns.md."


class BufferFullError(AiokprodError):
    """buffer_memory is full and no more may wait, or the record has waited for max_block_ms."""

    default_persistence = Persistence.NOT_PERSISTED
    advice = "Await the deliveries or ready() before sending more, use send_many, or raise buffer_memory."

    @property
    def retriable(self) -> bool:
        return True


# ---------------------------------------------------------------------- deliveries
class DeliveryError(AiokprodError):
    """A record was accepted and not delivered."""

    advice = "Send it again if persistence is NOT_PERSISTED; else it may be in the log already."

    @property
    def retriable(self) -> bool:
        return self.persistence is Persistence.NOT_PERSISTED


class DeliveryTimeoutError(DeliveryError, TimeoutError):
    """delivery_timeout_ms passed; the cause is the last failure on the way."""

    advice = "Resend if persistence is NOT_PERSISTED; else read the log, or accept a possible duplicate."


class SendTimeoutError(DeliveryError, TimeoutError):
    """The timeout of this send passed."""

    advice = "Resend if persistence is NOT_PERSISTED; else the record may still arrive."


class RetriesExhaustedError(DeliveryError):
    """The record was retried as often as `retries` allows; the cause is the last failure."""

    advice = "Leave retries out and let delivery_timeout_ms bound the time; resend if persistence is NOT_PERSISTED."


class RecordRecalledError(DeliveryError):
    """recall() took the record back."""

    advice = "Nothing is wrong: the record was not sent. Send it again if it is wanted after all."
    default_persistence = Persistence.NOT_PERSISTED


class RecordTooLargeError(DeliveryError, ValueError):
    """The record is larger than a limit of ours or of the topic."""

    default_persistence = Persistence.NOT_PERSISTED
    advice = "Make the record smaller, or raise the limit that the message names."

    @property
    def retriable(self) -> bool:
        return False


class UnknownTopicError(DeliveryError):
    """The topic did not appear within max_block_ms; or no broker has answered for it, and the cause says why."""

    default_persistence = Persistence.NOT_PERSISTED
    advice = (
        "Create the topic, or correct its name. Brokers create one that is asked for only where auto.create.topics.enable"
        " is on, and allow_auto_create_topics here."
    )


class PartitionOutOfRangeError(DeliveryError, ValueError):
    """The partition does not exist, also after a refresh of the metadata."""

    default_persistence = Persistence.NOT_PERSISTED
    advice = "Leave the partition out, or pass one of partitions_for(topic)."

    @property
    def retriable(self) -> bool:
        return False


class TopicAuthorizationError(DeliveryError):
    """Writing to the topic is not allowed."""

    default_persistence = Persistence.NOT_PERSISTED
    advice = "Grant this principal WRITE and DESCRIBE on the topic."


class BrokerRejectedError(DeliveryError):
    """The broker refused the batch for good; `code` and the message say why."""

    advice = "Correct what the broker names (the record, or the topic's settings): the same record is refused again."


class InvalidRecordError(BrokerRejectedError):
    """The broker refused this record: it named it as invalid (KIP-467), or it was alone in a refused batch.

    A batch of several records that is refused without a name is a `BrokerRejectedError`.
    """

    advice = "Correct the record; the others of its batch were not affected."


class IdentityLostError(DeliveryError):
    """The broker lost track of the producer while the record's fate was open."""

    advice = "Read the log to learn whether the record arrived."


class RecordOvertakenError(DeliveryError):
    """A later batch is in the log and this one is not (the cluster lost data): sending it would break the order."""

    advice = "Send it again if order matters less than the record."


class UndeliveredAtCloseError(DeliveryError):
    """close() ended before the record was delivered."""

    advice = "Give close() more time, or keep the record for the next start."


class SerializationError(DeliveryError):
    """A serializer failed; the cause is its exception."""

    advice = "Correct the serializer, or what it was given; nothing of this record was sent."
    default_persistence = Persistence.NOT_PERSISTED

    @property
    def retriable(self) -> bool:
        return False


class PartitionerError(DeliveryError):
    """The partitioner failed, or named a partition that does not exist."""

    advice = "Correct the partitioner: it must return one of the partitions it is given. Nothing was sent."
    default_persistence = Persistence.NOT_PERSISTED

    @property
    def retriable(self) -> bool:
        return False


class ProducerFailedError(DeliveryError):
    """The producer crashed; the cause says why. Nothing more is sent."""

    advice = "close() it and start() again; report the cause if it is a bug of ours."


class SendManyError(AiokprodError):
    """Some records of a send_many failed."""

    advice = "Look at report.failures: (number of the record, its error); the other records are in the log."

    def __init__(self, report: SendReport) -> None:
        first = report.failures[0] if report.failures else None
        super().__init__(
            f"{len(report.failures)} of {report.delivered + len(report.failures)} records failed"
            + (f", first number {first[0]}: {first[1]}" if first else "")
        )
        self.report = report
        self.args = (report,)


class SendColumnsError(AiokprodError):
    """Some records of a send_columns failed, or were not taken."""

    advice = "Look at report.partitions: how many failed in each, the first of them and why; the others are in the log."

    def __init__(self, report: ColumnsReport) -> None:
        first = report.first_error
        super().__init__(
            f"{report.failed} of {report.delivered + report.failed + report.untaken} records failed"
            + (f", {report.untaken} more were not taken" if report.untaken else "")
            + (f"; first: {first}" if first is not None else "")
        )
        self.report = report
        self.args = (report,)
        self.__cause__ = first


# ---------------------------------------------------------------------- the cluster
class ClusterError(AiokprodError):
    """Brokers, network, rights."""

    advice = "Check the brokers and the way to them; the message says what failed."


class BootstrapError(ClusterError):
    """No bootstrap server led to a cluster; `tried` says which and why."""

    advice = "Check bootstrap_servers, the network and the brokers' advertised.listeners."

    def __init__(
        self, message: str = "", *, tried: Sequence[tuple[str, int, BaseException]] = (), **facts: Any
    ) -> None:
        super().__init__(message, **facts)
        self.tried = list(tried)

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "tried": [(host, port, _portable(cause)) for host, port, cause in self.tried]}


class ConnectionLostError(ClusterError):
    """A connection ended."""

    advice = "The producer connects again by itself; if it goes on, check the broker and the network between."

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
        return True


class ConnectionSetupTimeoutError(ConnectionLostError, TimeoutError):
    """A connection was not usable in time (socket_connection_setup_timeout_ms)."""

    advice = "Check that host and port are reachable (firewall, TLS on the right port), or allow more time."


class RequestTimeoutError(ConnectionLostError, TimeoutError):
    """A request was not answered within request_timeout_ms; its connection is closed."""

    advice = "Check how busy the broker is, or raise request_timeout_ms (and delivery_timeout_ms with it)."


class AuthenticationError(ClusterError):
    """SASL failed: wrong credentials, a mechanism that is not offered, or a broker that cannot prove itself."""

    advice = "Check sasl_mechanism, sasl_username and sasl_password."


class TlsError(ClusterError):
    """The TLS handshake failed; the message says why."""

    advice = "Check security_protocol, the certificate authorities and the host name."


class ClusterAuthorizationError(ClusterError):
    """The principal may not do this on the cluster."""

    advice = (
        "Grant it WRITE on the topic (brokers before 2.8: also IDEMPOTENT_WRITE on the cluster), or set "
        "enable_idempotence=False."
    )


class UnsupportedVersionError(ClusterError):
    """The broker does not speak a version we need."""

    advice = "Kafka 2.1 or later is needed."


class ClusterIdMismatchError(ClusterError):
    """The brokers belong to another cluster than before."""

    advice = "Check where the bootstrap names point; close and start the producer to use the other cluster."


class BrokerAnswerError(ClusterError):
    """A broker answered with an error code."""

    advice = "Look the code up in Kafka's list of error codes; the broker's log may say more."


class ProtocolError(AiokprodError):
    """Bytes that no broker should send. The connection is closed; batches on it are sent again."""

    advice = "Check that host and port are a Kafka broker's; if they are, report it as a bug."


class CodecUnavailableError(ConfigError):
    """The compression codec needs a package that is not installed."""

    advice = "Install the extra the message names."
