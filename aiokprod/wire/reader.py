"""`Reader`: bounded decoding of the protocol's primitives. The network is hostile.

Every length and count is checked against the bytes that are left before anything is allocated; malformed data raise
`ProtocolError` and nothing else. An element of an array takes much more memory and time than its bytes on the wire, so the
number of elements of a message may be limited by a `Budget` (`# faults: H25`).

It reads bytes: a view is copied once, since every byte that is read from a view makes an intermediate object.
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


UNLIMITED: Final = 2**31
"""The size of a `Budget` that no message can use up."""

MAX_TAGS: Final = 1_000
"""The most tagged fields of one struct; Kafka's have a handful."""


class Budget:
    """The number of array elements, and of tagged fields, that one message may still have, including those in tagged fields."""

    __slots__ = ("left",)

    def __init__(self, elements: int) -> None:
        self.left = elements

    def take(self, count: int) -> None:
        """Spend `count`, before the elements are read; raises ProtocolError if it is more than is left."""
        if count > self.left:
            raise too_many(count, self.left)
        self.left -= count

    def take_tags(self, count: int) -> None:
        """Spend `count` tagged fields; raises ProtocolError if it is more than is left."""
        if count > self.left:
            raise too_many_tags(count, self.left)
        self.left -= count


def too_many(count: int, most: int) -> ProtocolError:
    return ProtocolError(f"an array of {count} elements; at most {most} are accepted")


def too_many_tags(count: int, most: int) -> ProtocolError:
    return ProtocolError(f"{count} tagged fields; at most {most} are accepted")


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ProtocolError("a string is not UTF-8") from None


class Reader:
    """A reader of one message from front to back."""

    __slots__ = ("_budget", "_data", "_end", "_pos", "_tags")

    def __init__(
        self,
        data: bytes | bytearray | memoryview,
        start: int = 0,
        size: int = -1,
        budget: Budget | None = None,
        tags: Budget | None = None,
    ) -> None:
        """Read all of `data`, or `size` bytes from `start` on.

        Args:
            data: views are copied.
            start: the first position.
            size: in bytes; -1 reads to the end.
            budget: for the elements of arrays.
            tags: for tagged fields; may be the same object.
        """
        self._budget = budget
        self._tags = tags
        self._data = data if isinstance(data, bytes) else bytes(data)
        self._pos = start
        self._end = len(self._data) if size < 0 else start + size

    @property
    def left(self) -> int:
        """The number of bytes not read yet."""
        return self._end - self._pos

    def _take(self, size: int) -> int:
        """Return the position of the next `size` bytes, and go past them."""
        at = self._pos
        if size < 0 or size > self._end - at:
            raise ProtocolError(f"{size} bytes expected, but only {self._end - at} are left")
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
        """Read several numbers in one call."""
        return layout.unpack_from(self._data, self._take(layout.size))

    def unsigned_varint(self) -> int:
        """Read at most five bytes, at most 2**32 - 1."""
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
        """Read a length; -1 for null."""
        if flexible:
            return self.unsigned_varint() - 1
        length = self.int16() if short else self.int32()
        if length < -1:
            raise ProtocolError(f"the length {length}, below -1")
        return length

    def nullable_count(self, flexible: bool) -> int:
        """Read the number of elements of an array, -1 for null; an element has at least one byte."""
        count = self._length(flexible, False)
        if count > self._end - self._pos:
            raise ProtocolError(f"an array of {count} elements, but only {self._end - self._pos} bytes are left")
        if self._budget is not None and count > 0:
            self._budget.take(count)
        return count

    def count(self, flexible: bool) -> int:
        count = self.nullable_count(flexible)
        if count < 0:
            raise ProtocolError("an array is null, which is not allowed there")
        return count

    def tag_count(self) -> int:
        """Read the number of tagged fields; each has at least two bytes."""
        count = self.unsigned_varint()
        if count > MAX_TAGS:
            raise too_many_tags(count, MAX_TAGS)
        if count * 2 > self._end - self._pos:
            raise ProtocolError(f"{count} tagged fields, but only {self._end - self._pos} bytes are left")
        if self._tags is not None and count > 0:
            self._tags.take_tags(count)
        return count

    # ------------------------------------------------------------------ strings and bytes
    def nullable_string(self, flexible: bool) -> str | None:
        length = self._length(flexible, True)
        if length < 0:
            return None
        at = self._take(length)
        return _text(self._data[at : at + length])

    def string(self, flexible: bool) -> str:
        text = self.nullable_string(flexible)
        if text is None:
            raise ProtocolError("a string is null, which is not allowed there")
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
            raise ProtocolError("bytes are null, which is not allowed there")
        return data

    def indexed_texts(self, count: int, flexible: bool) -> list[tuple[int, str | None]]:
        """Read structs of an int32 and a nullable string.

        An answer may name so many records of a batch as invalid that they are read in one loop, and equal texts are one object.
        """
        found: list[tuple[int, str | None]] = []
        data, end, at = self._data, self._end, self._pos
        raw, text = b"", ""
        for _ in range(count):
            after = at + 4 + data[at + 4] if flexible and at + 5 < end else end
            if after < end and data[at + 4] and data[at + 4] < 0x80 and data[after] == 0:
                # The usual case: a text of at most 126 bytes, and no tags.
                piece = data[at + 5 : after]
                if piece != raw:
                    raw, text = piece, _text(piece)
                found.append((int(_unpack_int32(data, at)[0]), text))
                at = after + 1
                continue
            self._pos = at
            found.append((self.int32(), self.nullable_string(flexible)))
            if flexible:
                self.skip_tags()
            at = self._pos
        self._pos = at
        return found

    # ------------------------------------------------------------------ structure
    def field(self, size: int) -> Reader:
        """Return a reader of the next `size` bytes: one tagged field."""
        return Reader(self._data, self._take(size), size, self._budget, self._tags)

    def skip(self, size: int) -> None:
        self._take(size)

    def skip_tags(self) -> None:
        """Skip tagged fields that are not known here."""
        at = self._pos
        if at < self._end and not self._data[at]:  # none, the usual case
            self._pos = at + 1
            return
        for _ in range(self.tag_count()):
            self.unsigned_varint()
            self._take(self.unsigned_varint())

    def finish(self) -> None:
        """Refuse bytes that are left."""
        if self._pos != self._end:
            raise ProtocolError(f"{self._end - self._pos} bytes after the end of the message")
