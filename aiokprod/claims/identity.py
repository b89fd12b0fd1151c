"""The identity of a record: run, stream, seq. It travels in one header of 24 bytes. Pure.

    run     8 bytes   one execution of the audited program: drawn at random, or given
    stream  8 bytes   one sender of the run, whose records have an order (a producer, a task)
    seq     8 bytes   0, 1, 2, ... in the order in which that sender sent

Each is a signed integer, big-endian. Order is only judged within one stream of one run.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

HEADER: Final = "aiokprod-id"
_LAYOUT = Struct(">qqq")
SIZE_BYTES: Final = _LAYOUT.size

encode_identity = _LAYOUT.pack


def decode_identity(value: bytes) -> tuple[int, int, int]:
    """Return (run, stream, seq) of a header's value.

    Args:
        value: the 24 bytes of the header.

    Raises:
        ValueError: the value does not have 24 bytes.
    """
    if len(value) != SIZE_BYTES:
        raise ValueError(f"an identity has {SIZE_BYTES} bytes, not {len(value)}")
    run, stream, seq = _LAYOUT.unpack(value)
    return run, stream, seq


def identity_of(headers: Iterable[Iterable[object]]) -> tuple[int, int, int] | None:
    """Return the identity among a record's headers, which may be malformed; None if there is none (nor in a dict).

    The last one counts: a record that is forwarded with its headers has older identities before it.
    """
    found = None
    for pair in headers:
        if isinstance(pair, tuple) and len(pair) == 2 and pair[0] == HEADER:
            value = pair[1]
            if isinstance(value, bytes) and len(value) == SIZE_BYTES:
                found = value
    return None if found is None else decode_identity(found)
