"""`ProducerBatch`: columns, segments, deadlines, and what is charged for them."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage_rig import ManualLoop

from aiokprod.errors import AiokprodError, RecordTooLargeError
from aiokprod.explanation import EventKind, Place
from aiokprod.model import TimestampType
from aiokprod.pipeline.delivery.delivery import Delivery
from aiokprod.pipeline.partition.batch import (
    BATCH_OVERHEAD_BYTES,
    MARK_EVERY_S,
    BatchOwner,
    ProducerBatch,
    Segment,
    SettledOwner,
)
from aiokprod.pipeline.partition.timeline import Happening
from aiokprod.records.batch import encode_records, record_size_bound
from aiokprod.records.compression import compress
from aiokprod.records.decoder import split_records
from aiokprod.records.headers import encode_headers

pytestmark = pytest.mark.pure("its owner of batches subclasses BatchOwner")

OVERHEAD = 7
BASE_MS = 1_700_000_000_000


class Owner(BatchOwner):
    """A partition queue, for a batch."""

    def __init__(self) -> None:
        self.topic = "t"
        self.partition = 3
        self.loop = ManualLoop()
        self.urged: list[ProducerBatch] = []

    def urge(self, batch: ProducerBatch) -> None:
        self.urged.append(batch)

    def recall(self, batch: ProducerBatch, index: int) -> bool:
        batch.settle(segment(index, index + 1, error=AiokprodError("recalled")))
        return True


def new_batch(now: float = 0.0, timeout_s: float = 10.0) -> ProducerBatch:
    return ProducerBatch(Owner(), now, timeout_s, 0, OVERHEAD, BASE_MS)


def segment(first: int, last: int, offset: int = -1, *, error: AiokprodError | None = None, at_ms: int = -1) -> Segment:
    return Segment(first, last, offset, at_ms, error, 1, 50.0)


ONE_HEADER = encode_headers([("h", None)])


def filled(count: int, *, size: int = 10) -> ProducerBatch:
    batch = new_batch()
    for number in range(count):
        batch.append(b"v%d" % number, None, None, BASE_MS + number, size, 0.0)
    return batch


def records_of(batch: ProducerBatch, ranges: list[tuple[int, int]]) -> list[tuple[object, object, object, int]]:
    count = sum(last - first for first, last in ranges)
    values, keys, headers, deltas = split_records(bytes(batch.encode(ranges)), count)
    return [
        (values[i], None if keys is None else keys[i], None if headers is None else headers[i], deltas[i])
        for i in range(count)
    ]


# ---------------------------------------------------------------------- filling
def test_unused_columns_do_not_exist_and_late_ones_are_filled_up() -> None:
    batch = new_batch()
    batch.append(b"a", None, None, BASE_MS, 10, 0.0)
    assert batch.keys is None and batch.headers is None
    batch.append(None, b"k", None, BASE_MS - 5, 10, 0.0)
    batch.append(b"", None, ONE_HEADER, BASE_MS + 5, 10, 0.0)
    assert batch.keys == [None, b"k", None]
    assert batch.headers == [None, None, ONE_HEADER]
    assert records_of(batch, [(0, 3)]) == [
        (b"a", None, None, 0),
        (None, b"k", None, -5),
        (b"", None, (("h", None),), 5),
    ]
    assert batch.max_timestamp_ms == BASE_MS + 5


@pytest.mark.parametrize("is_delivered", [True, False])
def test_a_finished_batch_keeps_keys_and_headers_for_their_sizes_if_a_record_was_delivered(is_delivered: bool) -> None:
    batch = new_batch()
    key = b"k" * 50_000
    batch.append(b"v", key, ONE_HEADER, BASE_MS, record_size_bound(len(key), 1, len(ONE_HEADER)), 0.0)
    batch.append(b"w", None, None, BASE_MS, record_size_bound(-1, 1, 0), 0.0)
    references = sys.getrefcount(key)
    batch.settle(Segment(0, 1, 7, -1, None if is_delivered else RecordTooLargeError("no"), 1, 0.0))
    batch.settle(Segment(1, 2, 8, -1, RecordTooLargeError("no"), 1, 0.0))
    assert batch.is_finished and batch.keys is None
    assert sys.getrefcount(key) == references - (0 if is_delivered else 1)
    metadata = batch.metadata(0)
    if metadata is not None:
        assert (metadata.serialized_key_size, metadata.serialized_value_size) == (50_000, 1)
    assert (metadata is not None) == is_delivered


def test_columns_whose_cells_are_all_alike_do_not_exist_and_are_filled_up_by_the_first_other_cell() -> None:
    batch = new_batch()
    for value in (b"a", b"b"):
        batch.append(value, None, None, BASE_MS, 10, 0.0)
    assert batch.timestamp_deltas is None and batch.sizes is None
    assert [batch.size_of(index) for index in range(2)] == [10, 10]
    assert records_of(batch, [(0, 2)]) == [(b"a", None, None, 0), (b"b", None, None, 0)]
    batch.append(b"c", None, None, BASE_MS + 7, 10, 0.0)
    assert batch.timestamp_deltas == [0, 0, 7] and batch.sizes is None
    batch.append(b"d", None, None, BASE_MS, 12, 0.0)
    assert batch.timestamp_deltas == [0, 0, 7, 0] and batch.sizes == [10, 10, 10, 12]
    assert batch.bytes_of([(0, 1), (2, 4)]) == 32 and batch.fitting([(0, 4)], 31) == 3
    assert batch.max_timestamp_ms == BASE_MS + 7


@pytest.mark.parametrize("is_even", [True, False])
def test_a_batch_that_rests_is_the_same_batch_afterwards(is_even: bool) -> None:
    def fill() -> ProducerBatch:
        batch = new_batch()
        batch.append(b"a", None, None, BASE_MS, 10, 0.0)
        if is_even:
            batch.append(b"b", None, None, BASE_MS, 10, 0.0)
        else:
            batch.append(b"bb", b"k", ONE_HEADER, BASE_MS + 7, 11, 0.0)
        return batch

    asked: list[Callable[[ProducerBatch], object]] = [
        lambda batch: records_of(batch, [(0, 2)]),
        lambda batch: [batch.size_of(index) for index in range(2)],
        lambda batch: batch.bytes_of([(1, 2)]),
        lambda batch: batch.fitting([(0, 2)], 12),
        lambda batch: [record.value for record in batch.keep([1], segment(0, 2))],
        lambda batch: batch.unwatched(segment(0, 2)),
        lambda batch: batch.settle(segment(0, 1)),
    ]
    for ask in asked:
        rested, other = fill(), fill()
        rested.rest()
        assert rested.charged_bytes == other.charged_bytes and rested.values == []
        assert ask(rested) == ask(other)
        for batch in (rested, other):
            batch.settle(segment(1, 2, 9))
        assert rested.metadata(1) == other.metadata(1)


def test_deliveries_that_are_watched_before_and_during_a_rest_are_told_in_their_order() -> None:
    batch, told = new_batch(), list[int]()
    for number in range(3):
        batch.append(b"v", None, None, BASE_MS, 10, 0.0)
        Delivery(batch, number).add_done_callback(lambda _, number=number: told.append(number))  # type: ignore[misc]
        if number == 1:
            batch.rest()
    assert batch.unwatched(segment(0, 3)) == []
    batch.settle(segment(0, 3, 0))
    batch.owner.loop.run()  # type: ignore[attr-defined] # a ManualLoop
    assert told == [0, 1, 2]


@pytest.mark.parametrize("seed", range(30))
def test_a_run_of_values_makes_the_batch_that_they_make_one_by_one(seed: int) -> None:
    draw = random.Random(seed)
    one_by_one, in_runs = (ProducerBatch(Owner(), 1.0, 10.0, OVERHEAD, 0, BASE_MS) for _ in range(2))
    now = 1.0
    for _ in range(draw.randrange(1, 8)):
        now += draw.choice([0.0, MARK_EVERY_S / 2, MARK_EVERY_S, 1.0])
        timestamp_ms = BASE_MS + draw.randrange(-500, 500)
        values: list[bytes | None] = [draw.randbytes(draw.randrange(5)) for _ in range(draw.randrange(1, 5))]
        sizes = [draw.randrange(1, 90) for _ in values]
        if draw.randrange(3) == 0:
            key, headers = draw.choice([b"k", None]), draw.choice([encode_headers([("h", b"1")]), None])
            for batch in (one_by_one, in_runs):
                batch.append(b"v", key, headers, timestamp_ms, 9, now)
        first = one_by_one.count
        for value, size in zip(values, sizes, strict=True):
            one_by_one.append(value, None, None, timestamp_ms, size, now)
        assert in_runs.extend(values, sizes, sum(sizes), timestamp_ms, now) == first
    for name in (
        "values",
        "keys",
        "headers",
        "timestamp_deltas",
        "sizes",
        "size_bytes",
        "charged_bytes",
        "count",
        "marks",
    ):
        assert getattr(in_runs, name) == getattr(one_by_one, name), name
    assert in_runs.sealed_view() == one_by_one.sealed_view()
    assert [in_runs.deadline_of(index) for index in range(in_runs.count)] == [
        one_by_one.deadline_of(index) for index in range(in_runs.count)
    ]


def test_bytes_are_counted_for_the_wire_and_charged_for_the_buffer() -> None:
    batch = new_batch()
    assert batch.size_bytes == BATCH_OVERHEAD_BYTES
    for size in (10, 300, 70_000):
        batch.append(b"", None, None, BASE_MS, size, 0.0)
    assert batch.size_bytes == BATCH_OVERHEAD_BYTES + 70_310
    assert batch.charged_bytes == 70_310 + 3 * OVERHEAD
    assert [batch.size_of(index) for index in range(3)] == [10, 300, 70_000]


# ---------------------------------------------------------------------- deadlines
def test_records_of_one_moment_share_a_deadline_and_it_is_never_later_than_their_own() -> None:
    batch = new_batch(now=100.0)
    times = [100.0 + 0.003 * number for number in range(50)]
    for at in times:
        batch.append(b"v", None, None, BASE_MS, 10, at)
    assert len(batch.marks) < len(times) / 2
    for index, at in enumerate(times):
        assert at - MARK_EVERY_S < batch.sent_at(index) <= at
        assert batch.deadline_of(index) == batch.sent_at(index) + 10.0
    assert batch.due(0, 109.999) == 0
    assert batch.due(0, 1000.0) == 50
    due = batch.due(0, 110.05)
    assert 0 < due < 50
    assert batch.deadline_of(due - 1) <= 110.05 < batch.deadline_of(due)
    assert batch.due(due, 110.05) == 0


# ---------------------------------------------------------------------- outcomes
def test_offsets_of_a_segment_count_from_its_first_record() -> None:
    batch = filled(5)
    batch.settle(segment(3, 5, 200))
    batch.settle(segment(0, 2, 100))
    assert batch.live_ranges() == [(2, 3)]
    assert [None if (m := batch.metadata(i)) is None else m.offset for i in range(5)] == [100, 101, None, 200, 201]
    assert not batch.is_settled(2)
    assert batch.first_unsettled() == 2
    batch.settle(segment(2, 3))
    done = batch.metadata(2)
    assert done is not None and done.offset is None  # unknown, never invented
    assert (done.topic, done.partition) == ("t", 3)
    assert batch.is_finished


def test_the_timestamp_is_the_records_own_unless_the_broker_dates_them() -> None:
    """faults: P1"""
    batch = filled(2)
    batch.settle(segment(0, 1, 0))
    batch.settle(segment(1, 2, 1, at_ms=42))
    first, second = batch.metadata(0), batch.metadata(1)
    assert first is not None and second is not None
    assert (first.timestamp, first.timestamp_type) == (BASE_MS, TimestampType.CREATE_TIME)
    assert (second.timestamp, second.timestamp_type) == (42, TimestampType.LOG_APPEND_TIME)


def test_each_reader_of_a_failure_gets_an_exception_of_its_own() -> None:
    """faults: M13"""
    batch = filled(2)
    cause = OSError("cause")
    pattern = RecordTooLargeError("too large", topic="t")
    pattern.__cause__ = cause
    batch.settle(segment(0, 2, error=pattern))
    errors = [batch.error(0), batch.error(1), batch.error(0)]
    assert len({id(error) for error in (*errors, pattern)}) == 4
    assert all(type(error) is RecordTooLargeError and error.__cause__ is cause for error in errors if error)
    assert batch.metadata(0) is None


@pytest.mark.parametrize("seed", range(20))
def test_bytes_come_back_exactly_once_whatever_the_pieces(seed: int) -> None:
    draw = random.Random(seed)
    batch = new_batch()
    for _ in range(30):
        batch.append(b"v", None, None, BASE_MS, draw.randrange(1, 1_000), 0.0)
    charged = batch.charged_bytes
    cuts = [0, *sorted(draw.sample(range(1, 30), 6)), 30]
    pieces = list(pairwise(cuts))
    draw.shuffle(pieces)
    freed = [batch.settle(segment(first, last)) for first, last in pieces]
    assert sum(freed) == charged
    assert all(amount > 0 for amount in freed)
    assert batch.charged_bytes == 0
    assert batch.is_finished
    assert [s and (s.first, s.last) for s in map(batch.segment_of, cuts[:-1])] == list(pairwise(cuts))
    assert batch.values == [] and batch.live_ranges() == []


def test_a_settled_batch_wakes_all_waiters_and_a_part_of_it_only_its_own() -> None:
    batch = filled(4)
    owner = batch.owner
    assert isinstance(owner, Owner)
    called: list[int] = []
    deliveries = [Delivery(batch, index) for index in range(4)]
    for delivery in deliveries[:3]:
        delivery.add_done_callback(lambda done: called.append(done._index))
    assert owner.urged == [batch]  # one waiter or many: once
    batch.settle(segment(1, 2, error=AiokprodError("x")))
    owner.loop.run()
    assert called == [1]
    assert batch.unwatched(segment(2, 4)) == [3]
    batch.settle(segment(2, 4, 9))
    batch.settle(segment(0, 1, 8))
    owner.loop.run()
    assert called == [1, 2, 0]
    assert [delivery.done() for delivery in deliveries] == [True] * 4
    assert deliveries[3].result().offset == 10


def test_a_detached_handle_does_not_count_as_a_waiter_and_a_claim_does() -> None:
    batch = filled(4)
    detached = Delivery(batch, 0)
    detached.add_done_callback(lambda _: None)
    detached.cancel()
    claim = batch.claim(1)
    claim.last = 3
    assert batch.unwatched(segment(0, 4)) == [0, 3]
    assert batch.unwatched(segment(1, 3)) == []


def test_a_state_is_told_for_each_outcome() -> None:
    batch = filled(3)
    batch.settle(segment(0, 1, 5))
    batch.settle(segment(1, 2, error=RecordTooLargeError("x")))
    told = [batch.explain(index) for index in range(2)]
    assert [(each.place, each.why) for each in told] == [
        (Place.DELIVERED, "offset 5"),
        (Place.FAILED, "RecordTooLargeError: x"),
    ]


def test_a_recalled_record_is_not_encoded() -> None:
    batch = filled(4)
    assert Delivery(batch, 1).recall()
    ranges, newest = batch.sealed_view()
    assert ranges == [(0, 1), (2, 4)]
    assert newest == BASE_MS + 3
    assert [record[0] for record in records_of(batch, ranges)] == [b"v0", b"v2", b"v3"]


# ---------------------------------------------------------------------- encoding, and taking apart
def test_encoding_takes_the_records_of_its_ranges_with_their_own_times() -> None:
    batch = filled(6)
    assert bytes(batch.encode([(0, 6)])) == bytes(
        encode_records([b"v%d" % i for i in range(6)], None, None, list(range(6)))
    )
    assert [(r[0], r[3]) for r in records_of(batch, [(1, 3), (5, 6)])] == [(b"v1", 1), (b"v2", 2), (b"v5", 5)]


_bytes = st.one_of(st.none(), st.binary(max_size=40))
_headers = st.none() | st.lists(st.tuples(st.text(max_size=5), _bytes), min_size=1, max_size=3).map(encode_headers)


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
@given(
    records=st.lists(st.tuples(_bytes, _bytes, _headers, st.integers(-1000, 1000)), min_size=2, max_size=12),
    data=st.data(),
)
def test_a_batch_restored_from_its_section_encodes_the_same_halves(
    codec: str, records: list[tuple[bytes | None, bytes | None, bytes | None, int]], data: st.DataObject
) -> None:
    """faults: P9, P24: columns are gone once it was sent; a split or a refused record needs them again."""
    batch, twin = new_batch(), new_batch()
    for value, key, headers, delta in records:
        for each in (batch, twin):
            each.append(value, key, headers, BASE_MS + delta, 300, 0.0)
    gone = data.draw(st.integers(0, len(records) - 1))
    whole = data.draw(st.booleans())
    ranges = [(0, len(records))] if whole else [r for r in ((0, gone), (gone + 1, len(records))) if r[0] < r[1]]
    section = batch.encode(ranges)
    batch.release_columns(compress(codec, None, section) if codec != "none" else section, codec, ranges)
    assert batch.values == []
    cut = data.draw(st.integers(0, len(records)))
    for part in ((0, cut), (cut, len(records))):
        kept = [(max(a, part[0]), min(b, part[1])) for a, b in ranges if max(a, part[0]) < min(b, part[1])]
        if kept:
            assert bytes(batch.encode(kept)) == bytes(twin.encode(kept))


def test_a_restored_batch_keeps_its_columns() -> None:
    batch = filled(4)
    section = batch.encode([(0, 4)])
    batch.release_columns(section, "none", [(0, 4)])
    front = batch.encode([(0, 2)])
    batch.release_columns(front, "none", [(0, 2)])  # the front half is sent: the back half must stay readable
    assert [record[0] for record in records_of(batch, [(2, 4)])] == [b"v2", b"v3"]


def test_waiting_goes_through_the_loop_of_the_owner() -> None:
    async def scenario() -> None:
        batch = filled(1)
        owner = batch.owner
        owner.loop = asyncio.get_running_loop()
        delivery = Delivery(batch, 0)
        task = asyncio.create_task(delivery.wait())
        await asyncio.sleep(0)
        assert batch.is_urgent
        batch.settle(segment(0, 1, 7))
        assert (await task).offset == 7
        assert delivery.latency == 50.0
        assert delivery.attempts == 1

    asyncio.run(scenario())


# ---------------------------------------------------------------------- explaining
def test_an_explanation_of_a_settled_record_has_its_own_outcome() -> None:
    batch = filled(3)
    batch.settle(segment(0, 1, 40))
    batch.settle(segment(1, 3, error=AiokprodError("refused")))
    delivered, failed = batch.explain(0), batch.explain(2)
    assert (delivered.place, delivered.why, delivered.age_s, delivered.attempts) == (
        Place.DELIVERED,
        "offset 40",
        50.0,
        1,
    )
    assert (failed.place, failed.why, failed.waits_for) == (Place.FAILED, "AiokprodError: refused", None)
    assert (failed.topic, failed.partition) == ("t", 3)


def test_a_batch_that_settles_while_it_is_explained_in_another_thread_has_its_outcome() -> None:
    batch = filled(1)
    settled = SettledOwner("t", 3, batch.owner.loop)
    batch.settle(segment(0, 1, 40))
    assert settled.explain(batch, 0) == batch.explain(0)
    assert settled.explain(batch, 0).place is Place.DELIVERED


def test_what_happened_to_some_records_is_told_of_these_alone() -> None:
    batch = filled(4)
    assert batch.timeline is None
    batch.happened(Happening(2.0, EventKind.ATTEMPT_FAILED, "refused", 1, 0, 2))
    batch.settle(segment(0, 4, 40))
    assert [event.text for event in batch.explain(1).events] == ["accepted", "refused", "delivered"]
    assert [event.text for event in batch.explain(2).events] == ["accepted", "delivered"]


# ---------------------------------------------------------------------- cells of a record that was not taken
NEXT: list[tuple[bytes | None, bytes | None, int, int, float]] = [
    (b"k", None, BASE_MS, 10, 0.0),
    (None, ONE_HEADER, BASE_MS, 10, 0.0),
    (None, None, BASE_MS + 99, 10, 0.0),
    (None, None, BASE_MS, 11, 0.0),
    (b"k", ONE_HEADER, BASE_MS + 99, 11, 2 * MARK_EVERY_S),
]


@pytest.mark.parametrize("key, headers, at_ms, size, now", NEXT)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_cells_of_a_record_that_was_not_taken_leave_no_trace(
    count: int, key: bytes | None, headers: bytes | None, at_ms: int, size: int, now: float
) -> None:
    def then(batch: ProducerBatch) -> tuple[object, ...]:
        batch.append(b"next", b"key", ONE_HEADER, BASE_MS + 5, 12, 0.001)
        batch.check()
        sizes = [batch.size_of(index) for index in range(batch.count)]
        return batch.encode(batch.live_ranges()), sizes, batch.size_bytes, batch.max_timestamp_ms, batch.marks

    batch = filled(count)
    batch.write(b"not taken", key, headers, at_ms, size, now)
    assert batch.count == count
    batch.trim()
    assert then(batch) == then(filled(count))


def test_columns_that_disagree_are_not_encoded() -> None:
    batch = filled(3)
    batch.write(b"not taken", b"k", None, BASE_MS, 10, 0.0)
    with pytest.raises(AssertionError, match=r"3 records has columns of \[4, 4, 4\]"):
        batch.encode([(0, 3)])
