"""`Passage`: how a damaged frame goes on: its pieces, the pauses before them, and what becomes of the connection. Pure.

The one place that knows what damage is; MockCluster and FaultProxy only write what it says.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, assert_never

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

LENGTH_BYTES: Final = 4
_DRIPS_PER_S: Final = 10
"""Writes per second, about, at a rate at which writes of one byte each would be too many."""

_OTHER_ID: Final = 0x5A5A


@dataclass(frozen=True, slots=True)
class Piece:
    """One write."""

    data: bytes
    pause_s: float = 0.0
    """Seconds to wait before it."""


@dataclass(frozen=True, slots=True)
class Passage:
    """The bytes that are written in place of a frame."""

    pieces: tuple[Piece, ...]
    then_closes: bool = False

    @property
    def data(self) -> bytes:
        """All bytes that pass."""
        return b"".join(piece.data for piece in self.pieces)

    @property
    def lasts_s(self) -> float:
        """Seconds until the last byte has passed."""
        return sum(piece.pause_s for piece in self.pieces)


def passage_of(damage: Damage, wire: bytes, *, is_request: bool, random: Random) -> Passage:
    """Return how a frame (with its length prefix) goes on under this damage; `random` draws the places."""
    match damage:
        case Truncate(size):
            kept = wire[: min(size, len(wire) - 1)]
            return Passage((Piece(kept),) if kept else (), then_closes=True)
        case Rechunk(largest):
            return Passage(tuple(Piece(part) for part in _cut(wire, largest, random)))
        case Drip(bytes_per_s):
            # Drawn between 1 and twice the mean: about _DRIPS_PER_S writes a second.
            largest = max(1, 2 * int(bytes_per_s / _DRIPS_PER_S))
            return Passage(tuple(Piece(part, len(part) / bytes_per_s) for part in _cut(wire, largest, random)))
        case Duplicate():
            return Passage((Piece(wire), Piece(wire)))
        case Corrupt(offset, mask):
            return Passage((Piece(_flipped(wire, offset, mask, random)),))
        case WrongCorrelation():
            return Passage((Piece(_with_other_id(wire, 8 if is_request else 4)),))
        case HugeLength(length):
            return Passage((Piece(struct.pack(">i", length) + wire[LENGTH_BYTES:]),))
        case _:
            assert_never(damage)


def _cut(wire: bytes, largest: int, random: Random) -> Iterator[bytes]:
    at = 0
    while at < len(wire):
        size = 1 if largest == 1 else random.randint(1, largest)
        yield wire[at : at + size]
        at += size


def _flipped(wire: bytes, offset: int | None, mask: int | None, random: Random) -> bytes:
    changed = bytearray(wire)
    room = len(changed) - LENGTH_BYTES
    at = random.randrange(room) if offset is None else offset % room
    changed[LENGTH_BYTES + at] ^= random.randint(1, 255) if mask is None else mask
    return bytes(changed)


def _with_other_id(wire: bytes, at: int) -> bytes:
    changed = bytearray(wire)
    (correlation_id,) = struct.unpack_from(">i", changed, at)
    struct.pack_into(">i", changed, at, correlation_id ^ _OTHER_ID)
    return bytes(changed)
