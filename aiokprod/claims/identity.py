"""The identity of a record: run, stream, seq. It travels in one header of 24 bytes. Pure.

    run     8 bytes   one execution of whatever is audited: drawn at random, or given
    stream  8 bytes   one sender in it, whose records are in an order (a producer, a task)
    seq     8 bytes   0, 1, 2, ... in the order in which that sender sent

Each is a signed integer, big-endian. Order is only ever judged within one stream of one run.
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
    """(run, stream, seq) of a header's value.

    Raises:
        ValueError: it has not 24 bytes.
    """
    if len(value) != SIZE_BYTES:
        raise ValueError(f"an identity has {SIZE_BYTES} bytes, not {len(value)}")
    run, stream, seq = _LAYOUT.unpack(value)
    return run, stream, seq


def identity_of(headers: Iterable[object]) -> tuple[int, int, int] | None:
    """The identity among a record's headers, which need not be right; None: there is none (nor in a dict).

    The last one: a record that is sent on with the headers it came with has older ones before it.
    """
    found = None
    for pair in headers:
        if isinstance(pair, tuple) and len(pair) == 2 and pair[0] == HEADER:
            value = pair[1]
            if isinstance(value, bytes) and len(value) == SIZE_BYTES:
                found = value
    return None if found is None else decode_identity(found)
