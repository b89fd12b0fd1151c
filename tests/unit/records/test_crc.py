"""The checksum: CRC32C, over parts as over the whole."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from aiokprod.records.crc import checksum


def slow_crc32c(data: bytes) -> int:
    """Compute CRC-32C bit by bit, polynomial 0x1EDC6F41 reflected."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def test_the_check_value_of_the_standard() -> None:
    assert checksum((b"123456789",)) == 0xE3069283  # RFC 3720's polynomial
    assert checksum((bytes(32),)) == 0x8A9136AA  # RFC 3720 B.4
    assert checksum(()) == checksum((b"",)) == 0


@given(st.lists(st.binary(max_size=50), max_size=5))
@settings(deadline=None, derandomize=True, database=None)
def test_parts_are_summed_as_the_whole(parts: list[bytes]) -> None:
    expected = slow_crc32c(b"".join(parts))
    assert checksum(parts) == expected
    assert checksum([memoryview(part) for part in parts]) == expected
    assert checksum([bytearray(part) for part in parts]) == expected
