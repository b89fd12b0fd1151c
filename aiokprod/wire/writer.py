"""`Writer`: encoding of the protocol's primitives into one growing buffer."""

from __future__ import annotations

from struct import Struct
from typing import Final

from aiokprod.errors import UnsupportedVersionError

_pack_int8: Final = Struct(">b").pack
_pack_int16: Final = Struct(">h").pack
_pack_uint16: Final = Struct(">H").pack
_pack_int32: Final = Struct(">i").pack
_pack_uint32: Final = Struct(">I").pack
_pack_int64: Final = Struct(">q").pack
_pack_float64: Final = Struct(">d").pack


def cannot(field: str, version: int) -> UnsupportedVersionError:
    """Make the error for a value that this version of a message cannot carry."""
    return UnsupportedVersionError(f"version {version} has no field {field}, but it is set")


class Writer:
    """A writer that appends to `out`."""

    __slots__ = ("out",)

    def __init__(self) -> None:
        self.out = bytearray()

    def int8(self, value: int) -> None:
        self.out += _pack_int8(value)

    def boolean(self, value: bool) -> None:
        self.out.append(1 if value else 0)

    def int16(self, value: int) -> None:
        self.out += _pack_int16(value)

    def uint16(self, value: int) -> None:
        self.out += _pack_uint16(value)

    def int32(self, value: int) -> None:
        self.out += _pack_int32(value)

    def uint32(self, value: int) -> None:
        self.out += _pack_uint32(value)

    def int64(self, value: int) -> None:
        self.out += _pack_int64(value)

    def float64(self, value: float) -> None:
        self.out += _pack_float64(value)

    def uuid(self, value: bytes) -> None:
        if len(value) != 16:
            raise ValueError("a uuid has 16 bytes")
        self.out += value

    def unsigned_varint(self, value: int) -> None:
        out = self.out
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)

    def nullable_count(self, count: int, flexible: bool) -> None:
        """Write the number of elements of an array; -1 for null."""
        if flexible:
            self.unsigned_varint(count + 1)
        else:
            self.out += _pack_int32(count)

    def count(self, count: int, flexible: bool) -> None:
        self.nullable_count(count, flexible)

    def nullable_string(self, value: str | None, flexible: bool) -> None:
        data = None if value is None else value.encode()
        length = -1 if data is None else len(data)
        if flexible:
            self.unsigned_varint(length + 1)
        else:
            self.out += _pack_int16(length)
        if data is not None:
            self.out += data

    def string(self, value: str, flexible: bool) -> None:
        self.nullable_string(value, flexible)

    def nullable_bytes(self, value: bytes | None, flexible: bool) -> None:
        self.nullable_count(-1 if value is None else len(value), flexible)
        if value is not None:
            self.out += value

    def bytes_(self, value: bytes, flexible: bool) -> None:
        self.nullable_bytes(value, flexible)

    def field(self, tag: int, content: Writer) -> None:
        """Write one tagged field."""
        self.unsigned_varint(tag)
        self.unsigned_varint(len(content.out))
        self.out += content.out
