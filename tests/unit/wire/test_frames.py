"""Frames: cutting a stream, and the headers on both sides."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as AnswerV0
from kio.schema.response_header.v1.header import ResponseHeader as AnswerV1
from kio.serial import entity_reader, entity_writer

from aiokprod.errors import ProtocolError
from aiokprod.wire.broker_frames import decode_request_header, encode_response
from aiokprod.wire.exchange import Entry, Exchange
from aiokprod.wire.frames import FrameReader, encode_request_header, read_response_header, response_header_flexible

LIMIT = 1000


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


# ---------------------------------------------------------------------- cutting


@given(st.lists(st.binary(min_size=4, max_size=60), max_size=12), st.data())
@settings(deadline=None, derandomize=True)
def test_any_chunking_gives_the_same_frames(bodies: list[bytes], data: st.DataObject) -> None:  # faults: N11
    stream = b"".join(frame(body) for body in bodies)
    reader = FrameReader(LIMIT)
    found: list[bytes] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:size])
        stream = stream[size:]
    assert found == bodies
    assert reader.buffered_bytes == 0
    assert reader.failure is None


def test_an_incomplete_frame_waits() -> None:
    reader = FrameReader(LIMIT)
    assert reader.feed(b"\0\0\0") == []
    assert reader.feed(b"\x05hell") == []
    assert reader.buffered_bytes == 8
    assert reader.feed(memoryview(b"o\0")) == [b"hello"]
    assert reader.buffered_bytes == 1


@pytest.mark.parametrize("length", [LIMIT, 4])
def test_lengths_at_both_ends_are_taken(length: int) -> None:
    assert FrameReader(LIMIT).feed(frame(bytes(length))) == [bytes(length)]


@pytest.mark.parametrize("length", [LIMIT + 1, 3, 0, -1, -(2**31), 2**31 - 1])
def test_an_impossible_length_is_refused_at_its_fourth_byte(length: int) -> None:  # faults: H1, H2
    reader = FrameReader(LIMIT)
    raw = struct.pack(">i", length)
    assert reader.feed(raw[:3]) == []
    with pytest.raises(ProtocolError, match=f"a frame of {length} bytes; between 4 and {LIMIT}"):
        reader.feed(raw[3:])
    assert reader.buffered_bytes == 0


def test_good_frames_before_a_bad_length_are_not_lost() -> None:
    reader = FrameReader(LIMIT)
    chunk = frame(b"first") + frame(b"second") + struct.pack(">i", -7) + frame(b"after")
    assert reader.feed(chunk) == [b"first", b"second"]
    assert "a frame of -7 bytes" in str(reader.failure)
    with pytest.raises(ProtocolError, match="a frame of -7 bytes"):
        reader.feed(b"")


def test_after_a_bad_length_nothing_is_kept_or_believed() -> None:
    reader = FrameReader(LIMIT)
    with pytest.raises(ProtocolError):
        reader.feed(struct.pack(">i", 2**31 - 1) + bytes(65536))
    for _ in range(3):
        with pytest.raises(ProtocolError, match="a frame of 2147483647 bytes"):
            reader.feed(frame(b"good"))
    assert reader.buffered_bytes == 0


def test_each_frame_may_have_a_limit_of_its_own() -> None:  # faults: H25
    reader = FrameReader(LIMIT)
    reader.take(frame(bytes(30)) + frame(bytes(31)) + frame(bytes(5)))
    assert reader.next_frame(30) == bytes(30)
    assert reader.next_frame(LIMIT + 100) == bytes(31)
    with pytest.raises(ProtocolError, match="a frame of 5 bytes; between 4 and 4 are accepted"):
        reader.next_frame(4)
    with pytest.raises(ProtocolError, match="a frame of 5 bytes"):
        reader.next_frame(LIMIT)
    assert reader.buffered_bytes == 0


def test_bytes_that_are_one_frame_are_not_buffered() -> None:
    reader = FrameReader(LIMIT)
    assert reader.whole(frame(b"hello"), LIMIT) == b"hello"
    assert reader.whole(frame(bytes(LIMIT)), LIMIT + 1) == bytes(LIMIT)
    assert len(reader._buffer) == 0


def test_whatever_else_the_bytes_are_is_left_to_the_buffer() -> None:  # faults: H1, H2, H25, N11
    good = frame(b"hello")
    others = [good[:-1], good + b"\0", good + good, good[:3], b"", frame(b"abc"), frame(bytes(LIMIT + 1)), b"HTTP/1.1"]
    for other in others:
        reader = FrameReader(LIMIT)
        assert reader.whole(other, 2 * LIMIT) is None, other
    assert reader.whole(good, 4) is None, "longer than this one may be"
    assert reader.whole(memoryview(good), LIMIT) is None, "not the caller's own"
    reader.take(good[:2])
    assert reader.whole(good, LIMIT) is None, "another frame has begun"


def test_after_a_bad_length_no_whole_frame_is_believed() -> None:
    reader = FrameReader(LIMIT)
    with pytest.raises(ProtocolError):
        reader.feed(struct.pack(">i", -1))
    assert reader.whole(frame(b"good"), LIMIT) is None


def test_bytes_that_were_handed_out_are_not_kept() -> None:
    reader = FrameReader(LIMIT)
    for _ in range(1_000):
        reader.take(frame(bytes(40)) + b"\0")
        assert reader.next_frame(LIMIT) == bytes(40)
        assert reader.next_frame(LIMIT) is None
        assert reader.buffered_bytes == 1
        reader.take(frame(bytes(4))[1:])
        assert reader.next_frame(LIMIT) == bytes(4)
        assert reader.next_frame(LIMIT) is None
    assert len(reader._buffer) == 0


def test_an_exchange_settles_the_answers_before_a_bad_length() -> None:
    exchange = Exchange(max_frame_bytes=LIMIT, max_mute_s=1.0)
    for token in "ab":
        exchange.push(Entry(token, 0, 9, exchange.take_correlation_id(), 30.0, False), 0.0)
    settled = exchange.feed(frame(struct.pack(">i", 0) + b"body") + struct.pack(">i", 2**31 - 1), 0.0)
    assert [(each.entry.token, bytes(each.body)) for each in settled] == [("a", b"body")]
    assert isinstance(exchange.failure, ProtocolError)
    assert [entry.token for entry in exchange.abandon()] == ["b"]


@pytest.mark.parametrize("start", [b"HTTP/1.1 400 Bad Request", b"<html><body>", b"<!DOCTYPE html>", b"GET / HTTP/1.0"])
def test_a_web_server_is_recognised(start: bytes) -> None:  # faults: H3
    with pytest.raises(ProtocolError, match="speaks HTTP, not Kafka") as told:
        FrameReader(LIMIT).feed(start)
    assert not told.value.message.endswith(("?", "."))  # an advice follows, after a full stop


@pytest.mark.parametrize(
    ("start", "says"),
    [
        (b"-ERR unknown command", r"a text \(b'-ERR unk'\.\.\.\)"),  # Redis
        (b"SSH-2.0-OpenSSH_9.6\r\n", "a text"),
        (b"220 mail ESMTP\r\n", "a text"),
        (b"E\0\0\0\x8dSFATAL\0", "as PostgreSQL does"),
    ],
)
def test_a_server_of_another_kind_is_recognised(start: bytes, says: str) -> None:
    with pytest.raises(ProtocolError, match=f"{says}.*this is the port of another program"):
        FrameReader(LIMIT).feed(start)


def test_a_tls_alert_is_recognised() -> None:
    with pytest.raises(ProtocolError, match=r"TLS alert.*security_protocol"):
        FrameReader(LIMIT).feed(b"\x15\x03\x03\x00\x02\x02\x28")


# ---------------------------------------------------------------------- headers


@pytest.mark.parametrize("client_id", [None, "", "orders", "größe-日本", "x" * 32767])
@pytest.mark.parametrize("flexible", [False, True])
def test_request_headers_are_those_of_kio(client_id: str | None, flexible: bool) -> None:
    kio = (HeaderV2 if flexible else HeaderV1)(
        request_api_key=3, request_api_version=12, correlation_id=2**31 - 1, client_id=client_id
    )
    buffer = io.BytesIO()
    entity_writer(type(kio))(buffer, kio)
    data = encode_request_header(3, 12, 2**31 - 1, client_id, flexible)
    assert data == buffer.getvalue()
    header = decode_request_header(data + b"rest", {3: 9} if flexible else {})
    assert (header.api_key, header.version, header.correlation_id, header.client_id) == (3, 12, 2**31 - 1, client_id)
    assert bytes(header.body) == b"rest"


@pytest.mark.parametrize(("flexible", "kind"), [(False, AnswerV0), (True, AnswerV1)])
def test_response_headers_are_those_of_kio(flexible: bool, kind: type) -> None:
    data = encode_response(-5, flexible, b"body")
    (whole,) = FrameReader(LIMIT).feed(data)
    header, size = entity_reader(kind)(whole, 0)
    assert header.correlation_id == -5
    assert whole[size:] == b"body"
    correlation_id, body = read_response_header(whole, flexible)
    assert (correlation_id, bytes(body)) == (-5, b"body")


def test_unknown_tags_of_a_header_are_skipped() -> None:
    tagged = b"\x02" + b"\x00\x01x" + b"\x80\x01\x00"
    correlation_id, body = read_response_header(struct.pack(">i", 9) + tagged + b"body", True)
    assert (correlation_id, bytes(body)) == (9, b"body")
    request = encode_request_header(3, 12, 1, "me", False) + tagged + b"body"
    assert bytes(decode_request_header(request, {3: 9}).body) == b"body"


@pytest.mark.parametrize("cut", range(5))
def test_a_short_response_header_is_refused(cut: int) -> None:
    with pytest.raises(ProtocolError):
        read_response_header(b"\0\0\0\1\0"[:cut], True)


def test_the_answer_to_api_versions_never_has_tags() -> None:
    assert not response_header_flexible(18, 4, 3)
    assert response_header_flexible(3, 9, 9)
    assert not response_header_flexible(3, 8, 9)
