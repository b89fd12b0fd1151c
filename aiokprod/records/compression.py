"""Codecs of record batches: none, gzip, snappy, lz4, zstd, each with Kafka's levels. Pure; packages are imported when used.

Decompression limits its output: a small batch must not fill the memory of a reader (faults: H24).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

from aiokprod.errors import CodecUnavailableError, ProtocolError

CODEC_BITS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
CODEC_NAMES = {bits: name for name, bits in CODEC_BITS.items()}
PACKAGES = {"snappy": ("cramjam", "snappy"), "lz4": ("lz4.frame", "lz4"), "zstd": ("zstandard", "zstd")}
OFFLOAD_BYTES = 32 * 1024
"""Sections from this size on are compressed in a worker thread. The round trip costs about 20 us; 32 KiB take 430 us with
gzip, 60 us with zstd, 25 us with lz4 and snappy (bench/codecs.py, CPython 3.11)."""

XERIAL_HEADER = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
XERIAL_BLOCK_BYTES = 32 * 1024
GZIP_PIECE_BYTES = 4096
PIECE_BYTES = 64 * 1024
LZ4_READ_BYTES = 16 * 1024
ZSTD_READ_BYTES = 16 * 1024
ZSTD_PACKED_BYTES = 512 * 1024
"""The most packed bytes per piece. A block is at most 128 KiB, packed or not, and the package reads that far ahead."""
_UINT32 = Struct(">I")


def check_codec(codec: str) -> None:
    """Check that the package of a codec is installed; the config has checked its name and level.

    Raises:
        CodecUnavailableError: the package is missing.
    """
    if codec in PACKAGES:
        _package(codec)


def _package(codec: str) -> Any:
    import importlib

    name, extra = PACKAGES[codec]
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        raise CodecUnavailableError(f'{codec} needs a package: pip install "aiokprod[{extra}]"') from missing


def compress(codec: str, level: int | None, data: bytes | bytearray) -> bytes:
    """Compress a record section."""
    if codec == "gzip":
        packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return packer.compress(data) + packer.flush()
    if codec == "snappy":
        return _snappy(data)
    if codec == "lz4":
        lz4 = _package("lz4")
        # Not linked: Java's reader of LZ4 frames refuses blocks that depend on each other.
        packed: bytes = lz4.compress(bytes(data), compression_level=0 if level is None else level, block_linked=False)
        return packed
    if codec == "zstd":
        zstd = _package("zstd")
        out: bytes = zstd.ZstdCompressor(level=3 if level is None else level).compress(bytes(data))
        return out
    assert codec == "none", codec
    return bytes(data)


def plain_that_fits(packed_bytes: int) -> int:
    """Return how many plain bytes fit into `packed_bytes` with any codec, even if they do not compress at all."""
    # What does not pack is stored in blocks of 16 to 128 KiB, with 10 bytes before each at most; a frame has 40 at most.
    return max(0, packed_bytes - packed_bytes // 1024 - 64)


def _snappy(data: bytes | bytearray) -> bytes:
    """Compress to blocks of 32 KiB after the header that Java's snappy stream writes."""
    raw = _package("snappy").snappy
    parts = [XERIAL_HEADER]
    for at in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = bytes(raw.compress_raw(bytes(data[at : at + XERIAL_BLOCK_BYTES])))
        parts += [_UINT32.pack(len(block)), block]
    return b"".join(parts)


def decompress(codec: str, data: bytes | memoryview, limit_bytes: int) -> bytes:
    """Unpack a record section of at most `limit_bytes`.

    Raises:
        ProtocolError: the data are not what the codec writes, or larger than the limit.
    """
    data = bytes(data)
    if codec == "none":
        return data
    unpack: Callable[[bytes, int], bytes] = {
        "gzip": _gunzip, "snappy": _unsnappy, "lz4": _unlz4, "zstd": _unzstd,
    }[codec]  # fmt: skip
    try:
        plain = unpack(data, limit_bytes)
    except (ProtocolError, CodecUnavailableError):
        raise
    except Exception as broken:  # each codec has an exception of its own
        raise ProtocolError(f"broken {codec} data: {type(broken).__name__}") from None
    if len(plain) > limit_bytes:
        raise _too_large(codec, limit_bytes)
    return plain


def decompress_in_pieces(codec: str, data: bytes | memoryview, limit_bytes: int) -> Iterator[bytes]:
    """Unpack like `decompress`, but in pieces of at most `PIECE_BYTES`, and lazily.

    Pieces that are not asked for are not unpacked (snappy: except the rest of a block).

    Raises:
        ProtocolError: the data are not what the codec writes, or larger than the limit.
    """
    unpack: Callable[[bytes | memoryview, int], Iterator[bytes]] = {
        "none": _plain_pieces, "gzip": _gzip_pieces, "snappy": _snappy_pieces, "lz4": _lz4_pieces, "zstd": _zstd_pieces,
    }[codec]  # fmt: skip
    size = 0
    try:
        for piece in unpack(data, limit_bytes):
            size += len(piece)
            if size > limit_bytes:
                raise _too_large(codec, limit_bytes)
            yield piece
    except (ProtocolError, CodecUnavailableError):
        raise
    except Exception as broken:  # each codec has an exception of its own
        raise ProtocolError(f"broken {codec} data: {type(broken).__name__}") from None


def _plain_pieces(data: bytes | memoryview, limit_bytes: int) -> Iterator[bytes]:
    for at in range(0, len(data), PIECE_BYTES):
        yield bytes(data[at : at + PIECE_BYTES])


def _gzip_pieces(data: bytes | memoryview, limit_bytes: int) -> Iterator[bytes]:
    view = memoryview(data)
    at = 0
    while at < len(view):
        unpacker = zlib.decompressobj(31)
        while not unpacker.eof:
            packed = view[at : at + GZIP_PIECE_BYTES]
            if not packed:
                raise ProtocolError("gzip data ends early")
            rest: bytes | memoryview = packed
            while True:
                piece = unpacker.decompress(rest, PIECE_BYTES)
                rest = unpacker.unconsumed_tail
                yield piece
                if not rest and len(piece) < PIECE_BYTES:
                    break
            at += len(packed) - len(unpacker.unused_data)


def _snappy_pieces(data: bytes | memoryview, limit_bytes: int) -> Iterator[bytes]:
    raw = _package("snappy").snappy
    data = memoryview(data)
    if bytes(data[:8]) != XERIAL_HEADER[:8]:
        yield from _snappy_block_pieces(raw, data, 0, limit_bytes)
        return
    at = len(XERIAL_HEADER)
    if len(data) < at:
        raise ProtocolError("snappy data ends early")
    size = 0
    while at < len(data):
        if len(data) - at < 4:
            raise ProtocolError("snappy data ends early")
        packed = _UINT32.unpack_from(data, at)[0]
        if packed > len(data) - at - 4:
            raise ProtocolError("snappy data ends early")
        for piece in _snappy_block_pieces(raw, data[at + 4 : at + 4 + packed], size, limit_bytes):
            size += len(piece)
            yield piece
        at += 4 + packed


def _snappy_block_pieces(raw: Any, packed: memoryview, before_bytes: int, limit_bytes: int) -> Iterator[bytes]:
    """Unpack one block, which is possible only as a whole, and yield it in pieces.

    The block may be large. It is cut from its end, so that its memory is given back while the pieces take theirs, and the
    memory of a piece when the piece is dropped.
    """
    size = raw.decompress_raw_len(packed)
    if before_bytes + size > limit_bytes:
        raise _too_large("snappy", limit_bytes)
    block = bytearray(size)
    if raw.decompress_raw_into(packed, block) != size:
        raise ProtocolError("a block of snappy data is not as long as it says")
    pieces: list[bytes] = []
    for at in range((max(size, 1) - 1) // PIECE_BYTES * PIECE_BYTES, -1, -PIECE_BYTES):
        with memoryview(block) as view:
            pieces.append(bytes(view[at:]))
        del block[at:]
    while pieces:  # an empty block gives a piece too, so that the caller can pause: there may be a million of them
        yield pieces.pop()


def _lz4_pieces(data: bytes | memoryview, limit_bytes: int) -> Iterator[bytes]:
    # In small pieces: the package copies what it has not used each time it is called.
    unpacker = _package("lz4").LZ4FrameDecompressor()
    view = memoryview(data)
    at = 0
    while not unpacker.eof:
        packed = bytes(view[at : at + LZ4_READ_BYTES]) if unpacker.needs_input else b""
        at += len(packed)
        piece: bytes = unpacker.decompress(packed, max_length=PIECE_BYTES)
        if not piece and unpacker.needs_input and at >= len(view) and not unpacker.eof:
            raise ProtocolError("lz4 data ends early")
        yield piece


def _zstd_pieces(data: bytes | memoryview, limit_bytes: int) -> Iterator[bytes]:
    packed = _ZstdSource(data)
    reader = (
        _package("zstd").ZstdDecompressor().stream_reader(packed, read_size=ZSTD_READ_BYTES, read_across_frames=True)
    )
    while piece := reader.read(PIECE_BYTES):
        yield piece
        packed.left_bytes = ZSTD_PACKED_BYTES


class _ZstdSource:
    """A source of packed bytes that gives no more of them per piece than a piece can need.

    A piece is one call of the package, which would walk through empty frames and blocks without end.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        self._view = memoryview(data)
        self._at = 0
        self.left_bytes = ZSTD_PACKED_BYTES

    def read(self, size: int) -> bytes:
        packed = bytes(self._view[self._at : self._at + size])
        if len(packed) > self.left_bytes:
            raise ProtocolError(f"{ZSTD_PACKED_BYTES} bytes of zstd data unpack to less than {PIECE_BYTES}")
        self.left_bytes -= len(packed)
        self._at += len(packed)
        return packed


def _too_large(codec: str, limit_bytes: int) -> ProtocolError:
    return ProtocolError(f"{codec} data unpacks to more than {limit_bytes} bytes")


def _gunzip(data: bytes, limit_bytes: int) -> bytes:
    # In small pieces: the bytes after a member's end are copied each time, and there may be a member every 20 bytes.
    view = memoryview(data)
    out = bytearray()
    at = 0
    while at < len(view):
        unpacker = zlib.decompressobj(31)
        while not unpacker.eof:
            piece = view[at : at + GZIP_PIECE_BYTES]
            if not piece:
                raise ProtocolError("gzip data ends early")
            out += unpacker.decompress(piece, limit_bytes - len(out) + 1)
            if len(out) > limit_bytes:
                raise _too_large("gzip", limit_bytes)
            at += len(piece) - len(unpacker.unused_data)
    return bytes(out)


def _unsnappy(data: bytes, limit_bytes: int) -> bytes:
    raw = _package("snappy").snappy
    if not data.startswith(XERIAL_HEADER[:8]):
        return _raw_snappy(raw, data, 0, limit_bytes)
    if len(data) < len(XERIAL_HEADER):
        raise ProtocolError("snappy data ends early")
    out = bytearray()
    at = len(XERIAL_HEADER)
    while at < len(data):
        if len(data) - at < 4:
            raise ProtocolError("snappy data ends early")
        size = _UINT32.unpack_from(data, at)[0]
        if size > len(data) - at - 4:
            raise ProtocolError("snappy data ends early")
        out += _raw_snappy(raw, data[at + 4 : at + 4 + size], len(out), limit_bytes)
        at += 4 + size
    return bytes(out)


def _raw_snappy(raw: Any, data: bytes, before_bytes: int, limit_bytes: int) -> bytes:
    if before_bytes + raw.decompress_raw_len(data) > limit_bytes:
        raise _too_large("snappy", limit_bytes)
    return bytes(raw.decompress_raw(data))


def _unlz4(data: bytes, limit_bytes: int) -> bytes:
    unpacker = _package("lz4").LZ4FrameDecompressor()
    out: bytes = unpacker.decompress(data, max_length=limit_bytes + 1)
    if len(out) <= limit_bytes and not unpacker.eof:
        raise ProtocolError("lz4 data ends early")
    return out


def _unzstd(data: bytes, limit_bytes: int) -> bytes:
    # A few bytes of zstd can unpack to gigabytes: the stream is read no further than the limit.
    reader = _package("zstd").ZstdDecompressor().stream_reader(data, read_across_frames=True)
    out = bytearray()
    while len(out) <= limit_bytes:
        piece = reader.read(min(65536, limit_bytes + 1 - len(out)))
        if not piece:
            break
        out += piece
    return bytes(out)
