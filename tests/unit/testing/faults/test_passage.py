"""Damage to a frame's bytes. Pure."""

from __future__ import annotations

import struct
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokprod.testing.faults.effects import (
    Corrupt,
    Damage,
    Drip,
    Duplicate,
    HugeLength,
    Rechunk,
    Truncate,
    WrongCorrelation,
)
from aiokprod.testing.faults.passage import Passage, passage_of

frames = st.binary(min_size=8, max_size=400).map(lambda body: struct.pack(">i", len(body)) + body)
seeds = st.integers(0, 2**32)


def passage(damage: Damage, wire: bytes, *, is_request: bool = False, seed: int = 0) -> Passage:
    return passage_of(damage, wire, is_request=is_request, random=Random(seed))


@given(wire=frames, largest=st.integers(1, 50), seed=seeds)
def test_pieces_are_the_frame_in_order_and_none_is_larger_than_said(wire: bytes, largest: int, seed: int) -> None:
    made = passage(Rechunk(largest), wire, seed=seed)
    assert made.data == wire and not made.then_closes
    assert {1 <= len(piece.data) <= largest for piece in made.pieces} == {True}
    assert made == passage(Rechunk(largest), wire, seed=seed)


@given(wire=frames, rate=st.floats(0.5, 1e6), seed=seeds)
def test_a_drip_takes_as_long_as_its_rate_says(wire: bytes, rate: float, seed: int) -> None:
    made = passage(Drip(rate), wire, seed=seed)
    assert made.data == wire
    assert made.lasts_s == pytest.approx(len(wire) / rate)


@given(wire=frames, size=st.integers(0, 500))
def test_a_truncated_frame_is_a_prefix_and_then_the_end(wire: bytes, size: int) -> None:
    made = passage(Truncate(size), wire)
    assert made.data == wire[: min(size, len(wire) - 1)] and made.then_closes


@given(wire=frames)
def test_a_duplicated_frame_is_two_writes(wire: bytes) -> None:
    assert [piece.data for piece in passage(Duplicate(), wire).pieces] == [wire, wire]


@given(wire=frames, offset=st.none() | st.integers(-8, 7), mask=st.none() | st.integers(1, 255), seed=seeds)
def test_corruption_changes_one_byte_behind_the_length(
    wire: bytes, offset: int | None, mask: int | None, seed: int
) -> None:
    data = passage(Corrupt(offset, mask), wire, seed=seed).data
    changed = [at for at, (was, now) in enumerate(zip(wire, data, strict=True)) if was != now]
    assert len(changed) == 1 and changed[0] >= 4
    if offset is not None:
        assert changed[0] == 4 + offset % (len(wire) - 4)
    if mask is not None:
        assert wire[changed[0]] ^ data[changed[0]] == mask
    assert data == passage(Corrupt(offset, mask), wire, seed=seed).data


@pytest.mark.parametrize(("is_request", "at"), [(True, 8), (False, 4)])
@given(wire=frames)
def test_another_correlation_id_leaves_the_rest(is_request: bool, at: int, wire: bytes) -> None:
    data = passage(WrongCorrelation(), wire, is_request=is_request).data
    assert data[at : at + 4] != wire[at : at + 4]
    assert (data[:at], data[at + 4 :]) == (wire[:at], wire[at + 4 :])


@given(wire=frames, length=st.integers(-(2**31), 2**31 - 1))
def test_a_length_can_say_anything(wire: bytes, length: int) -> None:
    data = passage(HugeLength(length), wire).data
    assert struct.unpack_from(">i", data) == (length,) and data[4:] == wire[4:]
