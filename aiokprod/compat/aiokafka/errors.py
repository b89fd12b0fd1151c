"""Errors that are aiokafka's and aiokprod's at once: `except KafkaError` and `except aiokprod.AiokprodError` both hold.

An error of aiokprod keeps its identity, message, notes, cause and `persistence`, and gets a class that also derives from
what aiokafka raises in that place. The class is made when it is first needed, for a pair of classes.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from aiokprod import errors as ours
from aiokprod.compat.aiokafka.theirs import errors as theirs
from aiokprod.errors import AiokprodError

Bases = tuple[type[BaseException], ...]

BY_KIND: Final[dict[type[AiokprodError], Bases]] = {
    ours.AiokprodError: (theirs.KafkaError,),
    ours.ConfigError: (),  # a ValueError, as aiokafka raises
    ours.CodecUnavailableError: (theirs.UnsupportedCodecError,),  # a RuntimeError
    ours.UsageError: (theirs.IllegalOperation, AssertionError),
    ours.ProducerNotStartedError: (theirs.IllegalStateError,),
    ours.WrongLoopError: (theirs.IllegalStateError, AssertionError),
    ours.ForkedError: (theirs.IllegalStateError,),
    ours.ProducerClosedError: (theirs.ProducerClosed,),
    ours.RecordTypeError: (),  # a TypeError
    ours.InvalidTopicError: (theirs.InvalidTopicError, theirs.UnknownTopicOrPartitionError),
    ours.InvalidPartitionError: (AssertionError,),
    ours.InvalidTimestampError: (TypeError,),
    ours.BufferFullError: (theirs.KafkaTimeoutError,),
    ours.DeliveryTimeoutError: (theirs.KafkaTimeoutError, theirs.RequestTimedOutError),
    ours.SendTimeoutError: (theirs.KafkaTimeoutError, theirs.RequestTimedOutError),
    ours.RetriesExhaustedError: (theirs.KafkaTimeoutError, theirs.RequestTimedOutError),
    ours.RecordTooLargeError: (theirs.MessageSizeTooLargeError,),
    ours.UnknownTopicError: (theirs.UnknownTopicOrPartitionError,),
    ours.PartitionOutOfRangeError: (theirs.UnknownTopicOrPartitionError, AssertionError),
    ours.TopicAuthorizationError: (theirs.TopicAuthorizationFailedError,),
    ours.IdentityLostError: (theirs.UnknownProducerId,),
    ours.RecordOvertakenError: (theirs.OutOfOrderSequenceNumber,),
    ours.UndeliveredAtCloseError: (theirs.ProducerClosed,),
    ours.ProducerFencedError: (theirs.ProducerFenced,),
    ours.TransactionTimeoutError: (theirs.KafkaTimeoutError,),
    ours.BootstrapError: (theirs.KafkaConnectionError,),
    ours.ConnectionLostError: (theirs.KafkaConnectionError,),
    ours.RequestTimeoutError: (theirs.RequestTimedOutError, theirs.KafkaTimeoutError, theirs.KafkaConnectionError),
    ours.AuthenticationError: (theirs.AuthenticationFailedError, theirs.KafkaConnectionError),
    ours.TlsError: (theirs.KafkaConnectionError,),
    ours.ClusterAuthorizationError: (theirs.ClusterAuthorizationFailedError,),
    ours.UnsupportedVersionError: (theirs.UnsupportedVersionError, theirs.KafkaConnectionError),
    ours.ProtocolError: (theirs.KafkaProtocolError,),
}
"""The classes of aiokafka for each of ours, and for those that derive from it and are not here themselves."""
BY_CODE: Final = (ours.BrokerRejectedError, ours.OffsetCommitRefusedError, ours.BrokerAnswerError)
"""Errors of ours with the code of a broker, for each of which aiokafka has a class."""
_made: Final[dict[tuple[type[AiokprodError], Bases], type[AiokprodError]]] = {}


class BothKinds:
    """The mark of an error that is aiokafka's and ours; what it adds to both is how it is pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error by its two classes: the class of both has no name in a module."""
        reduced: Any = super().__reduce__()
        _, (kind, args), state = reduced
        return _rebuild, (kind.ours, kind.theirs, args), state


def _rebuild(kind: type[AiokprodError], bases: Bases, args: tuple[Any, ...]) -> AiokprodError:
    both = both_kinds(kind, bases)
    error = both.__new__(both, *args)
    error.args = args
    return error


def both_kinds(kind: type[AiokprodError], bases: Bases) -> type[AiokprodError]:
    """Return the class of errors that are of this kind and aiokafka's.

    Args:
        kind: a class of `aiokprod.errors`.
        bases: classes of aiokafka, or built-in ones. The first of aiokafka gives its name, which is found in logs and alerts.
    """
    known = _made.get((kind, bases))
    if known is not None:
        return known
    name = next((base.__name__ for base in bases if base.__module__ == theirs.__name__), kind.__name__)
    names: dict[str, Any] = {"ours": kind, "theirs": bases, "__module__": __name__, "__doc__": kind.__doc__}
    errno = next((vars(base)["errno"] for base in bases if "errno" in vars(base)), None)
    if isinstance(errno, int):
        names["errno"] = errno  # else the one of OSError, from which TimeoutError derives
    made = _made[kind, bases] = type(name, (BothKinds, kind, *bases), names)
    return made


def bases_of(error: AiokprodError) -> Bases:
    """Return the classes that aiokafka has for an error; none if aiokafka raises a built-in one that ours is."""
    if isinstance(error, BY_CODE) and error.code is not None:
        return (theirs.for_code(error.code),)
    return next(BY_KIND[kind] for kind in type(error).__mro__ if kind in BY_KIND)


def be_theirs_too(error: AiokprodError, *more: type[BaseException]) -> AiokprodError:
    """Give an error of ours a class that is aiokafka's too, in place; an error that has one stays as it is.

    In place: the error keeps its traceback, and a Delivery goes on to give the same object to each reader.

    Args:
        error: an error of ours.
        *more: classes that aiokafka raises in this place alone; they come first.

    Returns:
        The same error.
    """
    if isinstance(error, BothKinds):
        return error
    bases = (*more, *(base for base in bases_of(error) if not any(issubclass(each, base) for each in more)))
    if bases:
        error.__class__ = both_kinds(type(error), bases)
    return error


@contextmanager
def theirs_too() -> Generator[None]:
    """Let the errors of ours that the block raises be aiokafka's too."""
    try:
        yield
    except AiokprodError as error:
        be_theirs_too(error)
        raise
