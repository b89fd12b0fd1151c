"""The content of a soak's record: its sender, and a checksum over all of it. Pure."""

from __future__ import annotations

import random
import zlib

DAMAGED = "damaged"
_draw = random.Random(1)
_WORDS = [bytes(_draw.choices(b"abcdefghijklmnopqrstuvwxyz", k=_draw.randrange(2, 10))) for _ in range(4_000)]
FILLER = b" ".join(_draw.choices(_WORDS, k=180_000))[: 1 << 20]  # like text: compresses to a half or so


def value_of(life: str, number: int, size: int, topic: str = "", key: bytes | None = None) -> bytes:
    """Return a value of about `size` bytes: identity, checksum (over topic and key too), filler."""
    identity = b"%s:%d" % (life.encode(), number)
    start = number * 131 % 65_536
    filler = FILLER[start : start + max(0, size - len(identity) - 10)]
    return b"%s %08x %s" % (identity, _checksum(identity, filler, topic, key), filler)


def identity_of(value: bytes | None, topic: str = "", key: bytes | None = None) -> bytes | None:
    """Return the sender of a record; None: it is damaged, in the wrong topic, under the wrong key, or none of ours."""
    parts = (value or b"").split(b" ", 2)
    if len(parts) != 3:
        return None
    identity, checksum, filler = parts
    return identity if b"%08x" % _checksum(identity, filler, topic, key) == checksum else None


def _checksum(identity: bytes, filler: bytes, topic: str, key: bytes | None) -> int:
    start = zlib.crc32(b"%s/%s/" % (topic.encode(), b"-" if key is None else key))
    return zlib.crc32(filler, zlib.crc32(identity, start))
