"""`aiokprod.compat.aiokafka.errors`: each error of ours becomes one that is aiokafka's too, and stays what it was."""

from __future__ import annotations

import pickle
from typing import Any

import aiokafka.errors as theirs
import pytest

from aiokprod import Persistence, errors
from aiokprod.compat.aiokafka.errors import BothKinds, be_theirs_too, theirs_too
from aiokprod.errors import AiokprodError, SendColumnsError, SendManyError

EVERY = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, AiokprodError) and kind not in (SendManyError, SendColumnsError)
]
BUILT_IN = (errors.ConfigError, errors.RecordTypeError)  # aiokafka raises a ValueError and a TypeError, as these are
NOT_KAFKA_ERRORS = (
    errors.UsageError,
    errors.InvalidColumnError,
    errors.InvalidPartitionError,
    errors.InvalidTimestampError,
)


def made(kind: type[AiokprodError], **facts: Any) -> AiokprodError:
    return kind("the words", topic="t", persistence=Persistence.POSSIBLY_PERSISTED, **facts)


@pytest.mark.parametrize("kind", EVERY)
def test_an_error_keeps_its_class_and_facts_and_gets_one_of_aiokafka(kind: type[AiokprodError]) -> None:
    error = made(kind, code=7)
    error.__cause__ = OSError("the cause")
    told, notes = str(error), list(error.__notes__) if kind.advice else None
    assert be_theirs_too(error) is error
    assert (isinstance(error, kind) and issubclass(kind, BUILT_IN)) or isinstance(error, BothKinds)
    assert str(error) == told and error.persistence is Persistence.POSSIBLY_PERSISTED
    assert notes is None or error.__notes__ == notes
    assert isinstance(error.__cause__, OSError)
    if kind not in (*BUILT_IN, *NOT_KAFKA_ERRORS):
        assert isinstance(error, theirs.KafkaError)
    first = type(error)
    assert type(be_theirs_too(error)) is first


@pytest.mark.parametrize("kind", EVERY)
def test_an_error_of_both_is_pickled_and_cloned(kind: type[AiokprodError]) -> None:
    error = be_theirs_too(made(kind, code=7))
    for copy in (pickle.loads(pickle.dumps(error)), error.clone()):
        assert type(copy) is type(error) and str(copy) == str(error)


@pytest.mark.parametrize(("kind", "kinds"), [
    (errors.BootstrapError, [theirs.KafkaConnectionError]),
    (errors.DeliveryTimeoutError, [theirs.KafkaTimeoutError, theirs.RequestTimedOutError, TimeoutError]),
    (errors.BufferFullError, [theirs.KafkaTimeoutError]),
    (errors.RecordTooLargeError, [theirs.MessageSizeTooLargeError, ValueError]),
    (errors.UnknownTopicError, [theirs.UnknownTopicOrPartitionError]),
    (errors.TopicAuthorizationError, [theirs.TopicAuthorizationFailedError]),
    (errors.ProducerClosedError, [theirs.ProducerClosed]),
    (errors.ProducerFencedError, [theirs.ProducerFenced]),
    (errors.UsageError, [theirs.IllegalOperation, AssertionError]),
    (errors.AuthenticationError, [theirs.AuthenticationFailedError, theirs.KafkaConnectionError]),
    (errors.CodecUnavailableError, [theirs.UnsupportedCodecError, RuntimeError, ValueError]),
])  # fmt: skip
def test_the_class_of_aiokafka_is_the_one_that_it_raises(kind: type[AiokprodError], kinds: list[type]) -> None:
    error = be_theirs_too(made(kind))
    assert all(isinstance(error, each) for each in kinds)


@pytest.mark.parametrize("code", [2, 10, 19, 29, 45, 87, 12345])
def test_an_error_with_a_code_of_a_broker_has_the_class_of_that_code(code: int) -> None:
    error = be_theirs_too(made(errors.BrokerRejectedError, code=code))
    assert isinstance(error, theirs.for_code(code))


def test_the_number_of_a_timeout_is_that_of_kafka_not_of_the_system() -> None:
    assert be_theirs_too(made(errors.DeliveryTimeoutError)).errno == 7  # type: ignore[attr-defined]


def test_a_block_raises_errors_that_are_theirs_too_and_passes_others_on() -> None:
    with pytest.raises(theirs.ProducerClosed), theirs_too():
        raise errors.ProducerClosedError("closed")
    with pytest.raises(KeyError), theirs_too():
        raise KeyError
