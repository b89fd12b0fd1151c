"""Hashes of keys as other clients compute them, bit for bit: murmur2 (Java), CRC-32 (librdkafka), FNV-1a (Sarama). Pure.

A pure-Python murmur2 costs 0.9 us for a key of 8 bytes and 2.2 us for one of 36, on every send, so `KeyCache` remembers
where the keys of a topic went: a look-up costs 0.05 us (bench/hashes.py, CPython 3.11). It is bounded in entries and in the
length of a key. Compiled, the hash itself is as cheap and needs no memory: `Murmur2Keys`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from struct import unpack_from
from types import FunctionType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_extensions import i64

MASK: Final = 0xFFFFFFFF
CACHED_KEYS: Final = 100_000
CACHED_KEY_BYTES: Final = 128


def murmur2(data: bytes) -> int:
    """Return Java's murmur2 of a key, as an unsigned 32-bit number."""
    length = len(data)
    h = 0x9747B28C ^ length
    words = length >> 2
    for k in unpack_from(f"<{words}I", data):
        k = k * 0x5BD1E995 & MASK
        k = (k ^ k >> 24) * 0x5BD1E995 & MASK
        h = (h * 0x5BD1E995 & MASK) ^ k
    rest = data[words << 2 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * 0x5BD1E995 & MASK
    h = (h ^ h >> 13) * 0x5BD1E995 & MASK
    return h ^ h >> 15


def murmur2_by_bytes(data: bytes) -> int:
    """Return the same number: the form a compiler makes fast and the interpreter does not."""
    size: i64 = len(data)
    h: i64 = 0x9747B28C ^ size
    at: i64 = 0
    k: i64
    while at + 4 <= size:
        k = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
        k = k * 0x5BD1E995 & 0xFFFFFFFF
        k = (k ^ k >> 24) * 0x5BD1E995 & 0xFFFFFFFF
        h = (h * 0x5BD1E995 & 0xFFFFFFFF) ^ k
        at += 4
    if at < size:
        shift: i64 = 0
        while at < size:
            h ^= data[at] << shift
            shift += 8
            at += 1
        h = h * 0x5BD1E995 & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return h ^ h >> 15


def murmur2_partition(key: bytes, count: int) -> int:
    """Return Java's default: the hash without its sign bit, modulo the partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % count


def crc32_partition(key: bytes, count: int) -> int:
    """Return librdkafka's `consistent`: CRC-32 modulo the partitions."""
    return zlib.crc32(key) % count


def fnv1a(data: bytes) -> int:
    """Return FNV-1a, 32 bits, unsigned."""
    h = 0x811C9DC5
    for byte in data:
        h = (h ^ byte) * 0x01000193 & MASK
    return h


def fnv1a_partition(key: bytes, count: int) -> int:
    """Return Sarama's default: the hash as a signed number, the remainder made positive."""
    h = fnv1a(key)
    signed = h - (1 << 32) if h & 0x80000000 else h
    # Go's % keeps the sign of the dividend, and Sarama negates a negative remainder: the same number.
    return abs(signed) % count


def fnv1a_reference_partition(key: bytes, count: int) -> int:
    """Return the partition of Sarama's reference hash partitioner: the hash without its sign bit."""
    return (fnv1a(key) & 0x7FFFFFFF) % count


class KeyPartitions:
    """The partitions of keys of one topic, for one number of partitions."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def resize(self, count: int) -> None:
        """Set the number of partitions of the topic."""
        self.count = count

    def partition(self, key: bytes) -> int:
        """Return the partition of the key."""
        raise AssertionError("abstract")


class Murmur2Keys(KeyPartitions):
    """Java's default, computed each time."""

    __slots__ = ()

    def partition(self, key: bytes) -> int:
        return (murmur2_by_bytes(key) & 0x7FFFFFFF) % self.count


class KeyCache(KeyPartitions):
    """A memory of what a hash said."""

    __slots__ = ("_hash", "_known")

    def __init__(self, hash_partition: Callable[[bytes, int], int]) -> None:
        super().__init__()
        self._hash = hash_partition
        self._known: dict[bytes, int] = {}

    def resize(self, count: int) -> None:
        if count != self.count:
            self.count = count
            self._known.clear()

    def partition(self, key: bytes) -> int:
        known = self._known.get(key)
        if known is not None:
            return known
        partition = self._hash(key, self.count)
        if len(key) <= CACHED_KEY_BYTES:
            if len(self._known) >= CACHED_KEYS:
                self._known.clear()
            self._known[key] = partition
        return partition


def murmur2_keys() -> KeyPartitions:
    """Return the partitions by murmur2 in the way that is cheaper in the form this module has."""
    return KeyCache(murmur2_partition) if isinstance(murmur2_by_bytes, FunctionType) else Murmur2Keys()
