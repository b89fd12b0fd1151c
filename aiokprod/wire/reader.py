"""`Reader`: bounded decoding of the protocol's primitives. The network is hostile.

Every length and count is checked against the bytes that are left before anything is allocated; whatever is wrong is a
`ProtocolError` and nothing else.

It reads bytes: a view is copied once, since every byte that is asked of a view is an object in between.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from aiokprod.errors import ProtocolError

_unpack_int16: Final = Struct(">h").unpack_from
_unpack_uint16: Final = Struct(">H").unpack_from
_unpack_int32: Final = Struct(">i").unpack_from
_unpack_uint32: Final = Struct(">I").unpack_from
_unpack_int64: Final = Struct(">q").unpack_from
_unpack_float64: Final = Struct(">d").unpack_from
ZERO_UUID = bytes(16)


class Reader:
    """Reads one message from front to back."""

    __slots__ = ("_data", "_end", "_pos")

    def __init__(self, data: bytes | bytearray | memoryview, start: int = 0, size: int = -1) -> None:
        """All of it, or `size` bytes from `start` on."""
        self._data = data if isinstance(data, bytes) else bytes(data)
        self._pos = start
        self._end = len(self._data) if size < 0 else start + size

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return self._end - self._pos

    def _take(self, size: int) -> int:
        """Where the next `size` bytes begin."""
        at = self._pos
        if size < 0 or size > self._end - at:
            raise ProtocolError(f"{size} bytes expected and {self._end - at} are left")
        self._pos = at + size
        return at

    # ------------------------------------------------------------------ numbers
    def int8(self) -> int:
        value = self._data[self._take(1)]
        return value - 256 if value > 127 else value

    def boolean(self) -> bool:
        return self._data[self._take(1)] != 0

    def int16(self) -> int:
        return int(_unpack_int16(self._data, self._take(2))[0])

    def uint16(self) -> int:
        return int(_unpack_uint16(self._data, self._take(2))[0])

    def int32(self) -> int:
        return int(_unpack_int32(self._data, self._take(4))[0])

    def uint32(self) -> int:
        return int(_unpack_uint32(self._data, self._take(4))[0])

    def int64(self) -> int:
        return int(_unpack_int64(self._data, self._take(8))[0])

    def float64(self) -> float:
        return float(_unpack_float64(self._data, self._take(8))[0])

    def uuid(self) -> bytes:
        at = self._take(16)
        return self._data[at : at + 16]

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        """Several numbers in one go."""
        return layout.unpack_from(self._data, self._take(layout.size))

    def unsigned_varint(self) -> int:
        """At most five bytes, at most 2**32 - 1."""
        at = self._pos
        if at < self._end:  # most have one byte
            first = self._data[at]
            if first < 0x80:
                self._pos = at + 1
                return first
        value = 0
        for shift in (0, 7, 14, 21, 28):
            byte = self._data[self._take(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > 0xFFFFFFFF:
                    raise ProtocolError("a varint is above 32 bits")
                return value
        raise ProtocolError("a varint is longer than five bytes")

    # ------------------------------------------------------------------ lengths and counts
    def _length(self, flexible: bool, short: bool) -> int:
        """A length; -1 for null."""
        if flexible:
            return self.unsigned_varint() - 1
        length = self.int16() if short else self.int32()
        if length < -1:
            raise ProtocolError(f"the length {length}")
        return length

    def nullable_count(self, flexible: bool) -> int:
        """Elements of an array, -1 for null; an element has at least one byte."""
        count = self._length(flexible, False)
        if count > self._end - self._pos:
            raise ProtocolError(f"an array of {count} elements and {self._end - self._pos} bytes are left")
        return count

    def count(self, flexible: bool) -> int:
        count = self.nullable_count(flexible)
        if count < 0:
            raise ProtocolError("an array is null that cannot be")
        return count

    def tag_count(self) -> int:
        """Tagged fields; each has at least two bytes."""
        count = self.unsigned_varint()
        if count * 2 > self._end - self._pos:
            raise ProtocolError(f"{count} tagged fields and {self._end - self._pos} bytes are left")
        return count

    # ------------------------------------------------------------------ strings and bytes
    def nullable_string(self, flexible: bool) -> str | None:
        length = self._length(flexible, True)
        if length < 0:
            return None
        at = self._take(length)
        try:
            return self._data[at : at + length].decode()
        except UnicodeDecodeError:
            raise ProtocolError("a string is not UTF-8") from None

    def string(self, flexible: bool) -> str:
        text = self.nullable_string(flexible)
        if text is None:
            raise ProtocolError("a string is null that cannot be")
        return text

    def nullable_bytes(self, flexible: bool) -> bytes | None:
        length = self._length(flexible, False)
        if length < 0:
            return None
        at = self._take(length)
        return self._data[at : at + length]

    def bytes_(self, flexible: bool) -> bytes:
        data = self.nullable_bytes(flexible)
        if data is None:
            raise ProtocolError("bytes are null that cannot be")
        return data

    # ------------------------------------------------------------------ structure
    def field(self, size: int) -> Reader:
        """A reader of the next `size` bytes: one tagged field."""
        return Reader(self._data, self._take(size), size)

    def skip(self, size: int) -> None:
        self._take(size)

    def skip_tags(self) -> None:
        """Skip tagged fields nobody here knows."""
        for _ in range(self.tag_count()):
            self.unsigned_varint()
            self._take(self.unsigned_varint())

    def finish(self) -> None:
        """Refuse trailing bytes."""
        if self._pos != self._end:
            raise ProtocolError(f"{self._end - self._pos} bytes after the end of the message")
