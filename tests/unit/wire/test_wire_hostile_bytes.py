"""The network is hostile: any bytes are decoded or refused with ProtocolError, and memory stays bounded (faults: H23)."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hostile_decoders import DECODERS, MESSAGES, OTHERS, RECORDS_LIMIT, verdict
from hypothesis import given, settings
from hypothesis import strategies as st
from kio_twins import all_messages, valid_bodies

from aiokprod.errors import ProtocolError
from aiokprod.records.batch import batch_header, encode_records
from aiokprod.records.compression import compress
from aiokprod.records.decoder import decode_batches
from aiokprod.records.headers import encode_headers
from aiokprod.wire.messages.metadata import MetadataResponse
from aiokprod.wire.messages.produce import ProduceResponse

ALLOWED_BYTES = 200_000  # allocated while an answer of a hundred bytes is refused
HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80\x00", b"\x7f\xff")


def mutations(data: bytes, random: Random, count: int) -> Iterator[bytes]:
    """Yield damaged copies: flipped, cut, inserted, repeated bytes, and lengths written over."""
    for _ in range(count):
        at = random.randrange(len(data) + 1)
        match random.randrange(6):
            case 0:
                yield data[:at]
            case 1:
                yield data[:at] + random.randbytes(random.randrange(1, 9)) + data[at:]
            case 2:
                wrong = random.choice(HUGE)
                yield data[:at] + wrong + data[at + len(wrong) :]
            case 3:
                yield data[:at] + data[at + random.randrange(1, 5) :]
            case 4:
                yield data[:at] + data[max(0, at - 20) :]
            case _:
                yield data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]


def damaged_batches(random: Random) -> Iterator[bytes]:
    section = encode_records(
        [b"value", None, b""],
        [b"key", None, b""],
        [encode_headers([("h", b"x"), ("h", None)]), None, encode_headers([])],
        [0, 5, -9],
    )
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        packed = compress(codec, None, section)
        header = batch_header(packed, count=3, attributes=number, base_timestamp_ms=1, max_timestamp_ms=6)
        yield header + packed
        for wrong in mutations(packed, random, 60):
            length = struct.pack(">i", 49 + len(wrong))
            yield header[:8] + length + header[12:] + wrong


@given(st.sampled_from(sorted(DECODERS)), st.binary(max_size=200))
@settings(max_examples=1500, deadline=None, derandomize=True, database=None)
def test_random_bytes_raise_only_protocol_errors(name: str, data: bytes) -> None:  # faults: H23
    verdict(DECODERS[name], data)


@pytest.mark.parametrize("message", all_messages(), ids=lambda message: message.__name__)
def test_damaged_messages_raise_only_protocol_errors(message: type[Any]) -> None:
    refused = 0
    for version in range(message.MIN_VERSION, message.MAX_VERSION + 1):
        random = Random(f"{message.__name__} {version}")
        decode = MESSAGES[f"{message.__name__} {version}"]
        for body in valid_bodies(message, version, 1):
            assert verdict(decode, body) is not ProtocolError
            refused += sum(verdict(decode, wrong) is ProtocolError for wrong in mutations(body[:2000], random, 12))
    assert refused > 0


@pytest.mark.parametrize(
    ("name", "message", "versions"),
    [("decode_produce", ProduceResponse, range(3, 14)), ("decode_metadata_slices", MetadataResponse, range(14))],
    ids=["produce", "metadata"],
)
def test_hand_written_decoders_judge_damage_as_the_generated_ones(name: str, message: Any, versions: range) -> None:
    for version in versions:
        decode = OTHERS[f"{name} {version}"]
        random = Random(version)
        for body in valid_bodies(message, version, 2):
            assert verdict(decode, body) is not ProtocolError
            for wrong in mutations(body[:1000], random, 60):
                verdict(decode, wrong)


def test_damaged_frames_and_headers_raise_only_protocol_errors() -> None:
    random = Random(7)
    stream = b"".join(struct.pack(">i", size) + bytes(size) for size in (4, 50, 300))
    for name in ("FrameReader", "read_response_header", "decode_request_header"):
        for wrong in mutations(stream, random, 500):
            verdict(OTHERS[name], wrong)


def test_damaged_record_batches_raise_only_protocol_errors() -> None:
    refused = [verdict(OTHERS["decode_batches"], data) is ProtocolError for data in damaged_batches(Random(3))]
    assert 100 < sum(refused) < len(refused)


def test_damaged_record_sections_raise_only_protocol_errors() -> None:
    random = Random(5)
    section = encode_records([b"v" * 3] * 7, [b"k"] * 7, [encode_headers([("name", None)])] * 7, list(range(7)))
    for wrong in mutations(section, random, 1500):
        verdict(OTHERS["split_records"], wrong)


# ---------------------------------------------------------------------- memory


def peak_of(decode: Any, data: bytes) -> int:
    """Measure the bytes allocated at the worst moment.

    The least of three tries counts: other threads of the process may allocate during one of them.
    """
    peaks = []
    for _ in range(3):
        tracemalloc.start()
        try:
            verdict(decode, data)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        if peaks[-1] < ALLOWED_BYTES:
            break
    return min(peaks)


@pytest.mark.parametrize("name", sorted(MESSAGES)[::3] + sorted(OTHERS))
def test_a_count_of_two_billion_is_refused_before_it_is_allocated(name: str) -> None:
    decode = DECODERS[name]
    for start in range(24):  # the count lands on every place a first array or string can have
        for wrong in HUGE[:3]:
            assert peak_of(decode, bytes(start) + wrong + bytes(100)) < ALLOWED_BYTES


def test_what_a_dense_message_costs_is_bounded_by_its_size() -> None:
    for version, topic in ((0, b"\0\0" + b"\0\0" + bytes(4)), (12, b"\0\0\1" + bytes(16) + b"\0\1" + bytes(5))):
        size = 5_000
        count = struct.pack(">i", size) if version == 0 else b"\x89\x27"
        body = (bytes(4) if version == 0 else bytes(4) + b"\1\0" + bytes(4)) + count + topic * size
        body += b"" if version == 0 else b"\0"
        answer = MetadataResponse.decode(body, version)
        assert len(answer.topics) == size
        del answer
        assert peak_of(lambda data, at=version: MetadataResponse.decode(data, at), body) < 60 * len(body)


@pytest.mark.parametrize(("codec", "bits"), [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
def test_a_decompression_bomb_is_refused_at_the_limit(codec: str, bits: int) -> None:  # faults: H24
    bomb = compress(codec, None, bytes(50_000_000))
    data = batch_header(bomb, count=1, attributes=bits, base_timestamp_ms=0, max_timestamp_ms=0) + bomb
    (batch,) = decode_batches(data, limit_bytes=RECORDS_LIMIT)
    with pytest.raises(ProtocolError, match=f"{codec} data unpacks to more than {RECORDS_LIMIT} bytes"):
        batch.section()
    assert peak_of(lambda _: batch.section(), b"") < 8 * RECORDS_LIMIT
