"""Interceptors: in order, and never into the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import cast

import pytest

from aiokprod.errors import AiokprodError
from aiokprod.hooks import BatchSettled, ProducerInterceptor, RecordOutcome
from aiokprod.interceptor_chain import InterceptorChain
from aiokprod.logs import StateLog
from aiokprod.model import Record, TimestampType, TransactionOutcome
from aiokprod.record_metadata import RecordMetadata

METADATA = RecordMetadata("orders", 0, 7, None, TimestampType.CREATE_TIME)


class Appends(ProducerInterceptor):
    def __init__(self, text: bytes) -> None:
        self.text = text
        self.heard: list[tuple[RecordMetadata | None, AiokprodError | None]] = []

    def on_send(self, record: Record) -> Record:
        return replace(record, value=record.value + self.text)

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        self.heard.append((metadata, error))


class Breaks(ProducerInterceptor):
    def on_send(self, record: Record) -> Record:
        raise RuntimeError("broken")

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
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
    assert last.heard == [(METADATA, None)]


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


@pytest.mark.parametrize("ends", [SystemExit, KeyboardInterrupt])
def test_a_hook_that_ends_the_program_ends_it_behind_the_hooks_of_the_others(ends: type[BaseException]) -> None:
    """A notebook's loop goes on after Ctrl-C: the later interceptors never heard of the record."""

    class Ends(ProducerInterceptor):
        def __init__(self) -> None:
            self.heard: list[str] = []

        def _end(self, hook: str) -> None:
            self.heard.append(hook)
            raise ends

        def on_acknowledgement(self, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
            self._end("acknowledgement")

        def on_outcome(self, record: Record, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
            self._end("outcome")

        def on_record_settled(self, record: Record, outcome: RecordOutcome) -> None:
            self._end("settled")

        def on_transaction_end(self, outcome: TransactionOutcome) -> None:
            self._end("transaction")

    holder = object()
    first, last = Ends(), Ends()
    interceptors = chain(first, last)
    interceptors.accepted(Record(value=b"0"), holder, 0)
    for tell in (
        partial(interceptors.settled, holder, 0, METADATA, None),
        partial(interceptors.refused, Record(value=b"1"), AiokprodError("x")),
        partial(interceptors.transaction_ended, TransactionOutcome.COMMITTED),
    ):
        with pytest.raises(ends):
            tell()
    assert first.heard == [*["acknowledgement", "outcome", "settled"] * 2, "transaction"]
    assert last.heard == first.heard
    assert not interceptors._open


def test_records_are_not_held_when_no_interceptor_wants_them() -> None:
    interceptors = chain(Appends(b"1"))
    interceptors.accepted(Record(), object(), 0)
    assert not interceptors._open


class Samples(Appends):
    """Sees every third record."""

    def __init__(self) -> None:
        super().__init__(b"!")
        self.outcomes: list[tuple[Record, RecordOutcome]] = []

    def skip(self) -> int:
        return 2

    def on_record_settled(self, record: Record, outcome: RecordOutcome) -> None:
        self.outcomes.append((record, outcome))


def test_a_sampler_is_told_of_the_records_that_it_has_seen() -> None:
    sampler = Samples()
    samples = chain(sampler)
    holder = object()
    assert samples.skip() == 2
    samples.accepted(Record(value=b"3"), holder, 2)
    assert samples.has_seen(holder) and not samples.has_seen(object())
    assert list(samples.seen(holder, 0, 5)) == [2]
    samples.settled(holder, 2, METADATA, None, 4)
    assert [(record.value, outcome) for record, outcome in sampler.outcomes] == [
        (b"3", RecordOutcome(metadata=METADATA, error=None, attempts=4))
    ]
    assert not samples.has_seen(holder)


def test_an_outcome_has_the_place_of_the_record_in_its_batch() -> None:
    sampler = Samples()
    samples = chain(sampler)
    holder = object()
    samples.accepted(Record(value=b"3"), holder, 2)
    samples.settled(holder, 2, METADATA, None, 1, 7)
    samples.refused(Record(), AiokprodError("x"))
    assert [(outcome.batch, outcome.index) for _, outcome in sampler.outcomes] == [(7, 2), (None, None)]


def test_the_others_of_a_batch_are_not_looked_at_when_one_of_it_is_settled() -> None:
    class Counted(dict[int, Record]):
        def __iter__(self) -> Iterator[int]:
            raise AssertionError("all of them are looked at")

    samples = chain(Samples())
    holder = object()
    samples._open[holder] = Counted({index: Record() for index in range(3)})
    assert list(samples.seen(holder, 1, 2)) == [1]


def test_records_of_an_earlier_start_are_forgotten() -> None:
    samples = chain(Samples())
    samples.accepted(Record(value=b"lost with its loop"), object(), 0)
    samples.forget()
    assert not samples._open


def test_beside_another_interceptor_a_sampler_sees_every_record() -> None:
    both = chain(Samples(), Appends(b""))
    assert both.skip() == 0
    assert list(both.seen(object(), 0, 3)) == [0, 1, 2]


class Follows(ProducerInterceptor):
    """Follows batches, of which some pass by."""

    def __init__(self, passing: int | None = 0) -> None:
        self.passing = passing
        self.seen: list[int] = []

    def skip_batches(self) -> int | None:
        return self.passing

    def on_batch_settled(self, batch: BatchSettled) -> None:
        self.seen.append(batch.batch)


def test_batches_pass_by_only_an_interceptor_that_follows_them_alone() -> None:
    assert chain().skip_batches() == 0
    assert chain(Follows(3)).skip_batches() == 3
    assert chain(Appends(b""), Follows(3)).skip_batches() == 3  # the other one sees records
    assert chain(Follows(3), Follows(3)).skip_batches() == 0
    assert chain(Follows(-1)).skip_batches() == 0
    assert chain(Follows(2**40)).skip_batches() == 2**31
    assert chain(Follows(None)).skip_batches() is None


def test_a_skip_of_batches_that_raises_is_logged_and_skips_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Raises(Follows):
        def skip_batches(self) -> int:
            raise RuntimeError("broken")

    assert chain(Raises()).skip_batches() == 0
    assert "Raises.skip_batches" in caplog.text


def test_a_skip_that_is_no_number_skips_nothing() -> None:
    class Lies(Samples):
        def skip(self) -> int:
            return "many"  # type: ignore[return-value]

    assert chain(Lies()).skip() == 0


def test_an_interceptor_of_batches_sees_no_records() -> None:
    class OfBatches(ProducerInterceptor):
        def on_batch_settled(self, batch: BatchSettled) -> None:
            pass

    of_batches = chain(OfBatches())
    assert not of_batches and of_batches.sees_batches and of_batches.may_miss_columns
    assert chain(Appends(b"")) and not chain(Appends(b"")).sees_batches and not chain(Appends(b"")).may_miss_columns


def test_the_end_of_a_transaction_is_told_to_those_that_ask_for_it() -> None:
    told: list[TransactionOutcome] = []

    class Breaks(ProducerInterceptor):
        def on_transaction_end(self, outcome: TransactionOutcome) -> None:
            raise RuntimeError("a hook cannot break the pipeline")

    class Counts(ProducerInterceptor):
        def on_transaction_end(self, outcome: TransactionOutcome) -> None:
            told.append(outcome)

    chained = chain(Breaks(), Counts())
    chained.transaction_ended(TransactionOutcome.COMMITTED)
    assert told == [TransactionOutcome.COMMITTED]
    assert chained.sees_transactions and not chained and not chain(Appends(b"")).sees_transactions


def test_an_object_with_hooks_of_its_own_instance_is_called() -> None:
    class Duck:
        def __init__(self) -> None:
            self.on_send = lambda record: replace(record, value=b"duck")
            self.on_acknowledgement = lambda metadata, error: None

    assert chain(cast("ProducerInterceptor", Duck())).on_send(Record(value=b"0")).value == b"duck"
