"""The walk over records refuses what the decoder refuses, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiokprod.errors import ProtocolError
from aiokprod.records.batch import encode_records
from aiokprod.records.decoder import split_records
from aiokprod.records.headers import encode_headers
from aiokprod.testing.mock import MockCluster
from aiokprod.testing.mock.record_walk import walk_records

Drawn = list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]]
payloads = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
records = st.lists(st.tuples(payloads, payloads, headers, st.integers(-(2**40), 2**40)), min_size=1, max_size=20)


def section_of(drawn: Drawn) -> bytes:
    values, keys, pairs, deltas = (list(column) for column in zip(*drawn, strict=True))
    return bytes(encode_records(values, keys, [encode_headers(some) if some else None for some in pairs], deltas))


def outcome(section: bytes, count: int) -> tuple[int, int] | None:
    """Return the decoder's result; None: it refuses."""
    try:
        *_, deltas = split_records(section, count)
    except ProtocolError:
        return None
    return min(deltas, default=0), max(deltas, default=0)


def walked(section: bytes, count: int) -> tuple[int, int] | None:
    try:
        return walk_records(section, count)
    except ProtocolError:
        return None


@given(records)
def test_what_was_encoded_is_walked_to_its_end(
    drawn: Drawn,
) -> None:
    section, deltas = section_of(drawn), [delta for *_, delta in drawn]
    assert walk_records(section, len(drawn)) == (min(deltas), max(deltas))


@given(records, st.data())
def test_what_is_damaged_is_refused_as_the_decoder_refuses_it(drawn: Drawn, data: st.DataObject) -> None:
    section = bytearray(section_of(drawn))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(section) - 1))
        section[at] = data.draw(st.integers(0, 255))
    cut = bytes(section[: data.draw(st.integers(0, len(section)))] if data.draw(st.booleans()) else section)
    count = max(0, len(drawn) + data.draw(st.integers(-1, 1)))
    assert walked(cut, count) == outcome(cut, count)


@given(st.binary(max_size=60), st.integers(0, 5))
@example(b"", 0)
@example(b"\xff" * 12, 1)
@example(b"\x0e\x00\x00\x00\x01\x03\x00\x00", 1)  # a value of length -2
@example(b"\x0e\x00\x00\x00\x01\x01\x02\x01", 1)  # a header without a name
@example(b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x01", 1)  # one whose name is no text
@example(b"\x12\x00\x00\x00\x01\x01\x02\x02a\x03", 1)  # one whose value has a length of -2
@example(b"\x0e\x00\x00\x00\x01\x01\x02\x7e", 1)  # one whose name goes beyond the record
@example(b"\x0c\x00\x00\x00\x01\x01\x01", 1)  # headers: -1
def test_nonsense_is_refused_as_the_decoder_refuses_it(section: bytes, count: int) -> None:
    assert walked(section, count) == outcome(section, count)


def test_a_mock_validates_unless_it_is_told_not_to() -> None:
    assert MockCluster()._state.validate_records
    assert not MockCluster(validate_records=False)._state.validate_records


@pytest.mark.parametrize("count", [1, 3])
def test_a_wrong_number_of_records_is_refused(count: int) -> None:
    with pytest.raises(ProtocolError):
        walk_records(section_of([(b"a", None, [], 0), (b"b", None, [], 0)]), count)
