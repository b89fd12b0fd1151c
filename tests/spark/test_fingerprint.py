"""The fingerprint of rows: all at once over Arrow's buffers, equal to the definition for one row."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from aiokprod.spark import fingerprint
from aiokprod.spark.fingerprint import field_hash, field_hashes, row_hash, row_hashes, total

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def drawn(chance: random.Random, rows: int, longest: int, *, nulls: bool) -> list[bytes | None]:
    return [
        None if nulls and chance.random() < 0.1 else chance.randbytes(chance.randint(0, longest)) for _ in range(rows)
    ]


@pytest.mark.parametrize("longest", [0, 3, 8, 17, 100, 2048, 5000])
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_fields_of_any_length_hash_as_defined(longest: int, nulls: bool, kind: pa.DataType) -> None:
    fields = drawn(random.Random(longest), 50, longest, nulls=nulls)
    array = pa.array(fields, kind)
    assert field_hashes(array).tolist() == [field_hash(field) for field in fields]
    assert field_hashes(array.slice(7, 20)).tolist() == [field_hash(field) for field in fields[7:27]]
    assert field_hashes(array.slice(50)).tolist() == []


@pytest.mark.parametrize("length", [1, 7, 8, 9, 100, 1024, 4000])
def test_fields_of_one_length_hash_as_defined(length: int) -> None:
    chance = random.Random(length)
    fields = [chance.randbytes(length) for _ in range(20)]
    assert field_hashes(pa.array(fields)).tolist() == [field_hash(field) for field in fields]
    assert field_hashes(pa.array(fields).slice(3, 5)).tolist() == [field_hash(field) for field in fields[3:8]]


def test_a_slice_copies_its_own_bytes_and_not_the_whole_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(3)
    fields = [chance.randbytes(chance.randint(0, 400)) for _ in range(1_000)]
    array = pa.array(fields)
    copied: list[int] = []
    words_anywhere = fingerprint._words_anywhere

    def counting(data: NDArray[np.uint8]) -> NDArray[np.uint64]:
        copied.append(len(data))
        return words_anywhere(data)

    monkeypatch.setattr(fingerprint, "_words_anywhere", counting)
    for start in range(0, len(array), 10):
        piece = field_hashes(array.slice(start, 10))
        assert piece.tolist() == [field_hash(field) for field in fields[start : start + 10]]
    assert sum(copied) == sum(map(len, fields))


def test_bytes_that_lie_under_nulls_are_no_matter() -> None:
    offsets, content = pa.array([0, 3, 9, 9, 14], pa.int32()), b"onehiddenthree"
    validity = pa.array([True, False, True, True])
    array = pa.Array.from_buffers(
        pa.binary(), 4, [validity.buffers()[1], offsets.buffers()[1], pa.py_buffer(content)], 1
    )
    fields = [b"one", None, b"", b"three"]
    for start in range(4):
        for stop in range(start, 5):
            found = field_hashes(array.slice(start, stop - start)).tolist()
            assert found == [field_hash(field) for field in fields[start:stop]]


def test_rows_hash_as_defined() -> None:
    chance = random.Random(5)
    values, keys = drawn(chance, 40, 30, nulls=True), drawn(chance, 40, 9, nulls=True)
    contents = [None, b"x", b"yy" * 9]
    headers = [
        None if row % 5 == 0 else [(chance.choice("abc"), chance.choice(contents)) for _ in range(row % 4)]
        for row in range(40)
    ]
    arrays = (pa.array(values), pa.array(keys), pa.array(headers, HEADERS))
    defined = [
        row_hash(value, key, [(name.encode(), content) for name, content in pairs or ()])
        for value, key, pairs in zip(values, keys, headers, strict=True)
    ]
    assert row_hashes(*arrays).tolist() == defined
    assert row_hashes(*(array.slice(9, 20) for array in arrays)).tolist() == defined[9:29]
    bare = [row_hash(value, None) for value in values]
    assert row_hashes(arrays[0]).tolist() == bare
    assert total(row_hashes(arrays[0])) == sum(bare) % 2**64


def test_texts_hash_as_their_bytes() -> None:
    assert field_hashes(pa.array(["ä", "b"])).tolist() == [field_hash("ä".encode()), field_hash(b"b")]
    assert field_hashes(pa.array(["ä"], pa.large_string())).tolist() == [field_hash("ä".encode())]


def test_what_differs_hashes_differently() -> None:
    rows = [
        row_hash(b"a", b"b"), row_hash(b"b", b"a"), row_hash(b"a", None), row_hash(b"a", b""), row_hash(None, b"a"),
        row_hash(b"", b""), row_hash(b"a", b"b", [(b"h", b"1")]), row_hash(b"a", b"b", [(b"h", None)]),
        row_hash(b"a", b"b", [(b"h", b"1"), (b"i", b"2")]), row_hash(b"a", b"b", [(b"i", b"2"), (b"h", b"1")]),
        row_hash(b"a\0", b"b"), row_hash(b"a" * 8 + b"b" * 8, None),
        row_hash(b"b" * 8 + b"a" * 8, None),
    ]  # fmt: skip
    assert len(set(rows)) == len(rows)


def test_the_order_of_rows_makes_no_difference_and_where_a_byte_stands_does() -> None:
    fields = [b"one", b"two", b"three"]
    assert total(row_hashes(pa.array(fields))) == total(row_hashes(pa.array(fields[::-1])))
    swapped = [b"twe", b"ono", b"three"]  # a byte went from one row to the same place of another
    assert total(row_hashes(pa.array(fields))) != total(row_hashes(pa.array(swapped)))


def test_a_published_value_never_changes() -> None:
    assert field_hash(b"") == 0
    assert row_hash(b"value", b"key", [(b"h", b"1")]) == 0x9B487D0591381CC7
