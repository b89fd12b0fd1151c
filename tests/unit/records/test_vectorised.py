"""Columns encoded with numpy and pyarrow: byte for byte what the plain way makes, whatever is in them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokprod.config.producer_config import PARTITIONERS
from aiokprod.pipeline.columns.column_partitions import choose_partitions, runs
from aiokprod.pipeline.columns.vectorised_partitions import LONG_KEY_BYTES, murmur2_column
from aiokprod.pipeline.partition.batch_fill import BatchFill
from aiokprod.pipeline.sending.hashes import murmur2
from aiokprod.pipeline.sending.partitioners import TopicPartitioner, make_partitioner
from aiokprod.records.column_rows import ColumnTable, Cut, PlainEncoder, PlainRows, Rows
from aiokprod.records.columns import BytesColumn, HeadersColumn, IntColumn
from aiokprod.records.decoder import record_sizes, split_records
from aiokprod.records.vectorised import FEW_ROWS, VectorEncoder, VectorRows

NOW_MS = 1_700_000_000_000
MOST_MS = 2**63 - 1


def nulls_of(rows: Sequence[Any], before: int) -> bytes | None:
    """Return a validity bitmap; the places before the rows are null."""
    if None not in rows:
        return None
    bits = sum(1 << (before + at) for at, row in enumerate(rows) if row is not None)
    return bits.to_bytes((before + len(rows) + 7) // 8, "little")


def bytes_column(rows: Sequence[bytes | None], code: str = "i", before: int = 0, junk: bytes = b"") -> BytesColumn:
    """Return a column. `before`: rows that are not the column's; `junk` lies under every null."""
    data = [b"xy"] * before + [junk if row is None else row for row in rows]
    offsets = array(code, accumulate(map(len, data), initial=0))
    return BytesColumn(offsets, b"".join(data), nulls_of(rows, before), before, len(rows))


def int_column(rows: Sequence[int | None], code: str = "q", before: int = 0) -> IntColumn:
    numbers = array(code, [0] * before + [row or 0 for row in rows])
    return IntColumn(numbers, nulls_of(rows, before), before, len(rows))


def headers_column(
    rows: Sequence[Sequence[tuple[bytes, bytes | None]] | None], code: str, before: int
) -> HeadersColumn:
    lists = [[(b"before", b"it")]] * before + [[(b"under", b"null")] if row is None else list(row) for row in rows]
    pairs = [pair for one in lists for pair in one]
    offsets = array(code, accumulate(map(len, lists), initial=0))
    names, values = bytes_column([name for name, _ in pairs]), bytes_column([value for _, value in pairs], code)
    return HeadersColumn(offsets, names, values, nulls_of(rows, before), before, len(rows))


small_bytes = st.binary(max_size=6) | st.integers(0, 20_000).map(lambda size: b"z" * size)
codes = st.sampled_from(["i", "q"])
times = st.integers(0, MOST_MS) | st.integers(NOW_MS - 100_000, NOW_MS + 100_000)
pairs = st.tuples(st.sampled_from([b"", b"name", b"n" * 130, "ä".encode()]), st.none() | small_bytes)


@st.composite
def tables(draw: st.DrawFn) -> ColumnTable:
    count = draw(st.integers(1, 40) | st.integers(1, 300))
    before = draw(st.integers(0, 9))

    def rows(of: st.SearchStrategy[Any], *, nulls: bool = True) -> list[Any]:
        pool = draw(st.lists(st.none() | of if nulls else of, min_size=1, max_size=12))
        random = draw(st.randoms(use_true_random=False))
        return random.choices(pool, k=count)

    values = bytes_column(rows(small_bytes), draw(codes), before, draw(st.sampled_from([b"", b"junk"])))
    keys = headers = timestamps = None
    if draw(st.booleans()):
        keys = bytes_column(rows(small_bytes), draw(codes), before, b"junk")
    if draw(st.booleans()):
        headers = headers_column(rows(st.lists(pairs, max_size=4)), draw(codes), before)
    if draw(st.booleans()):
        timestamps = int_column(rows(times), "q", before)
    return ColumnTable(values, keys, headers, None, timestamps)


def cut_as(cuts: list[Cut]) -> list[tuple[int, int, int, int]]:
    return [(cut.partition, cut.first, cut.last, cut.bound_bytes) for cut in cuts]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_both_ways_make_the_same_bytes_of_the_same_cuts(data: st.DataObject) -> None:
    table = data.draw(tables())
    first = data.draw(st.integers(0, table.count - 1))
    chunk_bytes = data.draw(st.sampled_from([1, 500, 100_000, 10**9]))
    plain: Rows = PlainRows(table, first, chunk_bytes)
    vector: Rows = VectorRows(table, first, chunk_bytes)
    assert vector.count == plain.count
    assert list(vector.bounds()) == list(plain.bounds())
    partitions = None
    if data.draw(st.booleans()):
        pool = data.draw(st.lists(st.sampled_from([0, 1, 2, 700, 40_000]), min_size=1, max_size=5))
        partitions = data.draw(st.randoms(use_true_random=False)).choices(pool, k=plain.count)
    batch_bytes = data.draw(st.sampled_from([1, 200, 5_000, 10**9]))
    cuts = plain.cut(partitions, batch_bytes)
    assert cut_as(vector.cut(partitions, batch_bytes)) == cut_as(cuts)
    made, wanted = vector.encode(NOW_MS), plain.encode(NOW_MS)
    for cut, one, other in zip(cuts, made, wanted, strict=True):
        assert one.records == other.records
        assert (one.base_timestamp_ms, one.max_timestamp_ms) == (other.base_timestamp_ms, other.max_timestamp_ms)
        assert len(one.records) <= cut.bound_bytes
        assert cut.last - cut.first == 1 or cut.bound_bytes <= batch_bytes
        numbers = [int(number) for number in vector.numbers(cut)]
        assert numbers == list(plain.numbers(cut)) == sorted(numbers)
        values, keys, _, deltas = split_records(one.records, cut.last - cut.first)
        assert values == [table.values.slices(row, row + 1)[0] for row in numbers]
        if table.keys is not None:
            keys = [None] * len(numbers) if keys is None else keys
            assert keys == [table.keys.slices(row, row + 1)[0] for row in numbers]
        sizes, again = record_sizes(one.records, cut.last - cut.first)
        assert sum(sizes) == len(one.records)
        assert again == deltas


@settings(max_examples=100, deadline=None)
@given(table=tables(), limit=st.sampled_from([30, 100, 1_000, 15_000, 10**9]), low=st.sampled_from([0, NOW_MS]))
def test_both_ways_find_the_same_row_that_cannot_be_sent(table: ColumnTable, limit: int, low: int) -> None:
    plain, vector = PlainEncoder(), VectorEncoder()
    assert vector.first_larger(table, 0, table.count, limit) == plain.first_larger(table, 0, table.count, limit)
    if table.timestamps is not None:
        wanted = plain.first_outside(table.timestamps, 0, table.count, low, NOW_MS + 5)
        assert vector.first_outside(table.timestamps, 0, table.count, low, NOW_MS + 5) == wanted


def test_offsets_of_many_records_and_lengths_of_every_width_are_the_same() -> None:
    rows = [b"x" * size for size in (0, 63, 64, 8_191, 8_192, 1_100_000)] + [b"y"] * 40_000
    table = ColumnTable(bytes_column(rows), None, None, None, None)
    one, other = VectorRows(table, 0, 10**9), PlainRows(table, 0, 10**9)
    one.cut(None, 10**9)
    other.cut(None, 10**9)
    assert [section.records for section in one.encode(NOW_MS)] == [section.records for section in other.encode(NOW_MS)]


def test_few_rows_are_encoded_the_plain_way() -> None:
    table = ColumnTable(bytes_column([b"x"] * (FEW_ROWS + 1)), None, None, None, None)
    assert isinstance(VectorEncoder().rows(table, 1, 10**9), VectorRows)
    assert isinstance(VectorEncoder().rows(table, 2, 10**9), PlainRows)


# ---------------------------------------------------------------------- hashes
keys = st.binary(max_size=20) | st.integers(LONG_KEY_BYTES - 5, LONG_KEY_BYTES + 9).map(lambda size: b"\xff" * size)


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(keys, min_size=1, max_size=60), code=codes, first=st.integers(0, 59))
def test_a_hashed_column_has_the_hashes_of_its_keys(rows: list[bytes], code: str, first: int) -> None:
    first = min(first, len(rows) - 1)
    hashes = murmur2_column(bytes_column(rows, code), first, len(rows))
    assert hashes.tolist() == [murmur2(row) for row in rows[first:]]


@pytest.mark.parametrize("size", range(13))
def test_keys_of_one_length_are_hashed_as_keys(size: int) -> None:
    rows = [bytes((7 * number + at) & 0xFF for at in range(size)) for number in range(50)]
    assert murmur2_column(bytes_column(rows), 0, 50).tolist() == [murmur2(row) for row in rows]


NAMES = PARTITIONERS


def partitioner(name: str, count: int, *, ignore_keys: bool) -> TopicPartitioner:
    made = make_partitioner(name, ignore_keys=ignore_keys, adaptive=True, fill=BatchFill(900, 900), random=Random(7))
    made.update(count, list(range(count)), 0.0)
    return made


@settings(max_examples=150, deadline=None)
@given(data=st.data(), name=st.sampled_from(NAMES), count=st.integers(1, 50), ignore_keys=st.booleans())
def test_both_ways_choose_the_same_partitions(data: st.DataObject, name: str, count: int, ignore_keys: bool) -> None:
    rows = data.draw(
        st.lists(st.tuples(st.none() | keys, st.none() | st.integers(0, count - 1)), min_size=1, max_size=80)
    )
    given_ones = int_column([number for _, number in rows], "i") if data.draw(st.booleans()) else None
    key_column = bytes_column([key for key, _ in rows]) if data.draw(st.booleans()) else None
    table = ColumnTable(bytes_column([b"x" * 50] * len(rows)), key_column, None, given_ones, None)
    plain = choose_partitions(partitioner(name, count, ignore_keys=ignore_keys), table, PlainRows(table, 0, 10**9), 900)
    vector = choose_partitions(
        partitioner(name, count, ignore_keys=ignore_keys), table, VectorRows(table, 0, 10**9), 900
    )
    assert (vector is None) == (plain is None)
    if vector is not None and plain is not None:
        assert [int(number) for number in vector] == list(plain)
        if given_ones is not None:
            assert all(number is None or number == there for (_, number), there in zip(rows, plain, strict=True))


def test_runs_are_full_but_for_the_last() -> None:
    assert runs([5, 5, 5, 20, 1], 10) == [(0, 2, 10), (2, 3, 10), (3, 4, 10), (4, 5, 1)]
    assert runs([], 10) == []
