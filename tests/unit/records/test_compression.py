"""Codecs: their levels, their framings as others read and write them, and the cap on what they unpack."""

from __future__ import annotations

import gzip
import subprocess
import sys
import time
import zlib
from random import Random

import cramjam
import lz4.frame
import pytest
import zstandard
from aiokafka.codec import lz4_decode, lz4_encode, snappy_decode, snappy_encode, zstd_decode, zstd_encode
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokprod.config.option_rules import LEVELS
from aiokprod.errors import CodecUnavailableError, ConfigError, ProtocolError
from aiokprod.records.compression import (
    CODEC_BITS,
    CODEC_NAMES,
    PACKAGES,
    check_codec,
    compress,
    decompress,
    plain_that_fits,
)

LIMIT = 1 << 20
PACKING = sorted(set(CODEC_BITS) - {"none"})
TEXT = b"The quick brown fox jumps over the lazy dog. " * 1000
QUICK = settings(deadline=None, derandomize=True, database=None)


# ---------------------------------------------------------------------- there and back


@given(st.sampled_from(sorted(CODEC_BITS)), st.binary(max_size=2000), st.integers(1, 50))
@QUICK
def test_what_is_packed_comes_back(codec: str, piece: bytes, times: int) -> None:
    data = piece * times
    assert decompress(codec, compress(codec, None, data), LIMIT) == data
    assert decompress(codec, memoryview(compress(codec, None, bytearray(data))), LIMIT) == data


@given(st.sampled_from(PACKING), st.integers(0, 400_000), st.integers(0, 2**32))
@QUICK
def test_bytes_that_do_not_pack_still_fit(codec: str, packed_bytes: int, seed: int) -> None:
    plain = Random(seed).randbytes(plain_that_fits(packed_bytes))
    assert len(plain) <= packed_bytes
    for level in (None, *LEVELS.get(codec, ())[:1]):
        assert not plain or len(compress(codec, level, plain)) <= packed_bytes


@pytest.mark.parametrize(
    ("codec", "level"), [(codec, level) for codec, ends in LEVELS.items() for level in (*ends, 1, sum(ends) // 2)]
)
def test_every_level_can_be_read(codec: str, level: int) -> None:
    assert decompress(codec, compress(codec, level, TEXT), LIMIT) == TEXT


@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", 1, 9), ("zstd", -100, 22), ("lz4", 1, 12)])
def test_a_higher_level_packs_tighter(codec: str, low: int, high: int) -> None:
    text = b"".join(b"%d the quick brown fox %d jumps over" % (at, at * at) for at in range(5000))
    assert len(compress(codec, high, text)) < len(compress(codec, low, text))


@pytest.mark.parametrize("size", [0, 1, 32767, 32768, 32769, 100_000])
@pytest.mark.parametrize("codec", PACKING)
def test_sizes_around_a_block(codec: str, size: int) -> None:
    data = bytes(at * at % 251 for at in range(size))
    assert decompress(codec, compress(codec, None, data), size) == data


# ---------------------------------------------------------------------- framings


def test_others_read_ours() -> None:
    assert gzip.decompress(compress("gzip", None, TEXT)) == TEXT
    assert lz4.frame.decompress(compress("lz4", None, TEXT)) == TEXT
    assert bytes(lz4_decode(compress("lz4", None, TEXT))) == TEXT
    assert bytes(snappy_decode(compress("snappy", None, TEXT))) == TEXT
    assert bytes(zstd_decode(compress("zstd", None, TEXT))) == TEXT


def test_we_read_those_of_others() -> None:
    assert decompress("gzip", gzip.compress(TEXT), LIMIT) == TEXT
    assert decompress("lz4", lz4_encode(TEXT), LIMIT) == TEXT
    assert decompress("lz4", lz4.frame.compress(TEXT, content_checksum=True, store_size=False), LIMIT) == TEXT
    assert decompress("snappy", snappy_encode(TEXT, xerial_compatible=True), LIMIT) == TEXT
    assert decompress("snappy", bytes(cramjam.snappy.compress_raw(TEXT)), LIMIT) == TEXT  # librdkafka: no framing
    assert decompress("zstd", bytes(zstd_encode(TEXT)), LIMIT) == TEXT


def test_snappy_blocks_are_32_kib_behind_the_header_of_java() -> None:
    packed = compress("snappy", None, bytes(100_000))
    assert packed[:16] == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
    sizes, at = [], 16
    while at < len(packed):
        size = int.from_bytes(packed[at : at + 4], "big")
        sizes.append(cramjam.snappy.decompress_raw_len(packed[at + 4 : at + 4 + size]))
        at += 4 + size
    assert sizes == [32768, 32768, 32768, 100_000 - 3 * 32768]


def test_lz4_blocks_are_independent_as_java_demands() -> None:
    info = lz4.frame.get_frame_info(compress("lz4", None, TEXT * 5))
    assert not info["block_linked"]


def test_gzip_members_and_zstd_frames_one_after_the_other_are_one_text() -> None:
    assert decompress("gzip", gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two"), LIMIT) == b"one two"
    frames = zstandard.compress(b"one ") + zstandard.compress(b"two")
    assert decompress("zstd", frames, LIMIT) == b"one two"


def test_codecs_have_kafkas_numbers() -> None:
    assert CODEC_BITS == {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
    assert {CODEC_NAMES[bits]: bits for bits in CODEC_NAMES} == CODEC_BITS


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("codec", sorted(CODEC_BITS))
def test_a_codec_with_its_package_is_fine(codec: str) -> None:
    check_codec(codec)


@pytest.mark.parametrize("codec", sorted(PACKAGES))
def test_a_missing_package_is_named_with_its_extra(codec: str) -> None:
    program = f"""
import sys
sys.modules[{PACKAGES[codec][0]!r}] = None
from aiokprod.errors import CodecUnavailableError
from aiokprod.records import compression
for attempt in (
    lambda: compression.check_codec({codec!r}),
    lambda: compression.compress({codec!r}, None, b"data"),
    lambda: compression.decompress({codec!r}, b"data", 10),
):
    try:
        attempt()
    except CodecUnavailableError as missing:
        print(missing)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    hint = f'{codec} needs a package: pip install "aiokprod[{PACKAGES[codec][1]}]"'
    assert done.stdout.count(hint) == 3
    assert issubclass(CodecUnavailableError, ConfigError)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_data_that_ends_early_is_refused(codec: str) -> None:
    packed = compress(codec, None, TEXT * 3)
    for size in (len(packed) - 1, len(packed) // 2, 30, 18, 11, 5, 1):
        with pytest.raises(ProtocolError):
            decompress(codec, packed[:size], LIMIT)


@pytest.mark.parametrize("codec", PACKING)
def test_noise_is_refused(codec: str) -> None:
    with pytest.raises(ProtocolError, match=f"broken {codec} data: "):
        decompress(codec, b"\xfe" * 100, LIMIT)


def test_gzip_damage_is_caught_by_its_own_checksum() -> None:
    packed = bytearray(compress("gzip", None, TEXT))
    packed[-5] ^= 1
    with pytest.raises(ProtocolError, match="broken gzip data"):
        decompress("gzip", packed, LIMIT)


# ---------------------------------------------------------------------- bombs


@pytest.mark.parametrize("codec", PACKING)
def test_exactly_the_limit_is_taken_and_one_byte_more_is_not(codec: str) -> None:  # faults: H24
    packed = compress(codec, None, bytes(70_000))
    assert decompress(codec, packed, 70_000) == bytes(70_000)
    with pytest.raises(ProtocolError, match=f"{codec} data unpacks to more than 69999 bytes"):
        decompress(codec, packed, 69_999)


def test_a_snappy_block_that_lies_about_its_size_is_refused() -> None:
    with pytest.raises(ProtocolError, match="unpacks to more than"):
        decompress("snappy", b"\xff\xff\xff\xff\x0f" + bytes(10), LIMIT)
    lying = compress("snappy", None, b"")[:16] + b"\x7f\xff\xff\xff" + bytes(10)
    with pytest.raises(ProtocolError, match="snappy data ends early"):
        decompress("snappy", lying, LIMIT)


def test_many_small_members_are_a_limit_together() -> None:
    with pytest.raises(ProtocolError, match="gzip data unpacks to more than 10000 bytes"):
        decompress("gzip", zlib.compress(bytes(100), wbits=31) * 101, 10_000)
    frames = zstandard.compress(bytes(100)) * 101
    with pytest.raises(ProtocolError, match="zstd data unpacks to more than 10000 bytes"):
        decompress("zstd", frames, 10_000)


def test_members_of_nothing_take_time_in_proportion() -> None:
    """200,000 of them: a hundred times the minutes if the rest were copied behind each."""
    before = time.process_time()
    assert decompress("gzip", gzip.compress(b"") * 200_000, 10) == b""
    assert time.process_time() - before < 10
