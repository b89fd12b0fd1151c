"""Hashes bit for bit: murmur2 against Java's, CRC-32 and FNV-1a against librdkafka and published vectors."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from hypothesis import given, settings
from hypothesis import strategies as st

import aiokprod
from aiokprod.pipeline.partition.batch_fill import BatchFill
from aiokprod.pipeline.sending.hashes import (
    CACHED_KEY_BYTES,
    CACHED_KEYS,
    KeyCache,
    Murmur2Keys,
    crc32_partition,
    fnv1a,
    fnv1a_partition,
    fnv1a_reference_partition,
    murmur2,
    murmur2_by_bytes,
    murmur2_keys,
    murmur2_partition,
)
from aiokprod.pipeline.sending.partitioners import make_partitioner
from aiokprod.testing import MockCluster

# org.apache.kafka.common.utils.Utils.murmur2 of kafka-clients 4.3.1
JAVA_MURMUR2 = """
00 375494588
ff -311467685
61 -1563381124
6162 316155434
616263 479470107
61626364 -1323649548
6162636465 461995741
ffffffff 644171429
ffffffffff -363838622
80808080808080 -1845943597
e697a5e69cac -700811021
6f72646572732d3432 479277457
99 1288378381
1834 -1042682160
5a94c9 -313141582
390b7702 612225306
09d32a595d 99467382
41f4b3e592471a -525456804
05194bb55dcab391 -356129997
0016175aa147e1f3e9 -607411386
df7fae40bfe793d9fced52b202 -1681513786
e5c4caaf166fc2edcea4fb1b65e240a4 1590252847
e944b31d0705e6c8b71cf8bdfc97c69669 -1531446914
2edd1479f1953297e1c82141a6a46d99364cf461b317c99fee614cc5a74b02 -58261266
8f814e38d93995b694aa2150847891d75da8ddddc46434afeb50781ae04364f9b3 -1635046621
"""
VECTORS = [(bytes.fromhex(line.split()[0]), int(line.split()[1])) for line in JAVA_MURMUR2.split("\n") if line]


def signed(number: int, bits: int) -> int:
    return number - (1 << bits) if number >> bits - 1 else number


@pytest.mark.parametrize(("key", "java"), [(b"", 275646681), *VECTORS])
def test_murmur2_is_that_of_java(key: bytes, java: int) -> None:
    assert signed(murmur2(key), 32) == signed(murmur2_by_bytes(key), 32) == java
    for count in (1, 2, 7, 97, 10_000):
        assert murmur2_partition(key, count) == (java & 0x7FFFFFFF) % count


def test_murmur2_of_two_thousand_keys_is_that_of_java() -> None:
    total = 0  # as the Java program counted: sum = sum * 1000003L + murmur2(key)
    for number in range(2000):
        key = bytes((number * 31 + at * 7) % 256 for at in range(number % 97))
        assert murmur2_by_bytes(key) == murmur2(key)
        total = (total * 1000003 + signed(murmur2(key), 32)) % (1 << 64)
    assert signed(total, 64) == 1670476838660570259


@given(st.binary(max_size=100), st.integers(1, 10_000))
@settings(deadline=None, derandomize=True, database=None)
def test_crc32_is_that_of_zlib_modulo_the_partitions(key: bytes, count: int) -> None:
    assert crc32_partition(key, count) == zlib.crc32(key) % count


@pytest.mark.parametrize(
    ("data", "value"),
    [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"b", 0xE70C2DE5), (b"foobar", 0xBF9CF968)],
)
def test_fnv1a_is_that_of_its_authors(data: bytes, value: int) -> None:
    assert fnv1a(data) == value  # vectors of draft-eastlake-fnv


@pytest.mark.parametrize("key", [b"", b"a", b"b", b"foobar", *(b"key-%d" % at for at in range(50))])
@pytest.mark.parametrize("count", [1, 2, 3, 97])
def test_sarama_partitions_by_the_signed_hash(key: bytes, count: int) -> None:
    """Go's remainder has the sign of the dividend; Sarama negates a negative one. The reference masks the sign."""
    number = signed(fnv1a(key), 32)
    remainder = number - count * int(number / count)  # truncated, as in Go
    assert fnv1a_partition(key, count) == abs(remainder)
    assert fnv1a_reference_partition(key, count) == (number & 0x7FFFFFFF) % count


def test_the_two_fnv1a_partitioners_differ_for_negative_hashes() -> None:
    assert signed(fnv1a(b"a"), 32) < 0
    assert fnv1a_partition(b"a", 97) != fnv1a_reference_partition(b"a", 97)


# ---------------------------------------------------------------------- librdkafka

PARTITIONS = 97
LIBRDKAFKA: dict[str, Callable[[bytes, int], int]] = {
    "consistent": crc32_partition,
    "consistent_random": crc32_partition,
    "murmur2": murmur2_partition,
    "murmur2_random": murmur2_partition,
    "fnv1a": fnv1a_partition,
    "fnv1a_random": fnv1a_partition,
}


def librdkafka_sends(name: str, keys: list[bytes | None]) -> dict[bytes | None, set[int]]:
    """Return the partitions to which librdkafka's partitioner of this name sends these keys."""
    went: dict[bytes | None, set[int]] = defaultdict(set)

    def told(error: Any, message: Any) -> None:
        assert error is None
        went[message.key()].add(message.partition())

    with MockCluster(1) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS)
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "partitioner": name,
                "sticky.partitioning.linger.ms": 0,
                "linger.ms": 1,
                "log_level": 0,
            }
        )
        for key in keys:
            producer.produce("t", b"v", key=key, on_delivery=told)
        assert producer.flush(20.0) == 0
    return dict(went)


@pytest.mark.parametrize("name", LIBRDKAFKA)
def test_librdkafka_sends_the_same_keys_to_the_same_partitions(name: str) -> None:
    keys = [b"a", b"ab", b"\xff" * 7, "größe-日本".encode(), *(b"key-%d" % at for at in range(200))]
    assert librdkafka_sends(name, [*keys]) == {key: {LIBRDKAFKA[name](key, PARTITIONS)} for key in keys}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("consistent", "consistent"),
        ("crc32", "consistent_random"),
        ("murmur2", "murmur2"),
        ("murmur2_random", "murmur2_random"),
        ("fnv1a", "fnv1a_random"),
    ],
)
def test_records_without_a_key_and_with_an_empty_one_go_where_librdkafka_sends_them(ours: str, theirs: str) -> None:
    """A set partition, or any."""
    made = make_partitioner(ours, ignore_keys=False, adaptive=True, fill=BatchFill(1, 1), random=Random(1))
    made.update(PARTITIONS, list(range(PARTITIONS)), 0.0)
    went = librdkafka_sends(theirs, [None, b""] * 60)
    for key in (None, b""):
        mine = {made.choose(key, 1) for _ in range(60)}
        assert mine == went[key] or (len(mine) > 10 and len(went[key]) > 10)


# ---------------------------------------------------------------------- the cache


class Counted:
    """A hash that remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def __call__(self, key: bytes, count: int) -> int:
        self.asked.append(key)
        return len(key) % count


def test_a_key_is_hashed_once() -> None:
    counted = Counted()
    cache = KeyCache(counted)
    cache.resize(5)
    assert [cache.partition(b"abc") for _ in range(3)] == [3, 3, 3]
    assert counted.asked == [b"abc"]


def test_another_number_of_partitions_forgets_and_the_same_one_does_not() -> None:
    counted = Counted()
    cache = KeyCache(counted)
    cache.resize(5)
    cache.partition(b"abcdef")
    cache.resize(5)
    assert cache.partition(b"abcdef") == 1
    cache.resize(4)
    assert cache.partition(b"abcdef") == 2
    assert len(counted.asked) == 2


def test_long_keys_are_not_kept() -> None:
    counted = Counted()
    cache = KeyCache(counted)
    cache.resize(5)
    for size in (CACHED_KEY_BYTES, CACHED_KEY_BYTES + 1):
        cache.partition(b"k" * size)
        cache.partition(b"k" * size)
    assert [len(key) for key in counted.asked] == [CACHED_KEY_BYTES, CACHED_KEY_BYTES + 1, CACHED_KEY_BYTES + 1]


def test_the_cache_is_bounded() -> None:
    counted = Counted()
    cache = KeyCache(counted)
    cache.resize(5)
    for number in range(CACHED_KEYS + 1):
        cache.partition(b"%d" % number)
    cache.partition(b"%d" % CACHED_KEYS)
    assert len(counted.asked) == CACHED_KEYS + 1
    cache.partition(b"0")  # was forgotten with all the others
    assert len(counted.asked) == CACHED_KEYS + 2


@given(st.binary(max_size=70), st.integers(1, 2**31 - 1))
@settings(deadline=None, derandomize=True, database=None)
def test_whichever_form_hashes_the_keys_they_go_where_java_sends_them(key: bytes, count: int) -> None:
    for keys in (Murmur2Keys(), murmur2_keys(), KeyCache(murmur2_partition)):
        keys.resize(count)
        assert keys.partition(key) == keys.partition(key) == murmur2_partition(key, count)


def test_sources_remember_keys_and_the_compiled_form_need_not() -> None:
    assert isinstance(murmur2_keys(), Murmur2Keys if aiokprod.compiled else KeyCache)
