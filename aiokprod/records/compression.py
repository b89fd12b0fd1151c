"""Codecs of record batches: none, gzip, snappy, lz4, zstd, each with Kafka's levels. Pure; packages come when used.

Decompression caps its output: a small batch must not fill the memory of a reader (faults: H24).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

from aiokprod.errors import CodecUnavailableError, ConfigError, ProtocolError

CODEC_BITS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
CODEC_NAMES = {bits: name for name, bits in CODEC_BITS.items()}
LEVELS = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-131072, 22)}  # Kafka: KIP-390
PACKAGES = {"snappy": ("cramjam", "snappy"), "lz4": ("lz4.frame", "lz4"), "zstd": ("zstandard", "zstd")}
OFFLOAD_BYTES = 32 * 1024
"""Sections from this size on are compressed in a worker thread. There and back costs about 20 us; 32 KiB take 430 us
with gzip, 60 us with zstd, 25 us with lz4 and snappy (bench/codecs.py, CPython 3.11)."""

XERIAL_HEADER = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
XERIAL_BLOCK_BYTES = 32 * 1024
GZIP_PIECE_BYTES = 4096
PIECE_BYTES = 64 * 1024
ZSTD_READ_BYTES = 16 * 1024
ZSTD_PACKED_BYTES = 512 * 1024
"""What a piece may take at most. A block is at most 128 KiB, packed or not, and the package reads as far ahead."""
_UINT32 = Struct(">I")


def codec_attributes(codec: str) -> int:
    """The codec's bits in the attributes of a batch."""
    return CODEC_BITS[codec]


def check_codec(codec: str, level: int | None) -> None:
    """Is the codec known, its level possible, its package installed?

    Raises:
        ConfigError: no. (CodecUnavailableError: its package is missing.)
    """
    if codec not in CODEC_BITS:
        raise ConfigError(f"compression_type {codec!r} is none of {', '.join(CODEC_BITS)}")
    if level is not None:
        if codec not in LEVELS:
            raise ConfigError(f"compression_type {codec} has no levels")
        low, high = LEVELS[codec]
        if not low <= level <= high:
            raise ConfigError(f"compression_level {level} of {codec} is not between {low} and {high}")
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
    """The section as the codec packs it."""
    if codec == "gzip":
        packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return packer.compress(data) + packer.flush()
    if codec == "snappy":
        return _snappy(data)
    if codec == "lz4":
        lz4 = _package("lz4")
        packed: bytes = lz4.compress(bytes(data), compression_level=0 if level is None else level, block_linked=False)
        return packed
    if codec == "zstd":
        zstd = _package("zstd")
        out: bytes = zstd.ZstdCompressor(level=3 if level is None else level).compress(bytes(data))
        return out
    assert codec == "none", codec
    return bytes(data)


def _snappy(data: bytes | bytearray) -> bytes:
    """Blocks of 32 KiB behind the header Java's snappy stream writes."""
    raw = _package("snappy").snappy
    parts = [XERIAL_HEADER]
    for at in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = bytes(raw.compress_raw(bytes(data[at : at + XERIAL_BLOCK_BYTES])))
        parts += [_UINT32.pack(len(block)), block]
    return b"".join(parts)


def decompress(codec: str, data: bytes | memoryview, limit_bytes: int) -> bytes:
    """Unpack at most `limit_bytes`.

    Raises:
        ProtocolError: it is not what the codec writes, or larger than the limit.
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
    """As `decompress`, but in pieces of at most `PIECE_BYTES`. What is not asked for is not unpacked (snappy: but for the
    rest of a block).

    Raises:
        ProtocolError: it is not what the codec writes, or larger than the limit.
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
    data = bytes(data)
    if not data.startswith(XERIAL_HEADER[:8]):
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


def _snappy_block_pieces(raw: Any, packed: bytes, before_bytes: int, limit_bytes: int) -> Iterator[bytes]:
    """A block is unpacked as a whole and may be large: it is cut from its end, since then its memory is given back while
    the pieces take theirs, and what a piece took when the piece is gone."""
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
    while pieces:  # one also of an empty block: there may be a million of them
        yield pieces.pop()


def _lz4_pieces(data: bytes | memoryview, limit_bytes: int) -> Iterator[bytes]:
    unpacker = _package("lz4").LZ4FrameDecompressor()
    piece: bytes = unpacker.decompress(bytes(data), max_length=PIECE_BYTES)
    yield piece
    while not unpacker.eof:
        piece = unpacker.decompress(b"", max_length=PIECE_BYTES)
        if not piece and not unpacker.eof:
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
    """Packed bytes, and no more of them for a piece than it can need: a piece is one call of the package, which walks
    frames and blocks of nothing as long as there are any."""

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
    # In small pieces: of each the rest behind a member's end is copied, and there may be a member every 20 bytes.
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
    # A few bytes of zstd can stand for gigabytes: the stream is read no further than the limit.
    reader = _package("zstd").ZstdDecompressor().stream_reader(data, read_across_frames=True)
    out = bytearray()
    while len(out) <= limit_bytes:
        piece = reader.read(min(65536, limit_bytes + 1 - len(out)))
        if not piece:
            break
        out += piece
    return bytes(out)
