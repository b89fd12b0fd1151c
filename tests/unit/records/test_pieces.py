"""Records read in pieces are those of the whole section, and the time and memory that they take are bounded."""

from __future__ import annotations

import tracemalloc
from random import Random
from typing import Any

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokprod.errors import ProtocolError
from aiokprod.records import compression
from aiokprod.records.batch import batch_header, encode_records
from aiokprod.records.compression import (
    CODEC_BITS,
    PIECE_BYTES,
    XERIAL_HEADER,
    ZSTD_PACKED_BYTES,
    compress,
    decompress,
    decompress_in_pieces,
)
from aiokprod.records.decoder import HEADERS_LIMIT, DecodedBatch, DecodedRecord, decode_batches
from aiokprod.records.headers import encode_headers
from aiokprod.records.pieces import records_in_pieces

CODECS = sorted(CODEC_BITS)
LIMIT = 1_000_000


def facts(record: DecodedRecord) -> tuple[object, ...]:
    return record.offset, record.timestamp_ms, record.key, record.value, record.headers


def batch_of(
    values: list[bytes | None], codec: str = "none", *, keys: list[bytes | None] | None = None, count: int | None = None,
    headers: list[bytes | None] | None = None, section: bytes | None = None,
) -> DecodedBatch:  # fmt: skip
    plain = bytes(encode_records(values, keys, headers, list(range(len(values))))) if section is None else section
    packed = compress(codec, None, plain)
    header = batch_header(
        packed, count=len(values) if count is None else count, attributes=CODEC_BITS[codec], base_timestamp_ms=7,
        max_timestamp_ms=9, producer_id=-1, producer_epoch=-1, base_sequence=-1,
    )  # fmt: skip
    (found,) = decode_batches(bytes(header) + packed)
    return found


def of_pieces(batch: DecodedBatch, limit: int = LIMIT, record_limit: int = LIMIT) -> list[DecodedRecord]:
    return [record for record in records_in_pieces(batch, limit, record_limit) if record is not None]


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=300), st.none() | st.binary(max_size=20)), max_size=20),
    st.sampled_from(CODECS),
    st.sampled_from([0, 70_000, 200_000]),
)
def test_records_out_of_pieces_are_those_of_the_whole(
    pairs: list[tuple[bytes | None, bytes | None]], codec: str, large: int
) -> None:
    values = [value for value, _ in pairs] + [Random(1).randbytes(large)]
    keys = [key for _, key in pairs] + [None]
    headers = [encode_headers([("h", key)]) if key else None for key in keys]
    batch = batch_of(values, codec, keys=keys, headers=headers)
    assert list(map(facts, of_pieces(batch))) == list(map(facts, batch.records()))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES + 3])
def test_pieces_are_small_and_join_to_the_whole(codec: str, size: int) -> None:
    for data in (bytes(size), Random(2).randbytes(size)):
        pieces = list(decompress_in_pieces(codec, compress(codec, None, data), size))
        assert b"".join(pieces) == data
        assert max(map(len, pieces), default=0) <= PIECE_BYTES


@pytest.mark.parametrize("options", [{}, {"block_size": lz4.frame.BLOCKSIZE_MAX4MB}, {"block_linked": True},
                                     {"content_checksum": True, "block_checksum": True}])  # fmt: skip
@pytest.mark.parametrize("read_bytes", [1, 7, 1000, 16 * 1024])
def test_lz4_is_the_same_however_little_of_it_is_read_at_once(
    read_bytes: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "LZ4_READ_BYTES", read_bytes)
    random = Random(5)
    for size in (0, 1, 3_000, 40_000):
        data = random.randbytes(size) + bytes(5 * PIECE_BYTES + random.randrange(1000)) + random.randbytes(size)
        packed = lz4.frame.compress(data, **options)
        assert b"".join(decompress_in_pieces("lz4", packed, LIMIT)) == data
        for cut in (packed[:-1], packed[: len(packed) // 2], b""):
            with pytest.raises(ProtocolError):
                list(decompress_in_pieces("lz4", cut, LIMIT))


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_no_more_is_unpacked_than_the_limit_and_nothing_before_it_is_asked_for(codec: str) -> None:
    packed = compress(codec, None, bytes(10 * PIECE_BYTES))
    pieces = decompress_in_pieces(codec, packed, 3 * PIECE_BYTES)
    assert len(next(pieces)) <= PIECE_BYTES
    with pytest.raises(ProtocolError, match="unpacks to more than"):
        list(pieces)


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_packed_data_that_is_cut_or_damaged_is_refused_as_the_whole_is(codec: str) -> None:
    random = Random(3)
    packed = compress(codec, None, random.randbytes(2_000) + bytes(70_000))
    for _ in range(300):
        broken = bytearray(packed[: random.randrange(len(packed))] if random.random() < 0.5 else packed)
        if broken:
            broken[random.randrange(len(broken))] ^= 1 << random.randrange(8)
        try:
            whole: bytes | None = decompress(codec, bytes(broken), LIMIT)
        except ProtocolError:
            whole = None
        try:
            joined: bytes | None = b"".join(decompress_in_pieces(codec, bytes(broken), LIMIT))
        except ProtocolError:
            joined = None
        assert joined == whole


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (batch_of([b"v"], section=b"\xff\xff\xff\xff\xff\xff"), "length of a record is broken"),
        (batch_of([b"v"], section=b"\x01"), "a record of -1 bytes"),
        (batch_of([b"v"] * 2, section=bytes(encode_records([b"v"], None, None, [0]))), "a record ends early"),
        (batch_of([b"v"], section=bytes(encode_records([b"v", b"w"], None, None, [0, 0]))), "bytes after"),
        (batch_of([b"v"] * 2, section=2 * bytes(encode_records([b"v"], None, None, [0]))), "a record at 0 behind"),
        (batch_of([b"v"], headers=[encode_headers([("", None)] * (HEADERS_LIMIT + 1))]), "headers"),
        (batch_of([bytes(5_000)]), "at most 4000 are read"),
    ],
)
def test_what_is_not_what_it_says_is_refused(batch: DecodedBatch, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        of_pieces(batch, LIMIT, 4_000 if "4000" in text else LIMIT)


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_of_no_records_is_a_turn_too(codec: str) -> None:  # faults: H24
    """137,000 such batches, 8 MB of a Fetch answer, once blocked the loop for half a second."""
    header = bytearray(batch_header(b"", count=1, attributes=CODEC_BITS[codec], base_timestamp_ms=0, max_timestamp_ms=0,
                                    producer_id=-1, producer_epoch=-1, base_sequence=-1))  # fmt: skip
    header[57:61] = bytes(4)  # the count
    (batch,) = decode_batches(bytes(header), check_crc=False)
    assert next(records_in_pieces(batch, LIMIT, LIMIT)) is None


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_pieces_of_nothing_behind_the_last_record_are_walked_in_turns(codec: str) -> None:  # faults: H24
    """Eight megabytes of them once blocked the loop for a second."""
    nothing = {"gzip": compress("gzip", None, b""), "snappy": (1).to_bytes(4, "big") + b"\0"}[codec]
    section = compress(codec, None, bytes(encode_records([b"v"], None, None, [0]))) + 1_000 * nothing
    header = batch_header(section, count=1, attributes=CODEC_BITS[codec], base_timestamp_ms=0, max_timestamp_ms=0,
                          producer_id=-1, producer_epoch=-1, base_sequence=-1)  # fmt: skip
    (batch,) = decode_batches(bytes(header) + section)
    found = list(records_in_pieces(batch, LIMIT, LIMIT))
    assert [record.value for record in found if record is not None] == [b"v"]
    assert found.count(None) > 1_000


@pytest.mark.parametrize(
    "nothing", [compress("zstd", None, b""), b"\x50\x2a\x4d\x18" + bytes(4)], ids=["empty", "skip"]
)
def test_frames_of_nothing_are_walked_by_zstd_for_a_while_only(nothing: bytes) -> None:  # faults: H24
    """One call of the package reads all of them, and the loop cannot run in between."""
    some, many = (count // len(nothing) * nothing for count in (ZSTD_PACKED_BYTES // 2, 2 * ZSTD_PACKED_BYTES))
    plain = Random(4).randbytes(5 * PIECE_BYTES)
    whole = compress("zstd", None, plain)
    assert b"".join(decompress_in_pieces("zstd", some + whole + some, LIMIT)) == plain
    for data in (many + whole, whole + many):
        with pytest.raises(ProtocolError, match="of zstd data unpack to less than"):
            list(decompress_in_pieces("zstd", data, LIMIT))


@pytest.mark.parametrize("blocks", ["raw", "xerial"])
def test_large_records_out_of_one_block_of_snappy_are_not_in_memory_many_times(blocks: str) -> None:  # faults: H24
    """Block, pieces, record and value together once took five times the size of the largest record; now it is three times."""
    value = bytes(8_000_000)
    plain = bytes(encode_records([value, value], None, None, [0, 0]))
    section = bytes(cramjam.snappy.compress_raw(plain))
    if blocks == "xerial":
        section = XERIAL_HEADER + len(section).to_bytes(4, "big") + section
    header = batch_header(section, count=2, attributes=CODEC_BITS["snappy"], base_timestamp_ms=0, max_timestamp_ms=0,
                          producer_id=-1, producer_epoch=-1, base_sequence=-1)  # fmt: skip
    (batch,) = decode_batches(bytes(header) + section)
    del plain
    tracemalloc.start()
    try:
        sizes = [
            len(record.value or b"") for record in records_in_pieces(batch, 16 << 20, 8 << 20) if record is not None
        ]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sizes == [8_000_000] * 2
    assert peak < 3.5 * 8_000_000


def peak_of(batch: DecodedBatch) -> int:
    """Return how many bytes are allocated at most while the batch is read."""
    tracemalloc.start()
    try:
        assert any(record is not None for record in records_in_pieces(batch, 16 << 20, 8 << 20))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_record_in_many_small_pieces_takes_no_more_than_in_large_ones() -> None:  # faults: H24
    """A million pieces of two bytes were once a million objects: 8 MB of snappy took 161 MB of memory."""
    plain = bytes(encode_records([bytes(400_000)], None, None, [0]))
    blocks = [bytes([len(plain[at : at + 2]), 4 * len(plain[at : at + 2]) - 4]) + plain[at : at + 2]
              for at in range(0, len(plain), 2)]  # fmt: skip
    section = XERIAL_HEADER + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
    header = batch_header(section, count=1, attributes=CODEC_BITS["snappy"], base_timestamp_ms=0, max_timestamp_ms=0,
                          producer_id=-1, producer_epoch=-1, base_sequence=-1)  # fmt: skip
    (batch,) = decode_batches(bytes(header) + section)
    assert peak_of(batch) < 4 * len(plain)


@pytest.mark.parametrize(("codec", "copies"), [("none", 2.5), ("gzip", 2.5), ("snappy", 2.5), ("lz4", 2.7)])
def test_a_record_that_cannot_be_packed_is_not_in_memory_many_times(codec: str, copies: float) -> None:  # faults: H24
    """Not counting the answer and the window of zstd."""
    size = 4_000_000
    batch = batch_of([Random(6).randbytes(size)], codec)
    assert peak_of(batch) < copies * size


def test_more_records_than_offsets_are_refused_before_one_is_made() -> None:
    data = bytearray(bytes(batch_header(b"", count=5, attributes=0, base_timestamp_ms=0, max_timestamp_ms=0,
                                        producer_id=-1, producer_epoch=-1, base_sequence=-1)))  # fmt: skip
    data[23:27] = (0).to_bytes(4, "big")
    (batch,) = decode_batches(bytes(data), check_crc=False)
    with pytest.raises(ProtocolError, match="5 records in a batch of 1 offsets"):
        of_pieces(batch)
