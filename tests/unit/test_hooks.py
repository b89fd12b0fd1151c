"""Interceptors: in order, and never into the pipeline."""

from __future__ import annotations

from dataclasses import replace

from aiokprod.errors import AiokprodError
from aiokprod.hooks import InterceptorChain, ProducerInterceptor
from aiokprod.logs import StateLog
from aiokprod.model import Record, TimestampType
from aiokprod.record_metadata import RecordMetadata

METADATA = RecordMetadata("orders", 0, 7, None, TimestampType.CREATE_TIME)


class Appends(ProducerInterceptor):
    def __init__(self, text: bytes) -> None:
        self.text = text
        self.heard: list[tuple[RecordMetadata | None, AiokprodError | None]] = []
        self.is_closed = False

    def on_send(self, record: Record) -> Record:
        return replace(record, value=record.value + self.text)

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        self.heard.append((metadata, error))

    def close(self) -> None:
        self.is_closed = True


class Breaks(ProducerInterceptor):
    def on_send(self, record: Record) -> Record:
        raise RuntimeError("broken")

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        raise RuntimeError("broken")

    def close(self) -> None:
        raise RuntimeError("broken")


class ReturnsNothing(ProducerInterceptor):
    def on_send(self, record: Record) -> Record:
        return None  # type: ignore[return-value]


def chain(*interceptors: ProducerInterceptor) -> InterceptorChain:
    return InterceptorChain(interceptors, StateLog("producer"))


def test_each_sees_what_the_one_before_returned() -> None:
    assert chain(Appends(b"1"), Appends(b"2")).on_send(Record(value=b"0")).value == b"012"


def test_a_broken_one_is_left_out() -> None:
    last = Appends(b"2")
    broken = chain(Appends(b"1"), Breaks(), ReturnsNothing(), last)
    assert broken.on_send(Record(value=b"0")).value == b"012"
    broken.on_acknowledgement(METADATA, None)
    broken.close()
    assert last.heard == [(METADATA, None)]
    assert last.is_closed


def test_an_empty_chain_is_false() -> None:
    assert not chain()
    assert chain(Breaks())


class Listens(ProducerInterceptor):
    def __init__(self) -> None:
        self.heard: list[object] = []

    def on_outcome(self, record: Record, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        self.heard.append((record.value, metadata, error))
        raise RuntimeError("a hook cannot break the pipeline")


def test_an_outcome_is_told_with_its_record_wherever_the_record_went() -> None:
    first, last = Listens(), Listens()
    interceptors = chain(first, Appends(b""), last)
    parked, batch, error = object(), object(), AiokprodError("x")
    interceptors.accepted(Record(value=b"parked"), parked, 0)
    interceptors.accepted(Record(value=b"there"), batch, 0)
    interceptors.moved(parked, batch, 1)
    interceptors.moved(object(), batch, 0)  # one that is not remembered
    interceptors.settled(batch, 1, METADATA, None)
    interceptors.settled(batch, 0, None, error)
    interceptors.settled(batch, 0, None, error)  # a record has one outcome
    interceptors.refused(Record(value=b"refused"), error)
    assert first.heard == [(b"parked", METADATA, None), (b"there", None, error), (b"refused", None, error)]
    assert last.heard == first.heard
    assert not interceptors._open


def test_records_are_not_held_when_no_interceptor_wants_them() -> None:
    interceptors = chain(Appends(b"1"))
    interceptors.accepted(Record(), object(), 0)
    assert not interceptors._open
